/*
 * The simulator: the store by exact times, and what must hold whatever is simulated. That it is the
 * scheduler of the mount is seen by what the ways of sharing do (test_sim_aims.c).
 */
#include "sim/simulator.h"

#include <math.h>
#include <string.h>

#include "scenarios.h"
#include "sim/store.h"

#define STORE "[store]\ncapacity=1000\n"

static QosStore store_of(const QosScenario *scenario)
{
    QosStore store;

    qos_store_init(&store, scenario, NULL);
    return store;
}

static void test_store_serves_in_turn(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(STORE "bandwidth=1e6\nlatency=5ms\n[client a]\n");
    QosStore store = store_of(scenario);

    QosService first = qos_store_take(&store, 0, QOS_SECOND);
    QosService second = qos_store_take(&store, 1000, QOS_SECOND);
    g_assert_cmpint(first.begin, ==, QOS_SECOND);
    g_assert_cmpint(first.reply, ==, QOS_SECOND + 6 * QOS_MILLISECOND);
    g_assert_cmpint(second.begin, ==, QOS_SECOND + QOS_MILLISECOND);
    g_assert_cmpint(second.reply, ==, QOS_SECOND + 8 * QOS_MILLISECOND);
    g_assert_cmpint(store.busy, ==, 3 * QOS_MILLISECOND);
    g_assert_cmpint(qos_store_take(&store, 0, 2 * QOS_SECOND).begin, ==, 2 * QOS_SECOND);
}

static void test_store_steps(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(STORE "steps=1s:500 2s:4000\n[client a]\n");
    QosStore store = store_of(scenario);

    g_assert_cmpint(qos_store_take(&store, 0, 0).reply, ==, QOS_MILLISECOND);
    g_assert_cmpint(qos_store_take(&store, 0, QOS_SECOND).reply, ==,
                    QOS_SECOND + 2 * QOS_MILLISECOND);
    g_assert_cmpfloat(qos_store_capacity(&store, QOS_SECOND), ==, 500);
    g_assert_cmpint(qos_store_take(&store, 0, 2 * QOS_SECOND).reply, ==,
                    2 * QOS_SECOND + QOS_MILLISECOND / 4);
}

static void test_store_stalls(void)
{
    g_autoptr(QosScenario) scenario =
        scenario_of(STORE "stall_start=1s\nstall_length=2s\nstall_every=10s\n[client a]\n");
    QosStore store = store_of(scenario);

    g_assert_cmpint(qos_store_take(&store, 0, QOS_SECOND - 1).begin, ==, QOS_SECOND - 1);
    g_assert_cmpint(qos_store_take(&store, 0, QOS_SECOND).begin, ==, 3 * QOS_SECOND);
    g_assert_cmpfloat(qos_store_capacity(&store, 12 * QOS_SECOND), ==, 0);
    g_assert_cmpint(qos_store_take(&store, 0, 12 * QOS_SECOND).begin, ==, 13 * QOS_SECOND);
    g_assert_cmpint(qos_store_take(&store, 0, 14 * QOS_SECOND).begin, ==, 14 * QOS_SECOND);
}

/* It changes single times, and by as much as it says; not the mean. */
static void test_store_noise(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(STORE "noise=0.3\n[client a]\n");
    g_autoptr(GRand) random = g_rand_new_with_seed(7);
    QosStore store;
    double sum = 0;
    double squares = 0;
    guint count = 20000;

    qos_store_init(&store, scenario, random);
    for (guint i = 0; i < count; i++) {
        QosTime before = store.busy;
        qos_store_take(&store, 0, 0);
        double took = (double)(store.busy - before) / (double)QOS_MILLISECOND;
        sum += took;
        squares += took * took;
    }
    double mean = sum / count;
    g_assert_cmpfloat_with_epsilon(mean, 1, 0.01);
    g_assert_cmpfloat_with_epsilon(sqrt(squares / count - mean * mean), 0.3, 0.01);
}

/* A part of the draws would be below nothing: those take the least time that there is. */
static void test_store_noise_at_most(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(STORE "noise=1\n[client a]\n");
    g_autoptr(GRand) random = g_rand_new_with_seed(7);
    const guint count = 20000;
    QosStore store;

    qos_store_init(&store, scenario, random);
    for (guint i = 0; i < count; i++) {
        QosTime before = store.busy;
        qos_store_take(&store, 0, 0);
        g_assert_cmpint(store.busy, >, before);
    }
    g_assert_cmpint(store.busy, >, count * QOS_MILLISECOND);
}

static const QosSimulatedJob *job_of(const QosSimulation *simulation, guint index)
{
    return simulation->jobs->pdata[index];
}

/* What the store has yet to do when the run ends was not served, nor is a stall that it waits for.
 */
static void test_busy_time(void)
{
    g_autoptr(QosScenario) stalled =
        scenario_of("[scenario]\nduration=10s\n" STORE
                    "stall_start=5s\nstall_length=100s\n[client a]\nprocesses=32\n");
    g_autoptr(QosScenario) long_ones =
        scenario_of("[scenario]\nduration=10s\n[store]\ncapacity=1\nstall_start=1500ms\n"
                    "stall_length=7s\n[client a]\nprocesses=4\n");

    for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++) {
        g_autoptr(QosSimulation) simulation = qos_simulate(stalled, sharing, NULL);

        g_assert_cmpint(ABS(simulation->busy - 5 * QOS_SECOND), <=, QOS_MILLISECOND);
    }
    g_autoptr(QosSimulation) simulation = qos_simulate(long_ones, &qos_sharings[0], NULL);
    g_assert_cmpint(simulation->busy, ==, 3500 * QOS_MILLISECOND);
}

/* One process: a request, its reply, and the next: 1 ms in the store, 1 ms latency, 8 ms to think.
 */
static void test_closed_loop(void)
{
    g_autoptr(QosScenario) scenario =
        scenario_of("[scenario]\nduration=10s\n" STORE
                    "latency=1ms\n[client a]\nstart=1s\nthink=8ms\nrequests=500\n");
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, &qos_sharings[0], NULL);
    const QosSimulatedJob *job = job_of(simulation, 0);

    g_assert_cmpuint(job->served, ==, 500);
    g_assert_cmpint(job->first, ==, QOS_SECOND);
    g_assert_cmpint(job->last, ==, QOS_SECOND + 499 * 10 * QOS_MILLISECOND + 2 * QOS_MILLISECOND);
    g_assert_cmpint(simulation->busy, ==, 500 * QOS_MILLISECOND);
    g_assert_cmpuint(qos_timeline_bin(&job->bins, 10)->served, ==, 10);
    g_assert_cmpuint(qos_timeline_bin(&job->bins, 9)->served, ==, 0);
    g_assert_cmpint(qos_timeline_bin(&job->bins, 10)->work, ==, 10 * QOS_MILLISECOND);
}

/* Every second from the start; and a second after each end. */
static void test_bursts(void)
{
    g_autoptr(QosScenario) scenario =
        scenario_of("[scenario]\nduration=4500ms\n" STORE "[client a]\nburst=200\nevery=1s\n"
                    "[client b]\nstart=300ms\nburst=300\npause=1s\n");
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, &qos_sharings[0], "b");
    g_autoptr(QosSimulation) other = qos_simulate(scenario, &qos_sharings[0], "a");

    g_assert_cmpuint(other->jobs->len, ==, 1);
    g_assert_cmpuint(job_of(other, 0)->bursts->len, ==, 5);
    g_assert_cmpint(g_array_index(job_of(other, 0)->bursts, QosTime, 4), ==, 200 * QOS_MILLISECOND);
    g_assert_cmpint(job_of(other, 0)->last, ==, 4200 * QOS_MILLISECOND);
    g_assert_cmpuint(job_of(simulation, 0)->bursts->len, ==, 3);
    g_assert_cmpint(g_array_index(job_of(simulation, 0)->bursts, QosTime, 0), ==,
                    300 * QOS_MILLISECOND);
    g_assert_cmpint(job_of(simulation, 0)->last, ==, 4500 * QOS_MILLISECOND - QOS_MILLISECOND);
}

static void test_open_loop(void)
{
    g_autoptr(QosScenario) scenario =
        scenario_of("[scenario]\nduration=100s\n" STORE "[client a]\nprocesses=2\nrate=50\n");
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, &qos_sharings[0], NULL);

    g_assert_cmpfloat_with_epsilon((double)simulation->requests, 10000, 400);
}

static void test_static_rates(void)
{
    g_autoptr(QosScenario) scenario = scenario_of("[scenario]\nduration=20s\n" STORE
                                                  "[job a]\nweight=3\n[client a]\nprocesses=4\n"
                                                  "[client b]\njobs=2\nprocesses=4\n");
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, &qos_sharings[1], NULL);

    g_assert_cmpuint(simulation->jobs->len, ==, 3);
    g_assert_cmpstr(job_of(simulation, 2)->name, ==, "b.1");
    g_assert_cmpfloat_with_epsilon((double)job_of(simulation, 0)->served, 12000, 60);
    g_assert_cmpfloat_with_epsilon((double)job_of(simulation, 1)->served, 4000, 20);
    g_assert_cmpfloat_with_epsilon((double)job_of(simulation, 2)->served, 4000, 20);
}

/* Everything random and everything that changes. */
static const char busy_scenario[] =
    "[scenario]\nduration=15s\nseed=5\n" STORE "latency=2ms\nnoise=0.4\nsteps=5s:700 9s:1500\n"
    "stall_start=7s\nstall_length=300ms\nbandwidth=1e9\n"
    "[job b]\nweight=7\n"
    "[client a]\njobs=20\nprocesses=3\nspread=5s\nlife=6s\nsize=64K\n"
    "[client b]\nprocesses=4\nrate=40\nsize=4K\n"
    "[client c]\nprocesses=2\nburst=50\nevery=900ms\nthink=1ms\n";

static void assert_same(const QosSimulation *left, const QosSimulation *right)
{
    g_assert_cmpuint(left->requests, ==, right->requests);
    g_assert_cmpint(left->busy, ==, right->busy);
    g_assert_cmpuint(left->jobs->len, ==, right->jobs->len);
    for (guint i = 0; i < left->jobs->len; i++) {
        const QosSimulatedJob *a = job_of(left, i);
        const QosSimulatedJob *b = job_of(right, i);
        g_assert_cmpuint(a->bins.count, ==, b->bins.count);
        for (guint bin = 0; bin < a->bins.count; bin++)
            g_assert_cmpmem(qos_timeline_bin(&a->bins, bin), sizeof(QosBin),
                            qos_timeline_bin(&b->bins, bin), sizeof(QosBin));
        g_assert_cmpint(a->last, ==, b->last);
    }
}

static void test_repeats(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(busy_scenario);

    for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++) {
        g_autoptr(QosSimulation) first = qos_simulate(scenario, sharing, NULL);
        g_autoptr(QosSimulation) second = qos_simulate(scenario, sharing, NULL);
        assert_same(first, second);
        scenario->seed = 6;
        g_autoptr(QosSimulation) other = qos_simulate(scenario, sharing, NULL);
        g_assert_cmpint(other->busy, !=, first->busy);
        scenario->seed = 5;
    }
}

/* In every bin: no job is served more than it asked for, the backing file system serves no more
 * than the time there is, a backlogged job is busy, and what is lent is borrowed. */
static void assert_bins(const QosScenario *scenario, const QosSimulation *simulation)
{
    g_autofree gint64 *open = g_new0(gint64, simulation->jobs->len);
    guint bins = job_of(simulation, 0)->bins.count;
    guint64 served = 0;

    for (guint bin = 0; bin < bins; bin++) {
        gint64 records = 0;
        guint in_bin = 0;
        for (guint i = 0; i < simulation->jobs->len; i++) {
            const QosBin *it = qos_timeline_bin(&job_of(simulation, i)->bins, bin);
            open[i] += (gint64)it->issued - it->served;
            g_assert_cmpint(open[i], >=, 0);
            g_assert_true(!it->is_backlogged || it->is_busy);
            records += it->record;
            in_bin += it->served;
        }
        served += in_bin;
        g_assert_cmpint(records, ==, 0);
    }
    g_assert_cmpuint(served, ==, simulation->served);
    g_assert_cmpint(simulation->busy, <=, scenario->duration + QOS_SECOND);
}

static void test_nothing_is_lost(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(busy_scenario);

    for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++) {
        g_autoptr(QosSimulation) simulation = qos_simulate(scenario, sharing, NULL);
        assert_bins(scenario, simulation);
        g_assert_cmpuint(simulation->served, >, 1000);
        g_assert_cmpuint(simulation->requests - simulation->served, <, 20 * 3 + 2000);
    }
}

/* Each latency is another, around the same mean, and replies overtake one another. */
static void test_store_jitter(void)
{
    g_autoptr(QosScenario) scenario =
        scenario_of("[store]\ncapacity=1e6\nlatency=10ms\njitter=20%\n[client a]\n");
    g_autoptr(GRand) random = g_rand_new_with_seed(7);
    const guint count = 20000;
    QosStore store;
    QosTime last = 0;
    guint overtaken = 0;
    double sum = 0;

    qos_store_init(&store, scenario, random);
    for (guint i = 0; i < count; i++) {
        const QosService service = qos_store_take(&store, 0, 0);
        const QosTime latency = service.reply - store.free;
        g_assert_cmpint(latency, >=, 8 * QOS_MILLISECOND);
        g_assert_cmpint(latency, <=, 12 * QOS_MILLISECOND);
        overtaken += service.reply < last;
        last = service.reply;
        sum += (double)latency;
    }
    g_assert_cmpfloat_with_epsilon(sum / count, 1e7, 1e5);
    g_assert_cmpuint(overtaken, >, count / 4);
}

/* A closed loop over it: each request is answered, and none twice. */
static void test_jitter(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(
        "[store]\ncapacity=1e6\nlatency=10ms\njitter=1\nslots=64\n[client a]\nprocesses=32\n");

    for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++) {
        g_autoptr(QosSimulation) simulation = qos_simulate(scenario, sharing, NULL);
        g_assert_cmpuint(simulation->requests - simulation->served, ==, 32);
        if (!sharing->is_static)
            g_assert_cmpfloat_with_epsilon((double)simulation->served, 60 * 32 * 100, 60 * 32);
    }
}

/* A rule holds from its time on, and until it expires or is stopped. */
static void test_rules(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(
        "[scenario]\nduration=40s\n[store]\ncapacity=1000\nslots=4\n[client a]\nprocesses=8\n"
        "[rules]\nlast=30s: stop big\nfirst=10s: start small jobid={a} rate=100 expire=5s\n"
        "next=20s: start big jobid={a} rate=500\n");
    static const guint expected[] = {1000, 100, 1000, 500, 1000};
    static const guint times[] = {5, 12, 17, 25, 35};

    for (const QosSharing *sharing = qos_sharings; sharing->name != NULL; sharing++) {
        g_autoptr(QosSimulation) simulation = qos_simulate(scenario, sharing, NULL);
        const QosSimulatedJob *job = simulation->jobs->pdata[0];
        for (guint i = 0; i < G_N_ELEMENTS(times); i++) {
            guint served = 0;
            for (guint bin = times[i] * 10; bin < times[i] * 10 + 10; bin++)
                served += qos_timeline_bin(&job->bins, bin)->served;
            if (sharing->has_rules && sharing->adapt != QOS_ADAPT_PAPER)
                g_assert_cmpfloat_with_epsilon(served, expected[i], 0.02 * expected[i]);
            else if (!sharing->has_rules)
                g_assert_cmpfloat_with_epsilon(served, 1000, 20);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/simulator/store-serves-in-turn", test_store_serves_in_turn);
    g_test_add_func("/simulator/store-steps", test_store_steps);
    g_test_add_func("/simulator/store-stalls", test_store_stalls);
    g_test_add_func("/simulator/store-noise", test_store_noise);
    g_test_add_func("/simulator/store-noise-at-most", test_store_noise_at_most);
    g_test_add_func("/simulator/store-jitter", test_store_jitter);
    g_test_add_func("/simulator/jitter", test_jitter);
    g_test_add_func("/simulator/rules", test_rules);
    g_test_add_func("/simulator/busy-time", test_busy_time);
    g_test_add_func("/simulator/closed-loop", test_closed_loop);
    g_test_add_func("/simulator/bursts", test_bursts);
    g_test_add_func("/simulator/open-loop", test_open_loop);
    g_test_add_func("/simulator/static-rates", test_static_rates);
    g_test_add_func("/simulator/repeats", test_repeats);
    g_test_add_func("/simulator/nothing-is-lost", test_nothing_is_lost);
    return g_test_run();
}
