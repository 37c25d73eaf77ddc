/*
 * The history of the jobs, in and out of the table `history`.
 *
 * Slices have three lengths, and each length is kept for a limited time. Slices that are older move
 * up in the transaction that writes new ones: they are added up to longer slices, in which again
 * only the largest jobs have rows of their own. So the table has a bound, whatever the jobs do:
 *
 *     10 s    for an hour               up to 390 slices, of up to 513 rows (two samples fill one)
 *     300 s   for a day                 up to 300, of up to 257
 *     3600 s  for the days to be kept   24 a day, of up to 257
 *
 * Each move is a range of the primary key, and costs nothing while the range is empty. If the clock
 * was set back, slices that lie in the future are dropped. Readers use a connection of their own,
 * so that no writer waits for them.
 */
#include <string.h>

#include "db/db_private.h"

#define HOUR 3600
#define DAY  86400
/* Compares the sizes of jobs, as in fs/history.c. */
#define SIZE "operations + (read_bytes + write_bytes) / " G_STRINGIFY(QOS_HISTORY_BYTES_UNIT)

static const struct {
    gint64 step; /* s */
    gint64 keep; /* s; 0: the days that are asked for */
} levels[] = {{QOS_HISTORY_STEP, HOUR}, {QOS_HISTORY_DAY_STEP, DAY}, {HOUR, 0}};

#define ADD_UP                                                                                     \
    " ON CONFLICT DO UPDATE SET operations = operations + excluded.operations, "                   \
    "read_bytes = read_bytes + excluded.read_bytes, "                                              \
    "write_bytes = write_bytes + excluded.write_bytes, waits = waits + excluded.waits, "           \
    "waited = waited + excluded.waited, "                                                          \
    "lent = lent + excluded.lent, returned = returned + excluded.returned, "                       \
    "borrowed = borrowed + excluded.borrowed, repaid = repaid + excluded.repaid"

#define SUMS                                                                                       \
    "sum(operations) AS operations, sum(read_bytes) AS read_bytes, "                               \
    "sum(write_bytes) AS write_bytes, sum(waits) AS waits, sum(waited) AS waited, "                \
    "sum(lent) AS lent, sum(returned) AS returned, "                                               \
    "sum(borrowed) AS borrowed, sum(repaid) AS repaid "

static const char add_sql[] =
    "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)" ADD_UP;

/* ?1, ?2: the step, and the longer one; ?3: up to when, the begin of a longer slice; ?4: how many
 * jobs are told apart. */
static const char move_sql[] =
    "INSERT INTO history SELECT ?2, slice, iif(place > ?4, x'', id) AS job, " SUMS
    "FROM (SELECT *, row_number() OVER (PARTITION BY slice ORDER BY id = x'', " SIZE " DESC, id) "
    "AS place FROM (SELECT time / ?2 * ?2 AS slice, id, " SUMS
    "FROM history WHERE step = ?1 AND time < ?3 GROUP BY slice, id)) GROUP BY slice, job" ADD_UP;

static const char drop_sql[] = "DELETE FROM history WHERE step = ? AND time >= ? AND time < ?";

/* --- writing --- */

static gboolean add_rows(QosDb *db, const GArray *rows, GError **error)
{
    g_autoptr(sqlite3_stmt) add = qos_db_prepare(db, add_sql, error);
    gboolean good = add != NULL;

    for (guint i = 0; good && i < rows->len; i++) {
        const QosHistoryRow *row = &g_array_index(rows, QosHistoryRow, i);

        sqlite3_bind_int64(add, 1, row->step);
        sqlite3_bind_int64(add, 2, row->begin);
        sqlite3_bind_blob(add, 3, row->id, (int)strlen(row->id), SQLITE_STATIC);
        for (int j = 0; j < QOS_HISTORY_COUNT; j++)
            sqlite3_bind_int64(add, 4 + j, row->value[j]);
        good = qos_db_run(db, add, "save the history", error);
    }
    return good;
}

static gboolean drop(QosDb *db, sqlite3_stmt *statement, gint64 step, gint64 from, gint64 to,
                     GError **error)
{
    sqlite3_bind_int64(statement, 1, step);
    sqlite3_bind_int64(statement, 2, from);
    sqlite3_bind_int64(statement, 3, to);
    return qos_db_run(db, statement, "save the history", error);
}

/* Moves up, or drops, what is too old for its length. */
static gboolean compact(QosDb *db, gint64 now, gint64 keep, GError **error)
{
    g_autoptr(sqlite3_stmt) move = qos_db_prepare(db, move_sql, error);
    g_autoptr(sqlite3_stmt) remove = move ? qos_db_prepare(db, drop_sql, error) : NULL;
    gboolean good = remove != NULL;

    for (guint i = 0; good && i < G_N_ELEMENTS(levels); i++) {
        gint64 step = levels[i].step;
        gint64 old = now - (levels[i].keep ? MIN(levels[i].keep, keep) : keep);

        if (levels[i].keep && keep) {
            gint64 longer = levels[i + 1].step;

            old -= old % longer;
            sqlite3_bind_int64(move, 1, step);
            sqlite3_bind_int64(move, 2, longer);
            sqlite3_bind_int64(move, 3, old);
            sqlite3_bind_int64(move, 4, QOS_HISTORY_JOBS);
            good = qos_db_run(db, move, "save the history", error);
        }
        good = good && drop(db, remove, step, G_MININT64, keep ? old : G_MAXINT64, error) &&
               drop(db, remove, step, now + HOUR, G_MAXINT64, error);
    }
    return good;
}

gboolean qos_db_write_history_locked(QosDb *db, const GArray *rows, QosTime wall, guint days,
                                     GError **error)
{
    return qos_db_begin(db, error) &&
           qos_db_finish(db,
                         (!days || add_rows(db, rows, error)) &&
                             compact(db, wall / QOS_SECOND, (gint64)days * DAY, error),
                         error);
}

/* --- reading --- */

static void read_row(sqlite3_stmt *statement, QosHistoryRow *row)
{
    gsize length = (gsize)sqlite3_column_bytes(statement, 2);

    *row = (QosHistoryRow){.step = sqlite3_column_int64(statement, 0),
                           .begin = sqlite3_column_int64(statement, 1)};
    if (length)
        memcpy(row->id, sqlite3_column_blob(statement, 2), MIN(length, QOS_JOB_ID_MAX));
    for (int i = 0; i < QOS_HISTORY_COUNT; i++)
        row->value[i] = sqlite3_column_int64(statement, 3 + i);
}

gboolean qos_db_read_history(QosDb *db, void (*take)(const QosHistoryRow *row, void *data),
                             void *data, GError **error)
{
    g_autoptr(sqlite3) sqlite = NULL;
    g_autoptr(sqlite3_stmt) statement = NULL;

    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    int result =
        sqlite3_open_v2(db->path, &sqlite, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);

    if (result == SQLITE_OK)
        result = sqlite3_prepare_v2(sqlite, "SELECT * FROM history ORDER BY step DESC, time, id",
                                    -1, &statement, NULL);
    if (result != SQLITE_OK)
        return qos_db_fail(sqlite, db->path, "read the history", error);
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        QosHistoryRow row;

        read_row(statement, &row);
        take(&row, data);
    }
    return result == SQLITE_DONE || qos_db_fail(sqlite, db->path, "read the history", error);
}
