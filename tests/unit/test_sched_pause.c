/*
 * A request that was let go and waits for what is not the store's to give (qos_sched_pause): its
 * slot is another's meanwhile, and its time there is waiting.
 */
#include "sched_fixture.h"

static guint running(const Fixture *f)
{
    QosSchedState state;

    qos_sched_state(f->sched, &state);
    return state.running;
}

static void pause_now(Fixture *f, QosRequest *request)
{
    qos_sched_pause(f->sched, request, f->now);
}

/* What it waits for may be the next request of its own job. */
static void test_its_job_goes_on(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_fifo, 2); /* of which a job has one */
    QosRequest *first = request_new(&f, "job", QOS_OP_WRITE, 1);
    QosRequest *second = request_new(&f, "job", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, first), ==, QOS_GO);
    g_assert_cmpint(enter(&f, second), ==, QOS_WAIT);
    g_assert_null(next(&f));
    f.now += QOS_MILLISECOND; /* in the store */
    pause_now(&f, first);
    g_assert_cmpuint(running(&f), ==, 0);
    g_assert_cmpuint(first->job->sched.use.waiting, ==, 2);
    g_assert_true(next(&f) == second);

    f.now += QOS_SECOND;
    qos_sched_go_on(f.sched, first, f.now); /* no slot is free */
    g_assert_cmpuint(running(&f), ==, 2);
    g_assert_cmpuint(first->job->sched.use.waiting, ==, 0);
    QosJob *job = qos_job_ref(first->job);
    f.now += QOS_MILLISECOND;
    leave(&f, first);
    leave(&f, second);
    g_assert_cmpuint(running(&f), ==, 0);
    g_assert_cmpint(job->store_time, ==, QOS_SECOND + 3 * QOS_MILLISECOND);
    g_assert_cmpuint(job->wait_count, ==, 2);
    g_assert_cmpstr(job->wait[1].rule_name, ==, QOS_WAIT_CREDIT);
    g_assert_cmpint(job->wait[1].waited, ==, QOS_SECOND);
    qos_job_unref(job);
    fixture_clear(&f);
}

/* Adaptive sharing lets as many of one job into the store as the store is to have in all. */
static void test_depth(void)
{
    Fixture f;
    const QosAdaptConfig config = {.mode = QOS_ADAPT_FAIR, .period = QOS_ADAPT_PERIOD};
    QosRequest *requests[64];
    guint inside = 0;

    fixture_init(&f, &qos_policy_fifo, G_N_ELEMENTS(requests));
    qos_sched_set_adapt(f.sched, &config, f.now);
    for (guint i = 0; i < G_N_ELEMENTS(requests); i++) {
        requests[i] = request_new(&f, "job", QOS_OP_READ, 1);
        if (enter(&f, requests[i]) != QOS_GO)
            continue;
        pause_now(&f, requests[i]);
        inside++;
    }
    g_assert_cmpuint(inside, ==, G_N_ELEMENTS(requests));
    g_assert_cmpuint(running(&f), ==, 0);
    for (guint i = 0; i < G_N_ELEMENTS(requests); i++) {
        qos_sched_go_on(f.sched, requests[i], f.now);
        leave(&f, requests[i]);
    }
    fixture_clear(&f);
}

/* Without room among those that wait it keeps its slot: so its data is bounded all the same. */
static void test_no_room(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_fifo, 2);
    qos_sched_set_parked_max(f.sched, 16);
    QosRequest *request = request_new(&f, "job", QOS_OP_WRITE, 4096);
    request->data = 4096;
    g_assert_cmpint(enter(&f, request), ==, QOS_GO);
    pause_now(&f, request);
    g_assert_cmpuint(running(&f), ==, 1);
    g_assert_cmpuint(request->job->sched.use.waiting, ==, 0);
    qos_sched_go_on(f.sched, request, f.now);
    g_assert_cmpuint(running(&f), ==, 1);
    leave(&f, request);
    fixture_clear(&f);
}

/* Nor does a read where the kernel has no room in the background for one more that waits. */
static void test_no_background(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_fifo, 3);
    qos_sched_set_background_room(f.sched, 1); /* which others keep */
    QosRequest *read = request_new(&f, "reader", QOS_OP_READ, 1);
    QosRequest *look = request_new(&f, "looker", QOS_OP_GETATTR, 1);
    g_assert_cmpint(enter(&f, read), ==, QOS_GO);
    g_assert_cmpint(enter(&f, look), ==, QOS_GO);
    pause_now(&f, look);
    g_assert_cmpuint(running(&f), ==, 1);
    pause_now(&f, read);
    g_assert_cmpuint(running(&f), ==, 1);
    qos_sched_go_on(f.sched, look, f.now);
    qos_sched_go_on(f.sched, read, f.now);
    leave(&f, look);
    leave(&f, read);
    fixture_clear(&f);
}

/* The mount ends before it goes on. */
static void test_leaves_paused(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_fifo, 2);
    QosRequest *request = request_new(&f, "job", QOS_OP_WRITE, 4096);
    QosJob *job = qos_job_ref(request->job);
    request->data = 4096;
    g_assert_cmpint(enter(&f, request), ==, QOS_GO);
    pause_now(&f, request);
    g_assert_cmpuint(job->sched.use.parked_bytes, ==, 4096);
    leave(&f, request);
    g_assert_cmpuint(running(&f), ==, 0);
    g_assert_cmpuint(job->sched.use.waiting, ==, 0);
    g_assert_cmpuint(job->sched.use.background, ==, 0);
    g_assert_cmpuint(job->sched.use.parked_bytes, ==, 0);
    qos_job_unref(job);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sched-pause/its-job-goes-on", test_its_job_goes_on);
    g_test_add_func("/sched-pause/depth", test_depth);
    g_test_add_func("/sched-pause/no-room", test_no_room);
    g_test_add_func("/sched-pause/no-background", test_no_background);
    g_test_add_func("/sched-pause/leaves-paused", test_leaves_paused);
    return g_test_run();
}
