/*
 * What the store can do is found from what all mounts are served (core/budget_capacity.h): exact
 * values. A store that is found and followed is test_sim_budget_shares.c's.
 */
#include <math.h>

#include "core/budget_capacity.h"

#define E (100 * QOS_MILLISECOND)

static void assert_near(double value, double expected)
{
    g_assert_cmpfloat_with_epsilon(value / expected, 1, 1e-9);
}

/* All of it is used: it grows, twice as fast with each second, to e times as much in a second. */
static void test_grows(void)
{
    QosBudgetCapacity capacity;

    qos_budget_capacity_init(&capacity, 1000);
    assert_near(qos_budget_capacity_step(&capacity, 970, 0, QOS_SECOND), 1000 * exp(0.02));
    const double one = capacity.estimate;
    assert_near(qos_budget_capacity_step(&capacity, one, one * 0.49, QOS_SECOND), one * exp(0.04));
    for (guint i = 0; i < 10; i++)
        qos_budget_capacity_step(&capacity, capacity.estimate, 0, QOS_SECOND);
    const double fast = capacity.estimate;
    assert_near(qos_budget_capacity_step(&capacity, fast, 0, QOS_SECOND), fast * exp(1));
    g_assert_false(capacity.is_saturated);
}

/* Less is wanted: nothing is known. */
static void test_stays(void)
{
    QosBudgetCapacity capacity;

    qos_budget_capacity_init(&capacity, 1000);
    g_assert_cmpfloat(qos_budget_capacity_step(&capacity, 969, 0, E), ==, 1000);
    g_assert_cmpfloat(qos_budget_capacity_step(&capacity, 100, 49, E), ==, 1000);
    g_assert_cmpfloat(qos_budget_capacity_step(&capacity, 0, 0, E), ==, 1000); /* a stall */
    g_assert_false(capacity.is_saturated);
}

/* The store is full: half of the way to what it served, and no more than a tenth of C down. */
static void test_saturated(void)
{
    QosBudgetCapacity capacity;

    qos_budget_capacity_init(&capacity, 1000);
    for (guint i = 0; i < 20; i++)
        qos_budget_capacity_step(&capacity, capacity.estimate, 0, E);
    const double grown = capacity.estimate;
    assert_near(qos_budget_capacity_step(&capacity, grown * 0.96, grown * 0.48, E), grown * 0.98);
    g_assert_true(capacity.is_saturated);
    const double less = capacity.estimate;
    assert_near(qos_budget_capacity_step(&capacity, 1, 1, E), less * 0.9);
    assert_near(qos_budget_capacity_step(&capacity, less * 1.1, less * 1.1, E), less);
    /* Then it grows slowly again. */
    assert_near(qos_budget_capacity_step(&capacity, less, 0, E), less * exp(0.002));
}

/* It stays a rate, whatever comes. */
static void test_bounds(void)
{
    QosBudgetCapacity capacity;

    qos_budget_capacity_init(&capacity, 0);
    g_assert_cmpfloat(capacity.estimate, ==, 1);
    g_assert_cmpfloat(qos_budget_capacity_step(&capacity, 0.1, 0.1, E), ==, 1);
    qos_budget_capacity_init(&capacity, 1e30);
    g_assert_cmpfloat(capacity.estimate, ==, 1e18);
    g_assert_cmpfloat(qos_budget_capacity_step(&capacity, 1e30, 0, E), ==, 1e18);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget-capacity/grows", test_grows);
    g_test_add_func("/budget-capacity/stays", test_stays);
    g_test_add_func("/budget-capacity/saturated", test_saturated);
    g_test_add_func("/budget-capacity/bounds", test_bounds);
    return g_test_run();
}
