/*
 * The database of a server, and the thread that writes to it.
 *
 * What is handed over is a change with a name: "client 17", "store", "tunable limit". A later
 * change of the same name replaces one that waits. So a full disk makes the saved state older, but
 * never the queue longer than there are clients, tunables and jobs.
 */
#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db_private.h"
#include "db/db_server.h"
#include "db/db_server_rules.h"
#include "db/server.h"
#include "sys/service_thread.h"

#define RETRY QOS_SECOND

static const QosDbSchema schema = {
    .application_id = 0x516f5353, /* "QoSS" */
    .steps = server_steps,
    .versions = G_N_ELEMENTS(server_steps),
    .program = "qosfs-server",
    .user = "server",
    .content = "the list of its mounts and the rules of the cluster",
};

typedef struct {
    const char *sql;
    QosOwnerId client;   /* the first parameter, unless 0 */
    char *texts[2];      /* the next ones, as many as there are */
    gint64 numbers[3];   /* the last ones, */
    guint numbers_count; /* so many */
    gboolean is_of_list; /* of clients that may have credits */
    gboolean is_save;    /* to it: to be told */
} Change;

struct QosServerDb {
    char *path;
    int lock_fd;
    QosServerDbCalls calls;
    QosServerRecord record;
    sqlite3 *sqlite; /* the thread's, once there is one */
    QosServiceThread thread;
    QosTime retry_at; /* the thread's: not before, while there is trouble */
    GMainContext *context;

    QosMutex lock;         /* what follows; not held during SQLite's work, or in calls */
    GHashTable *pending;   /* name -> Change */
    GArray *saved;         /* of QosOwnerId: to be told */
    QosServerDbSave *save; /* of rules; NULL: none is under way */
    char *trouble;         /* NULL: none */
    gboolean is_trouble_new;
    GSource *notice; /* that something is to be told; NULL: nothing */
    guint64 handed;  /* changes, in all */
    guint64 durable; /* of these, the first so many */
    gboolean is_durable_new;
    void (*watcher)(guint64 number, gpointer arg); /* the main context's */
    gpointer watcher_arg;
};

static void change_free(Change *change)
{
    for (guint i = 0; i < G_N_ELEMENTS(change->texts); i++)
        g_free(change->texts[i]);
    g_free(change);
}

static GHashTable *changes_new(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)change_free);
}

static void client_free(QosServerDbClient *client)
{
    g_free(client->principal);
    g_free(client->name);
    g_free(client);
}

/* --- telling, in the main context --- */

static gboolean tell(gpointer data)
{
    QosServerDb *db = data;
    g_autoptr(GArray) saved = NULL;
    g_autofree char *trouble = NULL;

    qos_mutex_lock(&db->lock);
    saved = g_steal_pointer(&db->saved);
    db->saved = g_array_new(FALSE, FALSE, sizeof(QosOwnerId));
    trouble = g_strdup(db->trouble);
    gboolean is_new = db->is_trouble_new;
    db->is_trouble_new = FALSE;
    g_clear_pointer(&db->notice, g_source_unref);
    QosServerDbSave *save = db->save && db->save->is_ended ? g_steal_pointer(&db->save) : NULL;
    guint64 durable = db->is_durable_new ? db->durable : 0;
    db->is_durable_new = FALSE;
    qos_mutex_unlock(&db->lock);
    if (save)
        save->done(save->error, save->arg);
    qos_server_db_save_free(save);
    if (is_new)
        db->calls.trouble(trouble, db->calls.arg);
    for (guint i = 0; i < saved->len; i++)
        db->calls.saved(g_array_index(saved, QosOwnerId, i), db->calls.arg);
    if (durable > 0 && db->watcher)
        db->watcher(durable, db->watcher_arg);
    return G_SOURCE_REMOVE;
}

static void notify_locked(QosServerDb *db)
{
    if (db->notice || db->thread.is_stopping)
        return;
    db->notice = g_idle_source_new();
    g_source_set_priority(db->notice, G_PRIORITY_DEFAULT);
    g_source_set_callback(db->notice, tell, db, NULL);
    g_source_attach(db->notice, db->context);
}

/* --- writing, in the thread --- */

static gboolean write_change(QosServerDb *db, const Change *change, GError **error)
{
    g_autoptr(sqlite3_stmt) statement = NULL;
    int place = 0;

    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    if (sqlite3_prepare_v2(db->sqlite, change->sql, -1, &statement, NULL) != SQLITE_OK)
        return qos_db_fail(db->sqlite, db->path, "use its tables", error);
    if (change->client)
        sqlite3_bind_int64(statement, ++place, (sqlite3_int64)change->client);
    for (guint i = 0; i < G_N_ELEMENTS(change->texts); i++) {
        if (change->texts[i])
            sqlite3_bind_text(statement, ++place, change->texts[i], -1, SQLITE_STATIC);
    }
    for (guint i = 0; i < change->numbers_count; i++)
        sqlite3_bind_int64(statement, ++place, change->numbers[i]);
    return sqlite3_step(statement) == SQLITE_DONE ||
           qos_db_fail(db->sqlite, db->path, "write to it", error);
}

static gboolean write_all(QosServerDb *db, GHashTable *changes, GError **error)
{
    GHashTableIter iter;
    gpointer change;
    gboolean good = qos_db_check_place(db->sqlite, db->path, error) &&
                    qos_db_execute(db->sqlite, db->path, "BEGIN IMMEDIATE", "write to it", error);

    if (!good)
        return FALSE;
    g_hash_table_iter_init(&iter, changes);
    while (good && g_hash_table_iter_next(&iter, NULL, &change))
        good = write_change(db, change, error);
    if (good && qos_db_execute(db->sqlite, db->path, "COMMIT", "write to it", error))
        return TRUE;
    sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
    return FALSE;
}

/* Changes that were not written wait again, unless a newer change of the same name waits. */
static void put_back_locked(QosServerDb *db, GHashTable *changes)
{
    GHashTableIter iter;
    gpointer name, change;

    g_hash_table_iter_init(&iter, changes);
    while (g_hash_table_iter_next(&iter, &name, &change)) {
        if (g_hash_table_contains(db->pending, name))
            continue;
        g_hash_table_iter_steal(&iter);
        g_hash_table_insert(db->pending, name, change);
    }
}

static void note_result_locked(QosServerDb *db, GHashTable *changes, const GError *error)
{
    GHashTableIter iter;
    gpointer data;

    if (g_strcmp0(db->trouble, error ? error->message : NULL) != 0) {
        g_free(db->trouble);
        db->trouble = error ? g_strdup(error->message) : NULL;
        db->is_trouble_new = TRUE;
    }
    if (error)
        put_back_locked(db, changes);
    g_hash_table_iter_init(&iter, changes);
    while (!error && g_hash_table_iter_next(&iter, NULL, &data)) {
        const Change *change = data;
        if (change->is_save)
            g_array_append_val(db->saved, change->client);
    }
    if (db->is_trouble_new || db->is_durable_new || db->saved->len > 0)
        notify_locked(db);
}

/* The lock is let go meanwhile. FALSE: all waits again. */
static gboolean write_pending_locked(QosServerDb *db, GError **error)
{
    g_autoptr(GHashTable) changes = g_steal_pointer(&db->pending);
    g_autoptr(GError) reason = NULL;
    guint64 handed = db->handed;

    db->pending = changes_new();
    qos_mutex_unlock(&db->lock);
    gboolean good = write_all(db, changes, &reason);
    qos_mutex_lock(&db->lock);
    if (good) {
        db->durable = handed;
        db->is_durable_new = TRUE;
    }
    note_result_locked(db, changes, reason);
    if (reason)
        g_propagate_error(error, g_steal_pointer(&reason));
    return good;
}

/* The lock is let go meanwhile. */
static void write_rules_locked(QosServerDb *db)
{
    QosServerDbSave *save = db->save;

    qos_mutex_unlock(&db->lock);
    qos_server_db_write_save(db->sqlite, db->path, save, &save->error);
    qos_mutex_lock(&db->lock);
    save->is_ended = TRUE;
    notify_locked(db);
}

static QosTime now(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

static QosTime work(gpointer data)
{
    QosServerDb *db = data;

    if (db->save && !db->save->is_ended) {
        write_rules_locked(db);
        return 0;
    }
    if (g_hash_table_size(db->pending) == 0)
        return QOS_NEVER;
    if (db->trouble && now() < db->retry_at)
        return db->retry_at;
    write_pending_locked(db, NULL);
    db->retry_at = now() + RETRY;
    return 0;
}

/* Ends the thread, and writes what is left: if that fails, the next start finds an older list. */
static void stop(QosServerDb *db)
{
    g_autoptr(GError) error = NULL;

    qos_service_thread_stop(&db->thread);
    qos_mutex_lock(&db->lock);
    if (g_hash_table_size(db->pending) > 0)
        write_pending_locked(db, &error);
    if (error != NULL)
        g_warning("%s; the list of mounts is not saved as it was at the end", error->message);
    qos_mutex_unlock(&db->lock);
}

/* --- opening --- */

/* Calls `take` for each row. */
static gboolean read_rows(QosServerDb *db, const char *sql,
                          void (*take)(QosServerRecord *record, sqlite3_stmt *row), GError **error)
{
    g_autoptr(sqlite3_stmt) statement = NULL;
    int result;

    if (sqlite3_prepare_v2(db->sqlite, sql, -1, &statement, NULL) != SQLITE_OK)
        return qos_db_fail(db->sqlite, db->path, "use its tables", error);
    while ((result = sqlite3_step(statement)) == SQLITE_ROW)
        take(&db->record, statement);
    return result == SQLITE_DONE || qos_db_fail(db->sqlite, db->path, "read it", error);
}

static char *column_text(sqlite3_stmt *row, int column)
{
    return g_strdup((const char *)sqlite3_column_text(row, column));
}

static void take_server(QosServerRecord *record, sqlite3_stmt *row)
{
    record->id = (QosOwnerId)sqlite3_column_int64(row, 0);
    record->incarnation = (guint32)sqlite3_column_int64(row, 1);
    g_free(record->store);
    record->lease = sqlite3_column_int64(row, 2);
    record->store = column_text(row, 3);
    record->key[0] = (guint64)sqlite3_column_int64(row, 4);
    record->key[1] = (guint64)sqlite3_column_int64(row, 5);
    record->claimable = sqlite3_column_int64(row, 6);
}

static void take_client(QosServerRecord *record, sqlite3_stmt *row)
{
    QosServerDbClient *client = g_new(QosServerDbClient, 1);

    *client = (QosServerDbClient){.id = (QosOwnerId)sqlite3_column_int64(row, 0),
                                  .principal = column_text(row, 1),
                                  .name = column_text(row, 2)};
    g_ptr_array_add(record->clients, client);
}

static void take_tunable(QosServerRecord *record, sqlite3_stmt *row)
{
    g_hash_table_replace(record->tunables, column_text(row, 0), column_text(row, 1));
}

/* The key of proofs, where there is none yet. */
static gboolean make_key(QosServerRecord *record, GError **error)
{
    while (record->key[0] == 0 && record->key[1] == 0) {
        if (getrandom(record->key, sizeof(record->key), 0) != sizeof(record->key)) {
            qos_set_error(error, errno, "cannot get random bytes: %s", g_strerror(errno));
            return FALSE;
        }
    }
    return TRUE;
}

/* A start of its own, durable before anything is granted under it. Tokens have its number in 20
 * bits (QOS_TOKEN_INCARNATION_SHIFT). */
static gboolean begin_incarnation(QosServerDb *db, GError **error)
{
    QosServerRecord *record = &db->record;
    g_autofree char *sql = NULL;

    if (!read_rows(db,
                   "SELECT id, incarnation, lease, store, key_first, key_second, claimable "
                   "FROM server",
                   take_server, error) ||
        !make_key(record, error))
        return FALSE;
    if (record->id == 0 && record->clients->len > 0)
        return qos_db_damaged(&schema, db->path, "it has mounts, and no server", error);
    if (record->lease < 0 || record->lease > QOS_SERVER_LEASE_MAX)
        return qos_db_damaged(&schema, db->path, "its lease cannot be", error);
    if (record->claimable < 0 || record->claimable > QOS_POOL_BYTES_MAX)
        return qos_db_damaged(&schema, db->path, "what clients may claim cannot be", error);
    if (record->incarnation >= (G_GUINT64_CONSTANT(1) << (64 - QOS_TOKEN_INCARNATION_SHIFT)) - 1) {
        qos_set_error(error, EOVERFLOW,
                      "database %s: the server was started too often; move it away to begin anew, "
                      "when no mount uses it",
                      db->path);
        return FALSE;
    }
    record->incarnation++;
    if (record->id == 0) {
        record->id = (guint64)g_random_int() << 32 | g_random_int_range(1, G_MAXINT32);
        sql = g_strdup_printf("INSERT INTO server (id, incarnation, lease, key_first, key_second) "
                              "VALUES (%" G_GINT64_FORMAT ", %u, 0, %" G_GINT64_FORMAT
                              ", %" G_GINT64_FORMAT ")",
                              (gint64)record->id, record->incarnation, (gint64)record->key[0],
                              (gint64)record->key[1]);
    } else {
        sql = g_strdup_printf("UPDATE server SET incarnation = %u, key_first = %" G_GINT64_FORMAT
                              ", key_second = %" G_GINT64_FORMAT,
                              record->incarnation, (gint64)record->key[0], (gint64)record->key[1]);
    }
    return qos_db_execute(db->sqlite, db->path, sql, "write to it", error);
}

static gboolean open_all(QosServerDb *db, GError **error)
{
    db->lock_fd = qos_db_hold_lock(&schema, db->path, error);
    if (db->lock_fd < 0)
        return FALSE;
    db->sqlite = qos_db_connect(&schema, db->path, error);
    return db->sqlite &&
           read_rows(db, "SELECT id, principal, name FROM client", take_client, error) &&
           begin_incarnation(db, error) &&
           read_rows(db, "SELECT name, value FROM tunable", take_tunable, error) &&
           qos_server_db_read_rules(db->sqlite, &schema, db->path, &db->record, error);
}

QosServerDb *qos_server_db_open(const char *path, const QosServerDbCalls *calls, GError **error)
{
    QosServerDb *db = g_new0(QosServerDb, 1);

    db->path = qos_db_real_path(path);
    db->lock_fd = -1;
    db->calls = *calls;
    db->context = g_main_context_ref_thread_default();
    db->record.clients = g_ptr_array_new_with_free_func((GDestroyNotify)client_free);
    db->record.tunables = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    db->record.rules = qos_server_db_rules_new();
    db->record.log = g_ptr_array_new_with_free_func((GDestroyNotify)qos_server_db_log_entry_free);
    db->record.budget_clients = g_ptr_array_new_with_free_func(qos_server_db_budget_client_free);
    db->record.jobs = g_ptr_array_new_with_free_func(qos_server_db_job_free);
    db->pending = changes_new();
    db->saved = g_array_new(FALSE, FALSE, sizeof(QosOwnerId));
    qos_mutex_init(&db->lock, QOS_MUTEX_SERVER_DB);
    if (!open_all(db, error) ||
        !qos_service_thread_start(&db->thread, "database", &db->lock, work, db, error))
        g_clear_pointer(&db, qos_server_db_close);
    return db;
}

void qos_server_db_close(QosServerDb *db)
{
    if (!db)
        return;
    stop(db);
    if (db->notice) {
        g_source_destroy(db->notice);
        g_source_unref(db->notice);
    }
    sqlite3_close(db->sqlite);
    if (db->lock_fd >= 0)
        close(db->lock_fd);
    g_hash_table_unref(db->pending);
    g_array_unref(db->saved);
    g_free(db->trouble);
    g_ptr_array_unref(db->record.clients);
    g_hash_table_unref(db->record.tunables);
    qos_server_db_rules_clear(&db->record.rules);
    g_ptr_array_unref(db->record.log);
    g_ptr_array_unref(db->record.budget_clients);
    g_ptr_array_unref(db->record.jobs);
    qos_server_db_save_free(db->save);
    g_free(db->record.store);
    g_main_context_unref(db->context);
    qos_mutex_destroy(&db->lock);
    g_free(db->path);
    g_free(db);
}

const QosServerRecord *qos_server_db_record(const QosServerDb *db)
{
    return &db->record;
}

/* --- changes --- */

/* Takes `name`, and copies the texts. Returns the change's number. */
static guint64 hand_over(QosServerDb *db, char *name, Change change)
{
    Change *copy = g_memdup2(&change, sizeof(change));
    guint64 number;

    for (guint i = 0; i < G_N_ELEMENTS(copy->texts); i++)
        copy->texts[i] = g_strdup(change.texts[i]);
    qos_mutex_lock(&db->lock);
    for (guint i = db->saved->len; change.is_of_list && i-- > 0;) {
        if (g_array_index(db->saved, QosOwnerId, i) == change.client)
            g_array_remove_index_fast(db->saved, i); /* that was before */
    }
    g_hash_table_replace(db->pending, name, copy);
    number = ++db->handed;
    qos_service_thread_wake_locked(&db->thread);
    qos_mutex_unlock(&db->lock);
    return number;
}

static char *client_name(QosOwnerId id)
{
    return g_strdup_printf("client %" G_GINT64_MODIFIER "x", id);
}

void qos_server_db_save_client(QosServerDb *db, QosOwnerId id, const char *principal,
                               const char *name)
{
    hand_over(db, client_name(id),
              (Change){.sql = "INSERT OR REPLACE INTO client VALUES (?, ?, ?)",
                       .client = id,
                       .texts = {(char *)principal, (char *)name},
                       .is_of_list = TRUE,
                       .is_save = TRUE});
}

void qos_server_db_forget_client(QosServerDb *db, QosOwnerId id)
{
    hand_over(db, client_name(id),
              (Change){.sql = "DELETE FROM client WHERE id = ?", .client = id, .is_of_list = TRUE});
}

void qos_server_db_save_store(QosServerDb *db, const char *store)
{
    hand_over(db, g_strdup("store"),
              (Change){.sql = "UPDATE server SET store = ?", .texts = {(char *)store}});
}

void qos_server_db_save_lease(QosServerDb *db, QosTime lease)
{
    g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT, lease);

    hand_over(db, g_strdup("lease"),
              (Change){.sql = "UPDATE server SET lease = CAST(? AS INTEGER)", .texts = {text}});
}

void qos_server_db_save_claimable(QosServerDb *db, gint64 bytes)
{
    g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT, bytes);

    hand_over(db, g_strdup("claimable"),
              (Change){.sql = "UPDATE server SET claimable = CAST(? AS INTEGER)", .texts = {text}});
}

void qos_server_db_save_tunable(QosServerDb *db, const char *name, const char *value)
{
    hand_over(db, g_strconcat("tunable ", name, NULL),
              (Change){.sql = value ? "INSERT OR REPLACE INTO tunable VALUES (?, ?)"
                                    : "DELETE FROM tunable WHERE name = ?",
                       .texts = {(char *)name, (char *)value}});
}

/* --- mounts with floors, and jobs --- */

static char *budget_client_name(QosOwnerId id)
{
    return g_strdup_printf("budget client %" G_GINT64_MODIFIER "x", id);
}

guint64 qos_server_db_save_budget_client(QosServerDb *db, QosOwnerId id, const char *name,
                                         guint parts)
{
    return hand_over(db, budget_client_name(id),
                     (Change){.sql = "INSERT OR REPLACE INTO budget_client VALUES (?, ?, ?)",
                              .client = id,
                              .texts = {(char *)name},
                              .numbers = {parts},
                              .numbers_count = 1});
}

guint64 qos_server_db_forget_budget_client(QosServerDb *db, QosOwnerId id)
{
    return hand_over(db, budget_client_name(id),
                     (Change){.sql = "DELETE FROM budget_client WHERE id = ?", .client = id});
}

guint64 qos_server_db_save_job(QosServerDb *db, const char *id, guint nodes, guint weight,
                               QosTime expires)
{
    return hand_over(db, g_strconcat("job ", id, NULL),
                     (Change){.sql = "INSERT OR REPLACE INTO cluster_job VALUES (?, ?, ?, ?)",
                              .texts = {(char *)id},
                              .numbers = {nodes, weight, expires},
                              .numbers_count = 3});
}

guint64 qos_server_db_forget_job(QosServerDb *db, const char *id)
{
    return hand_over(
        db, g_strconcat("job ", id, NULL),
        (Change){.sql = "DELETE FROM cluster_job WHERE id = ?", .texts = {(char *)id}});
}

void qos_server_db_watch(QosServerDb *db, void (*durable)(guint64 number, gpointer arg),
                         gpointer arg)
{
    db->watcher = durable;
    db->watcher_arg = arg;
}

/* --- rules of the cluster --- */

const QosServerDbRules *qos_server_db_load_rules(const QosServerDb *db)
{
    return &db->record.rules;
}

void qos_server_db_save_rules(QosServerDb *db, QosServerDbRules *rules,
                              const QosServerDbLogEntry *entry, QosServerDbRulesSaved done,
                              gpointer arg)
{
    QosServerDbSave *save = g_new0(QosServerDbSave, 1);

    save->entry = qos_server_db_log_entry_new(entry);
    save->done = done;
    save->arg = arg;
    save->has_rules = rules != NULL;
    if (rules) {
        save->rules = *rules;
        *rules = (QosServerDbRules){0};
    }
    qos_mutex_lock(&db->lock);
    g_assert(!db->save);
    db->save = save;
    qos_service_thread_wake_locked(&db->thread);
    qos_mutex_unlock(&db->lock);
}
