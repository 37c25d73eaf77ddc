/*
 * Shares of jobs of one or two processes (fs/adapt_anticipation.h), in the simulator. Exact: a run
 * repeats to the byte.
 */
#include "scenarios.h"
#include "sim/experiment.h"

enum { HEAVY, LIGHT };

/* Two jobs that send a request as soon as they have the last reply; rates in op/s. */
typedef struct {
    const char *name;
    const char *store;
    guint weight; /* of HEAVY; LIGHT has 1 */
    guint heavy;  /* processes */
    guint light;
    const char *think; /* HEAVY's, between requests */
    double least;      /* what HEAVY has for each request of LIGHT: from */
    double most;       /* to */
    double utilization;
} Case;

#define SERIAL "capacity=400\nlatency=0.1ms\n"

static const Case cases[] = {
    {"one-process", SERIAL, 3, 1, 1, "0ms", 2.8, 3.1, 0.97},
    {"two-processes", SERIAL, 3, 2, 2, "0ms", 2.9, 3.1, 0.99},
    {"one-and-two", SERIAL, 3, 1, 2, "0ms", 2.7, 3.1, 0.97},
    {"one-and-many", SERIAL, 3, 1, 16, "0ms", 2.7, 3.1, 0.94},
    {"noise", SERIAL "noise=0.2\n", 3, 1, 1, "0ms", 2.6, 3.1, 0.97},
    {"equal", SERIAL, 1, 1, 1, "0ms", 0.99, 1.01, 0.999},
    /* The store serves both at once: to hold one gives the other nothing. */
    {"room", "capacity=10000\nlatency=2.5ms\n", 3, 1, 1, "0ms", 0.99, 1.03, 0},
    /* Nor where the other thinks for as long as two requests take. */
    {"thinks", SERIAL, 3, 1, 1, "5ms", 0.4, 0.6, 0.97},
};

static double rate_of(const QosRun *run, guint job)
{
    return qos_experiment_job_rate(run->simulation->jobs->pdata[job]);
}

static void test_case(gconstpointer data)
{
    const Case *c = data;
    g_autofree char *text = g_strdup_printf(
        "[scenario]\ntitle=x\nduration=60s\n[store]\n%sslots=64\n[adapt]\ncapacity=auto\n"
        "[job heavy]\nweight=%u\n[job light]\nweight=1\n"
        "[client heavy]\nprocesses=%u\nthink=%s\n[client light]\nprocesses=%u\n",
        c->store, c->weight, c->heavy, c->think, c->light);
    g_autoptr(GPtrArray) sharings = g_ptr_array_new();

    g_ptr_array_add(sharings, (gpointer)qos_sharing_named("none"));
    g_ptr_array_add(sharings, (gpointer)qos_sharing_named("fair"));
    g_autoptr(QosExperiment) experiment = qos_experiment_run(scenario_of(text), sharings);
    const QosRun *none = experiment->runs->pdata[0], *fair = experiment->runs->pdata[1];
    const double heavy = rate_of(fair, HEAVY), light = rate_of(fair, LIGHT);
    g_test_message("%.1f and %.1f op/s, %.4f used", heavy, light, fair->metrics.utilization);
    g_assert_cmpfloat(heavy / light, >=, c->least);
    g_assert_cmpfloat(heavy / light, <=, c->most);
    g_assert_cmpfloat(fair->metrics.utilization, >=, c->utilization);
    if (c->utilization == 0) /* it is not full */
        g_assert_cmpfloat(heavy + light, >=, 0.99 * (rate_of(none, HEAVY) + rate_of(none, LIGHT)));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *path = g_strconcat("/adapt-anticipation/", cases[i].name, NULL);
        g_test_add_data_func(path, &cases[i], test_case);
    }
    return g_test_run();
}
