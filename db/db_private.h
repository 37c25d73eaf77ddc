/*
 * What the files of db/ share. Only they and their tests include this header, or sqlite3.h.
 *
 *     db.c           a mount's connection, rules and tunables
 *     db_jobs.c      reads and writes the jobs' totals
 *     db_history.c   reads and writes the history
 *     db_shares.c    what jobs lent and borrowed
 *     db_identity.c  the mount's identity
 *     db_server.c    everything that a server keeps, its rules by db_server_rules.c
 *     db_open.c      checks, makes and migrates databases of mounts and servers
 *     db_lock.c      the lock of a database
 *     db_sql.c       runs statements for all of them
 */
#pragma once

#include <sqlite3.h>

#include "db/db.h"
#include "sys/service_thread.h"

#define QOS_DB_BUSY_TIMEOUT 5000 /* ms that another program may hold the database up */

G_DEFINE_AUTOPTR_CLEANUP_FUNC(sqlite3, sqlite3_close)
G_DEFINE_AUTOPTR_CLEANUP_FUNC(sqlite3_stmt, sqlite3_finalize)

/* What kind of database it is, and its words for people. */
typedef struct {
    guint32 application_id;
    const char *const *steps; /* to version 1, 2, ... */
    guint versions;
    const char *program; /* that makes it, */
    const char *user;    /* what has one, */
    const char *content; /* and what is lost without it */
} QosDbSchema;

typedef struct {
    GPtrArray *jobs; /* of QosJob, owned */
    QosTime now;
    QosTime wall;
    guint history_days;
} QosDbSnapshot;

typedef struct {
    void (*run)(QosDb *db, void *data);
    void *data;
} QosDbTask;

struct QosDb {
    char *path;
    int lock_fd;
    gboolean is_new; /* made by this open */

    /* Guards the connection, `shares` and `written`; the one lock held during SQLite's work. */
    QosMutex lock;
    sqlite3 *sqlite;
    GHashTable *shares;  /* id -> QosDbShare, what the table `share` holds; NULL: not known */
    GHashTable *written; /* id -> what the table `job` holds of it (db_jobs.c); NULL: not known */

    QosMutex queue_lock; /* the rest; never held with `lock` */
    QosServiceThread thread;
    pthread_cond_t written_some; /* for flushes: these wait until nothing is left */
    QosDbSnapshot *pending;
    GQueue tasks; /* of QosDbTask, owned */
    gboolean writing;
    QosTime (*step)(gpointer data); /* NULL, or its owner's */
    gpointer step_data;
    QosHistory history; /* up to the last sample; the thread's own, as the next */
    gboolean fails;     /* writing does, and that was said */
};

/* --- db_sql.c: each returns FALSE (NULL) with *error set to what could not be done, and why;
 * for those that take a QosDb the caller holds `lock` --- */

/* SQLite's last error: "database PATH: cannot `doing`: ...". Always FALSE. */
gboolean qos_db_fail(sqlite3 *sqlite, const char *path, const char *doing, GError **error);
/* Runs statements that return no rows. */
gboolean qos_db_execute(sqlite3 *sqlite, const char *path, const char *sql, const char *doing,
                        GError **error);
/* Finalize it before `lock` is given back. */
sqlite3_stmt *qos_db_prepare(QosDb *db, const char *sql, GError **error);
/* Runs a statement that returns no rows, ready to be bound again. */
gboolean qos_db_run(QosDb *db, sqlite3_stmt *statement, const char *doing, GError **error);
/* The next row; FALSE at the end too, where *error stays as it is. */
gboolean qos_db_next_row(QosDb *db, sqlite3_stmt *statement, GError **error);
/* Whether the database is still the file of that name: what is written to one that was removed or
 * replaced is lost. */
gboolean qos_db_check_place(sqlite3 *sqlite, const char *path, GError **error);
/* Begins a transaction that writes, unless that would be lost. */
gboolean qos_db_begin(QosDb *db, GError **error);
/* Ends a transaction: keeps what it did where `good`, else takes it back. */
gboolean qos_db_finish(QosDb *db, gboolean good, GError **error);
/* Not one of these: the errno (> 0) that comes nearest to SQLite's last error. */
int qos_db_errno(sqlite3 *sqlite);

/* --- db_open.c --- */

/* FALSE, with the error that the database is, and what it says that cannot be. */
gboolean qos_db_damaged(const QosDbSchema *schema, const char *path, const char *reason,
                        GError **error);

/* The name that the lock goes by: two names of one file are one. Free with g_free(). */
char *qos_db_real_path(const char *path);
/* Opens the lock file and takes the lock: the descriptor, or -1. An empty file that has no lock
 * file is as good as none. */
int qos_db_hold_lock(const QosDbSchema *schema, const char *path, GError **error);
/* db_lock.c: opens and locks a lock file: the descriptor, or -1 with errno: EWOULDBLOCK where
 * another daemon that is not ending has the lock; EINTR. */
int qos_db_open_locked(const char *name);
/* The checked and current database, made if there is none; the lock is held. */
sqlite3 *qos_db_connect(const QosDbSchema *schema, const char *path, GError **error);
/* Removes a closed database with all its files; the lock is held. */
void qos_db_remove(const char *path);

/* --- db_jobs.c; the caller holds `lock` --- */

gboolean qos_db_write_jobs_locked(QosDb *db, const QosDbSnapshot *snapshot, GError **error);
GPtrArray *qos_db_read_jobs_locked(QosDb *db, QosTime wall, GError **error);

/* --- db_history.c --- */

/* Adds the rows (of QosHistoryRow), and compacts, as of `wall`; the caller holds `lock`. */
gboolean qos_db_write_history_locked(QosDb *db, const GArray *rows, QosTime wall, guint days,
                                     GError **error);
