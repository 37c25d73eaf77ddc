/*
 * The locks that the processes of this mount have on one file. Record locks (fcntl) and whole-file
 * locks (flock) do not conflict with one another, so each kind has a table of its own.
 *
 * An *owner* is what cannot conflict with itself: a process for record locks, an open file for
 * flock and for fcntl's OFD locks. The kernel names it by a number. It has disjoint ranges of a
 * file, each shared or exclusive:
 *
 *     locking replaces what it had there:   before  [rrrrrrrrrrrrrr]
 *                                           lock         [wwww]
 *                                           after   [rrr][wwww][rrr]     split
 *     neighbours of a kind are one:         [rrrr] + [rrrr] = [rrrrrrrr] merge
 *
 * Ranges of two owners conflict where they overlap and one of them is exclusive. The union of all
 * ranges, the *join*, is the credit that the mount must have (QOS_RESOURCE_EXTENT). It keeps other
 * mounts from locking them.
 *
 * Sources: fcntl(2), flock(2). Pure; the caller locks.
 */
#pragma once

#include "core/resource.h"

/* The most ranges of one file, so that their join fits into a message; beyond it a lock fails
 * (ENOLCK). */
#define QOS_LOCKTABLE_MAX (QOS_CREDIT_SPANS_MAX / 4)

typedef enum {
    QOS_LOCKS_RECORD, /* fcntl, OFD locks included */
    QOS_LOCKS_WHOLE,  /* flock */
    QOS_LOCKS_KINDS,
} QosLocksKind;

typedef enum {
    QOS_LOCKS_TEST, /* F_GETLK */
    QOS_LOCKS_TRY,  /* EAGAIN where another is in the way */
    QOS_LOCKS_WAIT,
} QosLocksMode;

typedef struct {
    guint64 owner;
    gint32 pid;           /* of the process that took it; 0: not known, and for whole-file locks */
    gconstpointer handle; /* the open file by which it was taken; only compared */
    QosSpan span;         /* bytes; `last` of the whole file is G_MAXINT64 */
} QosLock;

typedef struct {
    GArray *locks; /* of QosLock, by their first byte; NULL: none */
} QosLocktable;

void qos_locktable_clear(QosLocktable *table);
gboolean qos_locktable_is_empty(const QosLocktable *table);
/* The first lock of another owner that is in the way; NULL: none. Valid until a change. */
const QosLock *qos_locktable_conflict(const QosLocktable *table, guint64 owner,
                                      const QosSpan *span);
/* The owner has `lock` from now on, and nothing else in its range. Nothing may be in the way. */
void qos_locktable_set(QosLocktable *table, const QosLock *lock);
/* There is room for whatever one more qos_locktable_set() adds. */
gboolean qos_locktable_has_room(const QosLocktable *table);
/* The owner gives up what it has from `first` to `last`. FALSE: it had nothing there. */
gboolean qos_locktable_unset(QosLocktable *table, guint64 owner, guint64 first, guint64 last);
/* The open file is closed: what was taken by it goes. */
void qos_locktable_unset_handle(QosLocktable *table, gconstpointer handle);
/* Adds to `owners` (of guint64) each owner that has a lock in the way and is not in the set `known`
 * yet. `known` gets it too; its numbers are borrowed until a change. Returns how many locks it
 * looked at. */
guint qos_locktable_add_conflicts(const QosLocktable *table, guint64 owner, const QosSpan *span,
                                  GHashTable *known, GArray *owners);
/* The owner has something. */
gboolean qos_locktable_has_owner(const QosLocktable *table, guint64 owner);
/* Something was taken by that open file, or by that process (0: nobody). */
gboolean qos_locktable_has_taken(const QosLocktable *table, gconstpointer handle, gint32 pid);
/* The owners that have something that was taken by that open file (NULL: by any), each once: of
 * guint64, never NULL; freed by the caller. */
GArray *qos_locktable_owners(const QosLocktable *table, gconstpointer handle);
/* What the owner has, as one credit; cleared by the caller. */
QosCredit qos_locktable_of_owner(const QosLocktable *table, guint64 owner);
/* All of it as one credit; cleared by the caller. */
QosCredit qos_locktable_join(const QosLocktable *table);
