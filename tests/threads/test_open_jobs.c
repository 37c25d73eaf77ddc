/*
 * Which jobs have which files open: sharing begins with the second job and ends with the last but
 * one, also where many threads open and close at once.
 */
#include "fs/store/open_jobs.h"

#define THREADS 4
#define JOBS    3
#define FILES   5
#define ROUNDS  20000

typedef struct {
    QosJobs registry;
    QosOpenJobs *open_jobs;
    QosJob *jobs[JOBS];
} Fixture;

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_jobs_init(&fixture->registry, QOS_NEVER);
    fixture->open_jobs = qos_open_jobs_new();
    for (guint i = 0; i < JOBS; i++) {
        g_autofree char *name = g_strdup_printf("job%u", i);
        fixture->jobs[i] = qos_jobs_job(&fixture->registry, name, 0);
    }
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    for (guint i = 0; i < JOBS; i++)
        qos_job_unref(fixture->jobs[i]);
    qos_open_jobs_free(fixture->open_jobs);
    qos_jobs_clear(&fixture->registry);
}

/* If the numbers of files are far apart, one may be taken for open because another is. */
static void test_far_apart(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const fuse_ino_t first = 7, second = first + (1 << 20);
    QosOpenJobs *open_jobs = fixture->open_jobs;
    QosJob *one = fixture->jobs[0], *other = fixture->jobs[1];
    gboolean is_new;

    QosFileJobs *file = qos_open_jobs_join(open_jobs, first, one, &is_new);
    g_assert_false(qos_open_jobs_has_others(open_jobs, second, other));
    QosFileJobs *far = qos_open_jobs_join(open_jobs, second, one, &is_new);
    qos_open_jobs_leave(file, one);
    g_assert_false(qos_open_jobs_has_others(open_jobs, first, other));
    g_assert_true(qos_open_jobs_has_others(open_jobs, second, other));
    g_assert_true(qos_open_jobs_is_of_another(open_jobs, second, other));
    g_assert_false(qos_open_jobs_is_of_another(open_jobs, second, one));
    g_assert_true(qos_open_jobs_join(open_jobs, second, other, &is_new) == far);
    g_assert_false(qos_open_jobs_is_of_another(open_jobs, second, fixture->jobs[2])); /* shared */
    qos_open_jobs_leave(far, other);
    qos_open_jobs_leave(far, one);
    g_assert_false(qos_open_jobs_has_others(open_jobs, second, other));
}

static void test_sharing(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosOpenJobs *open_jobs = fixture->open_jobs;
    QosJob *one = fixture->jobs[0], *other = fixture->jobs[1];
    gboolean is_new;

    QosFileJobs *file = qos_open_jobs_join(open_jobs, 7, one, &is_new);
    g_assert_true(is_new);
    g_assert_true(qos_open_jobs_join(open_jobs, 7, one, &is_new) == file);
    g_assert_false(is_new || qos_file_jobs_are_several(file));
    g_assert_false(qos_open_jobs_has_others(open_jobs, 7, one));
    g_assert_true(qos_open_jobs_has_others(open_jobs, 7, other));
    g_assert_false(qos_open_jobs_has_others(open_jobs, 8, other));

    g_assert_true(qos_open_jobs_join(open_jobs, 7, other, &is_new) == file);
    g_assert_true(is_new && qos_file_jobs_are_several(file));
    g_assert_true(qos_open_jobs_join(open_jobs, 7, other, &is_new) == file);
    g_assert_false(is_new); /* it had it open already */
    g_assert_true(qos_open_jobs_has_others(open_jobs, 7, one));

    qos_open_jobs_leave(file, other);
    g_assert_true(qos_file_jobs_are_several(file));
    qos_open_jobs_leave(file, other);
    g_assert_false(qos_file_jobs_are_several(file));
    qos_open_jobs_leave(file, one);
    g_assert_true(qos_open_jobs_has_others(open_jobs, 7, other));
    qos_open_jobs_leave(file, one);
    g_assert_false(qos_open_jobs_has_others(open_jobs, 7, other));
    g_assert_false(qos_file_jobs_are_several(NULL));
}

static gpointer open_and_close(gpointer data)
{
    Fixture *fixture = data;
    g_autoptr(GRand) random = g_rand_new();

    for (guint i = 0; i < ROUNDS; i++) {
        fuse_ino_t ino = (fuse_ino_t)g_rand_int_range(random, 1, FILES + 1);
        QosJob *job = fixture->jobs[g_rand_int_range(random, 0, JOBS)];
        gboolean is_new;
        QosFileJobs *file = qos_open_jobs_join(fixture->open_jobs, ino, job, &is_new);

        if (qos_file_jobs_are_several(file))
            qos_open_jobs_has_others(fixture->open_jobs, ino, job);
        qos_open_jobs_leave(file, job);
    }
    return NULL;
}

static void test_many_threads(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    GThread *threads[THREADS];

    for (guint i = 0; i < THREADS; i++)
        threads[i] = g_thread_new("opener", open_and_close, fixture);
    for (guint i = 0; i < THREADS; i++)
        g_thread_join(threads[i]);
    for (fuse_ino_t ino = 1; ino <= FILES; ino++)
        g_assert_false(qos_open_jobs_has_others(fixture->open_jobs, ino, NULL));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/open-jobs/sharing", Fixture, NULL, set_up, test_sharing, tear_down);
    g_test_add("/open-jobs/far-apart", Fixture, NULL, set_up, test_far_apart, tear_down);
    g_test_add("/open-jobs/many-threads", Fixture, NULL, set_up, test_many_threads, tear_down);
    return g_test_run();
}
