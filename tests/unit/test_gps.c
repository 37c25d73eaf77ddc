/*
 * Generalized processor sharing, by hand, and against a sum over small steps of time.
 */
#include "sim/gps.h"

#include <math.h>

#define MS QOS_MILLISECOND

typedef struct {
    QosHeapNode node; /* first */
    QosGpsJob *job;
    QosTime end;
} Request;

static void enter(QosGps *gps, QosGpsJob *job, Request *request, QosTime work, QosTime now)
{
    *request = (Request){.job = job};
    qos_gps_enter(gps, job, work, &request->node, now);
}

/* Runs until nothing is inside. */
static void run(QosGps *gps)
{
    QosTime next;

    while ((next = qos_gps_next(gps)) != QOS_NEVER) {
        Request *request = (Request *)qos_gps_take(gps, next);

        g_assert_nonnull(request);
        request->end = next;
        qos_gps_leave(gps, request->job);
    }
}

/*
 * Jobs of weights 1 and 3 with 8 ms of work each, from 0 on: b ends at 8 / (3/4) = 32/3 ms, when a
 * has had 8/3 of its 8 ms, and a at 16 ms. At 16 a comes again, alone.
 */
static void test_two_jobs(void)
{
    QosGps gps;
    QosGpsJob a = {.weight = 1}, b = {.weight = 3};
    Request first, second, third;

    qos_gps_init(&gps);
    enter(&gps, &a, &first, 8 * MS, 0);
    enter(&gps, &b, &second, 8 * MS, 0);
    run(&gps);
    g_assert_cmpint(ABS(second.end - 32 * MS / 3), <=, 2);
    g_assert_cmpint(ABS(first.end - 16 * MS), <=, 2);
    enter(&gps, &a, &third, 5 * MS, 20 * MS);
    run(&gps);
    g_assert_cmpint(ABS(third.end - 25 * MS), <=, 2);
    g_assert_cmpfloat_with_epsilon(gps.busy, 21 * MS, 4);
    qos_gps_clear(&gps);
}

/* Requests of one job are served one after the other, however many. */
static void test_one_after_the_other(void)
{
    QosGps gps;
    QosGpsJob a = {.weight = 1}, b = {.weight = 1};
    Request of_a[3], of_b;

    qos_gps_init(&gps);
    for (guint i = 0; i < 3; i++)
        enter(&gps, &a, &of_a[i], 2 * MS, 0);
    enter(&gps, &b, &of_b, 3 * MS, 0);
    run(&gps);
    g_assert_cmpint(ABS(of_a[0].end - 4 * MS), <=, 3);
    g_assert_cmpint(ABS(of_b.end - 6 * MS), <=, 3);
    g_assert_cmpint(ABS(of_a[1].end - 7 * MS), <=, 3);
    g_assert_cmpint(ABS(of_a[2].end - 9 * MS), <=, 3);
    qos_gps_clear(&gps);
}

/* While the store stalls nothing ends; at half the speed all takes twice as long. */
static void test_speeds(void)
{
    QosGps gps;
    QosGpsJob a = {.weight = 2};
    Request request;

    qos_gps_init(&gps);
    enter(&gps, &a, &request, 10 * MS, 0);
    qos_gps_set_speed(&gps, 0, 0, 4 * MS);
    g_assert_cmpint(qos_gps_next(&gps), ==, QOS_NEVER);
    g_assert_null(qos_gps_take(&gps, 100 * MS));
    qos_gps_set_speed(&gps, 0.5, 1, 104 * MS);
    run(&gps);
    g_assert_cmpint(ABS(request.end - 116 * MS), <=, 2);
    g_assert_cmpfloat_with_epsilon(gps.busy, (4 + 12 / 2) * MS, 4);
    qos_gps_clear(&gps);
}

/* After much work, little work is as exact as at first; and work without measure takes long. */
static void test_extremes(void)
{
    const QosTime much = 4000000 * QOS_SECOND;
    QosGps gps;
    QosGpsJob a = {.weight = 1}, b = {.weight = 1000000};
    Request first, second, third;

    qos_gps_init(&gps);
    enter(&gps, &a, &first, much, 0);
    run(&gps);
    g_assert_cmpint(first.end, ==, much);
    enter(&gps, &b, &second, MS / 10, much);
    run(&gps);
    g_assert_cmpint(ABS(second.end - much - MS / 10), <=, 1000);
    enter(&gps, &a, &third, G_MAXINT64 / 2, second.end);
    g_assert_cmpint(qos_gps_next(&gps), >, 2 * much);
    qos_gps_set_speed(&gps, 1e-9, 1, second.end);
    g_assert_cmpint(qos_gps_next(&gps), >, 1000 * much);
    qos_gps_clear(&gps);
}

/* In random runs each job gets, at each instant, its weight's part: a sum over steps of 1 us says
 * the same. */
static void test_random(void)
{
    enum { JOBS = 5, STEP = 1000 };
    g_autoptr(GRand) random = g_rand_new_with_seed(7);

    for (guint run_number = 0; run_number < 20; run_number++) {
        QosGps gps;
        QosGpsJob jobs[JOBS];
        Request requests[JOBS];
        double left[JOBS], ends[JOBS] = {0};
        guint open = JOBS;

        qos_gps_init(&gps);
        for (guint i = 0; i < JOBS; i++) {
            const QosTime work = g_rand_int_range(random, 1, 20) * MS;

            jobs[i] = (QosGpsJob){.weight = g_rand_int_range(random, 1, 50)};
            left[i] = (double)work;
            enter(&gps, &jobs[i], &requests[i], work, 0);
        }
        run(&gps);
        for (double now = 0; open > 0; now += STEP) {
            double weights = 0;

            for (guint i = 0; i < JOBS; i++)
                weights += left[i] > 0 ? (double)jobs[i].weight : 0;
            for (guint i = 0; i < JOBS; i++) {
                if (left[i] <= 0)
                    continue;
                left[i] -= STEP * (double)jobs[i].weight / weights;
                if (left[i] > 0)
                    continue;
                ends[i] = now + STEP;
                open--;
            }
        }
        for (guint i = 0; i < JOBS; i++)
            g_assert_cmpfloat(fabs(ends[i] - (double)requests[i].end), <, JOBS * STEP);
        qos_gps_clear(&gps);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/gps/two-jobs", test_two_jobs);
    g_test_add_func("/gps/one-after-the-other", test_one_after_the_other);
    g_test_add_func("/gps/speeds", test_speeds);
    g_test_add_func("/gps/extremes", test_extremes);
    g_test_add_func("/gps/random", test_random);
    return g_test_run();
}
