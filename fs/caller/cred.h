/*
 * The identity under which a thread touches the store, and the callers from which it is taken.
 *
 * Each backing call runs with the caller's fsuid, fsgid and supplementary groups. So the store
 * itself judges the caller, and what the caller makes belongs to the caller. They are set by raw
 * system calls, because glibc's functions would change all threads.
 *
 * Of the capabilities that a store looks at, the thread has only those that it is given, and never
 * one that the caller has not (fs/ops/rights.h). The current identity is remembered for each
 * thread, so a run of requests of one caller costs nothing.
 *
 * A daemon in a user namespace of one user (`unshare -Ur`) cannot change its ids, and need not: it
 * sets the capabilities alone. A daemon without capabilities, such as an ordinary user's, changes
 * nothing.
 */
#pragma once

#include <sys/types.h>

#include "fs/caller/program.h"
#include "fs/jobs.h"

/* A set of capabilities: CAP_CHOWN is bit 0, as in /proc/PID/status. */
#define QOS_CAPABILITY(number) (G_GUINT64_CONSTANT(1) << (number))

/* In which user namespace a thread is: its capabilities count there. */
typedef enum {
    QOS_NAMESPACE_UNKNOWN, /* /proc does not show it */
    QOS_NAMESPACE_OWN,     /* the daemon's */
    QOS_NAMESPACE_OTHER,
} QosNamespace;

/* A process that calls, as of its last look-up. Immutable but for `references`; shared through the
 * cache of callers (fs/caller/caller.h). */
typedef struct {
    gint references; /* atomic */
    pid_t tid;       /* 0 = the kernel's own, e.g. write-back */
    pid_t process;   /* to which the thread belongs; 0 = unknown */
    guint64 start;   /* of the thread, in clock ticks after boot; 0 = unknown */
    uid_t uid;
    gid_t gid;
    gint group_count;
    gid_t *groups;          /* owned */
    guint64 capabilities;   /* effective, in `namespace`; of one that qos_cred_trusts() */
    QosNamespace namespace; /* likewise */
    gboolean is_proxy;      /* the process has another uid: the kernel acts for it under this one */
    QosJob *job;            /* a reference */
    QosUser *user;          /* the gate's; NULL: a user that nothing bounds */
    /* The cache's own. */
    QosTime read;       /* when /proc was read */
    QosProgram program; /* that was read of; the table's to close */
    gboolean is_named;  /* its job was asked for then ... */
    guint naming;       /* ... by this naming: QosCallers.naming_number */
} QosCaller;

QosCaller *qos_caller_ref(QosCaller *caller);
void qos_caller_unref(QosCaller *caller); /* NULL is allowed */

/* Remembers the daemon's own identity, and whether it may change it. Once, at start, before
 * threads. */
void qos_cred_init(void);
/* Takes on the caller's identity for this thread, with those of `capabilities` that the daemon has:
 * 0, or -errno (the thread is the daemon again then). */
int qos_cred_assume(const QosCaller *caller, guint64 capabilities);
/* Back to the daemon's own: before anything that is not for a caller. */
void qos_cred_restore(void);

/* TRUE if the thread has all of these. */
gboolean qos_cred_has(guint64 capabilities);
/* The daemon's capabilities that the thread has not. */
guint64 qos_cred_missing(void);
/* Adds those of `capabilities` that the daemon has, until the thread assumes an identity again. */
void qos_cred_give(guint64 capabilities);

/* Between raise and lower the thread has the daemon's capabilities under its present identity. This
 * is for steps that only the daemon can take for the caller: reaching a file by its handle, and
 * reading the caller's /proc. Not nested. Lowering keeps errno. */
void qos_cred_raise(void);
void qos_cred_lower(void);
/* The same with CAP_SYS_ADMIN alone, for where the kernel keeps the thread's credentials. */
void qos_cred_raise_admin(void);
/* TRUE where the daemon has CAP_DAC_READ_SEARCH, which file handles need. */
gboolean qos_cred_may_search(void);
/* TRUE for root and the daemon's own user, if the daemon has capabilities: their processes mostly
 * have some too, so that their requests begin with them. */
gboolean qos_cred_trusts(uid_t uid);
/* TRUE if the store does not clear suid and sgid bits by itself when this thread writes. */
gboolean qos_cred_keeps_suid(void);

/* umask(2) of this thread alone, for the next thing it makes. */
void qos_cred_umask(mode_t mask);
