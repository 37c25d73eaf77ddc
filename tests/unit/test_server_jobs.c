/*
 * The sizes of jobs that a batch system tells the server: what is read, its bounds, and expiry.
 */
#include "server/jobs.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define WALL (1700000000 * QOS_SECOND) /* 2023-11-14T22:13:20Z */

static void test_parse(void)
{
    static const char *const refused[] = {"",
                                          "  ",
                                          "7 nodes=0",
                                          "7 nodes=1000001",
                                          "7 nodes=x",
                                          "7 weight=-1",
                                          "7 expire=0",
                                          "7 expire=2h30",
                                          "7 expire=400d",
                                          "7 expire=2023-11-14T22:13:20Z",
                                          "7 expire=9999-01-01T00:00:00Z",
                                          "7 size=3",
                                          "a\x01 nodes=1"};
    g_autofree char *long_id = g_strnfill(QOS_SERVER_JOB_ID_MAX + 1, 'x');
    g_autoptr(GError) error = NULL;
    QosServerJob job;

    g_assert_true(qos_server_job_parse("4711", WALL, &job, NULL));
    g_assert_cmpstr(job.id, ==, "4711");
    g_assert_cmpuint(job.nodes, ==, 1);
    g_assert_cmpuint(job.weight, ==, 1);
    g_assert_cmpint(job.expires, ==, WALL + QOS_SERVER_JOB_KEPT);
    qos_server_job_clear(&job);
    g_assert_true(qos_server_job_parse(" 47.x  nodes=12 weight=3 expire=2h ", WALL, &job, NULL));
    g_assert_cmpstr(job.id, ==, "47.x");
    g_assert_cmpuint(job.nodes, ==, 12);
    g_assert_cmpuint(job.weight, ==, 3);
    g_assert_cmpint(job.expires, ==, WALL + 7200 * QOS_SECOND);
    qos_server_job_clear(&job);
    g_assert_true(qos_server_job_parse("7 expire=60", WALL, &job, NULL));
    g_assert_cmpint(job.expires, ==, WALL + 60 * QOS_SECOND);
    qos_server_job_clear(&job);
    g_assert_true(qos_server_job_parse("7 expire=2023-11-14T22:14:20Z", WALL, &job, NULL));
    g_assert_cmpint(job.expires, ==, WALL + 60 * QOS_SECOND);
    qos_server_job_clear(&job);
    for (guint i = 0; i < G_N_ELEMENTS(refused); i++) {
        g_assert_false(qos_server_job_parse(refused[i], WALL, &job, &error));
        g_assert_nonnull(error);
        g_clear_error(&error);
    }
    g_assert_false(qos_server_job_parse(long_id, WALL, &job, NULL));
}

static void note(const char *id, gpointer arg)
{
    g_string_append_printf(arg, "%s ", id);
}

static void test_expiry(void)
{
    QosServerJobs *jobs = qos_server_jobs_new();
    g_autoptr(GString) expired = g_string_new(NULL);

    g_assert_cmpint(qos_server_jobs_expire(jobs, WALL, note, expired), ==, QOS_NEVER);
    for (guint i = 1; i <= 3; i++) {
        g_autofree char *id = g_strdup_printf("%u", i);
        g_assert_true(qos_server_jobs_set(
            jobs, &(QosServerJob){.id = id, .nodes = i, .weight = 1, .expires = WALL + i}, NULL));
    }
    g_assert_true(qos_server_jobs_set(
        jobs, &(QosServerJob){.id = (char *)"1", .nodes = 9, .weight = 2, .expires = WALL + 10},
        NULL));
    g_assert_cmpuint(qos_server_jobs_count(jobs), ==, 3);
    g_assert_cmpint(qos_server_jobs_expire(jobs, WALL + 2, note, expired), ==, WALL + 3);
    g_assert_cmpstr(expired->str, ==, "2 ");
    g_assert_cmpuint(qos_server_jobs_find(jobs, "1")->nodes, ==, 9);
    g_assert_true(qos_server_jobs_clear(jobs, "3"));
    g_assert_false(qos_server_jobs_clear(jobs, "3"));
    g_autoptr(GPtrArray) list = qos_server_jobs_list(jobs);
    g_assert_cmpuint(list->len, ==, 1);
    g_assert_cmpint(qos_server_jobs_expire(jobs, WALL + 10, note, expired), ==, QOS_NEVER);
    g_assert_null(qos_server_jobs_find(jobs, "1"));
    qos_server_jobs_free(jobs);
}

static void test_bound(void)
{
    QosServerJobs *jobs = qos_server_jobs_new();
    g_autoptr(GError) error = NULL;
    char id[16] = "";

    for (guint i = 0; i < QOS_SERVER_JOBS_MAX; i++) {
        g_snprintf(id, sizeof(id), "%u", i);
        g_assert_true(qos_server_jobs_set(
            jobs, &(QosServerJob){.id = id, .nodes = 1, .weight = 1, .expires = WALL}, NULL));
    }
    g_assert_true(qos_server_jobs_set(
        jobs, &(QosServerJob){.id = id, .nodes = 2, .weight = 1, .expires = WALL}, NULL));
    g_assert_false(qos_server_jobs_set(
        jobs, &(QosServerJob){.id = (char *)"x", .nodes = 1, .weight = 1, .expires = WALL},
        &error));
    g_assert_error(error, QOS_ERROR, ENOSPC);
    qos_server_jobs_free(jobs);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/server-jobs/parse", test_parse);
    g_test_add_func("/server-jobs/expiry", test_expiry);
    g_test_add_func("/server-jobs/bound", test_bound);
    return g_test_run();
}
