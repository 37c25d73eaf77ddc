/*
 * A server's rules of the cluster and their log as rows (db/server.sql); and reading, once, what
 * else it knows of the cluster.
 *
 * Each save writes the whole list anew. So a save that failed, whatever became of it, is made good
 * by the next one, and no row depends on what another save wrote. A list of 10,000 rules takes
 * about as long as the fsync behind it.
 */
#include "db/db_server_rules.h"

/* --- what is saved --- */

static void rule_free(QosServerDbRule *rule)
{
    g_free(rule->command);
    g_free(rule);
}

QosServerDbRules qos_server_db_rules_new(void)
{
    return (QosServerDbRules){.rules = g_ptr_array_new_with_free_func((GDestroyNotify)rule_free)};
}

void qos_server_db_rules_add(QosServerDbRules *rules, guint64 id, const char *command,
                             QosTime expires)
{
    QosServerDbRule *rule = g_new(QosServerDbRule, 1);

    *rule = (QosServerDbRule){.id = id, .command = g_strdup(command), .expires = expires};
    g_ptr_array_add(rules->rules, rule);
}

void qos_server_db_rules_clear(QosServerDbRules *rules)
{
    g_clear_pointer(&rules->rules, g_ptr_array_unref);
    *rules = (QosServerDbRules){0};
}

QosServerDbLogEntry *qos_server_db_log_entry_new(const QosServerDbLogEntry *entry)
{
    QosServerDbLogEntry *copy = g_memdup2(entry, sizeof(*entry));

    copy->principal = g_strdup(entry->principal);
    copy->command = g_strdup(entry->command);
    copy->result = g_strdup(entry->result);
    return copy;
}

void qos_server_db_log_entry_free(QosServerDbLogEntry *entry)
{
    if (!entry)
        return;
    g_free(entry->principal);
    g_free(entry->command);
    g_free(entry->result);
    g_free(entry);
}

void qos_server_db_budget_client_free(gpointer data)
{
    g_free(((QosServerDbBudgetClient *)data)->name);
    g_free(data);
}

void qos_server_db_job_free(gpointer data)
{
    g_free(((QosServerDbJob *)data)->id);
    g_free(data);
}

void qos_server_db_save_free(QosServerDbSave *save)
{
    if (!save)
        return;
    qos_server_db_rules_clear(&save->rules);
    qos_server_db_log_entry_free(save->entry);
    g_clear_error(&save->error);
    g_free(save);
}

/* --- writing --- */

static sqlite3_stmt *prepare(sqlite3 *sqlite, const char *path, const char *sql, GError **error)
{
    sqlite3_stmt *statement = NULL;

    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    if (sqlite3_prepare_v2(sqlite, sql, -1, &statement, NULL) != SQLITE_OK)
        qos_db_fail(sqlite, path, "use its tables", error);
    return statement;
}

/* Runs a statement that returns no rows, ready to be bound again. */
static gboolean run(sqlite3 *sqlite, const char *path, sqlite3_stmt *statement, GError **error)
{
    gboolean done = sqlite3_step(statement) == SQLITE_DONE ||
                    qos_db_fail(sqlite, path, "save the rules of the cluster", error);

    sqlite3_reset(statement);
    return done;
}

static gboolean write_rules(sqlite3 *sqlite, const char *path, const GPtrArray *rules,
                            GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        prepare(sqlite, path, "INSERT INTO cluster_rule VALUES (?, ?, ?, ?)", error);
    gboolean good = statement != NULL;

    for (guint i = 0; good && i < rules->len; i++) {
        const QosServerDbRule *rule = rules->pdata[i];

        sqlite3_bind_int64(statement, 1, i);
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)rule->id);
        sqlite3_bind_text(statement, 3, rule->command, -1, SQLITE_STATIC);
        if (rule->expires == QOS_NEVER)
            sqlite3_bind_null(statement, 4);
        else
            sqlite3_bind_int64(statement, 4, rule->expires);
        good = run(sqlite, path, statement, error);
    }
    return good;
}

static gboolean write_version(sqlite3 *sqlite, const char *path, guint64 version, GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        prepare(sqlite, path, "UPDATE server SET rules_version = ?", error);

    if (!statement)
        return FALSE;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)version);
    return run(sqlite, path, statement, error);
}

/* Adds the entry; those beyond the bound go. */
static gboolean write_entry(sqlite3 *sqlite, const char *path, const QosServerDbLogEntry *entry,
                            GError **error)
{
    g_autoptr(sqlite3_stmt) statement =
        prepare(sqlite, path,
                "INSERT INTO cluster_log (time, principal, command, error, result) "
                "VALUES (?, ?, ?, ?, ?)",
                error);

    if (!statement)
        return FALSE;
    sqlite3_bind_int64(statement, 1, entry->time);
    sqlite3_bind_text(statement, 2, entry->principal, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, entry->command, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 4, entry->error);
    sqlite3_bind_text(statement, 5, entry->result, -1, SQLITE_STATIC);
    return run(sqlite, path, statement, error) &&
           qos_db_execute(sqlite, path,
                          "DELETE FROM cluster_log WHERE number <= (SELECT max(number) FROM "
                          "cluster_log) - " G_STRINGIFY(QOS_SERVER_DB_LOG_MAX),
                          "save the rules of the cluster", error);
}

gboolean qos_server_db_write_save(sqlite3 *sqlite, const char *path, const QosServerDbSave *save,
                                  GError **error)
{
    gboolean good = qos_db_check_place(sqlite, path, error) &&
                    qos_db_execute(sqlite, path, "BEGIN IMMEDIATE", "write to it", error);

    if (!good)
        return FALSE;
    if (save->has_rules)
        good = qos_db_execute(sqlite, path, "DELETE FROM cluster_rule",
                              "save the rules of the cluster", error) &&
               write_rules(sqlite, path, save->rules.rules, error) &&
               write_version(sqlite, path, save->rules.version, error);
    good = good && write_entry(sqlite, path, save->entry, error);
    if (good && qos_db_execute(sqlite, path, "COMMIT", "write to it", error))
        return TRUE;
    sqlite3_exec(sqlite, "ROLLBACK", NULL, NULL, NULL);
    return FALSE;
}

/* --- reading --- */

/* Calls `take` for each row; its FALSE says that the row cannot be. */
static gboolean read_rows(sqlite3 *sqlite, const QosDbSchema *schema, const char *path,
                          const char *sql, const char *fault,
                          gboolean (*take)(QosServerRecord *record, sqlite3_stmt *row),
                          QosServerRecord *record, GError **error)
{
    g_autoptr(sqlite3_stmt) statement = prepare(sqlite, path, sql, error);
    int result = SQLITE_DONE;

    if (!statement)
        return FALSE;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        if (!take(record, statement))
            return qos_db_damaged(schema, path, fault, error);
    }
    return result == SQLITE_DONE || qos_db_fail(sqlite, path, "read it", error);
}

static const char *text(sqlite3_stmt *row, int column)
{
    const char *value = (const char *)sqlite3_column_text(row, column);

    return value ? value : "";
}

static gboolean take_version(QosServerRecord *record, sqlite3_stmt *row)
{
    gint64 version = sqlite3_column_int64(row, 0);

    record->rules.version = (guint64)version;
    return version >= 0;
}

static gboolean take_rule(QosServerRecord *record, sqlite3_stmt *row)
{
    gint64 position = sqlite3_column_int64(row, 0);
    gint64 id = sqlite3_column_int64(row, 1);
    gboolean is_for_ever = sqlite3_column_type(row, 3) == SQLITE_NULL;
    QosTime expires = is_for_ever ? QOS_NEVER : sqlite3_column_int64(row, 3);

    if (position != record->rules.rules->len || id < 1 || (guint64)id > record->rules.version ||
        *text(row, 2) == '\0' || expires <= 0)
        return FALSE;
    qos_server_db_rules_add(&record->rules, (guint64)id, text(row, 2), expires);
    return TRUE;
}

static gboolean take_entry(QosServerRecord *record, sqlite3_stmt *row)
{
    gint64 number = sqlite3_column_int64(row, 3);
    const QosServerDbLogEntry entry = {.time = sqlite3_column_int64(row, 0),
                                       .principal = (char *)text(row, 1),
                                       .command = (char *)text(row, 2),
                                       .error = (guint)number,
                                       .result = (char *)text(row, 4)};

    if (number < 0 || number > G_MAXINT)
        return FALSE;
    g_ptr_array_add(record->log, qos_server_db_log_entry_new(&entry));
    return TRUE;
}

static gboolean take_budget_client(QosServerRecord *record, sqlite3_stmt *row)
{
    gint64 parts = sqlite3_column_int64(row, 2);
    QosServerDbBudgetClient *client;

    if (parts < 1 || parts > QOS_SERVER_DB_PARTS_MAX)
        return FALSE;
    client = g_new(QosServerDbBudgetClient, 1);
    *client = (QosServerDbBudgetClient){.id = (QosOwnerId)sqlite3_column_int64(row, 0),
                                        .name = g_strdup(text(row, 1)),
                                        .parts = (guint)parts};
    g_ptr_array_add(record->budget_clients, client);
    return TRUE;
}

static gboolean take_job(QosServerRecord *record, sqlite3_stmt *row)
{
    gint64 nodes = sqlite3_column_int64(row, 1), weight = sqlite3_column_int64(row, 2);
    QosTime expires = sqlite3_column_int64(row, 3);
    QosServerDbJob *job;

    if (*text(row, 0) == '\0' || nodes < 1 || nodes > QOS_SERVER_DB_JOB_MAX || weight < 1 ||
        weight > QOS_SERVER_DB_JOB_MAX || expires <= 0)
        return FALSE;
    job = g_new(QosServerDbJob, 1);
    *job = (QosServerDbJob){.id = g_strdup(text(row, 0)),
                            .nodes = (guint)nodes,
                            .weight = (guint)weight,
                            .expires = expires};
    g_ptr_array_add(record->jobs, job);
    return TRUE;
}

gboolean qos_server_db_read_rules(sqlite3 *sqlite, const QosDbSchema *schema, const char *path,
                                  QosServerRecord *record, GError **error)
{
    return read_rows(sqlite, schema, path, "SELECT rules_version FROM server",
                     "the version of its rules cannot be", take_version, record, error) &&
           read_rows(sqlite, schema, path,
                     "SELECT position, id, command, expires FROM cluster_rule ORDER BY position",
                     "a rule of the cluster cannot be", take_rule, record, error) &&
           read_rows(sqlite, schema, path,
                     "SELECT time, principal, command, error, result FROM (SELECT * FROM "
                     "cluster_log ORDER BY number DESC LIMIT " G_STRINGIFY(
                         QOS_SERVER_DB_LOG_MAX) ") ORDER BY number",
                     "its log of rules cannot be", take_entry, record, error) &&
           read_rows(sqlite, schema, path, "SELECT id, name, parts FROM budget_client",
                     "a mount's part of floors cannot be", take_budget_client, record, error) &&
           read_rows(sqlite, schema, path, "SELECT id, nodes, weight, expires FROM cluster_job",
                     "the size of a job cannot be", take_job, record, error);
}
