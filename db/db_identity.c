/*
 * The mount's identity for a lock server: a persistent id, and a number that grows with each start.
 * A larger number tells the server that the mount has restarted and lost the credits that it had.
 */
#include <errno.h>
#include <sys/random.h>

#include "base/error.h"
#include "db/db_private.h"

/* 0 or -errno */
static int choose_id(guint64 *ret_id)
{
    do {
        if (getrandom(ret_id, sizeof(*ret_id), 0) != sizeof(*ret_id))
            return -errno;
    } while (*ret_id == 0);
    return 0;
}

/* Reads what was saved; the id is 0 if nothing was. */
static gboolean load(QosDb *db, guint64 *ret_id, gint64 *ret_incarnation, GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        qos_db_prepare(db, "SELECT id, incarnation FROM identity", error);
    GError *reason = NULL;

    if (statement == NULL)
        return FALSE;
    if (qos_db_next_row(db, statement, &reason)) {
        *ret_id = (guint64)sqlite3_column_int64(statement, 0);
        *ret_incarnation = sqlite3_column_int64(statement, 1);
    }
    if (reason != NULL)
        g_propagate_error(error, reason);
    return reason == NULL;
}

static gboolean save(QosDb *db, guint64 id, gint64 incarnation, GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        qos_db_prepare(db, "INSERT OR REPLACE INTO identity VALUES (1, ?, ?)", error);

    if (statement == NULL)
        return FALSE;
    sqlite3_bind_int64(statement, 1, (gint64)id);
    sqlite3_bind_int64(statement, 2, incarnation);
    return qos_db_run(db, statement, "save the mount's identity", error);
}

gboolean qos_db_next_identity(QosDb *db, guint64 *ret_id, guint32 *ret_incarnation, GError **error)
{
    guint64 id = 0;
    gint64 incarnation = 0;
    gboolean good;

    qos_mutex_lock(&db->lock);
    good = load(db, &id, &incarnation, error);
    if (good && (id == 0 || incarnation < 0 || incarnation >= QOS_DB_INCARNATION_MAX)) {
        int result = choose_id(&id);
        incarnation = 0;
        good = result == 0;
        if (!good)
            qos_set_error(error, -result, "there is no randomness: %s", g_strerror(-result));
    }
    good = good && save(db, id, incarnation + 1, error);
    qos_mutex_unlock(&db->lock);
    if (good) {
        *ret_id = id;
        *ret_incarnation = (guint32)incarnation + 1;
    }
    return good;
}
