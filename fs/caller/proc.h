/*
 * What /proc says of a process, read as the daemon itself.
 *
 * All files of one process are opened through its directory in /proc, which stands for that process
 * alone. If the pid is reused, they fail with ESRCH. So two processes are never mixed.
 *
 * Two reads may block for ever:
 *
 *   - Reading the environment takes the lock of the process's memory. The process itself may hold
 *     that lock, or a file system that it has mapped.
 *   - Looking at the program (fs/caller/program.h) waits for an exec(2) that is under way, which
 *     may wait for a file system.
 *
 * On some kernels (Linux 6.18.44) /proc/TID/stat waits for exec(2) too: from the moment when exec
 * takes the new memory until it has closed the files that are to be closed. Such a close sends a
 * FLUSH, so nothing is read of the thread that sends one (fs/ops/dispatch.c). No other read waits
 * for the process.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

#include "fs/caller/cred.h"
#include "fs/caller/origins.h"
#include "fs/caller/program.h"

/* What /proc/TID/stat says of a thread. */
typedef struct {
    const char *comm; /* in the text that was parsed ... */
    const char *rest; /* ... as are fields 32 and following of proc(5) */
    guint64 start;    /* in clock ticks after boot */
    guint64 pending;  /* signals, each a bit: its own */
    char state;       /* 'R', 'S', 'D' ... */
    pid_t parent;
    gboolean has_begun; /* by exec(2); FALSE of a copy of its parent, and of further threads */
    gboolean is_exiting;
    gboolean was_killed; /* it exits by a signal, or is about to */
    QosImage image;      /* what stands before `rest` */
} QosProcStat;

/* `text`: the whole file, ended by NUL; it is changed. FALSE: it is no such file. */
gboolean qos_proc_parse_stat(char *text, QosProcStat *ret_stat);

/* All NULL or 0 of a process that is gone or may not be seen. */
typedef struct {
    QosProcStat stat;
    QosProgram program; /* of before the environment was read; UNSEEN where it was not wanted */
    char *text;         /* `stat.comm` is in it */
    char *environment;
    gsize environment_length;
    gboolean is_overwritten; /* it has written over its environment */
    char *ancestors;         /* environment, then: of the nearest that has not */
    gsize ancestors_length;
    char *cgroup;
    pid_t process; /* to which the thread belongs */
    gid_t *groups;
    gint group_count;
    uid_t uid;              /* by which the kernel judges it; where `process` is known */
    guint64 capabilities;   /* effective, in `namespace` ... */
    QosNamespace namespace; /* ... of a thread that qos_cred_trusts(), else QOS_NAMESPACE_UNKNOWN */
} QosProcFacts;

/* TRUE where a text that is there is no longer one of environ(7): it does not begin with a name. */
gboolean qos_proc_is_overwritten(const char *environment, gsize length);

/* What is wanted beside `stat`, `process` and the groups. */
typedef enum {
    QOS_PROC_PROGRAM = 1 << 0,
    QOS_PROC_ENVIRONMENT = 1 << 1,
    QOS_PROC_CGROUP = 1 << 2,
    QOS_PROC_IMAGE = 1 << 3, /* of `stat`, that `image.process` tells whether it is random */
} QosProcWants;

/* Reads what is known of a TID. The thread has the daemon's own identity afterwards. */
void qos_proc_read(pid_t tid, QosProcWants wants, QosProcFacts *ret_facts);
void qos_proc_clear(QosProcFacts *facts);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QosProcFacts, qos_proc_clear)

/* What a thread's system call is for, while the thread waits for an answer. */
typedef enum {
    QOS_CALL_UNKNOWN,          /* it may not be seen, or asks by io_uring */
    QOS_CALL_READS_ATTRIBUTES, /* stat(2), access(2) and their kin */
    QOS_CALL_READS_XATTRS,
    QOS_CALL_READS_DATA,    /* read(2) and its kin */
    QOS_CALL_CHANGES_NAMES, /* makes, moves or removes names */
    QOS_CALL_OPENS,
    QOS_CALL_OPENS_NAMES, /* opens a file that it may make, or a directory to list it */
    QOS_CALL_OTHER,
} QosCall;
/* The thread has the daemon's own identity afterwards. */
QosCall qos_proc_call(pid_t tid);

static inline gboolean qos_call_opens(QosCall call)
{
    return call == QOS_CALL_OPENS || call == QOS_CALL_OPENS_NAMES;
}

/* TRUE where it changes or lists a directory's names. */
static inline gboolean qos_call_works_on_names(QosCall call)
{
    return call == QOS_CALL_CHANGES_NAMES || call == QOS_CALL_OPENS_NAMES;
}

/* The thread's effective capabilities, in its own user namespace; none if it is gone. */
guint64 qos_proc_capabilities(pid_t tid);
/* The user namespace in which it has them. This function and the next two raise the capabilities of
 * the thread that calls them (qos_cred_raise). */
QosNamespace qos_proc_namespace(pid_t tid);
/* FALSE if the kernel judges the thread by another uid, or the thread is gone. *ret_capabilities:
 * its effective ones. A worker of io_uring keeps those with which it began, and works with those
 * of the process: it has what both have. */
gboolean qos_proc_acts_as(pid_t tid, uid_t uid, guint64 *ret_capabilities);

/* The ids that a user namespace maps, in the numbers of the daemon's own namespace. */
typedef struct {
    GArray *uids; /* of QosIdRange */
    GArray *gids;
} QosIdMaps;

typedef struct {
    guint32 inside; /* the first in the namespace itself */
    guint32 first, count;
} QosIdRange;

/* The id maps of the thread's user namespace; empty if /proc does not show them. */
void qos_proc_read_maps(pid_t tid, QosIdMaps *ret_maps);
void qos_id_maps_clear(QosIdMaps *maps);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QosIdMaps, qos_id_maps_clear)
/* `text` is of /proc/TID/uid_map: lines of the first id inside, the first outside, and how many. */
GArray *qos_id_ranges_parse(const char *text);
gboolean qos_id_ranges_have(const GArray *ranges, guint32 id);
/* TRUE if the id is that of root in the namespace. */
gboolean qos_id_ranges_have_root(const GArray *ranges, guint32 id);

/* FALSE if /proc is that of another pid namespace, where our pids are other processes. The first
 * call decides, in the process that serves. */
gboolean qos_proc_is_visible(void);
