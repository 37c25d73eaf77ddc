/*
 * The grid of stores: some of its points, those that cost little. ./check runs all (qosfs-sim
 * --grid).
 */
#include "sim/grid.h"

#include <math.h>

static void assert_right(const QosGridPoint *point, QosTime duration)
{
    QosGridResult result;

    qos_grid_run(point, duration, &result);
    g_test_message("%g ms, jitter %g, %u slots, %u op/s: %.4f of %.1f, reached after %.3f s",
                   (double)point->latency / 1e6, point->jitter, point->slots, point->capacity,
                   result.part, result.expected, (double)result.reached / 1e9);
    g_assert_true(result.is_right);
    g_assert_cmpfloat_with_epsilon(result.share, 0.75, 0.06);
}

static void test_points(void)
{
    guint count, run = 0;
    const QosGridPoint *points = qos_grid_points(&count);

    for (guint i = 0; i < count; i++) {
        if (points[i].capacity > 1000 || points[i].slots > 1024)
            continue;
        assert_right(&points[i], 0);
        run++;
    }
    g_assert_cmpuint(count, >=, 200);
    g_assert_cmpuint(run, >=, 100);
}

/* Those between its points: the depth that they need is any, the steps of the search end anywhere.
 */
static void test_between(void)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(3);

    for (guint i = 0; i < 100; i++) {
        const QosGridPoint point = {
            .latency = (QosTime)(1e5 * pow(20000, g_rand_double(random))),
            .jitter = g_rand_boolean(random) ? g_rand_double(random) : 0,
            .slots = (guint)(16 * pow(256, g_rand_double(random))),
            .capacity = (guint)(10 * pow(1000, g_rand_double(random))),
        };
        assert_right(&point, 0);
    }
}

static void test_an_hour(void)
{
    guint count, run = 0;
    const QosGridPoint *points = qos_grid_points(&count);

    for (guint i = 0; i < count; i++)
        run += qos_grid_is_long(&points[i]);
    g_assert_cmpuint(run, >=, 20);
    assert_right(&(QosGridPoint){.latency = 50 * QOS_MILLISECOND, .slots = 64, .capacity = 100},
                 3600 * QOS_SECOND);
}

/* What a queue serves in order of arrival: as many as go round, or as many as the store can. */
static void test_what_is_expected(void)
{
    QosGridResult result;

    qos_grid_run(&(QosGridPoint){.latency = 99 * QOS_MILLISECOND, .slots = 16, .capacity = 1000}, 0,
                 &result);
    g_assert_cmpfloat_with_epsilon(result.expected, 160, 2);
    g_assert_cmpint(result.deadline, ==, 2 * QOS_SECOND);
    qos_grid_run(&(QosGridPoint){.latency = QOS_SECOND, .slots = 16, .capacity = 10}, 0, &result);
    g_assert_cmpfloat_with_epsilon(result.expected, 10, 0.1);
    g_assert_cmpint(result.deadline, ==, 22 * QOS_SECOND);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/grid/points", test_points);
    g_test_add_func("/grid/between", test_between);
    g_test_add_func("/grid/an-hour", test_an_hour);
    g_test_add_func("/grid/what-is-expected", test_what_is_expected);
    return g_test_run();
}
