/*
 * Finds deadlocks among processes of different mounts that lock files (docs/design/filelocks.md).
 * No mount can see such a deadlock by itself.
 *
 * If a process waits for a lock while it has other locks, its mount reports the wait: what the
 * process waits for, and what it has. Other processes cannot be part of a circle. A waiter waits
 * for the processes with conflicting locks. The wait that closes a circle, directly or over other
 * waits, is a deadlock. It is reported as such and not kept, so that no second wait of the circle
 * is reported too.
 *
 * A mount reports the end of a wait before it gives back what another process waits for, and
 * messages of one connection keep their order. So a lock that has gone from one process to another
 * is never counted twice. Only a wait that a signal ended may still be counted, until the report of
 * its end arrives.
 *
 * Limit: of one mount at most QOS_WIRE_WAITS_RANGES_MAX ranges are kept. Circles over further
 * ranges are not found.
 *
 * Pure: no time, no I/O.
 */
#pragma once

#include "core/wire.h"

/* The most ranges that are compared for one wait; the range that a waiter wants counts again for
 * each lock. A circle that needs more comparisons is not found. */
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
