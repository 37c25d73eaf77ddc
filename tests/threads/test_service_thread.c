/*
 * Threads in the background: what a step returns and what wakes them, and that they end whatever
 * they are at. Steps tell the test what they do, so that it sleeps nowhere but where that is the
 * point.
 */
#include "sys/service_thread.h"

#include <errno.h>

#include "base/error.h"

#define SOON  (20 * QOS_MILLISECOND)
#define CALLS 1000

typedef struct {
    QosMutex lock; /* everything below */
    QosServiceThread thread;
    pthread_cond_t changed;
    guint steps;    /* begun */
    guint queued;   /* pieces of work, one for a step */
    QosTime due;    /* of the next step, where nothing is queued */
    gboolean hangs; /* steps do, with the lock dropped, until this is FALSE */
} Fixture;

static QosTime now(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

static QosTime step(gpointer data)
{
    Fixture *fixture = data;

    fixture->steps++;
    pthread_cond_broadcast(&fixture->changed);
    while (fixture->hangs)
        qos_condition_wait(&fixture->changed, &fixture->lock);
    if (fixture->queued == 0)
        return fixture->due;
    fixture->queued--;
    return 0;
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_mutex_init(&fixture->lock, QOS_MUTEX_ROOT_ATTR);
    pthread_cond_init(&fixture->changed, NULL);
    fixture->due = QOS_NEVER;
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_service_thread_stop(&fixture->thread);
    pthread_cond_destroy(&fixture->changed);
    qos_mutex_destroy(&fixture->lock);
}

static void start(Fixture *fixture)
{
    g_autoptr(GError) error = NULL;

    g_assert_true(qos_service_thread_start(&fixture->thread, "service", &fixture->lock, step,
                                           fixture, &error));
    g_assert_no_error(error);
}

static void queue(Fixture *fixture)
{
    qos_mutex_lock(&fixture->lock);
    fixture->queued++;
    qos_service_thread_wake_locked(&fixture->thread);
    qos_mutex_unlock(&fixture->lock);
}

static void set_hangs(Fixture *fixture, gboolean hangs)
{
    qos_mutex_lock(&fixture->lock);
    fixture->hangs = hangs;
    pthread_cond_broadcast(&fixture->changed);
    qos_mutex_unlock(&fixture->lock);
}

/* So many have begun. */
static void await_steps(Fixture *fixture, guint steps)
{
    qos_mutex_lock(&fixture->lock);
    while (fixture->steps < steps)
        qos_condition_wait(&fixture->changed, &fixture->lock);
    qos_mutex_unlock(&fixture->lock);
}

static guint count_steps(Fixture *fixture)
{
    qos_mutex_lock(&fixture->lock);
    const guint steps = fixture->steps;
    qos_mutex_unlock(&fixture->lock);
    return steps;
}

static void test_woken(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    start(fixture);
    await_steps(fixture, 1);
    queue(fixture);
    await_steps(fixture, 3); /* the one that takes it, and one that finds nothing */
    queue(fixture);
    await_steps(fixture, 5);
    g_usleep(SOON / QOS_MICROSECOND);
    g_assert_cmpuint(count_steps(fixture), ==, 5);
}

/* The step before it was already done with looking. */
static void test_woken_while_it_works(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    fixture->hangs = TRUE;
    start(fixture);
    await_steps(fixture, 1);
    qos_mutex_lock(&fixture->lock);
    qos_service_thread_wake_locked(&fixture->thread);
    qos_mutex_unlock(&fixture->lock);
    set_hangs(fixture, FALSE);
    await_steps(fixture, 2);
}

static gpointer queue_many(gpointer data)
{
    for (guint i = 0; i < CALLS; i++)
        queue(data);
    return NULL;
}

static void test_no_wake_is_lost(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    start(fixture);
    GThread *first = g_thread_new("caller", queue_many, fixture);
    GThread *second = g_thread_new("caller", queue_many, fixture);
    g_thread_join(first);
    g_thread_join(second);
    await_steps(fixture, 2 * CALLS);
}

static void test_runs_when_due(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosTime due = now() + SOON;

    fixture->due = due;
    start(fixture);
    await_steps(fixture, 2);
    g_assert_cmpint(now(), >=, due);
}

static void test_woken_before_the_start(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    queue(fixture);
    g_assert_cmpuint(count_steps(fixture), ==, 0);
    start(fixture);
    await_steps(fixture, 2);
    qos_mutex_lock(&fixture->lock);
    g_assert_cmpuint(fixture->queued, ==, 0);
    qos_mutex_unlock(&fixture->lock);
}

static void test_stopped_while_it_sleeps(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    start(fixture);
    await_steps(fixture, 1);
    qos_service_thread_stop(&fixture->thread);
    queue(fixture); /* nobody is there */
    qos_service_thread_stop(&fixture->thread);
    g_assert_cmpuint(count_steps(fixture), ==, 1);
}

static gpointer stop(gpointer data)
{
    qos_service_thread_stop(data);
    return NULL;
}

/* What is left of the work is the subject's. */
static void test_stopped_while_it_works(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    fixture->hangs = TRUE;
    fixture->queued = 2;
    start(fixture);
    await_steps(fixture, 1);
    GThread *stopper = g_thread_new("stopper", stop, &fixture->thread);
    gboolean is_stopping;
    do {
        qos_mutex_lock(&fixture->lock);
        is_stopping = fixture->thread.is_stopping;
        qos_mutex_unlock(&fixture->lock);
    } while (!is_stopping);
    set_hangs(fixture, FALSE);
    g_thread_join(stopper);
    g_assert_cmpuint(fixture->steps, ==, 1);
    g_assert_cmpuint(fixture->queued, ==, 1);
}

static void test_ends_in_its_own_time(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    fixture->hangs = TRUE;
    start(fixture);
    await_steps(fixture, 1);
    qos_mutex_lock(&fixture->lock);
    const QosTime until = now() + SOON;
    qos_service_thread_end_locked(&fixture->thread);
    qos_service_thread_await_end_locked(&fixture->thread, until);
    g_assert_cmpint(now(), >=, until);
    fixture->hangs = FALSE;
    pthread_cond_broadcast(&fixture->changed);
    qos_service_thread_await_end_locked(&fixture->thread, QOS_NEVER);
    qos_mutex_unlock(&fixture->lock);
    qos_service_thread_stop(&fixture->thread);
    g_assert_cmpuint(fixture->steps, ==, 1);
}

static void test_not_started(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_mutex_lock(&fixture->lock);
    qos_service_thread_end_locked(&fixture->thread);
    qos_service_thread_await_end_locked(&fixture->thread, QOS_NEVER);
    qos_mutex_unlock(&fixture->lock);
    qos_service_thread_stop(&fixture->thread);
}

/* No memory has room for its stack. */
static void test_start_fails(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autoptr(GError) error = NULL;
    pthread_attr_t usual, huge;

    pthread_getattr_default_np(&usual);
    pthread_attr_init(&huge);
    g_assert_cmpint(pthread_attr_setstacksize(&huge, (gsize)1 << 60), ==, 0);
    g_assert_cmpint(pthread_setattr_default_np(&huge), ==, 0);
    g_assert_false(qos_service_thread_start(&fixture->thread, "service", &fixture->lock, step,
                                            fixture, &error));
    pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    g_assert_error(error, QOS_ERROR, EAGAIN);
    queue(fixture);
    qos_service_thread_stop(&fixture->thread);
    start(fixture);
    await_steps(fixture, 2);
}

static void test_name(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    char name[16];

    start(fixture);
    await_steps(fixture, 1);
    g_assert_cmpint(pthread_getname_np(fixture->thread.thread, name, sizeof(name)), ==, 0);
    g_assert_cmpstr(name, ==, "service");
}

int main(int argc, char **argv)
{
    const struct {
        const char *path;
        void (*test)(Fixture *fixture, gconstpointer data);
    } tests[] = {
        {"/service-thread/woken", test_woken},
        {"/service-thread/woken-while-it-works", test_woken_while_it_works},
        {"/service-thread/no-wake-is-lost", test_no_wake_is_lost},
        {"/service-thread/runs-when-due", test_runs_when_due},
        {"/service-thread/woken-before-the-start", test_woken_before_the_start},
        {"/service-thread/stopped-while-it-sleeps", test_stopped_while_it_sleeps},
        {"/service-thread/stopped-while-it-works", test_stopped_while_it_works},
        {"/service-thread/ends-in-its-own-time", test_ends_in_its_own_time},
        {"/service-thread/not-started", test_not_started},
        {"/service-thread/start-fails", test_start_fails},
        {"/service-thread/name", test_name},
    };

    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(tests); i++)
        g_test_add(tests[i].path, Fixture, NULL, set_up, tests[i].test, tear_down);
    return g_test_run();
}
