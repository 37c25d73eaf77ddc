/*
 * Scenario files: what is read, the defaults, and every way in which one can be wrong.
 */
#include <string.h>

#include "base/error.h"
#include "scenarios.h"
#include "sim/rule_changes.h"

#define STORE  "[store]\ncapacity=100\n"
#define CLIENT "[client a]\n"

static void test_defaults(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(STORE CLIENT);
    const QosScenarioClient *client = scenario->clients->pdata[0];

    g_assert_cmpstr(scenario->name, ==, "X");
    g_assert_cmpstr(scenario->title, ==, "X");
    g_assert_cmpint(scenario->duration, ==, 60 * QOS_SECOND);
    g_assert_cmpint(scenario->bin, ==, 100 * QOS_MILLISECOND);
    g_assert_cmpint(scenario->period, ==, 100 * QOS_MILLISECOND);
    g_assert_cmpuint(scenario->slots, ==, 16);
    g_assert_cmpfloat(scenario->told_capacity, ==, 100);
    g_assert_cmpint(scenario->stall_start, ==, QOS_NEVER);
    g_assert_cmpuint(qos_scenario_weight(scenario, "a"), ==, 1);
    g_assert_cmpstr(client->job, ==, "a");
    g_assert_cmpuint(client->jobs, ==, 1);
    g_assert_cmpuint(client->processes, ==, 1);
    g_assert_cmpint(client->stop, ==, QOS_NEVER);
}

static void test_values(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(
        "[scenario]\ntitle=A title\nduration=2m\nseed=4294967295\nbin=1s\n"
        "[store]\ncapacity=1e3\nbandwidth=5e8\nlatency=250ms\njitter=20%\nnoise=0.5\nslots=3\n"
        "steps=10s:500  20s:2000\nstall_start=30s\nstall_length=2s\nstall_every=10s\n"
        "[adapt]\ncapacity=auto\nperiod=5ms 10s\n"
        "[job J-1]\nweight=30\n"
        "[client one]\njob=J-1\njobs=1\nprocesses=2\nstart=1s\nspread=2s\nstop=50s\nlife=9s\n"
        "size=1M\nthink=3ms\nburst=4\nevery=5s\nrequests=1000000000\n"
        "[client two]\njob=J-1\nrate=0.5\n"
        "[rules]\nb=20s: stop r\na=0: start r jobid={J-1} rate=5\n"
        "[figures]\ntimeline=t\nbars=b\nrecords=r\nrates=s\n");
    const QosRuleChange *change = &g_array_index(scenario->rules, QosRuleChange, 1);
    const QosScenarioClient *client = scenario->clients->pdata[0];
    const QosStep *step = &g_array_index(scenario->steps, QosStep, 1);

    g_assert_cmpuint(scenario->seed, ==, 4294967295);
    g_assert_cmpfloat(scenario->capacity, ==, 1000);
    g_assert_cmpfloat(scenario->told_capacity, ==, 0);
    g_assert_cmpuint(scenario->steps->len, ==, 2);
    g_assert_cmpint(step->time, ==, 20 * QOS_SECOND);
    g_assert_cmpfloat(step->capacity, ==, 2000);
    g_assert_cmpuint(scenario->periods->len, ==, 2);
    g_assert_cmpint(scenario->period, ==, 5 * QOS_MILLISECOND);
    g_assert_cmpuint(qos_scenario_weight(scenario, "J-1"), ==, 30);
    g_assert_cmpint(client->size, ==, 1 << 20);
    g_assert_cmpuint(client->burst, ==, 4);
    g_assert_cmpuint(client->requests, ==, 1000000000);
    g_assert_cmpfloat(((const QosScenarioClient *)scenario->clients->pdata[1])->rate, ==, 0.5);
    g_assert_cmpstr(scenario->rates, ==, "s");
    g_assert_cmpfloat(scenario->jitter, ==, 0.2);
    g_assert_cmpuint(scenario->rules->len, ==, 2);
    g_assert_cmpint(change->time, ==, 20 * QOS_SECOND);
    g_assert_cmpstr(change->command, ==, "stop r");
}

static void test_periods_replaced(void)
{
    g_autoptr(QosScenario) scenario = scenario_of(STORE CLIENT);
    g_autoptr(GError) error = NULL;

    g_assert_true(qos_scenario_set_periods(scenario, "20ms 1s", &error));
    g_assert_cmpuint(scenario->periods->len, ==, 2);
    g_assert_cmpint(scenario->period, ==, 20 * QOS_MILLISECOND);
    g_assert_false(qos_scenario_set_periods(scenario, "20ms 11s", &error));
    g_assert_error(error, QOS_ERROR, ERANGE);
}

/* Where none is given, the bins are as long as few enough of them need, and no longer than the run.
 */
static void test_default_bins(void)
{
    static const struct {
        const char *duration;
        const char *client;
        QosTime bin;
    } cases[] = {
        {"60s", "", 100 * QOS_MILLISECOND},
        {"50ms", "", 50 * QOS_MILLISECOND},
        {"1000s", "", 100 * QOS_MILLISECOND},
        {"1001s", "", 200 * QOS_MILLISECOND},
        {"24h", "", 10 * QOS_SECOND},
        {"60s", "jobs=200000\n[client b]\njob=a\njobs=200000\n", 10 * QOS_SECOND},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text = g_strdup_printf("[scenario]\nduration=%s\n" STORE CLIENT "%s",
                                                cases[i].duration, cases[i].client);
        g_autoptr(QosScenario) scenario = scenario_of(text);

        g_assert_cmpint(scenario->bin, ==, cases[i].bin);
    }
}

/* A file that is wrong, and what the message tells: the group and the key, and what is wrong. */
static const struct {
    const char *text;
    const char *message;
} wrong_files[] = {
    {"", "there is no [client NAME]"},
    {STORE, "there is no [client NAME]"},
    {CLIENT, "[store] has no capacity"},
    {"no key file", ""},
    {STORE CLIENT "[jobs]\n", "there is no group [jobs]"},
    {STORE CLIENT "[store]\nspeed=1\n", "[store] has no key \"speed\"; qosfs-sim(1) lists them"},
    {"[scenario]\nduratoin=1\n" STORE CLIENT,
     "[scenario] has no key \"duratoin\"; did you mean \"duration\"?"},
    {"[scenario]\nduration=0\n" STORE CLIENT,
     "[scenario] duration: out of range: 0.001 to 86400 s"},
    {"[scenario]\nduration=2d\n" STORE CLIENT, "[scenario] duration: out of range"},
    {"[scenario]\nduration=ten\n" STORE CLIENT, "[scenario] duration: "},
    {"[scenario]\nseed=-1\n" STORE CLIENT, "[scenario] seed: "},
    {"[scenario]\nseed=4294967296\n" STORE CLIENT, "[scenario] seed: "},
    {"[scenario]\nduration=1s\nbin=2s\n" STORE CLIENT, "[scenario] bin is longer"},
    {"[scenario]\ntitle=\xff\n" STORE CLIENT, "[scenario] title: not valid text"},
    {"[store]\ncapacity=0\n" CLIENT, "[store] capacity: out of range: 1 to 1e+08"},
    {"[store]\ncapacity=-5\n" CLIENT, "[store] capacity: \"-5\" is no number"},
    {"[store]\ncapacity=1k\n" CLIENT, "[store] capacity: \"1k\" is no number"},
    {"[store]\ncapacity=nan\n" CLIENT, "[store] capacity: \"nan\" is no number"},
    {"[store]\ncapacity=inf\n" CLIENT, "[store] capacity: out of range"},
    {"[store]\ncapacity=\n" CLIENT, "[store] capacity: \"\" is no number"},
    {STORE "noise=2\n" CLIENT, "[store] noise: out of range: 0 to 1"},
    {STORE "jitter=120%\n" CLIENT, "[store] jitter: out of range: 0 to 1"},
    {STORE "jitter=%\n" CLIENT, "[store] jitter: \"\" is no number"},
    {STORE CLIENT "[rules]\na=stop r\n", "[rules] a: \"stop r\" is no TIME: COMMAND"},
    {STORE CLIENT "[rules]\na=soon: stop r\n", "[rules] a: "},
    {STORE CLIENT "[rules]\na=5s: stop r\n", "[rules] \"stop r\": "},
    {STORE CLIENT "[rules]\na=5s: start r jobid={a} rate=1 expire=2s\nb=8s: stop r\n",
     "[rules] \"stop r\": "},
    {STORE "slots=0\n" CLIENT, "[store] slots: "},
    {STORE "bandwidth=1\n" CLIENT, "[store] bandwidth: out of range"},
    {STORE "steps=\n" CLIENT, "[store] steps: there is nothing in it"},
    {STORE "steps=10s\n" CLIENT, "[store] steps: \"10s\" is no TIME:CAPACITY"},
    {STORE "steps=10s:0\n" CLIENT, "[store] steps: out of range"},
    {STORE "steps=x:5\n" CLIENT, "[store] steps: "},
    {STORE "steps=10s:5 10s:6\n" CLIENT, "[store] steps: \"10s:6\" is not after the step before"},
    {STORE "stall_start=1s\n" CLIENT, "[store] stall_start and stall_length go together"},
    {STORE "stall_length=1s\n" CLIENT, "[store] stall_start and stall_length go together"},
    {STORE "stall_start=1s\nstall_length=2s\nstall_every=2s\n" CLIENT,
     "[store] stall_every must be longer"},
    {STORE CLIENT "[adapt]\ncapacity=some\n", "[adapt] capacity: \"some\" is no number"},
    {STORE CLIENT "[adapt]\ncapacity=0.5\n", "[adapt] capacity: out of range"},
    {STORE CLIENT "[adapt]\nperiod=4ms\n", "[adapt] period: out of range: 0.005 to 10 s"},
    {STORE CLIENT "[adapt]\nperiod=100ms 11s\n", "[adapt] period: out of range"},
    {STORE CLIENT "[job a]\nweight=0\n", "[job a] weight: "},
    {STORE CLIENT "[job a]\nweight=-1\n", "[job a] weight: "},
    {STORE CLIENT "[job a]\nweight=1000001\n", "[job a] weight: "},
    {STORE CLIENT "[job a]\nwait=1\n", "[job a] has no key \"wait\""},
    {STORE CLIENT "[job b]\nweight=2\n", "[job b] has no client"},
    {STORE CLIENT "jobs=0\n", "[client a] jobs: "},
    {STORE CLIENT "processes=0\n", "[client a] processes: "},
    {STORE CLIENT "jobs=1001\nprocesses=1000\n", "more than 1000000 processes in all"},
    {"[scenario]\nbin=100ms\n" STORE CLIENT "jobs=200000\n", "more than 100000000 bins"},
    {STORE CLIENT "size=2G\n", "[client a] size: out of range"},
    {STORE CLIENT "size=big\n", "[client a] size: "},
    {STORE CLIENT "burst=0\n", "[client a] burst: "},
    {STORE CLIENT "burst=5\n", "[client a] burst wants one of every and pause"},
    {STORE CLIENT "burst=5\nevery=1s\npause=1s\n", "[client a] burst wants one of every and pause"},
    {STORE CLIENT "every=1s\n", "[client a] every and pause want burst"},
    {STORE CLIENT "pause=1s\n", "[client a] every and pause want burst"},
    {STORE CLIENT "rate=5\nthink=1s\n", "[client a] rate= does not wait"},
    {STORE CLIENT "rate=0\n", "[client a] rate: out of range"},
    {STORE CLIENT "requests=0\n", "[client a] requests: "},
    {STORE CLIENT "job=\n", "[client a] a job's name"},
    {STORE CLIENT "job=a b\n", "[client a] a job's name"},
    {STORE CLIENT "job=a,b\n", "[client a] a job's name"},
    {STORE CLIENT "job=abcdefghijklmnopqrstuvwxyzabcdefghijklmno\n", "[client a] a job's name"},
    {STORE CLIENT "start=\n", "[client a] start: "},
    {STORE CLIENT "[figures]\nbars=\n", "[figures] \"\": a figure's name"},
    {STORE CLIENT "[figures]\nrates=../a\n", "[figures] \"../a\": a figure's name"},
    {STORE CLIENT "[figures]\nrecords=a'b\n", "[figures] \"a'b\": a figure's name"},
};

static void test_wrong_files(void)
{
    for (guint i = 0; i < G_N_ELEMENTS(wrong_files); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(QosScenario) scenario = scenario_of_text(wrong_files[i].text, -1, &error);
        g_assert_null(scenario);
        g_assert_nonnull(error);
        g_assert_nonnull(strstr(error->message, "/X.ini: "));
        if (strstr(error->message, wrong_files[i].message) == NULL)
            g_error("case %u: \"%s\" does not say \"%s\"", i, error->message,
                    wrong_files[i].message);
    }
}

static void test_missing_file(void)
{
    g_autoptr(GError) error = NULL;

    g_assert_null(qos_scenario_load("/nonexistent/x.ini", &error));
    g_assert_nonnull(strstr(error->message, "/nonexistent/x.ini: "));
}

/* A file that was damaged is refused with a message, or is another scenario; nothing else. */
static void test_damaged_files(void)
{
    const char text[] = "[scenario]\nduration=2s\nbin=100ms\n[store]\ncapacity=1000\n"
                        "steps=1s:500\n[adapt]\nperiod=5ms\n[job a]\nweight=3\n[client a]\n"
                        "processes=2\nburst=3\nevery=1s\n";
    guint32 seed = g_random_int();
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);

    g_test_message("seed %u", seed);
    for (guint round = 0; round < 500; round++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *damaged = g_memdup2(text, sizeof(text));
        gint32 length = g_rand_int_range(random, 1, sizeof(text));
        for (guint i = 0; i < 3; i++)
            damaged[g_rand_int_range(random, 0, length)] = (char)g_rand_int_range(random, 1, 256);
        g_autoptr(QosScenario) scenario = scenario_of_text(damaged, length, &error);
        g_assert_true((scenario == NULL) == (error != NULL));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/scenario/defaults", test_defaults);
    g_test_add_func("/scenario/default-bins", test_default_bins);
    g_test_add_func("/scenario/values", test_values);
    g_test_add_func("/scenario/periods-replaced", test_periods_replaced);
    g_test_add_func("/scenario/wrong-files", test_wrong_files);
    g_test_add_func("/scenario/missing-file", test_missing_file);
    g_test_add_func("/scenario/damaged-files", test_damaged_files);
    return g_test_run();
}
