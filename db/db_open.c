/*
 * Opening the database: is it a qosfs database, is it undamaged, and which version has it?
 *
 * Opening checks before it changes anything. The first bytes say which program the file belongs to.
 * Then SQLite opens it read-only, and without making -wal and -shm if there are none (`immutable`).
 * It checks the file and reads its version. Only a file that has passed is opened for writing. So a
 * file that is damaged, another program's, or a newer qosfs's stays unchanged, byte for byte. A new
 * database is made under a temporary name, and gets its own name when it is complete. So its first
 * page always identifies it, even after a crash.
 *
 * One daemon at a time: flock() on PATH.lock, held for the daemon's life (db_lock.c). SQLite's own
 * exclusive mode would do the same. But it would lock out `sqlite3 PATH` while the file system is
 * mounted, and can only be checked with the database open. The lock file stays as long as the
 * database. So an empty file without a lock file was made by touch(1) or mktemp(1), and becomes a
 * new database; an empty file with a lock file is a damaged database. If a database is discarded,
 * its lock file is removed with it. Two daemons must not hold locks on two files of the same name,
 * so a daemon that has the lock checks that the name still leads to the locked file.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db_private.h"

gboolean qos_db_damaged(const QosDbSchema *schema, const char *path, const char *reason,
                        GError **error)
{
    qos_set_error(error, EUCLEAN,
                  "database %s is damaged (%s); it was left as it is: restore it from a copy, or "
                  "move it away (with its -wal and -shm) to begin without %s",
                  path, reason, schema->content);
    return FALSE;
}

/* Checks by the first bytes that the file is a qosfs database (sqlite.org/fileformat2.html, section
 * 1.3). */
static gboolean look_at_header(const QosDbSchema *schema, const char *path, GError **error)
{
    guint8 header[100];
    guint32 id;
    ssize_t length;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* so that a FIFO does not block */

    length = fd < 0 ? -1 : pread(fd, header, sizeof(header), 0);
    if (length < 0 && errno == EISDIR)
        qos_set_error(error, errno, "database %s is a folder: name a file in it", path);
    else if (length < 0)
        qos_set_error(error, errno, "database %s: cannot read it: %s", path, g_strerror(errno));
    if (fd >= 0)
        close(fd);
    if (length < 0)
        return FALSE;
    if ((gsize)length < sizeof(header))
        return qos_db_damaged(schema, path, "it is cut short", error);
    if (memcmp(header, "SQLite format 3", 16) != 0)
        return qos_db_damaged(schema, path, "it does not begin as a database", error);
    memcpy(&id, header + 68, sizeof(id));
    if (GUINT32_FROM_BE(id) != schema->application_id) {
        qos_set_error(error, EINVAL,
                      "%s is a database of another program; it was left as it is: name another "
                      "file",
                      path);
        return FALSE;
    }
    return TRUE;
}

static gboolean has_content(const char *path, const char *suffix)
{
    g_autofree char *name = g_strconcat(path, suffix, NULL);
    GStatBuf status;

    return g_stat(name, &status) == 0 && status.st_size > 0;
}

/* Opens it without the right to write, and without making files beside it where that can be. */
static sqlite3 *open_to_look(const char *path, GError **error)
{
    g_autoptr(sqlite3) sqlite = NULL;
    g_autofree char *escaped = g_uri_escape_string(path, "/", FALSE);
    gboolean left_over = has_content(path, "-wal") || has_content(path, "-journal");
    g_autofree char *uri =
        g_strdup_printf("file:%s?mode=ro%s", escaped, left_over ? "" : "&immutable=1");

    if (sqlite3_open_v2(uri, &sqlite, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) != SQLITE_OK) {
        qos_db_fail(sqlite, path, "open it", error);
        return NULL;
    }
    sqlite3_busy_timeout(sqlite, QOS_DB_BUSY_TIMEOUT);
    sqlite3_db_config(sqlite, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return g_steal_pointer(&sqlite);
}

/* Checks the file at `path` and tells its version, leaving it as it is. */
static gboolean look(const QosDbSchema *schema, const char *path, int *ret_version, GError **error)
{
    g_autoptr(sqlite3) sqlite = NULL;
    g_autoptr(sqlite3_stmt) statement = NULL;
    const char *verdict;

    if (!look_at_header(schema, path, error))
        return FALSE;
    sqlite = open_to_look(path, error);
    if (!sqlite)
        return FALSE;
    if (sqlite3_prepare_v2(sqlite,
                           "SELECT quick_check, user_version FROM pragma_quick_check(1), "
                           "pragma_user_version",
                           -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        if (qos_db_errno(sqlite) == EUCLEAN)
            return qos_db_damaged(schema, path, sqlite3_errmsg(sqlite), error);
        if (sqlite3_extended_errcode(sqlite) == SQLITE_READONLY_ROLLBACK) {
            qos_set_error(error, EUCLEAN,
                          "database %s: another program was cut off while it changed it, and left "
                          "%s-journal; `sqlite3 %s 'PRAGMA quick_check'` takes that back",
                          path, path, path);
            return FALSE;
        }
        return qos_db_fail(sqlite, path, "read it", error);
    }
    verdict = (const char *)sqlite3_column_text(statement, 0);
    if (!verdict)
        return qos_db_damaged(schema, path, "no memory to check it", error);
    if (!g_str_equal(verdict, "ok")) { /* a line of it may be a title */
        const char *last = strrchr(verdict, '\n');
        return qos_db_damaged(schema, path, last ? last + 1 : verdict, error);
    }
    *ret_version = sqlite3_column_int(statement, 1);
    if (*ret_version < 1)
        return qos_db_damaged(schema, path, "it has no version", error);
    if (*ret_version > (int)schema->versions) {
        qos_set_error(error, ENOTSUP,
                      "database %s has version %d, and this %s knows versions up to %d; it was "
                      "left as it is: use a newer one, or name another file",
                      path, *ret_version, schema->program, (int)schema->versions);
        return FALSE;
    }
    return TRUE;
}

/* Takes the steps from `version` to the newest, all or none. */
static gboolean migrate(const QosDbSchema *schema, sqlite3 *sqlite, const char *path, int version,
                        GError **error)
{
    g_autofree char *mark =
        g_strdup_printf("PRAGMA application_id = %u; PRAGMA user_version = %u; COMMIT",
                        schema->application_id, schema->versions);
    gboolean good = qos_db_execute(sqlite, path, "BEGIN IMMEDIATE", "write to it", error);

    for (; good && version < (int)schema->versions; version++)
        good = qos_db_execute(sqlite, path, schema->steps[version], "bring it up to date", error);
    good = good && qos_db_execute(sqlite, path, mark, "bring it up to date", error);
    if (!good)
        sqlite3_exec(sqlite, "ROLLBACK", NULL, NULL, NULL);
    return good;
}

/* Removes what SQLite keeps beside a database. */
static void remove_companions(const char *path)
{
    static const char *const suffixes[] = {"-journal", "-wal", "-shm"};

    for (guint i = 0; i < G_N_ELEMENTS(suffixes); i++) {
        g_autofree char *name = g_strconcat(path, suffixes[i], NULL);

        g_unlink(name);
    }
}

static void remove_aside(const char *aside)
{
    g_unlink(aside);
    remove_companions(aside);
}

static gboolean fill_aside(const QosDbSchema *schema, const char *aside, const char *path,
                           GError **error)
{
    g_autoptr(sqlite3) sqlite = NULL;
    int fd = open(aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0) {
        qos_set_error(error, errno, "database %s: cannot make it: %s", path, g_strerror(errno));
        return FALSE;
    }
    close(fd);
    if (sqlite3_open_v2(aside, &sqlite, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        return qos_db_fail(sqlite, path, "make it", error);
    return migrate(schema, sqlite, path, 0, error) &&
           qos_db_execute(sqlite, path, "PRAGMA journal_mode = WAL", "make it", error);
}

/* Makes the database under a temporary name, and gives it its own name when it is complete and in
 * WAL mode. A change to WAL mode that is cut off leaves a state that only a writer can repair. */
static gboolean make(const QosDbSchema *schema, const char *path, GError **error)
{
    g_autofree char *aside = g_strconcat(path, ".new", NULL);
    g_autofree char *folder = g_path_get_dirname(path);
    gboolean good;
    int fd;

    remove_aside(aside);
    good = fill_aside(schema, aside, path, error);
    remove_companions(path); /* of one that was removed without them: as SQLite does */
    if (good && g_rename(aside, path) < 0) {
        qos_set_error(error, errno, "database %s: cannot make it: %s", path, g_strerror(errno));
        good = FALSE;
    }
    if (!good) {
        remove_aside(aside);
        return FALSE;
    }
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    return TRUE;
}

static gboolean is_empty(const char *path)
{
    GStatBuf status;

    return g_stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0;
}

void qos_db_remove(const char *path)
{
    g_autofree char *lock = g_strconcat(path, ".lock", NULL);

    g_unlink(path);
    remove_companions(path);
    g_unlink(lock);
}

static void set_no_lock_file(const QosDbSchema *schema, const char *path, const char *name,
                             int reason, GError **error)
{
    g_autofree char *folder = g_path_get_dirname(path);

    if (reason == ENOENT && !g_file_test(folder, G_FILE_TEST_IS_DIR))
        qos_set_error(error, reason,
                      "database %s: there is no folder %s: make it first (mkdir), or name another "
                      "place",
                      path, folder);
    else
        qos_set_error(error, reason,
                      "database %s: cannot make %s: %s; a %s writes to its database, so the "
                      "folder must be writable, or name another place",
                      path, name, g_strerror(reason), schema->user);
}

char *qos_db_real_path(const char *path)
{
    char *real =
        realpath(path, NULL); /* NULL: there is no file yet, or the check will report the error */
    char *name = g_strdup(real ? real : path);

    free(real);
    return name;
}

int qos_db_hold_lock(const QosDbSchema *schema, const char *path, GError **error)
{
    g_autofree char *name = g_strconcat(path, ".lock", NULL);
    int fd;

    /* To another program's file a .lock may mean something: /etc/passwd.lock keeps passwd(1) out.
     */
    if (access(path, F_OK) == 0 && !(is_empty(path) && access(name, F_OK) < 0) &&
        !look_at_header(schema, path, error))
        return -1;
    fd = qos_db_open_locked(name);
    if (fd < 0 && errno == EINTR)
        qos_set_error(error, EINTR, "database %s: stopped waiting for it, as told by a signal",
                      path);
    else if (fd < 0 && errno == EWOULDBLOCK)
        qos_set_error(
            error, EBUSY,
            "database %s: another %s uses it: it is running already (a mount is as long as "
            "any container has it), or this one needs a database of its own",
            path, schema->user);
    else if (fd < 0)
        set_no_lock_file(schema, path, name, errno, error);
    return fd;
}

sqlite3 *qos_db_connect(const QosDbSchema *schema, const char *path, GError **error)
{
    g_autoptr(sqlite3) sqlite = NULL;
    int version = 0;

    if (((access(path, F_OK) < 0 && errno == ENOENT) || is_empty(path)) &&
        !make(schema, path, error))
        return NULL;
    if (!look(schema, path, &version, error))
        return NULL;
    if (sqlite3_open_v2(path, &sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        qos_db_fail(sqlite, path, "open it", error);
        return NULL;
    }
    sqlite3_busy_timeout(sqlite, QOS_DB_BUSY_TIMEOUT);
    sqlite3_db_config(sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (!qos_db_execute(sqlite, path,
                        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
                        "PRAGMA foreign_keys = ON",
                        "write to it", error))
        return NULL;
    if (version < (int)schema->versions && !migrate(schema, sqlite, path, version, error))
        return NULL;
    return g_steal_pointer(&sqlite);
}
