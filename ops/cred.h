/*
 * The identity under which a thread touches the store, and the callers it is taken from.
 *
 * Each backing call runs with the caller's fsuid, fsgid and supplementary groups (raw system calls:
 * glibc would change all threads), so that the store judges the caller and owns by him what he
 * makes. The current identity is remembered per thread, so that a run of requests of one caller
 * costs nothing. A mount by an ordinary user cannot and need not do it: everything is no-op there.
 */
#pragma once

#include "fs/account.h"

/* A process that calls, as of its last look-up. Immutable but for `references`; shared through the
 * cache of callers (ops/caller.h). */
typedef struct {
    gint references; /* atomic */
    pid_t tid;       /* 0 = the kernel's own, e.g. write-back */
    uid_t uid;
    gid_t gid;
    gint group_count;
    gid_t *groups; /* owned */
    QosJob *job;   /* a reference */
} QosCaller;

QosCaller *qos_caller_ref(QosCaller *caller);
void qos_caller_unref(QosCaller *caller); /* NULL is allowed */

/* Remembers the daemon's own identity, and whether it may change it. Once, at start, before
 * threads. */
void qos_cred_init(void);
/* Takes on the caller's identity for this thread: 0, or -errno (nothing was changed then). */
int qos_cred_assume(const QosCaller *caller);
/* Back to the daemon's own: before reading /proc, or anything that is not for a caller. */
void qos_cred_restore(void);
/* umask(2) of this thread alone; each thread that makes files for callers calls it once. */
void qos_cred_prepare_thread(void);
