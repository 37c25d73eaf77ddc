/*
 * What outlives a mount, in SQLite with a write-ahead log (db/schema.sql): rules, tunables, the
 * jobs' totals, their history, what they lent and borrowed, and the mount's identity.
 *
 * Rules and tunables are written by the caller's thread, and are durable on return. That may take
 * time, but such changes are rare, and an administrator waits for them. Job totals are handed over
 * as a snapshot, and the database's own thread writes them. A database that is damaged, of a newer
 * version, or of another program is an error at open, and the file stays unchanged.
 *
 * Lock: `lock` serialises the use of the connection; the gate's lock is never held with it.
 */
#pragma once

#include "fs/history.h"
#include "fs/rule.h"

typedef struct QosDb QosDb;

/* Where a mount on `mountpoint` (absolute) keeps its database: below /var/lib/qosfs for root, else
 * in the user's state folder. Free with g_free(). */
char *qos_db_default_path(const char *mountpoint);
/* Opens or makes the database at `path`, in a folder that exists, and brings an older version up to
 * date. Starts a thread, and SQLite does not survive a fork: after the daemon's. Errors: QOS_ERROR
 * with the path, the reason, and what to do. Another mount that uses it: EBUSY. Where the daemon of
 * a mount that is gone has it, waits for that. */
QosDb *qos_db_open(const char *path, GError **error);
/* Notes in the lock that the database is of the mount on `directory` (as for sys/mounts.h): once
 * that is gone, another daemon waits for the end of this one, however long it saves. */
void qos_db_note_mount(QosDb *db, const char *directory);
void qos_db_close(QosDb *db); /* writes what is pending; NULL is allowed */
/* Closes it, and removes the file if opening it had made it. NULL is allowed. */
void qos_db_discard(QosDb *db);

/* The rules as last saved; with none, qos_rules_new(). `now` is monotonic, `wall` the real time in
 * ns: expiry is kept as wall time. A saved rule that no longer parses is an error that names it. */
QosRules *qos_db_load_rules(QosDb *db, QosTime now, QosTime wall, GError **error);
gboolean qos_db_save_rules(QosDb *db, QosRules *rules, QosTime now, QosTime wall, GError **error);

/* name -> text, both owned by the table. NULL with an error where it cannot be read, and so are
 * those below. */
GHashTable *qos_db_load_tunables(QosDb *db, GError **error);
gboolean qos_db_save_tunable(QosDb *db, const char *name, const char *text, GError **error);

/* The totals of the jobs, as copies; free each with g_free. Their times (started, seen,
 * wait.first/last) are ages in ns before the call. */
GPtrArray *qos_db_load_jobs(QosDb *db, QosTime wall, GError **error);
/* Hands over a snapshot to replace what is saved: copies (GPtrArray of QosJob with g_free, taken
 * over) as of monotonic `now` and real `wall`. What the jobs did since the last snapshot goes into
 * the history, which keeps so many days (0: no history is written). Written soon, by the database's
 * thread; a failure is logged once until it works again. */
void qos_db_save_jobs(QosDb *db, GPtrArray *jobs, QosTime now, QosTime wall, guint history_days);

/* The mount's identity for a lock server (fs/lockclient/client.h): its id, made the first time, and
 * a number that grows with each call, from 1 on. When there are no more numbers, there is a new id.
 * Durable on return. */
#define QOS_DB_INCARNATION_MAX ((1 << 24) - 1)
gboolean qos_db_next_identity(QosDb *db, guint64 *ret_id, guint32 *ret_incarnation, GError **error);

/* What a job lent and borrowed, in units of fs/adapt.h. */
typedef struct {
    char job[QOS_JOB_ID_MAX + 1];
    gint64 record;
    QosShareTotals totals;
} QosDbShare;

/* Of QosDbShare. Rows that are damaged are left out, with a warning that says why. */
GArray *qos_db_load_shares(QosDb *db, GError **error);
/* Saves `shares`, by the caller's thread; where they are `all`, what is saved of other jobs goes.
 * The first time they must be all. A crash of the machine may take back what was saved last. */
gboolean qos_db_save_shares(QosDb *db, const GArray *shares, gboolean all, GError **error);

/* Waits until all that was handed over is written, and all tasks are done. */
void qos_db_flush(QosDb *db);

/* The history has what these jobs did so far; before the first snapshot. */
void qos_db_begin_history(QosDb *db, const GPtrArray *jobs, QosTime wall);
/* Lets the database's thread run a task soon, at the latest when the database is closed. */
void qos_db_ask(QosDb *db, void (*run)(QosDb *db, void *data), void *data);
/* From now on the database's thread also makes steps of its owner, without a lock: at once, when
 * the time comes that the last step returned (QOS_NEVER: not by itself), and after a wake. With
 * NULL no step is under way any more when this returns; a step must not call it. */
void qos_db_serve(QosDb *db, QosTime (*step)(gpointer data), gpointer data);
/* A step is to follow. */
void qos_db_wake(QosDb *db);
/* Reads all of the history, the longer slices first, then by time. It neither waits for writers nor
 * blocks them, but may take a second: so call it in a task (qos_db_ask). */
gboolean qos_db_read_history(QosDb *db, void (*take)(const QosHistoryRow *row, void *data),
                             void *data, GError **error);
