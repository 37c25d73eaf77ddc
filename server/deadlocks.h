/*
 * Who waits for whom among the processes of all mounts that lock files (docs/design/filelocks.md):
 * what no mount can see by itself.
 *
 * Of each process that waits for a lock while it has others, its mount tells what it waits for, and
 * what it has; no other can be part of a circle. A waiter waits for those whose locks are in its
 * way. The wait that closes a circle, directly or by others, is a deadlock: it is told, and not
 * kept, so that no second one of the circle is told too.
 *
 * Mounts tell of a wait's end before they give back what another waits for, and on one connection
 * all keep their order: so a lock that has gone from one to the other is never counted twice. Only
 * a wait that a signal ends may still be counted for the moment that this takes to tell.
 *
 * Of one mount QOS_WIRE_WAITS_RANGES_MAX are kept; of what is beyond, no circle is found.
 *
 * No time, no I/O.
 */
#pragma once

#include "core/wire.h"

/* Ranges that are compared for one wait, what is waited for again with each lock: a circle behind
 * more of them is not found. */
#define QOS_DEADLOCKS_RANGES_MAX 32768

typedef struct QosDeadlocks QosDeadlocks;

QosDeadlocks *qos_deadlocks_new(void);
/* NULL is allowed. */
void qos_deadlocks_free(QosDeadlocks *deadlocks);
/* What a mount tells of a wait; takes its items. TRUE: it would last for ever. */
gboolean qos_deadlocks_tell(QosDeadlocks *deadlocks, QosOwnerId mount, QosWireWait *wait);
/* The mount has gone, or will tell all anew. */
void qos_deadlocks_forget(QosDeadlocks *deadlocks, QosOwnerId mount);
/* Waits that are known. */
guint qos_deadlocks_count(const QosDeadlocks *deadlocks);
