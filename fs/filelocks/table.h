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
#define QOS_FILELOCK_TABLE_MAX (QOS_CREDIT_SPANS_MAX / 4)

typedef enum {
    QOS_FILELOCKS_RECORD, /* fcntl, OFD locks included */
    QOS_FILELOCKS_WHOLE,  /* flock */
    QOS_FILELOCKS_KINDS,
} QosFileLockKind;

typedef enum {
    QOS_FILELOCKS_TEST, /* F_GETLK */
    QOS_FILELOCKS_TRY,  /* EAGAIN where another is in the way */
    QOS_FILELOCKS_WAIT,
} QosFileLockMode;

typedef struct {
    guint64 owner;
    gint32 pid; /* of the process that took it; 0: not known, and for whole-file locks */
    gconstpointer open_file; /* the open file by which it was taken; only compared */
    QosSpan span;            /* bytes; `last` of the whole file is G_MAXINT64 */
} QosFileLock;

typedef struct {
    GArray *locks; /* of QosFileLock, by their first byte; NULL: none */
} QosFileLockTable;

void qos_filelock_table_clear(QosFileLockTable *table);
gboolean qos_filelock_table_is_empty(const QosFileLockTable *table);
/* The first lock of another owner that is in the way; NULL: none. Valid until a change. */
const QosFileLock *qos_filelock_table_conflict(const QosFileLockTable *table, guint64 owner,
                                               const QosSpan *span);
/* The owner has `lock` from now on, and nothing else in its range. Nothing may be in the way. */
void qos_filelock_table_set(QosFileLockTable *table, const QosFileLock *lock);
/* There is room for whatever one more qos_filelock_table_set() adds. */
gboolean qos_filelock_table_has_room(const QosFileLockTable *table);
/* The owner gives up what it has from `first` to `last`. FALSE: it had nothing there. */
gboolean qos_filelock_table_unset(QosFileLockTable *table, guint64 owner, guint64 first,
                                  guint64 last);
/* The open file is closed: what was taken by it goes. */
void qos_filelock_table_unset_open_file(QosFileLockTable *table, gconstpointer open_file);
/* Adds to `owners` (of guint64) each owner that has a lock in the way and is not in the set `known`
 * yet. `known` gets it too; its numbers are borrowed until a change. Returns how many locks it
 * looked at. */
guint qos_filelock_table_add_conflicts(const QosFileLockTable *table, guint64 owner,
                                       const QosSpan *span, GHashTable *known, GArray *owners);
/* The owner has something. */
gboolean qos_filelock_table_has_owner(const QosFileLockTable *table, guint64 owner);
/* Something was taken by that open file, or by that process (0: nobody). */
gboolean qos_filelock_table_has_taken(const QosFileLockTable *table, gconstpointer open_file,
                                      gint32 pid);
/* The owners that have something that was taken by that open file (NULL: by any), each once: of
 * guint64, never NULL; freed by the caller. */
GArray *qos_filelock_table_owners(const QosFileLockTable *table, gconstpointer open_file);
/* What the owner has, as one credit; cleared by the caller. */
QosCredit qos_filelock_table_of_owner(const QosFileLockTable *table, guint64 owner);
/* All of it as one credit; cleared by the caller. */
QosCredit qos_filelock_table_join(const QosFileLockTable *table);
