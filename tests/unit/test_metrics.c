/*
 * The metrics, on timelines written by hand: two jobs of weight 1 and 3 on a store of 100 op/s, in
 * bins of 100 ms, so that a window has ten of them.
 */
#include "sim/metrics.h"

#include <math.h>

#include "scenarios.h"

#define BINS 100

typedef struct {
    QosScenario *scenario;
    QosReference *reference;
    QosSimulation simulation;
    QosSimulatedJob jobs[2];
} Fixture;

static void fixture_init(Fixture *fixture, const char *more)
{
    g_autofree char *text = g_strconcat("[scenario]\nduration=10s\n[store]\ncapacity=100\n"
                                        "[job b]\nweight=3\n[client a]\nprocesses=20\n",
                                        more, "[client b]\nprocesses=20\n", NULL);

    *fixture = (Fixture){.scenario = scenario_of(text)};
    fixture->reference = qos_reference_new(fixture->scenario);
    fixture->simulation =
        (QosSimulation){.sharing = &qos_sharings[3],
                        .jobs = g_ptr_array_new(),
                        .capacity = g_array_new(FALSE, FALSE, sizeof(QosSimulatedCapacity)),
                        .busy = 10 * QOS_SECOND,
                        .last = 10 * QOS_SECOND,
                        .served = 1000};
    for (guint i = 0; i < 2; i++) {
        QosSimulatedJob *job = &fixture->jobs[i];
        *job = (QosSimulatedJob){.label = i == 0 ? "a" : "b",
                                 .weight = i == 0 ? 1 : 3,
                                 .largest = 10 * QOS_MILLISECOND,
                                 .waking = -1,
                                 .last = 10 * QOS_SECOND};
        job->bins = (QosTimeline){.first = g_new0(QosBin, BINS), .step = 1, .count = BINS};
        job->bursts = g_array_new(FALSE, FALSE, sizeof(QosTime));
        g_ptr_array_add(fixture->simulation.jobs, job);
    }
}

static void fixture_clear(Fixture *fixture)
{
    for (guint i = 0; i < 2; i++) {
        g_free(fixture->jobs[i].bins.first);
        g_array_unref(fixture->jobs[i].bursts);
    }
    g_ptr_array_unref(fixture->simulation.jobs);
    g_array_unref(fixture->simulation.capacity);
    qos_reference_free(fixture->reference);
    qos_scenario_free(fixture->scenario);
}

/* From bin `first` up to `end` a job is served `requests` in each, and waits for more. */
static void serve(Fixture *fixture, guint job, guint first, guint end, double requests)
{
    for (guint i = first; i < end; i++) {
        QosBin *bin = qos_timeline_bin(&fixture->jobs[job].bins, i);
        bin->work = (QosTime)(requests * 10 * (double)QOS_MILLISECOND);
        bin->is_busy = bin->is_backlogged = TRUE;
    }
}

static QosMetrics metrics_of(const Fixture *fixture)
{
    QosMetrics metrics;

    qos_metrics(fixture->reference, &fixture->simulation, &metrics);
    return metrics;
}

static void test_exact_shares(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    serve(&fixture, 0, 0, BINS, 2.5);
    serve(&fixture, 1, 0, BINS, 7.5);
    QosMetrics metrics = metrics_of(&fixture);
    g_assert_cmpfloat_with_epsilon(metrics.rate, 100, 1e-9);
    g_assert_cmpfloat_with_epsilon(metrics.utilization, 1, 2e-3);
    g_assert_cmpfloat(metrics.share_error, ==, 0);
    g_assert_cmpfloat_with_epsilon(metrics.jain, 1, 1e-9);
    g_assert_cmpfloat(metrics.least, ==, 1);
    g_assert_true(isnan(metrics.settle));
    g_assert_true(isnan(metrics.waking));
    g_assert_true(isnan(metrics.repayment));
    g_assert_true(isnan(metrics.burst_p99));
    g_assert_true(isnan(metrics.capacity_error));
    fixture_clear(&fixture);
}

/* In one second of the ten, a has 20 of its 25, less the one that cannot be divided: 4 / 25. */
static void test_one_bad_second(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    serve(&fixture, 0, 0, BINS, 2.5);
    serve(&fixture, 1, 0, BINS, 7.5);
    serve(&fixture, 0, 50, 60, 2);
    serve(&fixture, 1, 50, 60, 8);
    QosMetrics metrics = metrics_of(&fixture);
    g_assert_cmpfloat_with_epsilon(metrics.share_error, 4 / 25.0, 1e-9);
    g_assert_cmpfloat_with_epsilon(metrics.least, 21 / 25.0, 1e-9);
    fixture_clear(&fixture);
}

/* The start-up of a job, which is its first period, counts for nothing. */
static void test_start_up_left_out(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    serve(&fixture, 0, 0, 1, 10);
    serve(&fixture, 0, 1, BINS, 2.5);
    serve(&fixture, 1, 0, 1, 0);
    serve(&fixture, 1, 1, BINS, 7.5);
    g_assert_cmpfloat(metrics_of(&fixture).share_error, ==, 0);
    fixture_clear(&fixture);
}

/* A job with nothing waiting in the scheduler, be it for a moment, wants no more. */
static void test_not_backlogged(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    serve(&fixture, 0, 0, BINS, 1);
    serve(&fixture, 1, 0, BINS, 9);
    for (guint i = 0; i < BINS; i += 9)
        qos_timeline_bin(&fixture.jobs[0].bins, i)->is_backlogged = FALSE;
    QosMetrics metrics = metrics_of(&fixture);
    g_assert_true(isnan(metrics.share_error));
    g_assert_true(isnan(metrics.jain));
    g_assert_cmpfloat(metrics.least, ==, 1); /* of b */
    fixture_clear(&fixture);
}

/* b comes after 3 s and gets its share 700 ms later. */
static void test_newcomer(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    serve(&fixture, 0, 0, 37, 10);
    serve(&fixture, 0, 37, BINS, 2.5);
    fixture.jobs[1].first = 3 * QOS_SECOND;
    serve(&fixture, 1, 30, 37, 0);
    serve(&fixture, 1, 37, BINS, 7.5);
    /* A window with 95 % of the share: 71.25 requests of 75, one is given: 70.25, 9.37 bins. */
    g_assert_cmpfloat_with_epsilon(metrics_of(&fixture).settle, 0.7, 1e-9);
    fixture_clear(&fixture);
}

/* a lends till second 4, wants all then, and has its record down to a tenth after 1.2 s. */
static void test_repayment(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    serve(&fixture, 0, 40, BINS, 5);
    serve(&fixture, 1, 0, BINS, 5);
    for (guint i = 0; i < BINS; i++)
        qos_timeline_bin(&fixture.jobs[0].bins, i)->record = (i < 40   ? 20
                                                              : i < 51 ? 10
                                                                       : 2) *
                                                             QOS_COST_UNIT;
    g_assert_cmpfloat_with_epsilon(metrics_of(&fixture).repayment, 1.2, 1e-9);
    /* A job that wants no more before then is not waited for. */
    qos_timeline_bin(&fixture.jobs[0].bins, 45)->is_busy = FALSE;
    for (guint i = 45; i < BINS; i++)
        qos_timeline_bin(&fixture.jobs[0].bins, i)->record = 0;
    g_assert_true(isnan(metrics_of(&fixture).repayment));
    fixture_clear(&fixture);
}

/* The job of bursts takes 100 ms for each when it is alone: ten requests of 10 ms. */
static void test_bursts(void)
{
    Fixture fixture;

    fixture_init(&fixture, "burst=10\nevery=5s\nstart=1s\nlife=5s\n");
    for (gint i = 1; i <= 200; i++) {
        QosTime took = (201 - i) * QOS_MILLISECOND;
        g_array_append_val(fixture.jobs[0].bursts, took);
    }
    QosMetrics metrics = metrics_of(&fixture);
    g_assert_cmpfloat_with_epsilon(metrics.burst_median, 0.1, 1e-9);
    g_assert_cmpfloat_with_epsilon(metrics.burst_p99, 0.198, 1e-9);
    g_assert_cmpfloat_with_epsilon(metrics.burst_longest, 0.2, 1e-9);
    /* Alone, its twenty processes have a burst each: 200 requests, 2 s, less up to 19 of them. */
    g_assert_cmpfloat_with_epsilon(metrics.burst_factor, 0.1, 0.01);
    fixture_clear(&fixture);
}

/* Right but for the five seconds after each change, and a stall. */
static void test_capacity(void)
{
    Fixture fixture;

    fixture_init(&fixture, "");
    fixture.scenario->told_capacity = 0;
    for (guint i = 0; i < 200; i++) {
        QosSimulatedCapacity capacity = {.estimate = i < 48    ? 50
                                                     : i < 148 ? 104
                                                               : 210,
                                         .actual = i < 100    ? 100
                                                   : i == 170 ? 0
                                                              : 200};
        g_array_append_val(fixture.simulation.capacity, capacity);
    }
    g_assert_cmpfloat_with_epsilon(metrics_of(&fixture).capacity_error, 0.05, 1e-9);
    fixture_clear(&fixture);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/metrics/exact-shares", test_exact_shares);
    g_test_add_func("/metrics/one-bad-second", test_one_bad_second);
    g_test_add_func("/metrics/start-up-left-out", test_start_up_left_out);
    g_test_add_func("/metrics/not-backlogged", test_not_backlogged);
    g_test_add_func("/metrics/newcomer", test_newcomer);
    g_test_add_func("/metrics/repayment", test_repayment);
    g_test_add_func("/metrics/bursts", test_bursts);
    g_test_add_func("/metrics/capacity", test_capacity);
    return g_test_run();
}
