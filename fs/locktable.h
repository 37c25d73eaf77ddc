/*
 * The locks that the processes of this mount have on one file: record locks (fcntl) or whole-file
 * locks (flock), which know nothing of one another and have a table each.
 *
 * An *owner* is who cannot be in his own way: a process for record locks, an open file for flock
 * and for fcntl's OFD locks; the kernel names him by a number. Of one file he has disjoint ranges,
 * each shared or exclusive:
 *
 *     locking replaces what he had there:   before  [rrrrrrrrrrrrrr]
 *                                           lock         [wwww]
 *                                           after   [rrr][wwww][rrr]     split
 *     neighbours of a kind are one:         [rrrr] + [rrrr] = [rrrrrrrr] merge
 *
 * Ranges of two owners conflict where they overlap and one of them is exclusive. What all of them
 * come to, the join, is the credit that the mount must have (QOS_RESOURCE_EXTENT): other mounts are
 * held off by it.
 *
 * A wait is a deadlock if whom it waits for waits, directly or by others, for its owner. Only what
 * waits and is held here is known; of circles over several mounts the server knows
 * (server/deadlocks.h).
 *
 * Sources: fcntl(2), flock(2). Pure; the caller locks.
 */
#pragma once

#include "core/resource.h"

/* Of one file; beyond it there is no room for more (ENOLCK): their join fits into a message. */
#define QOS_LOCKTABLE_MAX (QOS_CREDIT_SPANS_MAX / 4)

typedef struct {
    guint64 owner;
    gint32 pid;           /* of who took it; 0: is not known, and of whole-file locks */
    gconstpointer handle; /* the open file by which it was taken; only compared */
    QosSpan span;         /* bytes; `last` of the whole file is G_MAXINT64 */
} QosLock;

typedef struct {
    GArray *locks; /* of QosLock, by their first byte; NULL: none */
} QosLocktable;

/* Somebody who waits; embedded in his request. */
typedef struct {
    const QosLocktable *table;
    guint64 owner;
    QosSpan span;
    GList link; /* among all waits of the mount */
} QosLockWait;

void qos_locktable_clear(QosLocktable *table);
gboolean qos_locktable_is_empty(const QosLocktable *table);
/* The first lock of another owner that is in the way; NULL: none. Valid until a change. */
const QosLock *qos_locktable_conflict(const QosLocktable *table, guint64 owner,
                                      const QosSpan *span);
/* The owner has `lock` from now on, and nothing else in its range. Nothing may be in the way. */
void qos_locktable_set(QosLocktable *table, const QosLock *lock);
/* There is room for whatever one more qos_locktable_set() adds. */
gboolean qos_locktable_has_room(const QosLocktable *table);
/* The owner gives up what he has from `first` to `last`. FALSE: he had nothing there. */
gboolean qos_locktable_unset(QosLocktable *table, guint64 owner, guint64 first, guint64 last);
/* The open file is closed: what was taken by it goes. FALSE: that was nothing. */
gboolean qos_locktable_unset_handle(QosLocktable *table, gconstpointer handle);
/* The owner has something. */
gboolean qos_locktable_has_owner(const QosLocktable *table, guint64 owner);
/* Something was taken by that open file, or by that process (0: nobody). */
gboolean qos_locktable_has_taken(const QosLocktable *table, gconstpointer handle, gint32 pid);
/* What the owner has, as one credit; cleared by the caller. */
QosCredit qos_locktable_of_owner(const QosLocktable *table, guint64 owner);
/* All of it as one credit; cleared by the caller. */
QosCredit qos_locktable_join(const QosLocktable *table);

void qos_lock_wait_init(QosLockWait *wait, const QosLocktable *table, guint64 owner,
                        const QosSpan *span);
/* Whether `wait` would never end; `waits` are the others, of QosLockWait. */
gboolean qos_lock_wait_is_deadlock(const QosLockWait *wait, const GQueue *waits);
