/*
 * The identity under which a thread touches the store, and the callers it is taken from.
 *
 * Each backing call runs with the caller's fsuid, fsgid and supplementary groups (raw system calls:
 * glibc would change all threads), so that the store judges the caller and owns by him what he
 * makes. Under another user's identity the thread keeps no capability that a store looks at, so
 * that quotas, reserved blocks and trusted xattrs are his too. The current identity is remembered
 * per thread: a run of requests of one caller costs nothing. A mount by an ordinary user, or in a
 * user namespace of one user (`unshare -Ur`), cannot and need not do it: everything is no-op there.
 */
#pragma once

#include <sys/types.h>

#include "fs/account.h"
#include "ops/program.h"

/* A process that calls, as of its last look-up. Immutable but for `references`; shared through the
 * cache of callers (ops/caller.h). */
typedef struct {
    gint references; /* atomic */
    pid_t tid;       /* 0 = the kernel's own, e.g. write-back */
    pid_t process;   /* whose thread it is; 0 = unknown */
    guint64 start;   /* of the thread, in clock ticks after boot; 0 = unknown */
    uid_t uid;
    gid_t gid;
    gint group_count;
    gid_t *groups; /* owned */
    QosJob *job;   /* a reference */
    QosUser *user; /* the gate's; NULL: one whom nothing bounds */
    /* The cache's own. */
    QosTime read;       /* when /proc was read */
    QosProgram program; /* that was read of; the table's to close */
    gboolean is_named;  /* his job was asked for then ... */
    guint naming;       /* ... by this naming: QosCallers.naming_number */
} QosCaller;

QosCaller *qos_caller_ref(QosCaller *caller);
void qos_caller_unref(QosCaller *caller); /* NULL is allowed */

/* Remembers the daemon's own identity, and whether it may change it. Once, at start, before
 * threads. */
void qos_cred_init(void);
/* Takes on the caller's identity for this thread: 0, or -errno (the thread is the daemon again
 * then). */
int qos_cred_assume(const QosCaller *caller);
/* Back to the daemon's own: before reading /proc, or anything that is not for a caller. */
void qos_cred_restore(void);

/* Between these two the thread has the daemon's capabilities, under the identity it has: for what
 * the caller may do, but only the daemon can (reaching a file by its handle). Not nested. */
void qos_cred_raise(void);
void qos_cred_lower(void);
/* The same with CAP_SYS_ADMIN alone, for where the kernel keeps the thread's credentials. */
void qos_cred_raise_admin(void);
/* TRUE where the daemon has CAP_DAC_READ_SEARCH, which file handles need. */
gboolean qos_cred_may_search(void);
/* TRUE where this thread acts as root: the store will not take suid and sgid bits away by itself.
 */
gboolean qos_cred_is_root(void);

/* umask(2) of this thread alone, for the next thing it makes. */
void qos_cred_umask(mode_t mask);
