/*
 * Bounds what the daemon may do, whatever a request makes it try.
 *
 * A daemon that runs as root keeps the capabilities that its callers' operations need, and can gain
 * no others. After the mount it can make only the system calls that it is known to need. A daemon
 * of an ordinary user has no capabilities. Its system calls are not bounded, because it must start
 * fusermount3, which is setuid, to unmount; only the limit on core dumps applies to it.
 */
#pragma once

#include <glib.h>

/* No core, no capability that is not needed, no way to win one. Call it when what needs more is
 * done, before threads are made: they inherit it. Errors (QOS_ERROR): what the kernel refused. */
gboolean qos_privilege_drop(GError **error);

/* Whether this is root outside of user namespaces; inside of one, any user can be root. */
gboolean qos_privilege_is_root_of_machine(void);

/* What else the daemon needs system calls for; bits. */
typedef enum {
    QOS_NEEDS_NETWORK = 1, /* the way to a lock server */
    QOS_NEEDS_RINGS = 2,   /* requests by io_uring */
} QosPrivilegeNeeds;

/* From now on, for all threads: the known system calls alone. Others fail with ENOSYS. Call it when
 * no program has to be run any more. Errors (QOS_ERROR): the kernel has no such filter. */
gboolean qos_privilege_filter(QosPrivilegeNeeds needs, GError **error);

/* Logs the system calls that failed so, each of them once. One thread at a time. */
void qos_privilege_report(void);
