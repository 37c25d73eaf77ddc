/*
 * Sampling: differences of totals, the slice they go to, and which jobs are told apart.
 */
#include <glib.h>
#include <string.h>

#include "fs/history.h"

#define START (G_GINT64_CONSTANT(1800000000) * QOS_SECOND) /* a slice begins */

static QosJob *add_job(GPtrArray *jobs, const char *id, guint64 requests)
{
    QosJob *job = g_new0(QosJob, 1);

    g_strlcpy(job->id, id, sizeof(job->id));
    job->requests = requests;
    g_ptr_array_add(jobs, job);
    return job;
}

static const QosHistoryRow *find(const GArray *rows, const char *id)
{
    for (guint i = 0; i < rows->len; i++) {
        if (g_str_equal(g_array_index(rows, QosHistoryRow, i).id, id))
            return &g_array_index(rows, QosHistoryRow, i);
    }
    return NULL;
}

static void test_differences(void)
{
    g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func(g_free);
    QosJob *job = add_job(jobs, "a", 10);
    QosHistory history;
    GArray *rows;
    const QosHistoryRow *row;

    qos_history_init(&history);
    g_array_unref(qos_history_sample(&history, jobs, START));
    add_job(jobs, "idle", 0);
    add_job(jobs, "new", 3);
    job->requests += 5;
    job->read_bytes.sum += 6;
    job->write_bytes.sum += 7;
    job->waits += 2;
    job->wait_time += 8;
    job->share.totals = (QosShareTotals){.lent = 9, .returned = 10, .borrowed = 11, .repaid = 12};
    rows = qos_history_sample(&history, jobs, START + 10 * QOS_SECOND + 5);
    g_assert_cmpuint(rows->len, ==, 2);
    g_assert_cmpint(find(rows, "new")->value[QOS_HISTORY_OPERATIONS], ==, 3);
    row = find(rows, "a");
    g_assert_cmpint(row->begin, ==, START / QOS_SECOND);
    g_assert_cmpint(row->step, ==, QOS_HISTORY_STEP);
    g_assert_cmpint(row->value[QOS_HISTORY_OPERATIONS], ==, 5);
    g_assert_cmpint(row->value[QOS_HISTORY_READ_BYTES], ==, 6);
    g_assert_cmpint(row->value[QOS_HISTORY_WRITE_BYTES], ==, 7);
    g_assert_cmpint(row->value[QOS_HISTORY_WAITS], ==, 2);
    g_assert_cmpint(row->value[QOS_HISTORY_WAITED], ==, 8);
    g_assert_cmpint(row->value[QOS_HISTORY_LENT], ==, 9);
    g_assert_cmpint(row->value[QOS_HISTORY_RETURNED], ==, 10);
    g_assert_cmpint(row->value[QOS_HISTORY_BORROWED], ==, 11);
    g_assert_cmpint(row->value[QOS_HISTORY_REPAID], ==, 12);
    g_array_unref(rows);

    /* Nothing happened; then the totals were cleared, and began anew. */
    rows = qos_history_sample(&history, jobs, START + 20 * QOS_SECOND);
    g_assert_cmpuint(rows->len, ==, 0);
    g_array_unref(rows);
    job->requests = 4;
    rows = qos_history_sample(&history, jobs, START + 30 * QOS_SECOND);
    g_assert_cmpint(find(rows, "a")->value[QOS_HISTORY_OPERATIONS], ==, 4);
    g_assert_cmpint(find(rows, "a")->value[QOS_HISTORY_READ_BYTES], ==, 6);
    g_assert_cmpint(find(rows, "a")->begin, ==, START / QOS_SECOND + 20);
    g_array_unref(rows);

    /* A clock that was set back. */
    job->requests++;
    rows = qos_history_sample(&history, jobs, START - 5 * QOS_SECOND);
    g_assert_cmpint(find(rows, "a")->begin, ==, START / QOS_SECOND - 10);
    g_array_unref(rows);
    qos_history_clear(&history);
}

/* Absurd totals make rows below what sums of them can hold; what large ones grow by is seen. */
static void test_bounds(void)
{
    g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func(g_free);
    QosJob *job = add_job(jobs, "a", G_MAXUINT64);
    QosHistory history;
    GArray *rows;

    job->read_bytes.sum = job->write_bytes.sum = G_MAXUINT64;
    job->wait_time = G_MAXINT64;
    qos_history_init(&history);
    rows = qos_history_sample(&history, jobs, START);
    for (guint i = 0; i <= QOS_HISTORY_WAITED; i++) {
        g_assert_cmpint(find(rows, "a")->value[i], >=, 0);
        g_assert_cmpint(find(rows, "a")->value[i], <=, G_GINT64_CONSTANT(1) << 53);
    }
    g_array_unref(rows);

    /* 100 processes of a job that wait all the time do so for a day in each quarter of an hour. */
    job->wait_time = 365 * 24 * 3600 * QOS_SECOND;
    g_array_unref(qos_history_sample(&history, jobs, START + 10 * QOS_SECOND));
    job->wait_time += 1000 * QOS_SECOND;
    rows = qos_history_sample(&history, jobs, START + 20 * QOS_SECOND);
    g_assert_nonnull(find(rows, "a"));
    g_assert_cmpint(find(rows, "a")->value[QOS_HISTORY_WAITED], ==, 1000 * QOS_SECOND);
    g_array_unref(rows);
    qos_history_clear(&history);
}

/* Ten thousand jobs make few rows, the largest their own; nothing is lost. */
static void test_others(void)
{
    g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func(g_free);
    gint64 sum = 0;
    QosHistory history;
    GArray *rows;

    for (guint i = 0; i < 10000; i++) {
        g_autofree char *id = g_strdup_printf("job-%u", i);

        add_job(jobs, id, i + 1);
    }
    add_job(jobs, "bytes", 1)->write_bytes.sum = 1 << 30; /* as 16384 operations */
    qos_history_init(&history);
    rows = qos_history_sample(&history, jobs, START);
    g_assert_cmpuint(rows->len, ==, QOS_HISTORY_JOBS + 1);
    for (guint i = 0; i < rows->len; i++)
        sum += g_array_index(rows, QosHistoryRow, i).value[QOS_HISTORY_OPERATIONS];
    g_assert_cmpint(sum, ==, 10000 * 10001 / 2 + 1);
    g_assert_nonnull(find(rows, "job-9999"));
    g_assert_nonnull(find(rows, "bytes"));
    g_assert_null(find(rows, "job-9744"));
    g_assert_nonnull(find(rows, ""));
    g_array_unref(rows);
    qos_history_clear(&history);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/history/differences", test_differences);
    g_test_add_func("/history/bounds", test_bounds);
    g_test_add_func("/history/others", test_others);
    return g_test_run();
}
