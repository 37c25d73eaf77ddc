/*
 * Places for all: what one job, and one user, leaves to others.
 */
#include "fs/quota.h"

#define MOST 1024

typedef struct {
    QosJobs registry;
    QosQuota quota;
    QosJob *job, *other;
    QosUser *user, *guest;
} Fixture;

static void set_up(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    qos_jobs_init(&f->registry, QOS_NEVER);
    qos_quota_init(&f->quota, MOST);
    f->job = qos_jobs_job(&f->registry, "job", 0);
    f->other = qos_jobs_job(&f->registry, "other", 0);
    f->user = qos_jobs_user(&f->registry, 1000);
    f->guest = qos_jobs_user(&f->registry, 1001);
}

static void tear_down(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    qos_quota_clear(&f->quota);
    qos_job_unref(f->job);
    qos_job_unref(f->other);
    qos_jobs_clear(&f->registry);
}

/* Takes as many as the user gets. */
static guint take_all(Fixture *f, QosJob *job, QosUser *user)
{
    guint count = 0;

    while (qos_quota_take(&f->quota, job, user))
        count++;
    return count;
}

static void test_shares(void)
{
    g_assert_cmpint(qos_quota_check(0, 0, 0), ==, QOS_QUOTA_EXHAUSTED);
    g_assert_cmpint(qos_quota_check(1, 0, 0), ==, QOS_QUOTA_FREE);
    g_assert_cmpint(qos_quota_check(1, 1, 0), ==, QOS_QUOTA_OF_JOB);
    g_assert_cmpint(qos_quota_check(11, 70, 150), ==, QOS_QUOTA_FREE);
    g_assert_cmpint(qos_quota_check(11, 71, 151), ==, QOS_QUOTA_OF_JOB);
    g_assert_cmpint(qos_quota_check(11, 70, 151), ==, QOS_QUOTA_OF_USER);
}

/* Each further job that takes what it can leaves some to the next. */
static void test_jobs(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_cmpuint(take_all(f, f->job, NULL), ==, MOST * 7 / 8);
    g_assert_cmpuint(take_all(f, f->other, NULL), ==, MOST * 7 / 64);
    g_assert_cmpuint(f->quota.taken, ==, MOST * 63 / 64);
    for (guint i = 0; i < MOST * 7 / 8; i++)
        qos_quota_give_back(&f->quota, f->job, NULL);
    g_assert_cmpuint(take_all(f, f->other, NULL), ==, MOST * 7 / 8 - MOST * 7 / 64);
    for (guint i = 0; i < MOST * 7 / 8; i++)
        qos_quota_give_back(&f->quota, f->other, NULL);
    g_assert_cmpuint(f->quota.taken, ==, 0);
    g_assert_cmpuint(g_hash_table_size(f->quota.counts), ==, 0);
}

/* A user with all its jobs; a job of two users counts with each. */
static void test_users(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    guint count = 0;

    for (guint i = 0; i < 20; i++) {
        g_autofree char *id = g_strdup_printf("forged%u", i);
        QosJob *job = qos_jobs_job(&f->registry, id, 0);

        count += take_all(f, job, f->user);
        qos_job_unref(job);
    }
    g_assert_cmpuint(count, ==, MOST * 15 / 16);
    g_assert_false(qos_quota_take(&f->quota, f->job, f->user));
    g_assert_true(qos_quota_take(&f->quota, f->job, f->guest));
    qos_quota_give_back(&f->quota, f->job, f->guest);
    g_assert_cmpuint(f->quota.taken, ==, count);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/quota/shares", test_shares);
    g_test_add("/quota/jobs", Fixture, NULL, set_up, test_jobs, tear_down);
    g_test_add("/quota/users", Fixture, NULL, set_up, test_users, tear_down);
    return g_test_run();
}
