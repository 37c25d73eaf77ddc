/*
 * The database: what is saved comes back exactly, and what is no good is refused and left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db.h"

#define NOW  (1000 * QOS_SECOND)
#define WALL (G_GINT64_CONSTANT(1800000000) * QOS_SECOND + 123456789)

typedef struct {
    char *folder;
    char *path;
} Fixture;

static void set_up(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fixture->folder = g_dir_make_tmp("qosfs-db-XXXXXX", NULL);
    fixture->path = g_build_filename(fixture->folder, "qosfs.db", NULL);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    GDir *folder = g_dir_open(fixture->folder, 0, NULL);
    const char *name;

    while ((name = g_dir_read_name(folder))) {
        g_autofree char *path = g_build_filename(fixture->folder, name, NULL);
        g_unlink(path);
    }
    g_dir_close(folder);
    g_rmdir(fixture->folder);
    g_free(fixture->path);
    g_free(fixture->folder);
}

static QosDb *open_good(const Fixture *fixture)
{
    g_autoptr(GError) error = NULL;
    QosDb *db = qos_db_open(fixture->path, &error);

    g_assert_no_error(error);
    g_assert_nonnull(db);
    return db;
}

static void assert_refused(const char *path, int code, const char *reason)
{
    g_autoptr(GError) error = NULL;
    QosDb *db = qos_db_open(path, &error);

    g_assert_null(db);
    g_assert_error(error, QOS_ERROR, code);
    if (!strstr(error->message, path) || !strstr(error->message, reason))
        g_error("\"%s\" does not tell of %s and \"%s\"", error->message, path, reason);
}

static void execute(const char *path, const char *sql)
{
    sqlite3 *sqlite;

    g_assert_cmpint(sqlite3_open(path, &sqlite), ==, SQLITE_OK);
    g_assert_cmpint(sqlite3_exec(sqlite, sql, NULL, NULL, NULL), ==, SQLITE_OK);
    sqlite3_close(sqlite);
}

/* --- what is saved comes back --- */

static QosRules *apply(QosRules *rules, const char *command)
{
    g_autoptr(GError) error = NULL;
    QosRules *changed = qos_rules_apply(rules, command, NOW, &error);

    g_assert_no_error(error);
    qos_rules_unref(rules);
    return changed;
}

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

/* A job with a value of its own in every field that is kept. */
static QosJob *new_job(const char *id, guint64 seed)
{
    QosJob *job = g_new0(QosJob, 1);
    guint64 value = seed;

    g_strlcpy(job->id, id, sizeof(job->id));
    job->nodes = (guint)value++;
    job->started = NOW - 500 * QOS_SECOND;
    job->seen = NOW - (QosTime)seed;
    job->requests = value++;
    job->waits = value++;
    job->errors = value++;
    job->store_time = (QosTime)value++;
    job->wait_time = (QosTime)value++;
    for (guint i = 0; i < QOS_OP_COUNT; i++)
        job->operation[i] = (QosSample){value, value + 1, value + 2, value + 3, 1e30 / (double)i};
    job->operation[0].sum_of_squares = 0.1;
    job->read_bytes = (QosSample){1, 2, 3, G_MAXUINT64, 5};
    job->write_bytes = (QosSample){6, 7, 8, 9, 10};
    job->read_sizes.count[0] = G_MAXUINT64;
    job->read_sizes.count[QOS_HISTOGRAM_BUCKETS - 1] = 3;
    job->write_sizes.count[12] = 4;
    job->wait_count = 2;
    job->wait[0] = (QosWait){0, QOS_WAIT_SLOTS, 5, 6, 7, NOW - 8, NOW - 9};
    job->wait[1] = (QosWait){77, "hog", 50, 60, 70, NOW - 80, NOW - 90};
    return job;
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

static void save(QosDb *db, const QosJob *const *jobs, guint count)
{
    GPtrArray *copies = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < count; i++)
        g_ptr_array_add(copies, g_memdup2(jobs[i], sizeof(*jobs[i])));
    qos_db_save_jobs(db, copies, NOW, WALL, 7);
    qos_db_flush(db);
}

static GPtrArray *load(QosDb *db, QosTime wall)
{
    g_autoptr(GError) error = NULL;
    GPtrArray *jobs = qos_db_load_jobs(db, wall, &error);

    g_assert_no_error(error);
    return jobs;
}

static void test_jobs(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree QosJob *a = new_job("a", 1000);
    g_autofree QosJob *b = new_job("b\xff'\"\n", 2000);
    g_autofree QosJob *c = new_job("c", 3000);
    GPtrArray *jobs;
    QosDb *db = open_good(fixture);

    save(db, (const QosJob *[]){a, b}, 2);
    qos_db_close(db);

    /* The first snapshot of another life replaces all; later ones what moved and what is gone. */
    db = open_good(fixture);
    jobs = load(db, WALL + 42);
    g_assert_cmpuint(jobs->len, ==, 2);
    assert_came_back(jobs, a, 42);
    assert_came_back(jobs, b, 42);
    g_ptr_array_unref(jobs);
    save(db, (const QosJob *[]){b, c}, 2);
    b->requests++;
    b->wait_count = 1;
    save(db, (const QosJob *[]){a, b}, 2);
    jobs = load(db, WALL);
    g_assert_cmpuint(jobs->len, ==, 2);
    assert_came_back(jobs, a, 0);
    assert_came_back(jobs, b, 0);
    g_ptr_array_unref(jobs);

    /* The clock was set back: nothing was in the future. */
    jobs = load(db, 5);
    for (guint i = 0; i < jobs->len; i++)
        g_assert_cmpint(((QosJob *)g_ptr_array_index(jobs, i))->seen, ==, 0);
    g_ptr_array_unref(jobs);
    save(db, NULL, 0);
    jobs = load(db, WALL);
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

    save(db, (const QosJob *[]){job, other}, 2);
    execute(fixture->path, "UPDATE job SET nodes = 99");
    other->requests++;
    save(db, (const QosJob *[]){job, other}, 2);
    jobs = load(db, WALL);
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
    jobs = load(db, WALL);
    g_assert_cmpuint(jobs->len, ==, 1);
    g_ptr_array_unref(jobs);
    qos_db_close(db);
}

/* --- what is no good is refused, and stays as it is --- */

static GBytes *content(const char *path)
{
    char *bytes;
    gsize length;

    if (!g_file_get_contents(path, &bytes, &length, NULL))
        return g_bytes_new(NULL, 0);
    return g_bytes_new_take(bytes, length);
}

/* A database with a rule and a job in it. */
static void fill(const Fixture *fixture)
{
    g_autofree QosJob *job = new_job("a", 5);
    QosRules *rules = apply(qos_rules_new(), "start hog jobid={a} rate=5");
    QosDb *db = open_good(fixture);

    g_assert_true(qos_db_save_rules(db, rules, NOW, WALL, NULL));
    save(db, (const QosJob *[]){job}, 1);
    qos_rules_unref(rules);
    qos_db_close(db);
}

static void assert_refused_and_untouched(const Fixture *fixture, int code, const char *reason)
{
    g_autofree char *wal = g_strconcat(fixture->path, "-wal", NULL);
    g_autoptr(GBytes) before = content(fixture->path);
    g_autoptr(GBytes) wal_before = content(wal);
    gboolean had_wal = g_file_test(wal, G_FILE_TEST_EXISTS);
    g_autoptr(GBytes) after = NULL;
    g_autoptr(GBytes) wal_after = NULL;

    assert_refused(fixture->path, code, reason);
    after = content(fixture->path);
    wal_after = content(wal);
    g_assert_true(g_bytes_equal(before, after));
    g_assert_true(g_bytes_equal(wal_before, wal_after));
    g_assert_cmpint(g_file_test(wal, G_FILE_TEST_EXISTS), ==, had_wal);
}

static void test_truncated(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const goffset lengths[] = {0, 1, 99, 100, 512, 4096, 5000, 8192, 20000};
    g_autofree char *bytes = NULL;
    gsize length;

    fill(fixture);
    g_assert_true(g_file_get_contents(fixture->path, &bytes, &length, NULL));
    for (guint i = 0; i < G_N_ELEMENTS(lengths); i++) {
        g_assert_cmpuint(lengths[i], <, length);
        g_assert_true(g_file_set_contents(fixture->path, bytes, lengths[i], NULL));
        assert_refused_and_untouched(fixture, EUCLEAN, "damaged");
    }
}

/* Whatever bytes it holds: it opens, or it is refused and left alone. */
static void test_garbage(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint32 seed = g_test_rand_int() & G_MAXINT32;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    g_autofree char *bytes = NULL;
    gsize length;
    guint refused = 0;

    g_test_message("seed %u", seed);
    fill(fixture);
    g_assert_true(g_file_get_contents(fixture->path, &bytes, &length, NULL));
    for (guint i = 0; i < 60; i++) {
        g_autofree char *broken = g_memdup2(bytes, length);
        gsize start = i == 0 ? 0 : (gsize)g_rand_int_range(random, 0, (gint)length);
        gsize count = i == 0 ? length : (gsize)g_rand_int_range(random, 1, 4097);
        gsize end = MIN(length, start + count);
        g_autoptr(GBytes) before = NULL;
        g_autoptr(GBytes) after = NULL;
        g_autoptr(GError) error = NULL;
        QosDb *db;

        for (gsize j = start; j < end; j++)
            broken[j] = (char)g_rand_int(random);
        g_assert_true(g_file_set_contents(fixture->path, broken, (gssize)length, NULL));
        before = g_bytes_new(broken, length);
        db = qos_db_open(fixture->path, &error);
        if (db) {
            qos_rules_unref(qos_db_load_rules(db, NOW, WALL, NULL));
            g_clear_pointer(&(GPtrArray *){qos_db_load_jobs(db, WALL, NULL)}, g_ptr_array_unref);
            qos_db_close(db);
            continue;
        }
        after = content(fixture->path);
        g_assert_true(g_bytes_equal(before, after));
        g_assert_nonnull(strstr(error->message, fixture->path));
        refused++;
    }
    g_assert_cmpuint(refused, >, 10);
}

static void test_newer(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fill(fixture);
    execute(fixture->path, "PRAGMA user_version = 99");
    assert_refused_and_untouched(fixture, ENOTSUP, "version 99");
}

/* The newer version stands in the write-ahead log of a daemon that was killed. */
static void test_newer_in_log(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    pid_t child;

    fill(fixture);
    child = fork();
    if (child == 0) {
        execute(fixture->path, "PRAGMA journal_mode = WAL");
        sqlite3 *sqlite;
        sqlite3_open(fixture->path, &sqlite);
        sqlite3_exec(sqlite, "PRAGMA user_version = 99", NULL, NULL, NULL);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    assert_refused_and_untouched(fixture, ENOTSUP, "version 99");
}

/* A change without WAL that was cut off can only be taken back by writing: not ours to do. */
static void test_hot_journal(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    pid_t child;

    fill(fixture);
    child = fork();
    if (child == 0) {
        sqlite3 *sqlite;
        sqlite3_open(fixture->path, &sqlite);
        sqlite3_exec(sqlite,
                     "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN;"
                     "CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                     "FROM n LIMIT 5000) SELECT i, randomblob(100) FROM n",
                     NULL, NULL, NULL);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    assert_refused_and_untouched(fixture, EUCLEAN, "takes that back");
    execute(fixture->path, "PRAGMA quick_check");
    qos_db_close(open_good(fixture));
}

static void test_foreign(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *lock = g_strconcat(fixture->path, ".lock", NULL);

    execute(fixture->path, "CREATE TABLE addresses (name TEXT)");
    assert_refused_and_untouched(fixture, EINVAL, "another program");
    g_assert_false(g_file_test(lock, G_FILE_TEST_EXISTS)); /* as /etc/passwd.lock would be */
    g_unlink(fixture->path);
    g_assert_true(g_file_set_contents(fixture->path, "[rules]\n", -1, NULL));
    assert_refused_and_untouched(fixture, EUCLEAN, "damaged");
}

static void test_refused_rule(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    QosDb *db;

    fill(fixture);
    execute(fixture->path, "UPDATE rule SET command = 'start hog colour={red}' WHERE name = 'hog'");
    db = open_good(fixture);
    g_assert_null(qos_db_load_rules(db, NOW, WALL, &error));
    g_assert_error(error, QOS_ERROR, EINVAL);
    g_assert_nonnull(strstr(error->message, "start hog colour={red}"));
    qos_db_close(db);
}

static void test_second_daemon(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *link = g_build_filename(fixture->folder, "link.db", NULL);
    QosDb *db = open_good(fixture);

    g_assert_cmpint(symlink(fixture->path, link), ==, 0);
    assert_refused(fixture->path, EBUSY, "another mount");
    {
        g_autoptr(GError) error = NULL;
        g_assert_null(qos_db_open(link, &error));
        g_assert_error(error, QOS_ERROR, EBUSY);
    }
    qos_db_close(db);
    db = open_good(fixture);
    qos_db_close(db);
}

static void *close_soon(void *db)
{
    g_usleep(G_TIME_SPAN_SECOND / 5);
    qos_db_close(db);
    return NULL;
}

/* A mount that is just ending is waited for. */
static void test_daemon_that_ends(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    pthread_t thread;

    g_assert_cmpint(pthread_create(&thread, NULL, close_soon, open_good(fixture)), ==, 0);
    qos_db_close(open_good(fixture));
    pthread_join(thread, NULL);
}

/* A database that was removed does not come back out of the log that was left. */
static void test_removed_without_its_log(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GHashTable) tunables = NULL;
    pid_t child = fork();
    QosDb *db;

    if (child == 0) {
        db = qos_db_open(fixture->path, NULL);
        qos_db_save_tunable(db, "slots", "4", NULL);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    g_unlink(fixture->path);
    db = open_good(fixture);
    tunables = qos_db_load_tunables(db, NULL);
    g_assert_cmpuint(g_hash_table_size(tunables), ==, 0);
    qos_db_close(db);
}

/* Another program that holds the database up is waited for, then named; nothing is half done. */
static void test_locked_by_another(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GHashTable) tunables = NULL;
    sqlite3 *sqlite;
    QosDb *db = open_good(fixture);

    g_assert_cmpint(sqlite3_open(fixture->path, &sqlite), ==, SQLITE_OK);
    g_assert_cmpint(sqlite3_exec(sqlite, "BEGIN IMMEDIATE", NULL, NULL, NULL), ==, SQLITE_OK);
    g_assert_false(qos_db_save_tunable(db, "slots", "4", &error));
    g_assert_error(error, QOS_ERROR, EBUSY);
    sqlite3_close(sqlite);
    tunables = qos_db_load_tunables(db, NULL);
    g_assert_cmpuint(g_hash_table_size(tunables), ==, 0);
    qos_db_close(db);
}

/* --- the file system says no --- */

static void test_no_folder(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autofree char *folder = g_build_filename(fixture->folder, "typo", NULL);
    g_autofree char *path = g_build_filename(folder, "x.db", NULL);

    assert_refused(path, ENOENT, "make it first");
    g_assert_false(g_file_test(folder, G_FILE_TEST_EXISTS));
}

static void test_unwritable_folder(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    if (getuid() == 0) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            g_autoptr(GError) error = NULL;
            gboolean refused = setuid(65534) == 0 && !qos_db_open(fixture->path, &error);

            _exit(refused && error->code == EACCES ? 0 : 1);
        }
        waitpid(child, &status, 0);
        g_assert_cmpint(status, ==, 0);
    } else {
        g_chmod(fixture->folder, 0500);
        assert_refused(fixture->path, EACCES, "must be writable");
        g_chmod(fixture->folder, 0700);
    }
    g_assert_false(g_file_test(fixture->path, G_FILE_TEST_EXISTS));
}

static void fill_the_disk(const char *folder)
{
    g_autofree char *path = g_build_filename(folder, "ballast", NULL);
    char block[4096] = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    while (write(fd, block, sizeof(block)) == sizeof(block)) {
    }
    close(fd);
}

static void test_full_disk(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *ballast = g_build_filename(fixture->folder, "ballast", NULL);
    g_autofree char *value = g_strnfill(100000, 'x');
    g_autoptr(GHashTable) tunables = NULL;
    QosDb *db;

    if (getuid() != 0 || mount("none", fixture->folder, "tmpfs", 0, "size=1m") < 0) {
        g_test_skip("needs the right to mount");
        return;
    }
    fill_the_disk(fixture->folder);
    assert_refused(fixture->path, ENOSPC, "full");
    g_unlink(ballast);
    db = open_good(fixture);
    g_assert_true(qos_db_save_tunable(db, "slots", "4", &error));
    fill_the_disk(fixture->folder);
    g_assert_false(qos_db_save_tunable(db, "slots", value, &error));
    g_assert_error(error, QOS_ERROR, ENOSPC);
    g_unlink(ballast);
    g_clear_error(&error);
    tunables = qos_db_load_tunables(db, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(g_hash_table_lookup(tunables, "slots"), ==, "4");
    g_assert_true(qos_db_save_tunable(db, "slots", "5", &error));
    qos_db_close(db);
    g_assert_cmpint(umount(fixture->folder), ==, 0);
}

/* --- crashes --- */

/* Killed at any moment of making, saving and closing: what was said to be saved is there. */
static void test_kill(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint32 seed = g_test_rand_int() & G_MAXINT32;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    guint64 written = 0;

    g_test_message("seed %u", seed);
    for (guint i = 0; i < 25; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(GHashTable) tunables = NULL;
        const char *text;
        int pipes[2];
        guint64 told = written;
        pid_t child;
        QosDb *db;

        g_assert_cmpint(pipe(pipes), ==, 0);
        child = fork();
        if (child == 0) {
            db = qos_db_open(fixture->path, NULL);
            for (guint64 n = written + 1;; n++) {
                g_autofree char *number = g_strdup_printf("%" G_GUINT64_FORMAT, n);
                GPtrArray *jobs = g_ptr_array_new_with_free_func(g_free);

                g_ptr_array_add(jobs, new_job("a", n));
                qos_db_save_jobs(db, jobs, NOW, WALL, 7);
                if (!db || !qos_db_save_tunable(db, "slots", number, NULL) ||
                    write(pipes[1], &n, sizeof(n)) != sizeof(n))
                    _exit(1);
            }
        }
        close(pipes[1]);
        g_usleep((gulong)g_rand_int_range(random, 0, 30000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipes[0], &told, sizeof(told)) == sizeof(told)) {
        }
        close(pipes[0]);
        db = qos_db_open(fixture->path, &error);
        g_assert_no_error(error);
        tunables = qos_db_load_tunables(db, &error);
        g_assert_no_error(error);
        text = g_hash_table_lookup(tunables, "slots");
        written = text ? g_ascii_strtoull(text, NULL, 10) : 0;
        g_assert_cmpuint(written, >=, told);
        g_assert_cmpuint(written, <=, told + 1);
        g_ptr_array_unref(load(db, WALL));
        qos_db_close(db);
    }
}

/* Killed while it is made, or turned to WAL: the next one makes it. */
static void test_kill_while_made(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    guint32 seed = g_test_rand_int() & G_MAXINT32;
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    QosTime longest;
    QosDb *db;

    g_test_message("seed %u", seed);
    longest = g_get_monotonic_time();
    qos_db_close(open_good(fixture));
    longest = g_get_monotonic_time() - longest;
    for (guint i = 0; i < 60; i++) {
        pid_t child;

        g_unlink(fixture->path);
        child = fork();
        if (child == 0) {
            qos_db_open(fixture->path, NULL);
            pause();
        }
        g_usleep((gulong)g_rand_int_range(random, 0, (gint)longest));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        db = open_good(fixture);
        g_assert_true(qos_db_save_tunable(db, "slots", "4", NULL));
        qos_db_close(db);
    }
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

static void test_shares(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosDb *db = open_good(fixture);

    assert_shares(db, 0, 0);
    save_shares(db, 5, 1000);
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

static void test_damaged_shares(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    static const char *const damages[][2] = {
        {"UPDATE share SET lent = -1 WHERE id = CAST('job1' AS BLOB)",
         "*job \"job1\"*a total is negative*"},
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
    ADD("changed-default", test_changed_default);
    ADD("tunables", test_tunables);
    ADD("jobs", test_jobs);
    ADD("unmoved-jobs-stay", test_unmoved_jobs_stay);
    ADD("close-writes", test_close_writes);
    ADD("truncated", test_truncated);
    ADD("garbage", test_garbage);
    ADD("newer", test_newer);
    ADD("newer-in-log", test_newer_in_log);
    ADD("hot-journal", test_hot_journal);
    ADD("foreign", test_foreign);
    ADD("refused-rule", test_refused_rule);
    ADD("second-daemon", test_second_daemon);
    ADD("daemon-that-ends", test_daemon_that_ends);
    ADD("removed-without-its-log", test_removed_without_its_log);
    ADD("locked-by-another", test_locked_by_another);
    ADD("no-folder", test_no_folder);
    ADD("unwritable-folder", test_unwritable_folder);
    ADD("full-disk", test_full_disk);
    ADD("shares", test_shares);
    ADD("damaged-shares", test_damaged_shares);
    ADD("older", test_older);
    ADD("kill", test_kill);
    ADD("kill-while-made", test_kill_while_made);
    return g_test_run();
}
