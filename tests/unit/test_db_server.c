/*
 * The server's database: what it has again after a restart, and what it does while it cannot write.
 */
#include <errno.h>
#include <glib/gstdio.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db_server.h"

#define PATIENCE (60 * G_TIME_SPAN_SECOND)

typedef struct {
    char *folder, *path;
    QosServerDb *db;
    GArray *saved; /* of QosOwnerId */
    char *trouble;
    guint changes; /* of trouble */
} Fixture;

static void saved(QosOwnerId client, gpointer arg)
{
    g_array_append_val(((Fixture *)arg)->saved, client);
}

static void trouble(const char *message, gpointer arg)
{
    Fixture *fixture = arg;

    g_free(fixture->trouble);
    fixture->trouble = g_strdup(message);
    fixture->changes++;
}

static const QosServerRecord *reopen(Fixture *fixture)
{
    const QosServerDbCalls calls = {saved, trouble, fixture};
    g_autoptr(GError) error = NULL;

    qos_server_db_close(fixture->db);
    fixture->db = qos_server_db_open(fixture->path, &calls, &error);
    g_assert_no_error(error);
    return qos_server_db_record(fixture->db);
}

static void set_up(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fixture->folder = g_dir_make_tmp("qosfs-db-server-XXXXXX", NULL);
    fixture->path = g_build_filename(fixture->folder, "server.db", NULL);
    fixture->saved = g_array_new(FALSE, FALSE, sizeof(QosOwnerId));
    reopen(fixture);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};

    qos_server_db_close(fixture->db);
    for (guint i = 0; i < G_N_ELEMENTS(suffixes); i++) {
        g_autofree char *name = g_strconcat(fixture->path, suffixes[i], NULL);
        g_unlink(name);
    }
    g_assert_cmpint(g_rmdir(fixture->folder), ==, 0);
    g_free(fixture->path);
    g_free(fixture->folder);
    g_free(fixture->trouble);
    g_array_unref(fixture->saved);
}

static gboolean wake(G_GNUC_UNUSED gpointer data)
{
    return G_SOURCE_CONTINUE;
}

/* Until there are so many saved, or so many changes of trouble. */
static void wait_for(const guint *count, guint wanted)
{
    gint64 end = g_get_monotonic_time() + PATIENCE;
    guint timer = g_timeout_add(50, wake, NULL);

    while (*count < wanted && g_get_monotonic_time() < end)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timer);
    g_assert_cmpuint(*count, ==, wanted);
}

static void test_restart(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    const QosOwnerId large = G_MAXUINT64 - 1;
    const QosServerRecord *record = qos_server_db_record(fixture->db);
    QosOwnerId id = record->id;

    g_assert_cmpuint(record->incarnation, ==, 1);
    g_assert_cmpuint(id, !=, 0);
    g_assert_null(record->store);
    g_assert_cmpuint(record->clients->len, ==, 0);
    qos_server_db_save_client(fixture->db, large, "uid 0", "node:/mnt");
    qos_server_db_save_client(fixture->db, 7, "CN=b", "other");
    wait_for(&fixture->saved->len, 2);
    qos_server_db_save_store(fixture->db, "ext4:17");
    qos_server_db_save_tunable(fixture->db, "limit", "1G");
    qos_server_db_save_tunable(fixture->db, "cap", "1M");
    qos_server_db_save_tunable(fixture->db, "cap", NULL);
    qos_server_db_forget_client(fixture->db, 7);

    record = reopen(fixture);
    g_assert_cmpuint(record->id, ==, id);
    g_assert_cmpuint(record->incarnation, ==, 2);
    g_assert_cmpstr(record->store, ==, "ext4:17");
    g_assert_cmpuint(record->clients->len, ==, 1);
    const QosServerDbClient *client = record->clients->pdata[0];
    g_assert_cmpuint(client->id, ==, large);
    g_assert_cmpstr(client->principal, ==, "uid 0");
    g_assert_cmpstr(client->name, ==, "node:/mnt");
    g_assert_cmpuint(g_hash_table_size(record->tunables), ==, 1);
    g_assert_cmpstr(g_hash_table_lookup(record->tunables, "limit"), ==, "1G");
    g_assert_cmpuint(reopen(fixture)->incarnation, ==, 3);
}

static void note_durable(guint64 number, gpointer arg)
{
    *(guint *)arg = (guint)number;
}

/* Parts of floors and sizes of jobs; the number of a change says when it is durable. */
static void test_cluster(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint durable = 0;

    qos_server_db_watch(fixture->db, note_durable, &durable);
    qos_server_db_save_budget_client(fixture->db, G_MAXUINT64 - 1, "node:/mnt", 16);
    qos_server_db_save_budget_client(fixture->db, 7, "other", 8);
    qos_server_db_save_job(fixture->db, "4711", 12, 3, 99);
    qos_server_db_save_job(fixture->db, "4712", 1, 1, 99);
    qos_server_db_forget_job(fixture->db, "4712");
    g_assert_cmpuint(qos_server_db_forget_budget_client(fixture->db, 7), ==, 6);
    wait_for(&durable, 6);
    const QosServerRecord *record = reopen(fixture);
    g_assert_cmpuint(record->budget_clients->len, ==, 1);
    const QosServerDbBudgetClient *client = record->budget_clients->pdata[0];
    g_assert_cmpuint(client->id, ==, G_MAXUINT64 - 1);
    g_assert_cmpstr(client->name, ==, "node:/mnt");
    g_assert_cmpuint(client->parts, ==, 16);
    g_assert_cmpuint(record->jobs->len, ==, 1);
    const QosServerDbJob *job = record->jobs->pdata[0];
    g_assert_cmpstr(job->id, ==, "4711");
    g_assert_cmpuint(job->nodes, ==, 12);
    g_assert_cmpuint(job->weight, ==, 3);
    g_assert_cmpint(job->expires, ==, 99);
}

static void test_one_server(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    const QosServerDbCalls calls = {saved, trouble, fixture};
    g_autofree char *link = g_build_filename(fixture->folder, "link.db", NULL);
    g_autoptr(GError) error = NULL;

    g_assert_cmpint(symlink(fixture->path, link), ==, 0);
    g_assert_null(qos_server_db_open(link, &calls, &error)); /* the same, by another name */
    g_assert_error(error, QOS_ERROR, EBUSY);
    g_assert_nonnull(strstr(error->message, "another server uses it"));
    g_unlink(link);
}

/* A grace of such a length would end for nobody; and an incarnation that begins anew makes tokens
 * that mounts have already. */
static void test_damaged_server(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const changes[] = {
        "UPDATE server SET lease = -1", "UPDATE server SET lease = 9223372036854775807",
        "INSERT INTO client VALUES (1, 'uid 0', 'node1'); DELETE FROM server"};
    const QosServerDbCalls calls = {saved, trouble, fixture};

    g_clear_pointer(&fixture->db, qos_server_db_close);
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autoptr(GError) error = NULL;
        sqlite3 *other = NULL;

        g_assert_cmpint(sqlite3_open(fixture->path, &other), ==, SQLITE_OK);
        g_assert_cmpint(sqlite3_exec(other, changes[i], NULL, NULL, NULL), ==, SQLITE_OK);
        sqlite3_close(other);
        g_assert_null(qos_server_db_open(fixture->path, &calls, &error));
        g_assert_error(error, QOS_ERROR, EUCLEAN);
    }
}

typedef struct {
    QosServerDb *db;
    guint count;
} Renamer;

static gboolean rename_client(gpointer data)
{
    Renamer *renamer = data;
    g_autofree char *name = g_strdup_printf("name %u", ++renamer->count);

    qos_server_db_save_client(renamer->db, 5, "uid 0", name);
    return G_SOURCE_CONTINUE;
}

/* While another program keeps the database from being written, what is handed over waits, and the
 * last word counts. */
static void test_trouble(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    Renamer renamer = {.db = fixture->db};
    sqlite3 *other = NULL;

    g_assert_cmpint(sqlite3_open(fixture->path, &other), ==, SQLITE_OK);
    g_assert_cmpint(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), ==, SQLITE_OK);
    qos_server_db_save_client(fixture->db, 5, "uid 0", "first");
    guint timer = g_timeout_add(20, rename_client, &renamer); /* also while it tries to write */
    wait_for(&fixture->changes, 1);
    g_source_remove(timer);
    g_assert_nonnull(strstr(fixture->trouble, "cannot write to it"));
    g_assert_cmpuint(fixture->saved->len, ==, 0);
    qos_server_db_save_client(fixture->db, 6, "uid 0", "gone");
    qos_server_db_forget_client(fixture->db, 6);
    g_assert_cmpint(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), ==, SQLITE_OK);
    sqlite3_close(other);
    wait_for(&fixture->changes, 2);
    g_assert_null(fixture->trouble);
    wait_for(&fixture->saved->len, 1);

    const QosServerRecord *record = reopen(fixture);
    g_autofree char *newest = g_strdup_printf("name %u", renamer.count);
    g_assert_cmpuint(record->clients->len, ==, 1);
    g_assert_cmpstr(((const QosServerDbClient *)record->clients->pdata[0])->name, ==, newest);
}

/* A mount that is not in the file would be forgotten by the next start, with all that it has. */
static void test_removed(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *elsewhere = g_strconcat(fixture->path, ".old", NULL);

    g_assert_cmpint(g_rename(fixture->path, elsewhere), ==, 0);
    qos_server_db_save_client(fixture->db, 1, "unix:0", "a");
    wait_for(&fixture->changes, 1);
    g_assert_cmpuint(fixture->saved->len, ==, 0);
    g_assert_nonnull(strstr(fixture->trouble, "was removed"));
    g_assert_cmpint(g_rename(elsewhere, fixture->path), ==, 0);
    wait_for(&fixture->saved->len, 1);
    wait_for(&fixture->changes, 2);
    g_assert_null(fixture->trouble);
}

/* --- rules of the cluster --- */

typedef struct {
    guint count; /* of answers */
    GError *error;
} Answer;

static void answered(const GError *error, gpointer arg)
{
    Answer *answer = arg;

    g_clear_error(&answer->error);
    answer->error = error != NULL ? g_error_copy(error) : NULL;
    answer->count++;
}

static const QosServerDbLogEntry entry_template = {
    .time = 5, .principal = (char *)"uid 0", .command = (char *)"stop x", .result = (char *)"done"};

/* Saves a list of that version, of two rules (0: only an entry of the log), and waits for the
 * answer. */
static void save_rules(Fixture *fixture, guint64 version, Answer *answer)
{
    QosServerDbRules rules = qos_server_db_rules_new();
    guint wanted = answer->count + 1;

    rules.version = version;
    qos_server_db_rules_add(&rules, version, "start a jobid={x} rate=1", QOS_NEVER);
    qos_server_db_rules_add(&rules, 1, "start b jobid={y} rate=1", 17);
    qos_server_db_save_rules(fixture->db, version > 0 ? &rules : NULL, &entry_template, answered,
                             answer);
    wait_for(&answer->count, wanted);
    qos_server_db_rules_clear(&rules);
}

static void assert_rules(Fixture *fixture, guint64 version, guint count, guint entries)
{
    const QosServerRecord *record = reopen(fixture);
    const QosServerDbRules *rules = qos_server_db_load_rules(fixture->db);

    g_assert_cmpuint(rules->version, ==, version);
    g_assert_cmpuint(rules->rules->len, ==, count);
    g_assert_cmpuint(record->log->len, ==, entries);
    if (count != 2)
        return;
    const QosServerDbRule *first = rules->rules->pdata[0], *second = rules->rules->pdata[1];
    g_assert_cmpuint(first->id, ==, version);
    g_assert_cmpstr(first->command, ==, "start a jobid={x} rate=1");
    g_assert_cmpint(first->expires, ==, QOS_NEVER);
    g_assert_cmpuint(second->id, ==, 1);
    g_assert_cmpstr(second->command, ==, "start b jobid={y} rate=1");
    g_assert_cmpint(second->expires, ==, 17);
}

static void execute(const Fixture *fixture, const char *sql)
{
    sqlite3 *other = NULL;

    g_assert_cmpint(sqlite3_open(fixture->path, &other), ==, SQLITE_OK);
    sqlite3_busy_timeout(other, 5000);
    g_assert_cmpint(sqlite3_exec(other, sql, NULL, NULL, NULL), ==, SQLITE_OK);
    sqlite3_close(other);
}

static void test_rules(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    Answer answer = {0};

    assert_rules(fixture, 0, 0, 0);
    save_rules(fixture, 3, &answer);
    g_assert_no_error(answer.error);
    save_rules(fixture, 4, &answer); /* instead of the other one */
    save_rules(fixture, 0, &answer); /* the list stays */
    g_assert_no_error(answer.error);
    assert_rules(fixture, 4, 2, 3);
    const QosServerDbLogEntry *entry = qos_server_db_record(fixture->db)->log->pdata[2];
    g_assert_cmpint(entry->time, ==, 5);
    g_assert_cmpstr(entry->principal, ==, "uid 0");
    g_assert_cmpstr(entry->command, ==, "stop x");
    g_assert_cmpuint(entry->error, ==, 0);
    g_assert_cmpstr(entry->result, ==, "done");
}

/* List, version and log are written together or not at all; and it is tried once. */
static void test_rules_trouble(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *elsewhere = g_strconcat(fixture->path, ".old", NULL);
    Answer answer = {0};

    save_rules(fixture, 3, &answer);
    execute(fixture, "CREATE TRIGGER full BEFORE INSERT ON cluster_log "
                     "BEGIN SELECT RAISE(ABORT, 'it is full'); END");
    save_rules(fixture, 4, &answer);
    g_assert_error(answer.error, QOS_ERROR, EIO);
    g_assert_nonnull(strstr(answer.error->message, "cannot save the rules of the cluster"));
    g_assert_nonnull(strstr(answer.error->message, "it is full"));
    execute(fixture, "DROP TRIGGER full");
    assert_rules(fixture, 3, 2, 1);

    g_assert_cmpint(g_rename(fixture->path, elsewhere), ==, 0);
    save_rules(fixture, 4, &answer);
    g_assert_nonnull(strstr(answer.error->message, "was removed"));
    g_assert_cmpint(g_rename(elsewhere, fixture->path), ==, 0);
    save_rules(fixture, 5, &answer);
    g_assert_no_error(answer.error);
    g_assert_cmpuint(fixture->changes, ==, 0); /* that is trouble with mounts */
    assert_rules(fixture, 5, 2, 2);
}

/* While a client is saved, and at once with the end: then nobody is told. */
static void test_rules_beside_clients(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    Answer answer = {0};

    qos_server_db_save_client(fixture->db, 7, "uid 0", "node");
    save_rules(fixture, 3, &answer);
    wait_for(&fixture->saved->len, 1);
    qos_server_db_save_rules(fixture->db, NULL, &entry_template, answered, &answer);
    reopen(fixture);
    while (g_main_context_iteration(NULL, FALSE))
        continue;
    g_assert_cmpuint(answer.count, ==, 1);
    g_assert_cmpuint(qos_server_db_record(fixture->db)->clients->len, ==, 1);
}

static void test_log_is_bounded(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    Answer answer = {0};

    execute(fixture, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < "
                     "1000) INSERT INTO cluster_log SELECT i, i, 'uid 1', 'old', 1, 'no' FROM n");
    assert_rules(fixture, 0, 0, 1000);
    save_rules(fixture, 2, &answer);
    g_assert_no_error(answer.error);
    const GPtrArray *log = reopen(fixture)->log;
    g_assert_cmpuint(log->len, ==, 1000);
    g_assert_cmpint(((const QosServerDbLogEntry *)log->pdata[0])->time, ==, 2);
    g_assert_cmpint(((const QosServerDbLogEntry *)log->pdata[998])->time, ==, 1000);
    g_assert_cmpstr(((const QosServerDbLogEntry *)log->pdata[999])->command, ==, "stop x");
}

/* A row that cannot be keeps the server from starting, and nothing is lost by that. */
static void test_damaged_rules(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const changes[][2] = {
        {"UPDATE server SET rules_version = -1", "UPDATE server SET rules_version = 3"},
        {"UPDATE server SET rules_version = 2", "UPDATE server SET rules_version = 3"},
        {"UPDATE cluster_rule SET position = 2 WHERE position = 1",
         "UPDATE cluster_rule SET position = 1 WHERE position = 2"},
        {"UPDATE cluster_rule SET id = 0 WHERE position = 1",
         "UPDATE cluster_rule SET id = 1 WHERE position = 1"},
        {"UPDATE cluster_rule SET command = '' WHERE position = 1",
         "UPDATE cluster_rule SET command = 'start b jobid={y} rate=1' WHERE position = 1"},
        {"UPDATE cluster_rule SET expires = 0 WHERE position = 1",
         "UPDATE cluster_rule SET expires = 17 WHERE position = 1"},
        {"UPDATE cluster_log SET error = -1", "UPDATE cluster_log SET error = 0"},
    };
    const QosServerDbCalls calls = {saved, trouble, fixture};
    Answer answer = {0};

    save_rules(fixture, 3, &answer);
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autoptr(GError) error = NULL;

        g_clear_pointer(&fixture->db, qos_server_db_close);
        execute(fixture, changes[i][0]);
        g_assert_null(qos_server_db_open(fixture->path, &calls, &error));
        g_assert_error(error, QOS_ERROR, EUCLEAN);
        execute(fixture, changes[i][1]);
        assert_rules(fixture, 3, 2, 1);
    }
}

/* A database of a server that knew no rules keeps all that it has. */
static void test_upgrade(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosOwnerId id = qos_server_db_record(fixture->db)->id;
    Answer answer = {0};

    qos_server_db_save_client(fixture->db, 7, "uid 0", "node");
    qos_server_db_save_store(fixture->db, "ext4:17");
    qos_server_db_save_claimable(fixture->db, 4096);
    g_clear_pointer(&fixture->db, qos_server_db_close);
    execute(fixture, "DROP TABLE cluster_rule; DROP TABLE cluster_log; "
                     "DROP TABLE budget_client; DROP TABLE cluster_job; "
                     "ALTER TABLE server DROP COLUMN rules_version; PRAGMA user_version = 2");
    assert_rules(fixture, 0, 0, 0);
    const QosServerRecord *record = qos_server_db_record(fixture->db);
    g_assert_cmpuint(record->id, ==, id);
    g_assert_cmpuint(record->incarnation, ==, 2);
    g_assert_cmpstr(record->store, ==, "ext4:17");
    g_assert_cmpint(record->claimable, ==, 4096);
    g_assert_cmpuint(record->clients->len, ==, 1);
    save_rules(fixture, 2, &answer);
    g_assert_no_error(answer.error);
    assert_rules(fixture, 2, 2, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/db-server/restart", Fixture, NULL, set_up, test_restart, tear_down);
    g_test_add("/db-server/cluster", Fixture, NULL, set_up, test_cluster, tear_down);
    g_test_add("/db-server/one-server", Fixture, NULL, set_up, test_one_server, tear_down);
    g_test_add("/db-server/damaged-server", Fixture, NULL, set_up, test_damaged_server, tear_down);
    g_test_add("/db-server/removed", Fixture, NULL, set_up, test_removed, tear_down);
    g_test_add("/db-server/trouble", Fixture, NULL, set_up, test_trouble, tear_down);
    g_test_add("/db-server/rules", Fixture, NULL, set_up, test_rules, tear_down);
    g_test_add("/db-server/rules/trouble", Fixture, NULL, set_up, test_rules_trouble, tear_down);
    g_test_add("/db-server/rules/beside-clients", Fixture, NULL, set_up, test_rules_beside_clients,
               tear_down);
    g_test_add("/db-server/rules/log-is-bounded", Fixture, NULL, set_up, test_log_is_bounded,
               tear_down);
    g_test_add("/db-server/rules/damaged", Fixture, NULL, set_up, test_damaged_rules, tear_down);
    g_test_add("/db-server/rules/upgrade", Fixture, NULL, set_up, test_upgrade, tear_down);
    return g_test_run();
}
