/*
 * The database: what is saved comes back exactly.
 */
#include <string.h>

#include "base/error.h"
#include "db/db_private.h"
#include "db_fixture.h"

/* --- rules, tunables, totals --- */

static void test_rules(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    const char *order[] = {"top", "short", "default", "low", "lowest"};
    QosRules *rules = qos_rules_new();
    QosRules *loaded;
    QosDb *db = open_good(fixture);

    loaded = qos_db_load_rules(db, NOW, WALL, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(qos_rules_count(loaded), ==, 1);
    qos_rules_unref(loaded);

    rules = apply(rules, "start lowest jobid={dd.*}&uid={0 7} rate=100 per=uid");
    rules = apply(rules, "start low opcode={data} bps=1M dryrun=1");
    rules = apply(rules, "change default rank=low");
    rules = apply(rules, "start short uid={1} rate=5 expire=60.5");
    rules = apply(rules, "start gone uid={1} rate=5 expire=10");
    rules = apply(rules, "start top gid={3},jobid={a b} rate=7 depth=9:4K weight=2 min=3");
    g_assert_true(qos_db_save_rules(db, rules, NOW, WALL, &error));
    g_assert_no_error(error);
    qos_db_close(db);

    db = open_good(fixture);
    loaded = qos_db_load_rules(db, 5 * QOS_SECOND, WALL + 10 * QOS_SECOND, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(qos_rules_count(loaded), ==, G_N_ELEMENTS(order));
    for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
        const QosRule *rule = qos_rules_get(loaded, i);
        g_autofree char *command = qos_rule_command(rule);
        g_autofree char *saved = qos_rule_command(qos_rules_by_name(rules, order[i]));

        g_assert_cmpstr(rule->name, ==, order[i]);
        g_assert_cmpstr(command, ==, saved);
    }
    g_assert_cmpint(qos_rules_by_name(loaded, "short")->expires, ==,
                    5 * QOS_SECOND + 50 * QOS_SECOND + QOS_SECOND / 2);
    g_assert_cmpint(qos_rules_by_name(loaded, "top")->expires, ==, QOS_NEVER);
    qos_rules_unref(loaded);
    qos_rules_unref(rules);
    qos_db_close(db);
}

/* Where the clock has no more numbers, it ends with them. */
static void test_late_expiry(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosRules *rules = apply(qos_rules_new(), "start late uid={1} rate=5 expire=100000d");
    QosDb *db = open_good(fixture);

    g_assert_true(qos_db_save_rules(db, rules, NOW, WALL, NULL));
    qos_rules_unref(rules);
    rules = qos_db_load_rules(db, NOW, WALL, NULL);
    g_assert_cmpint(qos_rules_by_name(rules, "late")->expires, ==, NOW + (QOS_NEVER - WALL));
    qos_rules_unref(rules);
    execute(fixture->path,
            "UPDATE rule SET expires = -9223372036854775807 - 1 WHERE name = 'late'");
    rules = qos_db_load_rules(db, NOW, WALL, NULL);
    g_assert_null(qos_rules_by_name(rules, "late"));
    qos_rules_unref(rules);
    qos_db_close(db);
}

static void test_changed_default(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    QosRules *rules = apply(qos_rules_new(), "change default rate=50 per=rule");
    QosDb *db = open_good(fixture);

    g_assert_true(qos_db_save_rules(db, rules, NOW, WALL, &error));
    qos_rules_unref(rules);
    rules = qos_db_load_rules(db, NOW, WALL, &error);
    g_assert_no_error(error);
    g_assert_cmpint(qos_rules_get(rules, 0)->rate, ==, 50);
    g_assert_cmpint(qos_rules_get(rules, 0)->per, ==, QOS_PER_RULE);
    qos_rules_unref(rules);
    qos_db_close(db);
}

static void test_tunables(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GHashTable) tunables = NULL;
    QosDb *db = open_good(fixture);

    g_assert_true(qos_db_save_tunable(db, "slots", "4", &error));
    g_assert_true(qos_db_save_tunable(db, "jobid_var", "it's \"quoted\"", &error));
    g_assert_true(qos_db_save_tunable(db, "slots", "8", &error));
    qos_db_close(db);
    db = open_good(fixture);
    tunables = qos_db_load_tunables(db, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(g_hash_table_size(tunables), ==, 2);
    g_assert_cmpstr(g_hash_table_lookup(tunables, "slots"), ==, "8");
    g_assert_cmpstr(g_hash_table_lookup(tunables, "jobid_var"), ==, "it's \"quoted\"");
    qos_db_close(db);
}

/* What comes back of `job`, saved at NOW and WALL and loaded `later` ns after. */
static void assert_came_back(GPtrArray *jobs, const QosJob *job, QosTime later)
{
    const QosJob *back = NULL;

    for (guint i = 0; i < jobs->len; i++) {
        if (strcmp(((QosJob *)g_ptr_array_index(jobs, i))->id, job->id) == 0)
            back = g_ptr_array_index(jobs, i);
    }
    g_assert_nonnull(back);
    g_assert_cmpuint(back->nodes, ==, job->nodes);
    g_assert_cmpint(back->started, ==, NOW - job->started + later);
    g_assert_cmpint(back->seen, ==, NOW - job->seen + later);
    g_assert_cmpuint(back->requests, ==, job->requests);
    g_assert_cmpuint(back->waits, ==, job->waits);
    g_assert_cmpuint(back->errors, ==, job->errors);
    g_assert_cmpint(back->store_time, ==, job->store_time);
    g_assert_cmpint(back->wait_time, ==, job->wait_time);
    g_assert_cmpmem(back->operation, sizeof(back->operation), job->operation,
                    sizeof(job->operation));
    g_assert_cmpmem(&back->read_bytes, sizeof(QosSample), &job->read_bytes, sizeof(QosSample));
    g_assert_cmpmem(&back->write_bytes, sizeof(QosSample), &job->write_bytes, sizeof(QosSample));
    g_assert_cmpmem(&back->read_sizes, sizeof(QosHistogram), &job->read_sizes,
                    sizeof(QosHistogram));
    g_assert_cmpmem(&back->write_sizes, sizeof(QosHistogram), &job->write_sizes,
                    sizeof(QosHistogram));
    g_assert_cmpuint(back->wait_count, ==, job->wait_count);
    for (guint i = 0; i < job->wait_count; i++) {
        g_assert_cmpstr(back->wait[i].rule_name, ==, job->wait[i].rule_name);
        g_assert_cmpuint(back->wait[i].count, ==, job->wait[i].count);
        g_assert_cmpint(back->wait[i].waited, ==, job->wait[i].waited);
        g_assert_cmpint(back->wait[i].longest, ==, job->wait[i].longest);
        g_assert_cmpint(back->wait[i].first, ==, NOW - job->wait[i].first + later);
        g_assert_cmpint(back->wait[i].last, ==, NOW - job->wait[i].last + later);
    }
}

static void test_jobs(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree QosJob *a = new_job("a", 1000);
    g_autofree QosJob *b = new_job("b\xff'\"\n", 2000);
    g_autofree QosJob *c = new_job("c", 3000);
    GPtrArray *jobs;
    QosDb *db = open_good(fixture);

    save_jobs(db, (const QosJob *[]){a, b}, 2);
    qos_db_close(db);

    /* The first snapshot of another life replaces all; later ones what moved and what is gone. */
    db = open_good(fixture);
    jobs = load_jobs(db, WALL + 42);
    g_assert_cmpuint(jobs->len, ==, 2);
    assert_came_back(jobs, a, 42);
    assert_came_back(jobs, b, 42);
    g_ptr_array_unref(jobs);
    save_jobs(db, (const QosJob *[]){b, c}, 2);
    b->requests++;
    b->wait_count = 1;
    save_jobs(db, (const QosJob *[]){a, b}, 2);
    jobs = load_jobs(db, WALL);
    g_assert_cmpuint(jobs->len, ==, 2);
    assert_came_back(jobs, a, 0);
    assert_came_back(jobs, b, 0);
    g_ptr_array_unref(jobs);

    /* The clock was set back: nothing was in the future. */
    jobs = load_jobs(db, 5);
    for (guint i = 0; i < jobs->len; i++)
        g_assert_cmpint(((QosJob *)g_ptr_array_index(jobs, i))->seen, ==, 0);
    g_ptr_array_unref(jobs);
    save_jobs(db, NULL, 0);
    jobs = load_jobs(db, WALL);
    g_assert_cmpuint(jobs->len, ==, 0);
    g_ptr_array_unref(jobs);
    qos_db_close(db);
}

/* Of jobs that did nothing since, no row is written again. */
static void test_unmoved_jobs_stay(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree QosJob *job = new_job("a", 1000);
    g_autofree QosJob *other = new_job("b", 1000);
    GPtrArray *jobs;
    QosDb *db = open_good(fixture);

    save_jobs(db, (const QosJob *[]){job, other}, 2);
    execute(fixture->path, "UPDATE job SET nodes = 99");
    other->requests++;
    save_jobs(db, (const QosJob *[]){job, other}, 2);
    jobs = load_jobs(db, WALL);
    job->nodes = 99;
    assert_came_back(jobs, job, 0);
    assert_came_back(jobs, other, 0);
    g_ptr_array_unref(jobs);
    qos_db_close(db);
}

/* What was handed over and not yet written is written at close. */
static void test_close_writes(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    GPtrArray *jobs = g_ptr_array_new_with_free_func(g_free);
    QosDb *db = open_good(fixture);

    g_ptr_array_add(jobs, new_job("late", 1));
    qos_db_save_jobs(db, jobs, NOW, WALL, 7);
    qos_db_close(db);
    db = open_good(fixture);
    jobs = load_jobs(db, WALL);
    g_assert_cmpuint(jobs->len, ==, 1);
    g_ptr_array_unref(jobs);
    qos_db_close(db);
}

/* --- what was lent and borrowed --- */

static GArray *make_shares(guint count, gint64 record)
{
    GArray *shares = g_array_new(FALSE, TRUE, sizeof(QosDbShare));

    for (guint i = 0; i < count; i++) {
        QosDbShare share = {.record = i % 2 ? -record : record,
                            .totals = {i, 2 * i, 3 * i, G_MAXINT64 - i}};

        g_snprintf(share.job, sizeof(share.job), "job%u", i);
        g_array_append_val(shares, share);
    }
    return shares;
}

static void save_some_shares(QosDb *db, guint count, gint64 record, gboolean all)
{
    g_autoptr(GArray) shares = make_shares(count, record);
    g_autoptr(GError) error = NULL;

    g_assert_true(qos_db_save_shares(db, shares, all, &error));
    g_assert_no_error(error);
}

static void save_shares(QosDb *db, guint count, gint64 record)
{
    save_some_shares(db, count, record, TRUE);
}

static void assert_shares(QosDb *db, guint count, gint64 record)
{
    g_autoptr(GArray) expected = make_shares(count, record);
    g_autoptr(GError) error = NULL;
    g_autoptr(GArray) shares = qos_db_load_shares(db, &error);

    g_assert_no_error(error);
    g_assert_cmpuint(shares->len, ==, count);
    for (guint i = 0; i < count; i++)
        g_assert_cmpmem(&g_array_index(shares, QosDbShare, i), sizeof(QosDbShare),
                        &g_array_index(expected, QosDbShare, i), sizeof(QosDbShare));
}

/* That of the shares waits for no disk; all that is written after it does. */
static void assert_durable(QosDb *db)
{
    sqlite3_stmt *statement = NULL;

    g_assert_cmpint(sqlite3_prepare_v2(db->sqlite, "PRAGMA synchronous", -1, &statement, NULL), ==,
                    SQLITE_OK);
    g_assert_cmpint(sqlite3_step(statement), ==, SQLITE_ROW);
    g_assert_cmpint(sqlite3_column_int(statement, 0), ==, 2); /* FULL */
    sqlite3_finalize(statement);
}

static void test_shares(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosDb *db = open_good(fixture);

    assert_durable(db);
    assert_shares(db, 0, 0);
    save_shares(db, 5, 1000);
    assert_durable(db);
    assert_shares(db, 5, 1000);
    save_shares(db, 3, 1001); /* changed, and two are gone */
    save_shares(db, 3, 1001);
    assert_shares(db, 3, 1001);
    qos_db_close(db);
    db = open_good(fixture);
    assert_shares(db, 3, 1001);
    save_shares(db, 2, 7); /* it does not know yet what is there */
    assert_shares(db, 2, 7);
    save_some_shares(db, 1, 7, FALSE); /* the others stay */
    assert_shares(db, 2, 7);
    qos_db_close(db);
}

/* A row is written where one of its numbers has changed, and only then. */
static void test_each_number_of_a_share(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GArray) shares = make_shares(1, 7);
    QosDbShare *share = &g_array_index(shares, QosDbShare, 0);
    gint64 *const numbers[] = {&share->record, &share->totals.lent, &share->totals.returned,
                               &share->totals.borrowed, &share->totals.repaid};
    QosDb *db = open_good(fixture);

    share->totals.repaid = 0;
    for (guint i = 0; i < G_N_ELEMENTS(numbers); i++) {
        ++*numbers[i];
        g_assert_true(qos_db_save_shares(db, shares, TRUE, NULL));
        g_autoptr(GArray) saved = qos_db_load_shares(db, NULL);
        g_assert_cmpmem(saved->data, sizeof(*share), share, sizeof(*share));
        int changes = sqlite3_total_changes(db->sqlite);
        g_assert_true(qos_db_save_shares(db, shares, TRUE, NULL));
        g_assert_cmpint(sqlite3_total_changes(db->sqlite), ==, changes);
    }
    qos_db_close(db);
}

static void test_damaged_shares(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const damages[][2] = {
        {"UPDATE share SET lent = -1 WHERE id = CAST('job1' AS BLOB)",
         "*job \"job1\"*a total is negative*"},
        {"UPDATE share SET repaid = -1 WHERE id = CAST('job1' AS BLOB)", "*a total is negative*"},
        {"UPDATE share SET record = 9223372036854775807 WHERE id = CAST('job1' AS BLOB)",
         "*job \"job1\"*out of range*"},
        {"UPDATE share SET id = zeroblob(64) WHERE id = CAST('job1' AS BLOB)", "*id is too long*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(damages); i++) {
        QosDb *db = open_good(fixture);

        save_shares(db, 2, 7);
        qos_db_close(db);
        execute(fixture->path, damages[i][0]);
        db = open_good(fixture);
        g_test_expect_message(G_LOG_DOMAIN, G_LOG_LEVEL_WARNING, damages[i][1]);
        assert_shares(db, 1, 7);
        g_test_assert_expected_messages();
        qos_db_close(db);
    }
}

/* What could not be written is written with the next, also where it has not changed since. */
static void test_shares_after_a_failure(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GArray) shares = make_shares(2, 7);
    g_autoptr(GError) error = NULL;
    QosDb *db = open_good(fixture);

    execute(fixture->path, "CREATE TRIGGER full BEFORE INSERT ON share "
                           "BEGIN SELECT RAISE(ABORT, 'no room'); END");
    g_assert_false(qos_db_save_shares(db, shares, TRUE, &error));
    g_assert_nonnull(strstr(error->message, "no room"));
    assert_shares(db, 0, 0);
    execute(fixture->path, "DROP TRIGGER full");
    save_shares(db, 2, 7);
    assert_shares(db, 2, 7);
    qos_db_close(db);
}

/* More of a job than there is room for. */
static void test_damaged_jobs(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree QosJob *job = new_job("a", 1000);
    QosDb *db = open_good(fixture);

    save_jobs(db, (const QosJob *[]){job}, 1);
    execute(fixture->path,
            "WITH RECURSIVE places(n) AS (VALUES(100) UNION ALL SELECT n + 1 FROM places "
            "WHERE n < 10000) INSERT INTO job_wait SELECT job, n, 'r', 1, 1, 1, 1, 1 FROM job, "
            "places");
    execute(fixture->path, "UPDATE job_counter SET histogram = '4000000000:1 1:5 100000:1'");
    g_autoptr(GPtrArray) jobs = load_jobs(db, WALL);
    const QosJob *back = g_ptr_array_index(jobs, 0);
    g_assert_cmpuint(back->wait_count, ==, QOS_JOB_WAITS_MAX);
    g_assert_cmpuint(back->read_sizes.count[1], ==, 5);
    qos_db_close(db);
}

/* The id stays, the number grows; when there are no more, there is a new id. */
static void test_identity(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    guint64 id = 0, again;
    guint32 incarnation;

    for (guint32 start = 1; start <= 3; start++) {
        QosDb *db = open_good(fixture);
        g_assert_true(qos_db_next_identity(db, &again, &incarnation, &error));
        g_assert_no_error(error);
        g_assert_cmpuint(again, !=, 0);
        g_assert_true(start == 1 || again == id);
        g_assert_cmpuint(incarnation, ==, start);
        id = again;
        qos_db_close(db);
    }
    g_autofree char *last =
        g_strdup_printf("UPDATE identity SET incarnation = %d", QOS_DB_INCARNATION_MAX);
    execute(fixture->path, last);
    QosDb *db = open_good(fixture);
    g_assert_true(qos_db_next_identity(db, &again, &incarnation, &error));
    g_assert_cmpuint(again, !=, id);
    g_assert_cmpuint(incarnation, ==, 1);
    qos_db_close(db);
}

/* One of version 1 is brought up to date, with all that it has. */
static void test_older(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    QosDb *db = open_good(fixture);

    g_assert_true(qos_db_save_tunable(db, "slots", "7", &error));
    qos_db_close(db);
    execute(fixture->path, "DROP TABLE identity; DROP TABLE share; DROP TABLE history");
    execute(fixture->path, "PRAGMA user_version = 1");
    db = open_good(fixture);
    g_autoptr(GHashTable) tunables = qos_db_load_tunables(db, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(g_hash_table_lookup(tunables, "slots"), ==, "7");
    save_shares(db, 1, 7);
    assert_shares(db, 1, 7);
    qos_db_close(db);
}

int main(int argc, char **argv)
{
#define ADD(path, test) g_test_add("/db/" path, Fixture, NULL, set_up, test, tear_down)
    g_test_init(&argc, &argv, NULL);
    ADD("rules", test_rules);
    ADD("identity", test_identity);
    ADD("late-expiry", test_late_expiry);
    ADD("changed-default", test_changed_default);
    ADD("tunables", test_tunables);
    ADD("jobs", test_jobs);
    ADD("unmoved-jobs-stay", test_unmoved_jobs_stay);
    ADD("close-writes", test_close_writes);
    ADD("shares", test_shares);
    ADD("each-number-of-a-share", test_each_number_of_a_share);
    ADD("damaged-shares", test_damaged_shares);
    ADD("shares-after-a-failure", test_shares_after_a_failure);
    ADD("damaged-jobs", test_damaged_jobs);
    ADD("older", test_older);
    return g_test_run();
}
