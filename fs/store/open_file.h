/*
 * An open file or directory: its descriptor in the store and its opener. So it tells which job pays
 * for what is done on it (fs/request/op.h).
 *
 * The kernel holds one reference from OPEN to RELEASE, in fuse_file_info.fh, and each operation on
 * it holds another. It keeps a reference on its inode, so that an open file that is unlinked stays
 * reachable. All are listed, because the kernel does not wait for the last RELEASE when it
 * unmounts. They are listed by file, because each lock that is lost concerns other opens of its
 * file.
 *
 * Each takes a descriptor of the daemon, of which there are `most`, shared as fs/quota.h says. So
 * the open file is made before its file is opened, and an open that is refused has made or
 * truncated nothing.
 *
 * Lock: `lock` of the lists; also for the counts of open files of jobs and users.
 */
#pragma once

#include "fs/caller/cred.h"
#include "fs/store/dir_stream.h"
#include "fs/store/inode.h"
#include "fs/store/open_jobs.h"
#include "fs/store/passthrough.h"

typedef struct QosOpenFiles QosOpenFiles;

/* How an open file was used for locks across mounts (fs/filelocks/filelocks.h). */
typedef enum {
    QOS_LOCKING_NONE,
    QOS_LOCKING_USED, /* something was locked by it */
    QOS_LOCKING_LOST, /* and was lost since; for ever */
} QosLocking;

typedef struct QosOpenFile {
    gint references; /* atomic */
    QosOpenFiles *open_files;
    GList link;        /* in the list of those of files with such a name */
    int fd;            /* -1: not yet */
    int flags;         /* of the open, as the store knows them */
    QosCaller *caller; /* the opener, with its job; a reference */
    QosInodeRef file;
    QosFileName name;               /* of `file`, once it is open; under the lock of the lists */
    QosPassthroughOpen passthrough; /* files: how it joins the other opens of its file */
    gboolean writes_pages;  /* files: what is written by it goes into the kernel's pages first */
    QosFileJobs *file_jobs; /* files: shared with other jobs? */
    gint locking;           /* atomic; files: QosLocking */
    gint reader;            /* atomic; directories: the thread that was sent a list last; 0: none */
    gint is_close_paid;     /* atomic; files: a FLUSH was charged, its RELEASE is not */
    gint is_sent;           /* atomic; CREATE brought it with attributes, and it was not used yet */
    QosDirStream *stream;   /* atomic; directories: where the reading stands, NULL while in use */
} QosOpenFile;

/* At most `most` are open at a time. */
QosOpenFiles *qos_open_files_new(guint most);
/* Closes those that are still open; no operation may be under way. NULL is allowed. */
void qos_open_files_free(QosOpenFiles *open_files);

/* A place for what `caller` is about to open; takes a reference of it. 0; or -EMFILE where its job
 * or its user has its share, which is logged once for each; or -ENFILE where none is left. */
int qos_open_file_new(QosOpenFiles *open_files, QosCaller *caller, QosOpenFile **ret_open_file);
/* Whether `is_such` is true of any open file of the file with this name. */
gboolean qos_open_files_has(QosOpenFiles *open_files, const QosFileName *name,
                            gboolean (*is_such)(const QosOpenFile *open_file));
/* It is open. Takes `fd` and the reference. */
void qos_open_file_set_file(QosOpenFile *open_file, int fd, int flags, QosInodeRef *file);
/* Data written by it goes into the kernel's pages before it comes here. */
void qos_open_file_set_writes_pages(QosOpenFile *open_file);
/* Reading it does not change when it was last read, where the store allows that. */
void qos_open_file_spare_atime(QosOpenFile *open_file);
/* The kernel names it: it has had the answer to CREATE, if there was one. */
static inline void qos_open_file_note_use(QosOpenFile *open_file)
{
    if (g_atomic_int_get(&open_file->is_sent)) {
        g_atomic_int_set(&open_file->is_sent, FALSE);
        qos_inode_ref_note_arrived(&open_file->file);
    }
}
QosOpenFile *qos_open_file_ref(QosOpenFile *open_file);
void qos_open_file_unref(QosOpenFile *open_file); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosOpenFile, qos_open_file_unref)

static inline QosLocking qos_open_file_locking(const QosOpenFile *open_file)
{
    return (QosLocking)__atomic_load_n(&open_file->locking, __ATOMIC_ACQUIRE);
}
/* Goes up only. */
void qos_open_file_set_locking(QosOpenFile *open_file, QosLocking locking);
/* The locks that were taken by it are lost. The same is noted at all open files that `process` (0:
 * none) has of that file, because a record lock belongs to its process, whichever open file it was
 * taken by. */
void qos_open_file_lose_locks(QosOpenFile *open_file, pid_t process);

/* The kernel's reference, borrowed; NULL where `info` is. */
static inline QosOpenFile *qos_open_file_from(const struct fuse_file_info *info)
{
    return info == NULL ? NULL : (QosOpenFile *)(uintptr_t)info->fh;
}
