/*
 * The history in the database: what comes back, how it is compacted while time is stepped by hand,
 * and that it stays small.
 */
#include <glib.h>
#include <glib/gstdio.h>
#include <sqlite3.h>
#include <string.h>

#include "db/db.h"

#define START (G_GINT64_CONSTANT(1800000000) * QOS_SECOND) /* an hour begins */
#define HOUR  (3600 * QOS_SECOND)
#define DAY   (24 * HOUR)

typedef struct {
    char *folder;
    char *path;
    QosDb *db;
    GPtrArray *jobs; /* what the gate would have */
} Fixture;

static void open_db(Fixture *fixture)
{
    g_autoptr(GError) error = NULL;

    fixture->db = qos_db_open(fixture->path, &error);
    g_assert_no_error(error);
}

static void set_up(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    fixture->folder = g_dir_make_tmp("qosfs-history-XXXXXX", NULL);
    fixture->path = g_build_filename(fixture->folder, "qosfs.db", NULL);
    fixture->jobs = g_ptr_array_new_with_free_func(g_free);
    open_db(fixture);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    GDir *folder;
    const char *name;

    qos_db_close(fixture->db);
    folder = g_dir_open(fixture->folder, 0, NULL);
    while ((name = g_dir_read_name(folder))) {
        g_autofree char *path = g_build_filename(fixture->folder, name, NULL);
        g_unlink(path);
    }
    g_dir_close(folder);
    g_rmdir(fixture->folder);
    g_ptr_array_unref(fixture->jobs);
    g_free(fixture->path);
    g_free(fixture->folder);
}

static QosJob *add_job(Fixture *fixture, const char *id)
{
    QosJob *job = g_new0(QosJob, 1);

    g_strlcpy(job->id, id, sizeof(job->id));
    g_ptr_array_add(fixture->jobs, job);
    return job;
}

static void save(Fixture *fixture, QosTime wall, guint days)
{
    GPtrArray *copies = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < fixture->jobs->len; i++)
        g_ptr_array_add(copies, g_memdup2(g_ptr_array_index(fixture->jobs, i), sizeof(QosJob)));
    qos_db_save_jobs(fixture->db, copies, 0, wall, days);
    qos_db_flush(fixture->db);
}

static void append(const QosHistoryRow *row, void *data)
{
    g_array_append_vals(data, row, 1);
}

static void read_all(QosDb *db, void *data)
{
    g_autoptr(GError) error = NULL;

    qos_db_read_history(db, append, data, &error);
    g_assert_no_error(error);
}

static GArray *history(Fixture *fixture)
{
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(QosHistoryRow));

    qos_db_ask(fixture->db, read_all, rows);
    qos_db_flush(fixture->db);
    return rows;
}

static guint count(const GArray *rows, gint64 step)
{
    guint found = 0;

    for (guint i = 0; i < rows->len; i++)
        found += g_array_index(rows, QosHistoryRow, i).step == step;
    return found;
}

static gint64 operations(const GArray *rows)
{
    gint64 sum = 0;

    for (guint i = 0; i < rows->len; i++)
        sum += g_array_index(rows, QosHistoryRow, i).value[QOS_HISTORY_OPERATIONS];
    return sum;
}

/* Two saves fill one slice; another life of the mount goes on where the last one ended. */
static void test_rows(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosJob *job = add_job(fixture, "a\xff'\n");
    GArray *rows;

    job->requests = 3;
    job->read_bytes.sum = G_MAXUINT32;
    save(fixture, START + 5 * QOS_SECOND, 7);
    job->requests = 5;
    job->wait_time = 42;
    save(fixture, START + 10 * QOS_SECOND, 7);
    qos_db_close(fixture->db);

    open_db(fixture);
    qos_db_begin_history(fixture->db, fixture->jobs, START + 12 * QOS_SECOND);
    save(fixture, START + 15 * QOS_SECOND, 7); /* nothing new */
    job->requests = 9;
    save(fixture, START + 20 * QOS_SECOND, 7);
    rows = history(fixture);
    g_assert_cmpuint(rows->len, ==, 2);
    for (guint i = 0; i < 2; i++) {
        const QosHistoryRow *row = &g_array_index(rows, QosHistoryRow, i);

        g_assert_cmpstr(row->id, ==, job->id);
        g_assert_cmpint(row->begin, ==, START / QOS_SECOND + 10 * i);
        g_assert_cmpint(row->value[QOS_HISTORY_OPERATIONS], ==, (i ? 4 : 5));
        g_assert_cmpint(row->value[QOS_HISTORY_READ_BYTES], ==, (i ? 0 : G_MAXUINT32));
        g_assert_cmpint(row->value[QOS_HISTORY_WAITED], ==, (i ? 0 : 42));
    }
    g_array_unref(rows);
}

/* Two days of one job: fine for an hour, coarser for a day, then by the hour; no operation is
 * lost until its day is over. */
static void test_compaction(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosJob *job = add_job(fixture, "a");
    QosTime now = START;
    GArray *rows;

    for (; now < START + 2 * DAY; now += 300 * QOS_SECOND) { /* seldom, to be quick */
        job->requests++;
        save(fixture, now + 1, 7);
    }
    rows = history(fixture);
    g_assert_cmpint(operations(rows), ==, (gint64)job->requests);
    g_assert_cmpuint(count(rows, 10), ==, 12);
    g_assert_cmpuint(count(rows, 300), ==, 575 - 12 - 23 * 12);
    g_assert_cmpuint(count(rows, 3600), ==, 23);
    for (guint i = 1; i < rows->len; i++) { /* one slice after the other, none over another */
        const QosHistoryRow *before = &g_array_index(rows, QosHistoryRow, i - 1);
        const QosHistoryRow *row = before + 1;

        g_assert_cmpint(row->begin % row->step, ==, 0);
        g_assert_cmpint(before->begin + before->step, <=, row->begin);
    }
    g_array_unref(rows);

    save(fixture, now, 1); /* fewer days are wanted */
    rows = history(fixture);
    g_assert_cmpint(operations(rows), ==, 287);
    g_array_unref(rows);
    save(fixture, now, 0);
    rows = history(fixture);
    g_assert_cmpuint(rows->len, ==, 0);
    g_array_unref(rows);
}

/* Other jobs every ten seconds, many of them: the coarser slices hold no more than they may. */
static void test_bounded_rows(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    gint64 sum = 0;
    GArray *rows;

    for (guint i = 0; i < 30; i++) {
        g_ptr_array_set_size(fixture->jobs, 0);
        for (guint j = 0; j < 2 * QOS_HISTORY_JOBS; j++) {
            g_autofree char *id = g_strdup_printf("%u-%u", i, j);

            add_job(fixture, id)->requests = j + 1;
            sum += j + 1;
        }
        save(fixture, START + (10 * i + 9) * QOS_SECOND, 7);
    }
    rows = history(fixture);
    g_assert_cmpuint(rows->len, ==, 30 * (QOS_HISTORY_JOBS + 1));
    g_array_unref(rows);
    g_ptr_array_set_size(fixture->jobs, 0);
    save(fixture, START + HOUR + 300 * QOS_SECOND, 7);
    rows = history(fixture);
    g_assert_cmpuint(rows->len, ==, QOS_HISTORY_JOBS + 1);
    g_assert_cmpuint(count(rows, 300), ==, rows->len);
    g_assert_cmpint(operations(rows), ==, sum);
    g_array_unref(rows);
}

/* A clock that ran ahead leaves nothing that would stay for ever. */
static void test_clock_set_back(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosJob *job = add_job(fixture, "a");
    GArray *rows;

    job->requests = 1;
    save(fixture, START + 400 * DAY, 7);
    job->requests = 2;
    save(fixture, START, 7);
    rows = history(fixture);
    g_assert_cmpuint(rows->len, ==, 1);
    g_assert_cmpint(g_array_index(rows, QosHistoryRow, 0).begin, ==, START / QOS_SECOND);
    g_array_unref(rows);
}

/* What cannot be written is said once and is missing; the totals are saved all the same, and what
 * comes later is there. */
static void test_failing_writes(Fixture *fixture, G_GNUC_UNUSED gconstpointer data)
{
    QosJob *job = add_job(fixture, "a");
    sqlite3 *other;
    GPtrArray *jobs;
    GArray *rows;

    g_assert_cmpint(sqlite3_open(fixture->path, &other), ==, SQLITE_OK);
    g_assert_cmpint(sqlite3_exec(other,
                                 "CREATE TRIGGER full BEFORE INSERT ON history "
                                 "BEGIN SELECT RAISE(ABORT, 'no room'); END",
                                 NULL, NULL, NULL),
                    ==, SQLITE_OK);
    job->requests = 1;
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*save the history: no room*");
    save(fixture, START, 7);
    job->requests = 3;
    save(fixture, START + 5 * QOS_SECOND, 7);
    g_test_assert_expected_messages();
    jobs = qos_db_load_jobs(fixture->db, START, NULL);
    g_assert_cmpuint(((const QosJob *)g_ptr_array_index(jobs, 0))->requests, ==, 3);
    g_ptr_array_unref(jobs);

    g_assert_cmpint(sqlite3_exec(other, "DROP TRIGGER full", NULL, NULL, NULL), ==, SQLITE_OK);
    sqlite3_close(other);
    job->requests = 7;
    save(fixture, START + 10 * QOS_SECOND, 7);
    rows = history(fixture);
    g_assert_cmpint(operations(rows), ==, 4);
    g_array_unref(rows);
}

typedef struct {
    QosDb *db;
    gint steps; /* atomic */
} Owner;

/* Hands something over the first time, as the owner's steps do now and then. */
static QosTime step(gpointer data)
{
    Owner *owner = data;

    if (g_atomic_int_add(&owner->steps, 1) == 0)
        qos_db_save_jobs(owner->db, g_ptr_array_new_with_free_func(g_free), 0, 0, 1);
    return QOS_NEVER;
}

static void await_step(Owner *owner, gint seen)
{
    while (g_atomic_int_get(&owner->steps) == seen)
        g_usleep(100);
}

static void test_steps_of_the_owner(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Owner owner = {.db = fixture->db};

    qos_db_serve(fixture->db, step, &owner);
    await_step(&owner, 0);
    const gint seen = g_atomic_int_get(&owner.steps);
    qos_db_wake(fixture->db);
    await_step(&owner, seen);
    qos_db_serve(fixture->db, NULL, NULL);
    const gint steps = owner.steps;
    qos_db_wake(fixture->db);
    qos_db_flush(fixture->db);
    g_assert_cmpint(owner.steps, ==, steps);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, function)                                                                        \
    g_test_add("/db_history/" name, Fixture, NULL, set_up, function, tear_down)
    ADD("rows", test_rows);
    ADD("steps_of_the_owner", test_steps_of_the_owner);
    ADD("compaction", test_compaction);
    ADD("bounded_rows", test_bounded_rows);
    ADD("clock_set_back", test_clock_set_back);
    ADD("failing_writes", test_failing_writes);
#undef ADD
    return g_test_run();
}
