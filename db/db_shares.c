/*
 * What the jobs have lent and borrowed, in and out of the table `share`.
 *
 * This changes with each period of the sharing and is saved as often. So only changed rows are
 * written, and the write does not wait for the disk. A crash of the daemon loses nothing that was
 * written; a crash of the machine may lose the last seconds.
 */
#include <string.h>

#include "db/db_private.h"
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

static gboolean put_all(QosDb *db, const GPtrArray *shares, GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        qos_db_prepare(db, "INSERT OR REPLACE INTO share VALUES (?, ?, ?, ?, ?, ?)", error);

    for (guint i = 0; statement && i < shares->len; i++) {
        if (!put(db, statement, g_ptr_array_index(shares, i), error))
            return FALSE;
    }
    return statement != NULL;
}

static gboolean remove_all(QosDb *db, const GPtrArray *ids, GError **error)
{
    g_autoptr(sqlite3_stmt) statement = qos_db_prepare(db, "DELETE FROM share WHERE id = ?", error);

    for (guint i = 0; statement && i < ids->len; i++) {
        const char *id = g_ptr_array_index(ids, i);

        sqlite3_bind_blob(statement, 1, id, (int)strlen(id), SQLITE_STATIC);
        if (!qos_db_run(db, statement, "save the shares", error))
            return FALSE;
    }
    return statement != NULL;
}

/* The shares that differ from what the table holds, borrowed. */
static GPtrArray *find_changed(const QosDb *db, const GArray *shares)
{
    GPtrArray *changed = g_ptr_array_new();

    for (guint i = 0; i < shares->len; i++) {
        QosDbShare *share = &g_array_index(shares, QosDbShare, i);
        const QosDbShare *old = db->shares ? g_hash_table_lookup(db->shares, share->job) : NULL;

        if (!(old && is_same(old, share)))
            g_ptr_array_add(changed, share);
    }
    return changed;
}

/* The ids that the table holds and `shares` has not, borrowed. */
static GPtrArray *find_gone(const QosDb *db, const GArray *shares)
{
    g_autoptr(GHashTable) ids = g_hash_table_new(g_str_hash, g_str_equal);
    GPtrArray *gone = g_ptr_array_new();
    GHashTableIter iter;
    gpointer id;

    if (!db->shares)
        return gone;
    for (guint i = 0; i < shares->len; i++)
        g_hash_table_add(ids, g_array_index(shares, QosDbShare, i).job);
    g_hash_table_iter_init(&iter, db->shares);
    while (g_hash_table_iter_next(&iter, &id, NULL)) {
        if (!g_hash_table_contains(ids, id))
            g_ptr_array_add(gone, id);
    }
    return gone;
}

static gboolean write_locked(QosDb *db, const GPtrArray *changed, const GPtrArray *gone,
                             GError **error)
{
    gboolean good =
        qos_db_execute(db->sqlite, db->path, "PRAGMA synchronous = NORMAL", "write to it", error) &&
        qos_db_begin(db, error);

    if (good)
        good =
            qos_db_finish(db,
                          (db->shares || qos_db_execute(db->sqlite, db->path, "DELETE FROM share",
                                                        "save the shares", error)) &&
                              remove_all(db, gone, error) && put_all(db, changed, error),
                          error);
    sqlite3_exec(db->sqlite, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
    return good;
}

/* They are what the table holds now. */
static void note(QosDb *db, const GPtrArray *changed, const GPtrArray *gone)
{
    if (!db->shares)
        db->shares = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
    for (guint i = 0; i < gone->len; i++)
        g_hash_table_remove(db->shares, g_ptr_array_index(gone, i));
    for (guint i = 0; i < changed->len; i++) {
        QosDbShare *share = g_memdup2(g_ptr_array_index(changed, i), sizeof(*share));

        g_hash_table_replace(db->shares, share->job, share);
    }
}

gboolean qos_db_save_shares(QosDb *db, const GArray *shares, gboolean all, GError **error)
{
    gboolean good = TRUE;

    qos_mutex_lock(&db->lock);
    g_autoptr(GPtrArray) changed = find_changed(db, shares);
    g_autoptr(GPtrArray) gone = all ? find_gone(db, shares) : g_ptr_array_new();
    if (!db->shares || changed->len > 0 || gone->len > 0) {
        good = write_locked(db, changed, gone, error);
        if (good)
            note(db, changed, gone);
    }
    qos_mutex_unlock(&db->lock);
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

    qos_mutex_lock(&db->lock);
    row = qos_db_prepare(db, "SELECT * FROM share", &reason);
    while (row && qos_db_next_row(db, row, &reason))
        read_share(db, row, shares);
    sqlite3_finalize(row);
    qos_mutex_unlock(&db->lock);
    if (reason) {
        g_propagate_error(error, reason);
        return NULL;
    }
    return g_steal_pointer(&shares);
}
