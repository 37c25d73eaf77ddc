/*
 * SQLite statements and transactions, and the error messages if they fail (db/db_private.h). All
 * other files of db/ use these functions, and these use none of the other files.
 */
#include <errno.h>

#include "base/error.h"
#include "db/db_private.h"

int qos_db_errno(sqlite3 *sqlite)
{
    int system_errno = sqlite3_system_errno(sqlite);

    switch (sqlite3_errcode(sqlite) & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return EBUSY;
    case SQLITE_FULL:
        return ENOSPC;
    case SQLITE_READONLY:
        return EROFS;
    case SQLITE_NOMEM:
        return ENOMEM;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return EUCLEAN;
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
        return system_errno ? system_errno : EACCES;
    default:
        return system_errno ? system_errno : EIO;
    }
}

gboolean qos_db_fail(sqlite3 *sqlite, const char *path, const char *doing, GError **error)
{
    const int number = qos_db_errno(sqlite);
    const gboolean is_vague = (sqlite3_errcode(sqlite) & 0xff) == SQLITE_IOERR;

    qos_set_error(error, number, "database %s: cannot %s: %s%s%s", path, doing,
                  sqlite3_errmsg(sqlite), is_vague ? ": " : "", is_vague ? g_strerror(number) : "");
    return FALSE;
}

gboolean qos_db_execute(sqlite3 *sqlite, const char *path, const char *sql, const char *doing,
                        GError **error)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    return sqlite3_exec(sqlite, sql, NULL, NULL, NULL) == SQLITE_OK ||
           qos_db_fail(sqlite, path, doing, error);
}

sqlite3_stmt *qos_db_prepare(QosDb *db, const char *sql, GError **error)
{
    sqlite3_stmt *statement = NULL;

    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    if (sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL) != SQLITE_OK)
        qos_db_fail(db->sqlite, db->path, "use its tables", error);
    return statement;
}

gboolean qos_db_run(QosDb *db, sqlite3_stmt *statement, const char *doing, GError **error)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    gboolean done = sqlite3_step(statement) == SQLITE_DONE;
    if (!done)
        qos_db_fail(db->sqlite, db->path, doing, error);
    sqlite3_reset(statement);
    return done;
}

gboolean qos_db_next_row(QosDb *db, sqlite3_stmt *statement, GError **error)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    int result = sqlite3_step(statement);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        qos_db_fail(db->sqlite, db->path, "read it", error);
    return result == SQLITE_ROW;
}

gboolean qos_db_finish(QosDb *db, gboolean good, GError **error)
{
    if (good && qos_db_execute(db->sqlite, db->path, "COMMIT", "write to it", error))
        return TRUE;
    sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
    return FALSE;
}

gboolean qos_db_check_place(sqlite3 *sqlite, const char *path, GError **error)
{
    int has_moved = 0;

    sqlite3_file_control(sqlite, NULL, SQLITE_FCNTL_HAS_MOVED, &has_moved);
    if (has_moved)
        qos_set_error(error, EIO,
                      "database %s was removed, renamed or replaced while it is in use, so that "
                      "nothing can be saved: put it back, or stop and start anew",
                      path);
    return !has_moved;
}

gboolean qos_db_begin(QosDb *db, GError **error)
{
    return qos_db_check_place(db->sqlite, db->path, error) &&
           qos_db_execute(db->sqlite, db->path, "BEGIN IMMEDIATE", "write to it", error);
}
