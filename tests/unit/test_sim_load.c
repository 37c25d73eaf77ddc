/*
 * The loads of scenarios: sizes, lengths and phases at random, and what a mount has written down.
 */
#include <math.h>
#include <string.h>

#include "scenarios.h"
#include "sim/simulator.h"

#define STORE "[scenario]\nduration=200s\n[store]\ncapacity=1000\nlatency=1ms\n"

static QosSimulation *simulate(const char *text, const char *sharing)
{
    g_autoptr(QosScenario) scenario = scenario_of(text);

    return qos_simulate(scenario, qos_sharing_named(sharing), NULL);
}

static const QosSimulatedJob *job_at(const QosSimulation *simulation, guint index)
{
    return simulation->jobs->pdata[index];
}

/* The mean is (3 x 4 KiB + 1 MiB) / 4. */
static void test_sizes(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[client a]\nsizes=4K:3 1M\nprocesses=4\n", "none");
    const QosSimulatedJob *job = job_at(simulation, 0);
    const double mean = (double)job->bytes / (double)job->served;

    g_assert_cmpuint(job->served, >, 100000);
    g_assert_cmpfloat_with_epsilon(mean, (3 * 4096 + 1048576) / 4.0, 0.02 * mean);
}

/* Half of the time, in phases of 500 ms. */
static void test_phases(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[client a]\nrate=100\non=500ms\noff=500ms\n"
                       "[client b]\nrate=100\non=500ms\noff=500ms\ntail=1.5\n",
                 "none");
    guint idle = 0, bins = 0;

    g_assert_cmpfloat_with_epsilon(job_at(simulation, 0)->served, 10000, 1500);
    g_assert_cmpfloat_with_epsilon(job_at(simulation, 1)->served, 10000, 4000);
    for (guint i = 0; i < 2000; i++, bins++)
        idle += qos_timeline_bin(&job_at(simulation, 0)->bins, i)->issued == 0;
    g_assert_cmpuint(idle, >, bins / 4);
    g_assert_cmpuint(idle, <, 3 * bins / 4);
}

/* Short against the time between requests, a tenth of the time: a tenth of the requests. Some
 * processes begin in a phase, some in a pause. */
static void test_short_phases(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[client a]\nprocesses=200\nrate=1\non=200ms\noff=1800ms\n"
                       "[client b]\nprocesses=1000\non=100s\noff=300s\nrequests=1\nlife=1ms\n",
                 "none");

    g_assert_cmpfloat_with_epsilon(job_at(simulation, 0)->served, 4000, 400);
    g_assert_cmpfloat_with_epsilon(job_at(simulation, 1)->served, 250, 60);
}

/* Of so many requests on average, and a few make most of them. */
static void test_heavy_tails(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[client a]\njobs=500\nrequests=100\ntail=1.5\nspread=10s\n", "none");
    guint64 sum = 0, most = 0;

    for (guint i = 0; i < 500; i++) {
        sum += job_at(simulation, i)->served;
        most = MAX(most, job_at(simulation, i)->served);
    }
    g_assert_cmpfloat_with_epsilon(sum, 50000, 25000);
    g_assert_cmpuint(most, >, 1000);
}

/* Bursts of one request each on average, and of none never: a request a second. */
static void test_short_heavy_tails(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[client a]\njobs=10\nburst=1\nevery=1s\ntail=1.5\n", "none");

    g_assert_cmpuint(simulation->served, >=, 10 * 200);
    g_assert_cmpuint(simulation->served, <, 10 * 400);
}

static QosScenario *replay(const char *report, const char *rules, GError **error)
{
    g_autofree char *folder = g_dir_make_tmp("qosfs-replay-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(folder, "scenario.ini", NULL);
    g_autofree char *file = g_build_filename(folder, "report", NULL);
    g_autofree char *text = g_strdup_printf(
        "[store]\ncapacity=10000\n[adapt]\ncapacity=auto\n[replay]\nfile=report\n%s", rules);

    g_assert_true(g_file_set_contents(path, text, -1, NULL));
    g_assert_true(g_file_set_contents(file, report, -1, NULL));
    QosScenario *scenario = qos_scenario_load(path, error);
    g_unlink(path);
    g_unlink(file);
    g_rmdir(folder);
    return scenario;
}

#define HISTORY                                                                                    \
    "time,seconds,job,operations,read_bytes,write_bytes,waits,waited_us,lent,returned,borrowed,"   \
    "repaid\n"                                                                                     \
    "1795233600,300,4711,30000,0,300000000,0,0,0,0,0,0\n"                                          \
    "1795233900,10,4711,100,0,0,0,0,0,0,0,0\n"                                                     \
    "1795233900,10,dd.0,5000,4096000,1024000,0,0,0,0,0,0\n"

/* What each job did in each slice it does again, and the rule makes it wait. */
static void test_replay_of_a_history(void)
{
    GError *error = NULL;
    g_autoptr(QosScenario) scenario =
        replay(HISTORY, "[rules]\na=0: start r jobid={dd.*} rate=100\n", &error);

    g_assert_no_error(error);
    g_assert_cmpint(scenario->duration, ==, 310 * QOS_SECOND);
    g_autoptr(QosSimulation) free = qos_simulate(scenario, qos_sharing_named("none"), NULL);
    g_autoptr(QosSimulation) ruled = qos_simulate(scenario, qos_sharing_named("rules"), NULL);
    g_assert_cmpuint(free->jobs->len, ==, 2);
    g_assert_cmpstr(job_at(free, 0)->name, ==, "4711");
    g_assert_cmpuint(job_at(free, 0)->served, ==, 30100);
    g_assert_cmpuint(job_at(free, 0)->bytes, ==, 300000000);
    g_assert_cmpuint(job_at(free, 1)->served, ==, 5000);
    g_assert_cmpint(job_at(free, 1)->first, >=, 300 * QOS_SECOND);
    g_assert_cmpuint(job_at(ruled, 1)->served, <=, 100 * 10 + 10);
    g_assert_cmpint(job_at(ruled, 1)->longest_delay, >, 5 * QOS_SECOND);
    g_assert_cmpint(job_at(free, 1)->longest_delay, <, QOS_SECOND);
    g_assert_cmpuint(job_at(ruled, 0)->served, ==, 30100);
}

/* At random times in the slice: as many in each half, and in each tenth some. */
static void test_replay_is_even(void)
{
    static const char history[] = "time,seconds,job,operations,read_bytes,write_bytes\n"
                                  "100,100,a,4000,0,0\n200,100,a,1,0,0\n";
    GError *error = NULL;
    g_autoptr(QosScenario) scenario = replay(history, "", &error);
    guint half = 0;

    g_assert_no_error(error);
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, qos_sharing_named("none"), NULL);
    const QosTimeline *bins = &job_at(simulation, 0)->bins;
    for (guint tenth = 0; tenth < 10; tenth++) {
        guint issued = 0;

        for (guint bin = bins->count * tenth / 20; bin < bins->count * (tenth + 1) / 20; bin++)
            issued += qos_timeline_bin(bins, bin)->issued;
        g_assert_cmpuint(issued, >, 300);
        half += tenth < 5 ? issued : 0;
    }
    g_assert_cmpfloat_with_epsilon(half, 2000, 150);
    g_assert_cmpuint(simulation->requests, ==, 4001);
}

/* Processes of an open loop do not all begin at once: one in ten has a request within a second. */
static void test_first_arrivals(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[client a]\nprocesses=1000\nrate=0.1\nstop=1s\n", "none");

    g_assert_cmpfloat_with_epsilon((double)simulation->requests, 100, 40);
}

/* A report is found beside its scenario, also where that is given from the current folder on. */
static void test_replay_by_a_relative_path(void)
{
    g_autofree char *before = g_get_current_dir();
    g_autofree char *folder = g_dir_make_tmp("qosfs-replay-XXXXXX", NULL);
    GError *error = NULL;

    g_assert_cmpint(g_chdir(folder), ==, 0);
    g_assert_true(
        g_file_set_contents("x.ini", "[store]\ncapacity=10\n[replay]\nfile=report\n", -1, NULL));
    g_assert_true(g_file_set_contents("report", HISTORY, -1, NULL));
    g_autoptr(QosScenario) scenario = qos_scenario_load("x.ini", &error);
    g_assert_no_error(error);
    g_assert_cmpuint(scenario->clients->len, ==, 3);
    g_unlink("x.ini");
    g_unlink("report");
    g_assert_cmpint(g_chdir(before), ==, 0);
    g_rmdir(folder);
}

static void test_replay_of_job_stats(void)
{
    static const char stats[] =
        "job_stats:\n- job_id:          \"4711_3\"\n"
        "  snapshot_time:   1795233710.0 secs.nsecs\n  start_time:      1795233700.0 secs.nsecs\n"
        "  elapsed_time:    10.0 secs.nsecs\n"
        "  read:            { samples:        2000, unit: usecs, min: 1, max: 2, sum: 9, sumsq: 9 "
        "}\n"
        "  read_bytes:      { samples:        2000, unit: bytes, min: 1, max: 2, sum: 8192000, "
        "sumsq: 9 }\n"
        "  getattr:         { samples:           0, unit: usecs, min: 1, max: 2, sum: 9, sumsq: 9 "
        "}\n"
        "- job_id:          later\n  start_time:      1795233705.0 secs.nsecs\n"
        "  elapsed_time:    10.0 secs.nsecs\n"
        "  getattr:         { samples:         500, unit: usecs, min: 1, max: 2, sum: 9, sumsq: 9 "
        "}\n";
    GError *error = NULL;
    g_autoptr(QosScenario) scenario = replay(stats, "", &error);

    g_assert_no_error(error);
    g_assert_cmpint(scenario->duration, ==, 15 * QOS_SECOND);
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, qos_sharing_named("none"), NULL);
    g_assert_cmpstr(job_at(simulation, 0)->name, ==, "4711_3");
    g_assert_cmpuint(job_at(simulation, 0)->served, ==, 2000);
    g_assert_cmpuint(job_at(simulation, 0)->bytes, ==, job_at(simulation, 0)->served * 4096);
    g_assert_cmpuint(job_at(simulation, 1)->served, ==, 500);
    g_assert_cmpint(job_at(simulation, 1)->first, >=, 5 * QOS_SECOND);
}

#define COLUMNS "time,seconds,job,operations,read_bytes,write_bytes\n"
#define ID_16   "abcdefghijklmnop"
#define JOB     "job_stats:\n- job_id: a\n"
#define TIMES   "  start_time: 1795233700.0 secs.nsecs\n  elapsed_time: 0.0 secs.nsecs\n"

/* A job that was cleared has done nothing; what one did at once is spread over a millisecond. */
static void test_replay_of_short_jobs(void)
{
    GError *error = NULL;
    g_autoptr(QosScenario) scenario =
        replay(JOB TIMES "  read: { samples: 0, unit: usecs }\n"
                         "- job_id: b\n" TIMES "  getattr: { samples: 3, unit: usecs }\n",
               "", &error);

    g_assert_no_error(error);
    g_assert_cmpint(scenario->duration, ==, QOS_SECOND);
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, qos_sharing_named("none"), NULL);
    g_assert_cmpuint(simulation->jobs->len, ==, 1);
    g_assert_cmpuint(job_at(simulation, 0)->served, ==, 3);
    g_assert_cmpint(job_at(simulation, 0)->last, <, 2 * QOS_MILLISECOND);
}

/* Slices of one job are one job; and the bins are as long as a long replay needs. */
static void test_replay_of_a_long_history(void)
{
    g_autoptr(GString) history =
        g_string_new("time,seconds,job,operations,read_bytes,write_bytes\r\n");
    GError *error = NULL;

    for (guint i = 0; i < 7 * 24; i++) {
        for (guint job = 0; job < 100; job++)
            g_string_append_printf(history, "%u,3600,job%u,10,0,0\r\n", 3600 * (i + 1), job);
    }
    g_autoptr(QosScenario) scenario = replay(history->str, "", &error);
    g_assert_no_error(error);
    g_assert_cmpint(scenario->duration, ==, 7 * 24 * 3600 * QOS_SECOND);
    g_assert_cmpint(scenario->bin, ==, 100 * QOS_SECOND);
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, qos_sharing_named("none"), NULL);
    g_assert_cmpuint(simulation->jobs->len, ==, 100);
    g_assert_cmpuint(job_at(simulation, 99)->served, ==, 7 * 24 * 10);
}

/* How many of a job's requests wait for a rule of 10 op/s. */
static guint64 served_with_rule(const char *report, const char *conditions)
{
    GError *error = NULL;
    g_autofree char *rule =
        g_strdup_printf("[rules]\na=0: start r %s rate=10 depth=1\n", conditions);
    g_autoptr(QosScenario) scenario = replay(report, rule, &error);

    g_assert_no_error(error);
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, qos_sharing_named("rules"), NULL);
    return simulation->served;
}

/* Each opcode of job_stats is its own, so that rules by opcode hold for it; a history does not tell
 * them apart. */
static void test_replay_of_opcodes(void)
{
    static const char stats[] =
        JOB "  start_time: 1795233700.0 secs.nsecs\n  elapsed_time: 10.0 secs.nsecs\n"
            "  read: { samples: 2000, unit: usecs }\n"
            "  write: { samples: 1000, unit: usecs }\n"
            "  write_bytes: { samples: 1000, unit: bytes, sum: 4096000 }\n"
            "  getattr: { samples: 500, unit: usecs }\n"
            "  unlink: { samples: 300, unit: usecs }\n";
    static const char *const refused[][2] = {
        {COLUMNS "1,10,a,5,0,0\n", "opcode={read}"},
        {COLUMNS "1,10,a,5,0,0\n", "uid={0}"},
        {stats, "uid={0}"},
        {stats, "gid={0}"},
        {stats, "host={sim}"},
    };

    g_assert_cmpuint(served_with_rule(stats, "jobid={b}"), ==, 3800);
    g_assert_cmpfloat_with_epsilon(served_with_rule(stats, "opcode={read}"), 1900, 3);
    g_assert_cmpfloat_with_epsilon(served_with_rule(stats, "opcode={write}"), 2900, 3);
    g_assert_cmpfloat_with_epsilon(served_with_rule(stats, "opcode={meta}"), 3100, 3);
    g_assert_cmpfloat_with_epsilon(served_with_rule(stats, "opcode={unlink}"), 3600, 3);
    for (guint i = 0; i < G_N_ELEMENTS(refused); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *rule =
            g_strdup_printf("[rules]\na=0: start r %s rate=10\n", refused[i][1]);

        g_assert_null(replay(refused[i][0], rule, &error));
        g_assert_nonnull(strstr(error->message, "of a request"));
    }
}

/* Rules and Static BW find the job by its id, whatever it holds. */
static void test_replay_of_escaped_ids(void)
{
    static const char *const cases[][2] = {
        {"a\\x5B1\\x5D", "a\\\\[1]"},   {"a\\x2A", "a\\\\*"}, {"a\\x5Cb", "a\\\\\\\\b"},
        {"\\xC3\\xA9.0", "\303\251.0"}, {"a\\x20b", "a*b"},   {"a\\x7Bb\\x0A\\xFF", "a*"}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *history =
            g_strdup_printf(COLUMNS "1,10,%s,100000,0,0\n1,10,other,100,0,0\n", cases[i][0]);
        g_autofree char *conditions = g_strdup_printf("jobid={%s}", cases[i][1]);
        GError *error = NULL;
        g_autoptr(QosScenario) scenario = replay(history, "", &error);

        g_assert_no_error(error);
        g_autoptr(QosSimulation) simulation =
            qos_simulate(scenario, qos_sharing_named("static"), NULL);
        g_assert_cmpstr(job_at(simulation, 0)->name, ==, cases[i][0]);
        g_assert_cmpfloat_with_epsilon(job_at(simulation, 0)->served, 50000, 1000);
        g_assert_cmpuint(job_at(simulation, 1)->served, ==, 100);
        g_assert_cmpfloat_with_epsilon(served_with_rule(history, conditions), 200, 3);
    }
}

static void test_wrong_reports(void)
{
    static const struct {
        const char *report;
        const char *message;
    } cases[] = {
        {"", "it is neither a mount's .qosfs/history"},
        {"hello\n", "it is neither a mount's .qosfs/history"},
        {COLUMNS, "no job did an operation in it"},
        {COLUMNS "1,2,a,0,0,0\n", "no job did an operation in it"},
        {COLUMNS "1,2,a,4\n", "line 2: it has less"},
        {COLUMNS "1,2,a,x,0,0\n", "line 2: a field is"},
        {COLUMNS "1,2,a,inf,0,0\n", "line 2: a field is"},
        {COLUMNS "1,2,a,nan,0,0\n", "line 2: a field is"},
        {COLUMNS "1,2,a,-1,0,0\n", "line 2: a field is"},
        {COLUMNS "1,2,a,1,1e25,0\n", "line 2: a field is"},
        {COLUMNS "1,inf,a,1,0,0\n", "line 2: a field is"},
        {COLUMNS "1,2,a,1,0,0\n1e10,2,a,1,0,0\n", "it is of more than ten years"},
        {COLUMNS "1,0,a,1,0,0\n", "line 2: the slice"},
        {COLUMNS "1,2,a,1,0,0\n1,300,a,1e12,0,0\n", "line 3: more than 1000000 operations a s"},
        {COLUMNS "1,2,a,2,0,3e9\n", "line 2: more than 1 GiB in an operation"},
        {COLUMNS "1,2,{a},1,0,0\n", "line 2: a job's id"},
        {COLUMNS "1,2,a\\x0,1,0,0\n", "line 2: a job's id"},
        {COLUMNS "1,2,a\\x00,1,0,0\n", "line 2: a job's id"},
        {COLUMNS "1,2,a\\,1,0,0\n", "line 2: a job's id"},
        {COLUMNS "1,2," ID_16 ID_16 ID_16 ID_16 ",1,0,0\n", "line 2: a job's id"},
        {JOB "  getattr: { samples: 1, unit: usecs }\n", "line 2: the job has no start_time"},
        {JOB TIMES "  read: { samples: nan, unit: usecs }\n", "line 5: samples: is no number"},
        {JOB TIMES "  read: { samples: 1e12, unit: usecs }\n", "line 2: more than 1000000"},
        {JOB TIMES "  read_bytes: { samples: 1, unit: bytes, sum: -5 }\n", "line 5: sum: is no"},
        {JOB TIMES "  punch: { samples: 1, unit: usecs }\n", "line 5: it counts no operation"},
        {JOB "  start_time: inf secs\n", "line 3: start_time: is no number"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;

        g_assert_null(replay(cases[i].report, "", &error));
        g_assert_nonnull(strstr(error->message, "[replay] "));
        g_assert_nonnull(strstr(error->message, cases[i].message));
    }
}

static void test_wrong_loads(void)
{
    static const char *const cases[][2] = {
        {"sizes=4K:0", "a weight is more than 0"}, {"sizes=x", "sizes"},
        {"size=4K\nsizes=4K 1M", "one of size"},   {"on=1s", "on and off go together"},
        {"tail=1.5", "tail is for burst"},         {"tail=1\nrequests=5", "out of range"},
        {"rate=5\nburst=5\nevery=1s", "leave out"}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text = g_strdup_printf(STORE "[client a]\n%s\n", cases[i][0]);
        g_autoptr(GError) error = NULL;

        g_assert_null(scenario_of_text(text, -1, &error));
        g_assert_nonnull(strstr(error->message, cases[i][1]));
    }
}

/* Beside each policy: what a store gives that is divided as a fluid. */
static void test_the_ideal(void)
{
    g_autoptr(QosSimulation) simulation =
        simulate(STORE "[job b]\nweight=3\n[client a]\nprocesses=8\n[client b]\nprocesses=8\n"
                       "[client c]\nrate=10\n",
                 "gps");
    const double expected[] = {245, 735, 10};

    for (guint i = 0; i < 3; i++) {
        const QosSimulatedJob *job = job_at(simulation, i);
        const double rate = (double)job->served / 200;

        g_assert_cmpfloat_with_epsilon(rate, expected[i] * (i < 2 ? 990 / 980.0 : 1),
                                       0.1 * expected[i]);
    }
    /* Of its fifth: a request is served at once, at that part of the speed. */
    g_assert_cmpfloat(job_at(simulation, 2)->delay / (double)job_at(simulation, 2)->served, <, 5e6);
}

/* By hand: a store of 1 ms for a request is divided by weight; where it is far away, its slots
 * bring so many replies; where few requests are inside, they go at the store's own speed, whatever
 * that is. */
static void test_the_ideal_by_hand(void)
{
    static const struct {
        const char *store;
        const char *clients;
        double rates[2];
    } cases[] = {
        {"", "[job b]\nweight=3\n[client a]\nprocesses=64\n[client b]\nprocesses=64\n", {250, 750}},
        {"latency=100ms",
         "[job b]\nweight=3\n[client a]\nprocesses=64\n[client b]\nprocesses=64\n",
         {39.6, 118.8}},
        {"latency=1ms", "[client a]\n[client b]\nprocesses=512\n", {333.3, 666.7}},
        {"latency=10ms\nslots=1",
         "[client a]\nprocesses=2\n[client b]\nprocesses=2\n",
         {45.45, 45.45}},
        {"latency=100ms\nslots=4\nbandwidth=1e8",
         "[client a]\nsizes=0 1M\nprocesses=64\n",
         {4 / 0.10624}},
        {"steps=1ms:2000", "[client a]\nprocesses=64\n", {2000}},
        {"latency=100ms\nsteps=1ms:2000", "[client a]\nprocesses=64\n", {16 / 0.1005}},
        {"latency=100ms", "[client a]\nprocesses=16\n", {16 / 0.101}},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text =
            g_strdup_printf("[scenario]\nduration=200s\n[store]\ncapacity=1000\n"
                            "%s\n%s",
                            cases[i].store, cases[i].clients);
        g_autoptr(QosSimulation) simulation = simulate(text, "gps");

        for (guint job = 0; job < simulation->jobs->len; job++)
            g_assert_cmpfloat_with_epsilon((double)job_at(simulation, job)->served / 200,
                                           cases[i].rates[job], 0.02 * cases[i].rates[job]);
    }
}

/* Few requests in a store that is far away find it idle. */
static void test_the_ideal_of_a_far_store(void)
{
    g_autoptr(QosSimulation) simulation = simulate(
        "[scenario]\nduration=200s\n[store]\ncapacity=1000\nlatency=100ms\n[client a]\nrate=10\n",
        "gps");
    const QosSimulatedJob *job = job_at(simulation, 0);

    g_assert_cmpfloat(job->delay / (double)job->served, <, 0.05e6);
    g_assert_cmpfloat_with_epsilon((double)simulation->busy, (double)job->served * 1e6, 2e6);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-load/sizes", test_sizes);
    g_test_add_func("/sim-load/phases", test_phases);
    g_test_add_func("/sim-load/short-phases", test_short_phases);
    g_test_add_func("/sim-load/heavy-tails", test_heavy_tails);
    g_test_add_func("/sim-load/short-heavy-tails", test_short_heavy_tails);
    g_test_add_func("/sim-load/replay-by-a-relative-path", test_replay_by_a_relative_path);
    g_test_add_func("/sim-load/replay-of-a-history", test_replay_of_a_history);
    g_test_add_func("/sim-load/replay-is-even", test_replay_is_even);
    g_test_add_func("/sim-load/first-arrivals", test_first_arrivals);
    g_test_add_func("/sim-load/replay-of-job-stats", test_replay_of_job_stats);
    g_test_add_func("/sim-load/replay-of-short-jobs", test_replay_of_short_jobs);
    g_test_add_func("/sim-load/replay-of-a-long-history", test_replay_of_a_long_history);
    g_test_add_func("/sim-load/replay-of-opcodes", test_replay_of_opcodes);
    g_test_add_func("/sim-load/replay-of-escaped-ids", test_replay_of_escaped_ids);
    g_test_add_func("/sim-load/wrong-reports", test_wrong_reports);
    g_test_add_func("/sim-load/wrong-loads", test_wrong_loads);
    g_test_add_func("/sim-load/the-ideal", test_the_ideal);
    g_test_add_func("/sim-load/the-ideal-by-hand", test_the_ideal_by_hand);
    g_test_add_func("/sim-load/the-ideal-of-a-far-store", test_the_ideal_of_a_far_store);
    return g_test_run();
}
