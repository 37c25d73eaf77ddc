/*
 * The ideal division, by hand: what bursts take on a store of 1000 op/s.
 */
#include "sim/fluid.h"

#include <math.h>

#include "scenarios.h"

#define STORE "[scenario]\nduration=10s\n[store]\ncapacity=1000\n"

static GArray *bursts_of(const char *text)
{
    g_autoptr(QosScenario) scenario = scenario_of(text);

    g_assert_true(qos_fluid_is_defined(scenario));
    GArray *bursts = qos_fluid_bursts(scenario);
    g_assert_cmpuint(bursts->len, >, 0);
    return bursts;
}

static double took(const GArray *bursts, guint index)
{
    return g_array_index(bursts, QosFluidBurst, index).took;
}

static void assert_all_took(const char *text, guint count, double expected)
{
    g_autoptr(GArray) bursts = bursts_of(text);

    g_assert_cmpuint(bursts->len, ==, count);
    for (guint i = 0; i < bursts->len; i++)
        g_assert_cmpfloat_with_epsilon(took(bursts, i), expected, 1e-6);
}

/* All of the store; with a latency, one request at a time, and the latency after the last. */
static void test_alone(void)
{
    assert_all_took(STORE "[client a]\nburst=100\nevery=1s\n", 10, 0.1);
    assert_all_took(STORE "latency=1ms\n[client a]\nburst=100\nevery=1s\n", 10, 0.201);
    assert_all_took(STORE "latency=1ms\n[client a]\nburst=100\nevery=1s\nprocesses=4\n", 40, 0.401);
}

/* By weight, beside one that always wants all; what it leaves is the other's. */
static void test_by_weight(void)
{
    assert_all_took(STORE "[job a]\nweight=3\n[client a]\nburst=300\nevery=1s\n[client b]\n", 10,
                    0.4);
    assert_all_took(STORE "[client a]\nburst=300\nevery=1s\n[client b]\nrate=100\n", 10,
                    300.0 / 900);
}

/* Two bursts: each has half until the shorter one has ended. */
static void test_overlap(void)
{
    g_autoptr(GArray) bursts =
        bursts_of(STORE "[client a]\nburst=100\npause=60s\n[client b]\nburst=300\npause=60s\n");

    g_assert_cmpuint(bursts->len, ==, 2);
    g_assert_cmpfloat_with_epsilon(took(bursts, 0), 0.2, 1e-6);
    g_assert_cmpfloat_with_epsilon(took(bursts, 1), 0.4, 1e-6);
}

/* A job's own endless process takes its part of the job's, not of the others'. */
static void test_within_a_job(void)
{
    assert_all_took(STORE "[client bursts]\njob=a\nburst=100\nevery=2s\n[client endless]\njob=a\n"
                          "[client b]\nprocesses=7\n",
                    5, 0.4);
}

static void test_undefined(void)
{
    static const char *const texts[] = {
        STORE "noise=0.1\n[client a]\n", STORE "steps=1s:500\n[client a]\n",
        STORE "stall_start=1s\nstall_length=1s\n[client a]\n", STORE "[client a]\nstop=5s\n"};

    for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
        g_autoptr(QosScenario) scenario = scenario_of(texts[i]);
        g_assert_false(qos_fluid_is_defined(scenario));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fluid/alone", test_alone);
    g_test_add_func("/fluid/by-weight", test_by_weight);
    g_test_add_func("/fluid/overlap", test_overlap);
    g_test_add_func("/fluid/within-a-job", test_within_a_job);
    g_test_add_func("/fluid/undefined", test_undefined);
    return g_test_run();
}
