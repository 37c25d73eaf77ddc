/*
 * What the jobs have lent and borrowed, in and out of the table `share`.
 *
 * It changes all the time and is saved every second, so what changed is written alone, and without
 * waiting for the disk: a crash of the daemon loses nothing of what was written, one of the machine
 * the last seconds.
 */
#include <string.h>

#include "base/error.h"
#include "db/private.h"
#include "fs/adapt_fair.h"

static gboolean is_same(const QosDbShare *a, const QosDbShare *b)
{
    return a->record == b->record && a->totals.lent == b->totals.lent &&
           a->totals.returned == b->totals.returned && a->totals.borrowed == b->totals.borrowed &&
           a->totals.repaid == b->totals.repaid;
}

static gboolean put(QosDb *db, sqlite3_stmt *statement, const QosDbShare *share, GError **error)
{
    sqlite3_bind_blob(statement, 1, share->job, (int)strlen(share->job), SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, share->record);
    sqlite3_bind_int64(statement, 3, share->totals.lent);
    sqlite3_bind_int64(statement, 4, share->totals.returned);
    sqlite3_bind_int64(statement, 5, share->totals.borrowed);
    sqlite3_bind_int64(statement, 6, share->totals.repaid);
    return qos_db_run(db, statement, "save the shares", error);
}

/* Removes those that are not among `current`. */
static gboolean remove_gone(QosDb *db, sqlite3_stmt *statement, GHashTable *current, GError **error)
{
    GHashTableIter iter;
    gpointer id;

    g_hash_table_iter_init(&iter, db->shares);
    while (g_hash_table_iter_next(&iter, &id, NULL)) {
        if (g_hash_table_contains(current, id))
            continue;
        sqlite3_bind_blob(statement, 1, id, (int)strlen(id), SQLITE_STATIC);
        if (!qos_db_run(db, statement, "save the shares", error))
            return FALSE;
    }
    return TRUE;
}

/* Writes what differs from what the table holds. */
static gboolean write_changes(QosDb *db, GHashTable *current, GError **error)
{
    g_autoptr(sqlite3_stmt) put_one =
        qos_db_prepare(db, "INSERT OR REPLACE INTO share VALUES (?, ?, ?, ?, ?, ?)", error);
    g_autoptr(sqlite3_stmt) remove =
        put_one ? qos_db_prepare(db, "DELETE FROM share WHERE id = ?", error) : NULL;
    GHashTableIter iter;
    gpointer id, share;

    if (!remove || (!db->shares && !qos_db_execute(db->sqlite, db->path, "DELETE FROM share",
                                                   "save the shares", error)))
        return FALSE;
    g_hash_table_iter_init(&iter, current);
    while (g_hash_table_iter_next(&iter, &id, &share)) {
        const QosDbShare *old = db->shares ? g_hash_table_lookup(db->shares, id) : NULL;

        if (!(old && is_same(old, share)) && !put(db, put_one, share, error))
            return FALSE;
    }
    return !db->shares || remove_gone(db, remove, current, error);
}

static GHashTable *table_of(const GArray *shares)
{
    GHashTable *table = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);

    for (guint i = 0; i < shares->len; i++) {
        QosDbShare *share = g_memdup2(&g_array_index(shares, QosDbShare, i), sizeof(*share));

        g_hash_table_replace(table, share->job, share);
    }
    return table;
}

static gboolean has_changed(GHashTable *old, GHashTable *new)
{
    GHashTableIter iter;
    gpointer id, share;

    if (!old || g_hash_table_size(old) != g_hash_table_size(new))
        return TRUE;
    g_hash_table_iter_init(&iter, new);
    while (g_hash_table_iter_next(&iter, &id, &share)) {
        const QosDbShare *other = g_hash_table_lookup(old, id);

        if (!other || !is_same(other, share))
            return TRUE;
    }
    return FALSE;
}

static gboolean write_locked(QosDb *db, GHashTable *current, GError **error)
{
    gboolean good =
        qos_db_execute(db->sqlite, db->path, "PRAGMA synchronous = NORMAL", "write to it", error) &&
        qos_db_begin(db, error) && qos_db_finish(db, write_changes(db, current, error), error);

    sqlite3_exec(db->sqlite, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
    return good;
}

gboolean qos_db_save_shares(QosDb *db, const GArray *shares, GError **error)
{
    g_autoptr(GHashTable) current = table_of(shares);
    gboolean good = TRUE;

    pthread_mutex_lock(&db->lock);
    if (has_changed(db->shares, current)) {
        good = write_locked(db, current, error);
        if (good) {
            g_clear_pointer(&db->shares, g_hash_table_unref);
            db->shares = g_steal_pointer(&current);
        }
    }
    pthread_mutex_unlock(&db->lock);
    return good;
}

/* --- reading --- */

/* What is wrong with a row, or NULL. */
static const char *fault_of(sqlite3_stmt *row)
{
    gint64 record = sqlite3_column_int64(row, 1);

    if (sqlite3_column_bytes(row, 0) > QOS_JOB_ID_MAX)
        return "its id is too long";
    if (record > QOS_FAIR_UNITS_MAX || record < -QOS_FAIR_UNITS_MAX)
        return "its record is out of range";
    for (int i = 2; i < 6; i++) {
        if (sqlite3_column_int64(row, i) < 0)
            return "a total is negative";
    }
    return NULL;
}

static void read_share(QosDb *db, sqlite3_stmt *row, GArray *shares)
{
    QosDbShare share = {.record = sqlite3_column_int64(row, 1),
                        .totals = {.lent = sqlite3_column_int64(row, 2),
                                   .returned = sqlite3_column_int64(row, 3),
                                   .borrowed = sqlite3_column_int64(row, 4),
                                   .repaid = sqlite3_column_int64(row, 5)}};
    const char *fault = fault_of(row);
    gsize length = MIN((gsize)sqlite3_column_bytes(row, 0), QOS_JOB_ID_MAX);

    if (length)
        memcpy(share.job, sqlite3_column_blob(row, 0), length);
    if (fault) {
        g_autofree char *job = g_strescape(share.job, NULL);

        g_warning("database %s: what job \"%s\" lent and borrowed is refused, as %s; it begins "
                  "anew",
                  db->path, job, fault);
        return;
    }
    g_array_append_val(shares, share);
}

GArray *qos_db_load_shares(QosDb *db, GError **error)
{
    g_autoptr(GArray) shares = g_array_new(FALSE, FALSE, sizeof(QosDbShare));
    GError *reason = NULL;
    sqlite3_stmt *row;

    pthread_mutex_lock(&db->lock);
    row = qos_db_prepare(db, "SELECT * FROM share", &reason);
    while (row && qos_db_next_row(db, row, &reason))
        read_share(db, row, shares);
    sqlite3_finalize(row);
    pthread_mutex_unlock(&db->lock);
    if (reason) {
        g_propagate_error(error, reason);
        return NULL;
    }
    return g_steal_pointer(&shares);
}
