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
    QosAccount account;
    QosOpeners *openers;
    QosJob *jobs[JOBS];
} Fixture;

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_account_init(&fixture->account, QOS_NEVER);
    fixture->openers = qos_openers_new();
    for (guint i = 0; i < JOBS; i++) {
        g_autofree char *name = g_strdup_printf("job%u", i);
        fixture->jobs[i] = qos_account_job(&fixture->account, name, 0);
    }
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    for (guint i = 0; i < JOBS; i++)
        qos_job_unref(fixture->jobs[i]);
    qos_openers_free(fixture->openers);
    qos_account_clear(&fixture->account);
}

/* If the numbers of files are far apart, one may be taken for open because another is. */
static void test_far_apart(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const fuse_ino_t first = 7, second = first + (1 << 20);
    QosOpeners *openers = fixture->openers;
    QosJob *one = fixture->jobs[0], *other = fixture->jobs[1];
    gboolean is_new;

    QosOpenFile *file = qos_openers_join(openers, first, one, &is_new);
    g_assert_false(qos_openers_has_others(openers, second, other));
    QosOpenFile *far = qos_openers_join(openers, second, one, &is_new);
    qos_openers_leave(file, one);
    g_assert_false(qos_openers_has_others(openers, first, other));
    g_assert_true(qos_openers_has_others(openers, second, other));
    g_assert_true(qos_openers_is_of_another(openers, second, other));
    g_assert_false(qos_openers_is_of_another(openers, second, one));
    g_assert_true(qos_openers_join(openers, second, other, &is_new) == far);
    g_assert_false(qos_openers_is_of_another(openers, second, fixture->jobs[2])); /* shared */
    qos_openers_leave(far, other);
    qos_openers_leave(far, one);
    g_assert_false(qos_openers_has_others(openers, second, other));
}

static void test_sharing(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosOpeners *openers = fixture->openers;
    QosJob *one = fixture->jobs[0], *other = fixture->jobs[1];
    gboolean is_new;

    QosOpenFile *file = qos_openers_join(openers, 7, one, &is_new);
    g_assert_true(is_new);
    g_assert_true(qos_openers_join(openers, 7, one, &is_new) == file);
    g_assert_false(is_new || qos_open_file_is_shared(file));
    g_assert_false(qos_openers_has_others(openers, 7, one));
    g_assert_true(qos_openers_has_others(openers, 7, other));
    g_assert_false(qos_openers_has_others(openers, 8, other));

    g_assert_true(qos_openers_join(openers, 7, other, &is_new) == file);
    g_assert_true(is_new && qos_open_file_is_shared(file));
    g_assert_true(qos_openers_join(openers, 7, other, &is_new) == file);
    g_assert_false(is_new); /* it had it open already */
    g_assert_true(qos_openers_has_others(openers, 7, one));

    qos_openers_leave(file, other);
    g_assert_true(qos_open_file_is_shared(file));
    qos_openers_leave(file, other);
    g_assert_false(qos_open_file_is_shared(file));
    qos_openers_leave(file, one);
    g_assert_true(qos_openers_has_others(openers, 7, other));
    qos_openers_leave(file, one);
    g_assert_false(qos_openers_has_others(openers, 7, other));
    g_assert_false(qos_open_file_is_shared(NULL));
}

static gpointer open_and_close(gpointer data)
{
    Fixture *fixture = data;
    g_autoptr(GRand) random = g_rand_new();

    for (guint i = 0; i < ROUNDS; i++) {
        fuse_ino_t ino = (fuse_ino_t)g_rand_int_range(random, 1, FILES + 1);
        QosJob *job = fixture->jobs[g_rand_int_range(random, 0, JOBS)];
        gboolean is_new;
        QosOpenFile *file = qos_openers_join(fixture->openers, ino, job, &is_new);

        if (qos_open_file_is_shared(file))
            qos_openers_has_others(fixture->openers, ino, job);
        qos_openers_leave(file, job);
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
        g_assert_false(qos_openers_has_others(fixture->openers, ino, NULL));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/open-jobs/sharing", Fixture, NULL, set_up, test_sharing, tear_down);
    g_test_add("/open-jobs/far-apart", Fixture, NULL, set_up, test_far_apart, tear_down);
    g_test_add("/open-jobs/many-threads", Fixture, NULL, set_up, test_many_threads, tear_down);
    return g_test_run();
}
