/*
 * One FUSE operation as an object: its arguments, its reply, and what each subject remembers of it.
 *
 * An operation is a struct that starts with a QosOp and adds its arguments, and a function that
 * makes the backing call. The handler that libfuse calls only fills the struct and submits it:
 *
 *     void qosfs_op_lseek(fuse_req_t request, fuse_ino_t ino, off_t offset, int whence, ...)
 *     {
 *         SeekOp *seek = qos_op_new(request, sizeof(*seek), QOS_OP_SEEK, run_seek);
 *         seek->offset = offset; ...
 *         qos_op_use_open_file(&seek->op, info);
 *         qos_op_submit(&seek->op);
 *     }
 *
 * fs/ops/dispatch.h has its way from there to the reply. If it has to wait, park() moves what lies
 * in the reader's buffer. Only WRITE needs park(), because handlers copy names (qos_op_strdup).
 *
 * run() returns 0 with op->reply filled, or -errno; after -EPERM, -EACCES, -ENOSPC and -EDQUOT it
 * may be called again. It holds no lock across a system call.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/caller/cred.h"
#include "fs/caller/resolver.h"
#include "fs/gate/gate.h"

typedef struct QosFs QosFs; /* fs/request/fs.h: the mount */
typedef struct QosOp QosOp;
typedef struct QosInode QosInode;         /* fs/store/inode.h */
typedef struct QosOpenFile QosOpenFile;   /* fs/store/open_file.h */
typedef struct QosFileJobs QosFileJobs;   /* fs/store/open_jobs.h */
typedef struct QosOpCredits QosOpCredits; /* fs/coherence/op_credits.h */
typedef struct QosBackgroundGroup QosBackgroundGroup;

typedef enum {
    QOS_REPLY_ERROR, /* only a status: 0 */
    QOS_REPLY_NONE,  /* forget */
    QOS_REPLY_ENTRY,
    QOS_REPLY_CREATE,
    QOS_REPLY_OPEN,
    QOS_REPLY_ATTR,
    QOS_REPLY_STATX,
    QOS_REPLY_DATA,  /* bytes: read, readdir, readlink, xattr values */
    QOS_REPLY_WRITE, /* a count */
    QOS_REPLY_XATTR, /* a size alone */
    QOS_REPLY_STATFS,
    QOS_REPLY_SEEK,
    QOS_REPLY_IOCTL,
} QosReplyKind;

typedef struct {
    QosReplyKind kind;
    union {
        struct {
            /* ENTRY, CREATE: entry.ino counts as one look-up; 0 = there is no such name, which the
             * kernel may remember */
            struct fuse_entry_param entry;
            struct fuse_file_info info; /* CREATE, OPEN: filled by the handler before it submits */
        };
        struct {
            struct stat stat;
            double timeout;
        } attr;
        struct {
            struct statx statx;
            double timeout;
        } statx;
        struct {
            /* The operation's own, or the thread's (fs/transport/reply_buffer.h). */
            const void *bytes;
            size_t length;
        } data;
        size_t count; /* WRITE, XATTR */
        struct statvfs statfs;
        off_t offset; /* SEEK */
        struct {
            int result;
            const void *bytes;
            size_t length;
        } ioctl;
    };
    QosOpenFile *open_file; /* CREATE, OPEN: the kernel's from now on */
} QosReply;

/* What the kernel has done with its pages before a WRITE comes. */
typedef enum {
    QOS_WRITE_NONE,    /* it is none */
    QOS_WRITE_THROUGH, /* they show what is written already */
    QOS_WRITE_DIRECT,  /* they were dropped */
    QOS_WRITE_BACK,    /* they are what is written, and stay until it is */
} QosWriteKind;

/* While it waits; written by fs/request/ alone. */
typedef struct {
    gboolean (*withdraw)(QosOp *op);      /* NULL, or of qos_op_pause(); by the watch's lock */
    QosBackgroundGroup *background_group; /* NULL, or where fs/request/background.h keeps it */
    GList background;                     /* there */
    guint8 owns_data;                     /* nothing of it lies in a reader's buffer */
    guint8 is_paused;                     /* its slot is given to others */
    guint8 is_watched;                    /* by fs/request/interrupt.h */
} QosOpWait;

/* Written by fs/isolate/ alone. */
typedef struct {
    guint8 locks_directory; /* `locks` is one, or a symbolic link: other jobs may always want it */
} QosOpIsolation;

/* Written by fs/coherence/ alone; only with a lock server. */
typedef struct {
    QosOpCredits *credits; /* NULL, or its credits: fs/coherence/op_credits.h */
    guint64 node_number; /* target.node in the store (qos_inodes_number); 0: none, or no credits */
    guint8 caches_node;  /* the kernel may keep what replies tell of target.node */
    guint names_epoch;   /* with credits: before these were taken (fs/coherence/namecache.h) */
    gint awaited_generation; /* GETATTR: 0, or that in which it has waited for stale pages
                                (fs/coherence/stale_pages.h) */
    guint8 is_change;        /* it changes what it works on, or in */
    guint8 replies_first;    /* the reply is sent before open_file is put and the gate is left,
                                because other requests look at that file until then */
    guint8 keeps_list;       /* the kernel may keep what its list tells of covered files */
} QosOpCoherence;

/* What it works on, and how: the handler says so before it submits. Written by fs/ops/ alone, and
 * by the qos_op_lock_...() below that its handlers call. */
typedef struct {
    fuse_ino_t node;        /* what it works on, or in; 0: nothing that others could change */
    fuse_ino_t other_node;  /* link: the file; rename: the new parent; else 0 */
    const char *name;       /* NULL, or what it looks up, makes or takes in `node` */
    const char *other_name; /* rename: what it takes in `other_node` */
    gint64 start, end; /* of a READ or WRITE, as far as known before it: the bytes [start, end) */
    QosWriteKind writes;
    guint reads_before; /* WRITE past the page cache: qos_inode_ref_reads() when it came */
    fuse_ino_t locks;   /* 0, or the file or directory of which the kernel holds a lock for it */
    const QosFileJobs *locked_file; /* NULL, or `locks` as one of its open files has it */
    guint8 locks_directory;         /* `locks` is known to be one, or a symbolic link */
    guint8 moves_name;     /* rename: what the old name is the new one is then, and nothing else */
    guint8 may_be_unasked; /* the kernel may send it by itself, for no call of the program's */
    guint8 is_unawaited;   /* the kernel does nothing with the answer */
    guint8 is_untold; /* the kernel may send no INTERRUPT for it: a READ, or a WRITE past its cache
                         (fs/request/background.h) */
} QosOpTarget;

/* How far it has come. Written by fs/ops/ alone, but `is_replied` and `is_refused` by fs/request/.
 */
typedef struct {
    QosTime asked;            /* qos_clock_now() before the store is called */
    int result;               /* of run() */
    guint64 moved;            /* bytes, for the books; set by run() */
    guint8 has_run;           /* in its turn */
    guint8 is_replied;        /* by qos_op_reply() */
    guint8 is_from_elsewhere; /* from another user namespace: fs/ops/rights.h */
    guint8 is_refused;        /* it may open no more: fs/store/open_file.h */
    guint8 looks_again; /* by -ESTALE the kernel is to look the file up again: fs/ops/execs.h */
} QosOpProgress;

struct QosOp {
    QosEntry entry; /* first: the gate hands it back */
    QosFs *fs;
    fuse_req_t fuse;
    guint64 number;           /* the kernel's, of the request */
    QosCaller *caller;        /* identity and job; a reference */
    QosUnresolved unresolved; /* while its caller is being named */
    QosOpenFile *open_file;   /* NULL, or what the operation works on; a reference */
    int (*run)(QosOp *op);
    void (*park)(QosOp *op);  /* NULL, or moves borrowed arguments; called without locks */
    void (*clear)(QosOp *op); /* NULL, or frees what the operation added to the struct */
    QosReply reply;
    GSList *strings; /* of qos_op_strdup() and qos_op_memdup() */
    QosOpTarget target;
    QosOpProgress progress;
    QosOpWait wait;
    QosOpIsolation isolation;
    QosOpCoherence coherence;
};

/* TRUE where the kernel keeps pages of op->target.node locked for it until after the reply. */
static inline gboolean qos_op_locks_pages(const QosOp *op)
{
    return op->entry.request.opcode == QOS_OP_WRITE || op->entry.request.fills_cache;
}

/* A zeroed struct of `size` bytes that starts with a QosOp; never NULL. */
gpointer qos_op_new(fuse_req_t request, gsize size, QosOpcode opcode, int (*run)(QosOp *op));
/* Gives back what the operation worked on. It is done before the request leaves the gate, because
 * it may close the last descriptor of a file, which takes long on some stores. */
void qos_op_clear(QosOp *op);
/* Cleared, and answered. */
void qos_op_free(QosOp *op);
/* A copy that lives as long as the operation. */
const char *qos_op_strdup(QosOp *op, const char *text);
gpointer qos_op_memdup(QosOp *op, const void *bytes, gsize size);
/* An open file for what the caller is about to open: 0, or -errno (fs/store/open_file.h). */
int qos_op_new_open_file(QosOp *op, QosOpenFile **ret_open_file);
/* It works on the open file or directory of `info`. */
void qos_op_use_open_file(QosOp *op, const struct fuse_file_info *info);
/* While it is under way the kernel holds a lock of the file `ino`, open as `open_file` or, with
 * NULL, by its name. */
void qos_op_lock_file(QosOp *op, fuse_ino_t ino, const QosOpenFile *open_file);
/* The same of the directory `ino`, or of a symbolic link that the kernel keeps. */
void qos_op_lock_directory(QosOp *op, fuse_ino_t ino);
/* `kills`: the kernel's flag in a WRITE, truncation or open with O_TRUNC, that the caller lacks
 * CAP_FSETID. TRUE if the kernel says that the caller has it. */
gboolean qos_op_keeps_suid(const QosOp *op, gboolean kills);
