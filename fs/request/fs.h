/*
 * The mount: what all operations share. fs/daemon/mount.c makes it, and hands it to libfuse as its
 * user data.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/caller/caller.h"
#include "fs/gate/gate.h"

typedef struct QosInodes QosInodes;                 /* fs/store/inode.h */
typedef struct QosOpenFiles QosOpenFiles;           /* fs/store/open_file.h */
typedef struct QosDirStreams QosDirStreams;         /* fs/store/dir_stream.h */
typedef struct QosOpenJobs QosOpenJobs;             /* fs/store/open_jobs.h */
typedef struct QosBoosts QosBoosts;                 /* fs/isolate/boost.h */
typedef struct QosReaders QosReaders;               /* fs/transport/devfuse.h */
typedef struct QosControl QosControl;               /* fs/control/control.h */
typedef struct QosInterrupts QosInterrupts;         /* fs/request/interrupt.h */
typedef struct QosInterruptTable QosInterruptTable; /* fs/transport/interrupt_table.h */
typedef struct QosPayPoints QosPayPoints;           /* fs/isolate/pay_point.h */
typedef struct QosPassthroughs QosPassthroughs;     /* fs/store/passthrough.h */
typedef struct QosCoherence QosCoherence;           /* fs/coherence/coherence.h */
typedef struct QosLockclient QosLockclient;         /* fs/lockclient/client.h */
typedef struct QosAdmin QosAdmin;                   /* fs/cluster/admin.h */
typedef struct QosSharedRules QosSharedRules;       /* fs/cluster/shared_rules.h */
typedef struct QosResolver QosResolver;             /* fs/caller/resolver.h */
typedef struct QosRootAttr QosRootAttr;             /* fs/store/root_attr.h */
typedef struct QosFileLocks QosFileLocks;           /* fs/filelocks/filelocks.h */

/* virtiofsd's words: what the kernel may cache. */
typedef enum {
    QOS_CACHE_AUTO,   /* attributes and names for the time-outs, data while the file does not change
                       */
    QOS_CACHE_NONE,   /* nothing: direct I/O, time-outs of 0 */
    QOS_CACHE_ALWAYS, /* everything, also across opens: nobody else changes the store */
} QosCache;

typedef struct {
    QosCache cache;
    double attr_timeout; /* seconds */
    double entry_timeout;
    gboolean read_only;
    gboolean is_alone; /* what is mounted below SRC is left out */
    gboolean no_atime; /* reading does not change when a file was last read */
} QosFsConfig;

typedef struct QosFs {
    QosFsConfig config; /* does not change while mounted */
    const char *source; /* SRC, absolute */
    const char *mountpoint;
    pid_t process; /* the daemon */
    uid_t owner;   /* the user that mounted; it may set rules, as root may */
    guint threads; /* readers of requests at most, more than slots; 0: not chosen yet */
    struct fuse_session *session;
    QosGate *gate;
    QosCallers *callers;
    QosResolver *resolver;
    QosInodes *inodes;
    QosRootAttr *root_attr;
    QosOpenFiles *open_files;
    QosDirStreams *dir_streams;
    QosOpenJobs *open_jobs;
    QosBoosts *boosts;
    QosReaders *readers;
    QosControl *control;
    QosInterruptTable *interrupt_table;
    QosInterrupts *interrupts;
    QosPayPoints *pay_points;
    QosPassthroughs *passthroughs;
    QosFileLocks
        *filelocks; /* NULL: no lock server, the kernel keeps the locks of this mount alone */
    QosLockclient *lockclient;    /* NULL: the mount is alone (no server=) */
    QosCoherence *coherence;      /* NULL: likewise */
    QosAdmin *admin;              /* NULL: likewise */
    QosSharedRules *shared_rules; /* NULL: likewise */
    gboolean knows_fsetid;        /* the kernel says which writers have CAP_FSETID */
} QosFs;

/* TRUE with a lock server: other mounts change the store too, and tell of it. */
static inline gboolean qos_fs_is_shared(const QosFs *fs)
{
    return fs->coherence != NULL;
}

/* The QosFs of a request. */
static inline QosFs *qos_fs(fuse_req_t request)
{
    return fuse_req_userdata(request);
}
