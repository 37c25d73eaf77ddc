/*
 * The virtual time of adapt=fair, which begins anew before it could overflow: nobody's turn changes
 * by that.
 */
#include "fs/adapt_private.h"
#include "fs/rule.h"

#define PERIOD  (100 * QOS_MILLISECOND)
#define JOBS    8
#define MINIMUM 999999 /* op/s: more than the store can */

typedef struct {
    QosJobs registry;
    QosAdapt *adapt;
    QosTime now;
    QosJob *jobs[JOBS];
    guint waiting[JOBS]; /* requests */
} Turns;

/* As it is when what was served before has taken virtual time to `virtual_time`. */
static void turns_init(Turns *turns, gint64 virtual_time)
{
    const QosAdaptConfig config = {.mode = QOS_ADAPT_FAIR, .period = PERIOD};

    *turns = (Turns){.now = 1000 * QOS_SECOND};
    qos_jobs_init(&turns->registry, 600 * QOS_SECOND);
    turns->adapt = qos_adapt_new(16, turns->now);
    qos_adapt_configure(turns->adapt, &config, turns->now);
    turns->adapt->virtual_time = virtual_time;
    for (guint i = 0; i < JOBS; i++) {
        g_autofree char *id = g_strdup_printf("job%u", i);
        turns->jobs[i] = qos_jobs_job(&turns->registry, id, turns->now);
    }
}

static void turns_clear(Turns *turns)
{
    qos_adapt_free(turns->adapt);
    for (guint i = 0; i < JOBS; i++)
        qos_job_unref(turns->jobs[i]);
    qos_jobs_clear(&turns->registry);
}

static void end_period(Turns *turns)
{
    turns->now += PERIOD;
    qos_adapt_tick(turns->adapt, turns->now);
}

static void serve(Turns *turns, guint job, gint64 minimum)
{
    qos_adapt_serve(turns->adapt, turns->jobs[job], QOS_COST_UNIT, 1, minimum, turns->now);
}

static void wait_for_turn(Turns *turns, guint job, gint64 cost)
{
    turns->waiting[job]++;
    qos_adapt_wait(turns->adapt, turns->jobs[job], cost, 0, 0, turns->now);
    qos_adapt_set_ready(turns->adapt, turns->jobs[job], TRUE, turns->now);
}

/* Beside a reservation of all that the store can, the other job has a hundredth. Its turn does not
 * come before that of the reservation. */
static void test_a_reservation_of_all(void)
{
    enum { RESERVED, OTHER };
    Turns turns;

    turns_init(&turns, G_MAXINT64 - 100 * 1000 * QOS_SECOND);
    for (guint period = 0; period < 300; period++) {
        serve(&turns, RESERVED, MINIMUM);
        serve(&turns, OTHER, 0);
        end_period(&turns);
    }
    const gint64 all = qos_adapt_units(turns.adapt, qos_adapt_capacity(turns.adapt));
    g_assert_cmpint(qos_adapt_fair_of(turns.adapt, turns.jobs[OTHER])->entitlement, ==, all / 100);
    wait_for_turn(&turns, OTHER, QOS_COST_UNIT);
    wait_for_turn(&turns, RESERVED, QOS_COST_UNIT);
    g_assert_true(qos_adapt_first(turns.adapt) == turns.jobs[RESERVED]);
    turns_clear(&turns);
}

static void serve_first(Turns *turns, gint64 cost)
{
    QosTime wake = QOS_NEVER;
    QosJob *first = qos_adapt_next(turns->adapt, turns->now, &wake);
    guint job = 0;

    if (first == NULL)
        return;
    while (turns->jobs[job] != first)
        job++;
    qos_adapt_serve(turns->adapt, first, cost, 0, 0, turns->now);
    qos_adapt_stop_waiting(turns->adapt, first, cost);
    qos_adapt_set_ready(turns->adapt, first, --turns->waiting[job] > 0, turns->now);
}

/* Requests that come, wait, go at once, cost other than was thought; periods that end. */
static void change_at_random(Turns *turns, GRand *random)
{
    const guint job = (guint)g_rand_int_range(random, 0, JOBS);
    const gint64 cost = g_rand_int_range(random, 1, 1000) * QOS_COST_UNIT;

    switch (g_rand_int_range(random, 0, 8)) {
    case 0:
        end_period(turns);
        break;
    case 1:
        turns->jobs[job]->nodes = (guint)g_rand_int_range(random, 1, QOS_WEIGHT_MAX);
        serve(turns, job, g_rand_boolean(random) ? MINIMUM : 0);
        break;
    case 2:
        qos_adapt_settle(turns->adapt, turns->jobs[job], cost - 500 * QOS_COST_UNIT);
        break;
    case 3:
    case 4:
        wait_for_turn(turns, job, cost);
        break;
    default:
        serve_first(turns, cost);
    }
}

static int index_of_first(const Turns *turns)
{
    const QosJob *first = qos_adapt_first(turns->adapt);

    for (int job = 0; job < JOBS; job++) {
        if (first == turns->jobs[job])
            return job;
    }
    return -1;
}

/* Two that see the same, one of them when its time begins anew. */
static void test_order_stays(void)
{
    guint begun = 0;

    for (guint seed = 1; seed <= 20; seed++) {
        GRand *random = g_rand_new_with_seed(seed), *same = g_rand_new_with_seed(seed);
        Turns turns, later;

        g_test_message("seed %u", seed);
        turns_init(&turns, 0);
        turns_init(&later, QOS_VIRTUAL_TIME_MAX - g_rand_int_range(random, 1, 100) * QOS_SECOND);
        g_rand_set_seed(random, seed);
        for (guint change = 0; change < 2000; change++) {
            change_at_random(&turns, random);
            change_at_random(&later, same);
            g_assert_cmpint(index_of_first(&turns), ==, index_of_first(&later));
            g_assert_cmpint(later.adapt->virtual_time, <=, QOS_VIRTUAL_TIME_MAX);
        }
        begun += later.adapt->virtual_time < turns.adapt->virtual_time;
        turns_clear(&turns);
        turns_clear(&later);
        g_rand_free(random);
        g_rand_free(same);
    }
    g_assert_cmpuint(begun, ==, 20);
}

/* If its request hangs in the backing file system, a job falls behind in virtual time, but only
 * down to a bound. */
static void test_a_hung_job(void)
{
    enum { HUNG, OTHER };
    Turns turns;

    turns_init(&turns, 0);
    serve(&turns, HUNG, 0);
    for (guint i = 0; i < 20; i++) {
        turns.adapt->virtual_time = QOS_VIRTUAL_TIME_MAX;
        serve(&turns, OTHER, 0);
        serve(&turns, OTHER, 0);
        g_assert_cmpint(turns.adapt->virtual_time, ==, 0);
        g_assert_cmpint(turns.jobs[HUNG]->share.finish, <=, 0);
        g_assert_cmpint(turns.jobs[HUNG]->share.finish, >=, -QOS_VIRTUAL_TIME_MAX);
    }
    turns_clear(&turns);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adapt-virtual/a-reservation-of-all", test_a_reservation_of_all);
    g_test_add_func("/adapt-virtual/order-stays", test_order_stays);
    g_test_add_func("/adapt-virtual/a-hung-job", test_a_hung_job);
    return g_test_run();
}
