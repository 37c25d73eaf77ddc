/*
 * The database of a mount: the connection, the rules and the tunables, and the database's thread.
 * The thread writes the jobs' totals and their history, runs the tasks of history readers, and
 * makes the steps of the database's owner (fs/control/control_saver.c).
 *
 * A new snapshot of totals replaces one that is not yet written, because it includes all that the
 * old one says. So a slow disk makes the saved totals older, but never the queue longer.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db_private.h"
#include "db/schema.h"

static const QosDbSchema schema = {
    .application_id = 0x516f5366, /* "QoSf" */
    .steps = schema_steps,
    .versions = G_N_ELEMENTS(schema_steps),
    .program = "qosfs",
    .user = "mount",
    .content = "rules",
};

/* --- opening and closing --- */

static void free_snapshot(QosDbSnapshot *snapshot)
{
    if (!snapshot)
        return;
    g_ptr_array_unref(snapshot->jobs);
    g_free(snapshot);
}

/* FALSE, and a warning where none was given, if something could not be written. */
static gboolean write_snapshot(QosDb *db, const QosDbSnapshot *snapshot, gboolean is_warned)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) rows = qos_history_sample(&db->history, snapshot->jobs, snapshot->wall);

    qos_mutex_lock(&db->lock);
    if (qos_db_write_jobs_locked(db, snapshot, &error))
        qos_db_write_history_locked(db, rows, snapshot->wall, snapshot->history_days, &error);
    qos_mutex_unlock(&db->lock);
    if (error && !is_warned)
        g_warning("%s; the totals of jobs will be saved when that is fixed, and their history has "
                  "a gap until then",
                  error->message);
    return !error;
}

/* The database's own thread: makes the owner's steps, writes what is handed over and runs tasks. */
static QosTime work(gpointer data)
{
    QosDb *db = data;
    QosDbSnapshot *snapshot = g_steal_pointer(&db->pending);
    g_autofree QosDbTask *task = g_queue_pop_head(&db->tasks);
    QosTime (*const step)(gpointer) = db->step;
    QosTime due = QOS_NEVER;

    if (!snapshot && !task && !step)
        return QOS_NEVER;
    db->writing = TRUE;
    qos_mutex_unlock(&db->queue_lock);
    if (snapshot)
        db->fails = !write_snapshot(db, snapshot, db->fails);
    if (task)
        task->run(db, task->data);
    free_snapshot(snapshot);
    if (step)
        due = step(db->step_data);
    qos_mutex_lock(&db->queue_lock);
    db->writing = FALSE;
    pthread_cond_broadcast(&db->written_some);
    return snapshot || task ? 0 : due;
}

QosDb *qos_db_open(const char *path, GError **error)
{
    QosDb *db = g_new0(QosDb, 1);

    db->lock_fd = -1;
    qos_mutex_init(&db->lock, QOS_MUTEX_DB);
    qos_mutex_init(&db->queue_lock, QOS_MUTEX_DB_QUEUE);
    pthread_cond_init(&db->written_some, NULL);
    g_queue_init(&db->tasks);
    qos_history_init(&db->history);
    db->path = qos_db_real_path(path);
    db->lock_fd = qos_db_hold_lock(&schema, db->path, error);
    db->is_new = db->lock_fd >= 0 && access(db->path, F_OK) < 0 && errno == ENOENT;
    if (db->lock_fd >= 0)
        db->sqlite = qos_db_connect(&schema, db->path, error);
    if (!db->sqlite ||
        !qos_service_thread_start(&db->thread, "database", &db->queue_lock, work, db, error))
        g_clear_pointer(&db, qos_db_discard);
    return db;
}

/* Ends the thread, and does what is left. */
static void stop(QosDb *db)
{
    qos_service_thread_stop(&db->thread);
    qos_mutex_lock(&db->queue_lock);
    while (work(db) != QOS_NEVER) {
        /* there may be more */
    }
    qos_mutex_unlock(&db->queue_lock);
}

static void close_all(QosDb *db, gboolean is_to_go)
{
    stop(db);
    sqlite3_close(db->sqlite);
    if (is_to_go)
        qos_db_remove(db->path);
    if (db->lock_fd >= 0)
        close(db->lock_fd);
    g_clear_pointer(&db->written, g_hash_table_unref);
    qos_history_clear(&db->history);
    g_clear_pointer(&db->shares, g_hash_table_unref);
    pthread_cond_destroy(&db->written_some);
    qos_mutex_destroy(&db->queue_lock);
    qos_mutex_destroy(&db->lock);
    g_free(db->path);
    g_free(db);
}

void qos_db_close(QosDb *db)
{
    if (db)
        close_all(db, FALSE);
}

void qos_db_discard(QosDb *db)
{
    if (db)
        close_all(db, db->is_new);
}

/* --- rules and tunables --- */

/* Puts one saved rule on top of `rules`, which it takes over; NULL and *error where it is refused.
 * Rules come last first, so a `default` that stands above others is moved there. */
static QosRules *restore_rule(QosRules *rules, const char *name, const char *command,
                              const char *expiry, QosTime now, GError **error)
{
    g_autofree char *full = command ? g_strconcat(command, expiry, NULL) : NULL;
    g_autofree char *rank = NULL;
    gboolean is_default = strcmp(name, "default") == 0;

    if (full) {
        QosRules *changed = qos_rules_apply(rules, full, now, error);

        qos_rules_unref(rules);
        rules = changed;
    }
    if (rules && is_default && qos_rules_count(rules) > 1) {
        QosRules *moved;

        rank = g_strdup_printf("change default rank=%s", qos_rules_get(rules, 0)->name);
        moved = qos_rules_apply(rules, rank, now, error);
        qos_rules_unref(rules);
        rules = moved;
    }
    return rules;
}

static QosRules *load_rules(QosDb *db, QosTime now, QosTime wall, GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        qos_db_prepare(db, "SELECT name, command, expires FROM rule ORDER BY position DESC", error);
    QosRules *rules = statement ? qos_rules_new() : NULL;
    GError *reason = NULL;

    while (rules && qos_db_next_row(db, statement, &reason)) {
        const char *name = (const char *)sqlite3_column_text(statement, 0);
        const char *command = (const char *)sqlite3_column_text(statement, 1);
        g_autofree char *expiry = NULL;

        if (sqlite3_column_type(statement, 2) != SQLITE_NULL) {
            gint64 end = sqlite3_column_int64(statement, 2);

            if (end <= wall)
                continue;
            expiry = g_strdup_printf(" expire=%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT,
                                     (end - wall) / QOS_SECOND, (end - wall) % QOS_SECOND);
        }
        rules = restore_rule(rules, name, command, expiry, now, &reason);
        if (!rules) {
            qos_set_error(error, reason->code, "database %s: the saved rule \"%s\" is refused: %s",
                          db->path, command ? command : name, reason->message);
            g_clear_error(&reason);
        }
    }
    if (reason) {
        g_propagate_error(error, reason);
        g_clear_pointer(&rules, qos_rules_unref);
    }
    return rules;
}

QosRules *qos_db_load_rules(QosDb *db, QosTime now, QosTime wall, GError **error)
{
    QosRules *rules;

    qos_mutex_lock(&db->lock);
    rules = load_rules(db, now, wall, error);
    qos_mutex_unlock(&db->lock);
    return rules;
}

static gboolean insert_rules(QosDb *db, QosRules *rules, QosTime now, QosTime wall, GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        qos_db_prepare(db, "INSERT INTO rule VALUES (?, ?, ?, ?)", error);

    for (guint i = 0; statement && i < qos_rules_count(rules); i++) {
        const QosRule *rule = qos_rules_get(rules, i);
        g_autofree char *command = qos_rule_command(rule);

        sqlite3_bind_int64(statement, 1, i);
        sqlite3_bind_text(statement, 2, rule->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 3, command, -1, SQLITE_STATIC); /* NULL: NULL */
        if (rule->expires == QOS_NEVER)
            sqlite3_bind_null(statement, 4);
        else
            sqlite3_bind_int64(statement, 4, qos_time_add(wall, MAX(rule->expires - now, 0)));
        if (!qos_db_run(db, statement, "save the rules", error))
            return FALSE;
    }
    return statement != NULL;
}

gboolean qos_db_save_rules(QosDb *db, QosRules *rules, QosTime now, QosTime wall, GError **error)
{
    gboolean good;

    qos_mutex_lock(&db->lock);
    good = qos_db_begin(db, error);
    if (good)
        good = qos_db_finish(
            db,
            qos_db_execute(db->sqlite, db->path, "DELETE FROM rule", "save the rules", error) &&
                insert_rules(db, rules, now, wall, error),
            error);
    qos_mutex_unlock(&db->lock);
    return good;
}

GHashTable *qos_db_load_tunables(QosDb *db, GError **error)
{
    g_autoptr(GHashTable) tunables = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    GError *reason = NULL;
    sqlite3_stmt *statement;

    qos_mutex_lock(&db->lock);
    statement = qos_db_prepare(db, "SELECT name, value FROM tunable", &reason);
    while (statement && qos_db_next_row(db, statement, &reason))
        g_hash_table_replace(tunables, g_strdup((const char *)sqlite3_column_text(statement, 0)),
                             g_strdup((const char *)sqlite3_column_text(statement, 1)));
    sqlite3_finalize(statement);
    qos_mutex_unlock(&db->lock);
    if (reason) {
        g_propagate_error(error, reason);
        return NULL;
    }
    return g_steal_pointer(&tunables);
}

gboolean qos_db_save_tunable(QosDb *db, const char *name, const char *text, GError **error)
{
    gboolean good = FALSE;
    sqlite3_stmt *statement = NULL;

    qos_mutex_lock(&db->lock);
    if (qos_db_check_place(db->sqlite, db->path, error))
        statement = qos_db_prepare(db, "INSERT OR REPLACE INTO tunable VALUES (?, ?)", error);
    if (statement) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 2, text, -1, SQLITE_STATIC);
        good = qos_db_run(db, statement, "save a tunable", error);
    }
    sqlite3_finalize(statement);
    qos_mutex_unlock(&db->lock);
    return good;
}

/* --- the jobs' totals --- */

GPtrArray *qos_db_load_jobs(QosDb *db, QosTime wall, GError **error)
{
    GPtrArray *jobs;

    qos_mutex_lock(&db->lock);
    jobs = qos_db_read_jobs_locked(db, wall, error);
    qos_mutex_unlock(&db->lock);
    return jobs;
}

void qos_db_begin_history(QosDb *db, const GPtrArray *jobs, QosTime wall)
{
    g_array_unref(qos_history_sample(&db->history, jobs, wall));
}

void qos_db_save_jobs(QosDb *db, GPtrArray *jobs, QosTime now, QosTime wall, guint history_days)
{
    QosDbSnapshot *snapshot = g_new(QosDbSnapshot, 1);
    QosDbSnapshot *replaced;

    *snapshot = (QosDbSnapshot){jobs, now, wall, history_days};
    qos_mutex_lock(&db->queue_lock);
    replaced = db->pending;
    db->pending = snapshot;
    qos_service_thread_wake_locked(&db->thread);
    qos_mutex_unlock(&db->queue_lock);
    free_snapshot(replaced);
}

void qos_db_flush(QosDb *db)
{
    qos_mutex_lock(&db->queue_lock);
    while (db->pending || db->tasks.length || db->writing)
        qos_condition_wait(&db->written_some, &db->queue_lock);
    qos_mutex_unlock(&db->queue_lock);
}

void qos_db_serve(QosDb *db, QosTime (*step)(gpointer data), gpointer data)
{
    qos_mutex_lock(&db->queue_lock);
    db->step = step;
    db->step_data = data;
    while (!step && db->writing)
        qos_condition_wait(&db->written_some, &db->queue_lock);
    qos_service_thread_wake_locked(&db->thread);
    qos_mutex_unlock(&db->queue_lock);
}

void qos_db_wake(QosDb *db)
{
    qos_mutex_lock(&db->queue_lock);
    qos_service_thread_wake_locked(&db->thread);
    qos_mutex_unlock(&db->queue_lock);
}

void qos_db_ask(QosDb *db, void (*run)(QosDb *db, void *data), void *data)
{
    QosDbTask *task = g_new(QosDbTask, 1);

    *task = (QosDbTask){run, data};
    qos_mutex_lock(&db->queue_lock);
    g_queue_push_tail(&db->tasks, task);
    qos_service_thread_wake_locked(&db->thread);
    qos_mutex_unlock(&db->queue_lock);
}
