/*
 * Reservations (min=) and weights that change, or do not fit what the store has, and requests of
 * very different size, in the simulator: nobody is starved, and each has its share.
 */
#include "scenarios.h"
#include "sim/simulator.h"

#define JOBS                                                                                       \
    "[client m1]\nprocesses=16\n[client w1]\nprocesses=16\n[client w2]\nprocesses=16\n"            \
    "[client w3]\nprocesses=16\n"

enum { M1, W1, W2, W3 };

static QosSimulation *simulate(const char *text)
{
    g_autoptr(QosScenario) scenario = scenario_of(text);

    return qos_simulate(scenario, qos_sharing_named("fair"), NULL);
}

/* What a job was served in the bins of 100 ms from `begin` to `end`. */
static guint served(const QosSimulation *simulation, guint job, guint begin, guint end)
{
    const QosSimulatedJob *result = simulation->jobs->pdata[job];
    guint sum = 0;

    for (guint i = begin; i < end; i++)
        sum += qos_timeline_bin(&result->bins, i)->served;
    return sum;
}

static void assert_shares(const QosSimulation *simulation, guint begin, guint end,
                          const double rates[4])
{
    for (guint i = 0; i < 4; i++) {
        const double expected = rates[i] * (end - begin) / 10;
        g_assert_cmpfloat_with_epsilon(served(simulation, i, begin, end), expected,
                                       0.03 * expected + 2);
    }
}

/* While the store has less than is reserved, the others have a hundredth of it; once it has all
 * again, they have their shares within a period. */
static void test_a_dip(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate("[scenario]\nduration=60s\n[store]\ncapacity=1000\nlatency=1ms\n"
                 "steps=20s:300 25s:1000\n[adapt]\ncapacity=auto\n" JOBS
                 "[rules]\na=0: start m1 jobid={m1} min=400\n");

    assert_shares(simulation, 100, 200, (double[]){400, 200, 200, 200});
    for (guint i = W1; i <= W3; i++) {
        g_assert_cmpuint(served(simulation, i, 220, 250), >=, 2); /* a third of 3 op/s, 3 s */
        g_assert_cmpuint(served(simulation, i, 253, 263), >=, 180);
    }
    assert_shares(simulation, 270, 600, (double[]){400, 200, 200, 200});
}

/* A capacity that is told and not there: what is reserved comes first from what there is. */
static void test_told_and_not_there(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate("[scenario]\nduration=30s\n[store]\ncapacity=500\nlatency=1ms\n"
                 "[adapt]\ncapacity=1000\n" JOBS "[rules]\na=0: start m1 jobid={m1} min=400\n");

    assert_shares(simulation, 20, 300, (double[]){400, 100.0 / 3, 100.0 / 3, 100.0 / 3});
}

/* A reservation of all that there is, taken back; and a weight that was wrong for a second. */
static void test_rules_change(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate("[scenario]\nduration=60s\n[store]\ncapacity=1000\nlatency=1ms\n"
                 "[adapt]\ncapacity=auto\n" JOBS
                 "[rules]\na=10s: start m1 jobid={m1} min=5000\nb=20s: stop m1\n"
                 "c=30s: start m1 jobid={m1} weight=10000\nd=31s: stop m1\n");
    const double equal[] = {250, 250, 250, 250};

    assert_shares(simulation, 20, 100, equal);
    assert_shares(simulation, 110, 200, (double[]){990, 10.0 / 3, 10.0 / 3, 10.0 / 3});
    for (guint i = W1; i <= W3; i++) {
        g_assert_cmpuint(served(simulation, i, 203, 213), >=, 220);
        g_assert_cmpuint(served(simulation, i, 313, 323), >=, 220);
    }
    assert_shares(simulation, 210, 300, equal);
    assert_shares(simulation, 320, 600, equal);
}

/* A request of 1 MiB takes the store 52 ms: it hangs no more than those of 512 bytes do, which take
 * 1 ms. Each job has half of the store's time. */
static void test_a_long_request_hangs_not(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate("[scenario]\nduration=60s\n[store]\ncapacity=1000\nbandwidth=20000000\n"
                 "latency=1ms\n[adapt]\ncapacity=auto\n[client big]\nprocesses=16\nsize=1048576\n"
                 "[client small]\nprocesses=16\nsize=512\n");
    const double big = served(simulation, 0, 20, 600) * (1 + 1048576 / 20000.0);
    const double small = served(simulation, 1, 20, 600) * (1 + 512 / 20000.0);

    g_assert_cmpfloat_with_epsilon(big / (big + small), 0.5, 0.015);
}

/* Stores far away, which need hundreds of requests inside, or all that may be: what adaptive
 * sharing lets through after two seconds, or twenty round trips. */
static void test_far_stores(void)
{
    static const struct {
        guint latency; /* ms */
        double jitter;
        guint slots;
        guint capacity;
        guint most; /* op/s, with all slots in use */
    } stores[] = {
        {50, 0, 1024, 10000, 10000}, {70, 0.2, 64, 20000, 914},  {100, 1, 16, 10000, 160},
        {500, 0, 1024, 1000, 1000},  {2000, 0.2, 64, 10000, 32}, {10, 0, 4096, 100, 100},
    };

    for (guint i = 0; i < G_N_ELEMENTS(stores); i++) {
        const guint warm = MAX(20 * stores[i].latency / 1000, 2) * 10; /* bins */
        g_autofree char *text = g_strdup_printf(
            "[scenario]\nduration=%us\n[store]\ncapacity=%u\nlatency=%ums\njitter=%g\nslots=%u\n"
            "[adapt]\ncapacity=auto\n[job b]\nweight=2\n[job c]\nweight=5\n"
            "[client a]\nprocesses=%u\n[client b]\nprocesses=%u\n[client c]\nprocesses=%u\n",
            warm / 10 * 3, stores[i].capacity, stores[i].latency, stores[i].jitter, stores[i].slots,
            stores[i].slots, stores[i].slots, stores[i].slots);
        g_autoptr(QosSimulation) simulation = simulate(text);
        guint sum = 0;

        for (guint job = 0; job < 3; job++)
            sum += served(simulation, job, warm, 3 * warm);
        g_test_message("%u ms, %u slots: %u of %u", stores[i].latency, stores[i].slots, sum,
                       stores[i].most * warm / 5);
        g_assert_cmpfloat(sum, >=, 0.96 * stores[i].most * warm / 5);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim/reservations/a-dip", test_a_dip);
    g_test_add_func("/sim/reservations/told-and-not-there", test_told_and_not_there);
    g_test_add_func("/sim/reservations/rules-change", test_rules_change);
    g_test_add_func("/sim/a-long-request-hangs-not", test_a_long_request_hangs_not);
    g_test_add_func("/sim/far-stores", test_far_stores);
    return g_test_run();
}
