/*
 * The reports of a snapshot that is made by hand: the texts, character by character where a format
 * is someone else's.
 */
#include <errno.h>
#include <glib.h>
#include <json-glib/json-glib.h>
#include <string.h>

#include "fs/control/report.h"

#define NOW  (5000 * QOS_SECOND)
#define WALL (1600000000 * QOS_SECOND + 42)

static QosJob *add_job(QosReport *report, const char *id)
{
    QosJob *job = g_new0(QosJob, 1);

    g_strlcpy(job->id, id, sizeof(job->id));
    job->started = NOW - 90 * QOS_SECOND;
    job->seen = NOW - QOS_SECOND;
    g_ptr_array_add(report->jobs, job);
    return job;
}

static QosReport *new_report(const char *const *commands)
{
    QosReport *report = g_new0(QosReport, 1);

    report->now = NOW;
    report->wall = WALL;
    report->started = WALL - 100 * QOS_SECOND;
    report->source = "/sr\xff"
                     "c";
    report->mountpoint = "/mnt";
    report->pid = 77;
    qos_tunables_init(&report->tunables);
    report->slots = (QosSchedState){
        .slots = 64, .running = 3, .at_limit = 2, .draining = 1, .stalled = 5, .over_limit = 6};
    report->policies[0] = (QosReportPolicy){&qos_policy_fifo, QOS_POLICY_STOPPING, 4};
    report->policies[1] = (QosReportPolicy){&qos_policy_tbf, QOS_POLICY_STARTED, 5};
    report->policy_count = 2;
    report->rules = qos_rules_new();
    for (; commands && *commands; commands++) {
        g_autoptr(GError) error = NULL;
        QosRules *changed = qos_rules_apply(report->rules, *commands, NOW, &error);

        g_assert_no_error(error);
        qos_rules_unref(report->rules);
        report->rules = changed;
    }
    report->rule_states = g_new0(QosRuleState, qos_rules_count(report->rules));
    report->jobs = g_ptr_array_new_with_free_func(g_free);
    return report;
}

static void assert_text(GString *text, const char *expected)
{
    g_assert_cmpstr(text->str, ==, expected);
    g_string_free(text, TRUE);
}

static void assert_line(const GString *text, const char *line)
{
    g_autofree char *framed = g_strconcat("\n", line, "\n", NULL);

    if (!strstr(text->str, framed))
        g_error("no line \"%s\" in:\n%s", line, text->str);
}

/* The line of each of "NAME=VALUE ...". */
static void assert_metrics(const GString *text, const char *prefix, const char *labels,
                           const char *figures)
{
    g_auto(GStrv) words = g_strsplit_set(figures, " =", -1);

    for (guint i = 0; words[i]; i += 2) {
        g_autofree char *line =
            g_strdup_printf("%s%s%s %s", prefix, words[i], labels, words[i + 1]);

        assert_line(text, line);
    }
}

/* The members "NAME=VALUE ...". */
static void assert_members(JsonObject *object, const char *figures)
{
    g_auto(GStrv) words = g_strsplit_set(figures, " =", -1);

    for (guint i = 0; words[i]; i += 2) {
        g_test_message("%s", words[i]);
        g_assert_cmpfloat(json_object_get_double_member(object, words[i]), ==,
                          g_ascii_strtod(words[i + 1], NULL));
    }
}

/* Values of their own for all that a rule and a job count. */
static void count_in_rule(QosRuleState *state)
{
    *state = (QosRuleState){.buckets = 2,
                            .waiting = 3,
                            .requests = 4,
                            .bytes = 5,
                            .waits = 6,
                            .waited = QOS_SECOND / 2,
                            .dryrun_waits = 7,
                            .dryrun_bytes = 8};
}

static void count_in_job(QosJob *job)
{
    job->nodes = 2;
    job->errors = 3;
    job->waits = 4;
    job->wait_time = 5 * QOS_SECOND;
    job->store_time = 6 * QOS_SECOND;
    job->sched.use.waiting = 7;
    job->sched.use.running = 8;
    job->sched.use.parked_bytes = 9;
    job->sched_rare.refused = 10;
    job->passthrough = 11;
    job->files.count = 12;
    job->files.refused = 13;
    job->operation_rate = 14.5;
    job->byte_rate = 15.5;
    job->read_bytes.sum = 16;
    job->write_bytes.sum = 17;
}

static void test_job_stats(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    QosJob *job = add_job(report, "dd.0");

    job->read_bytes = (QosSample){13, 4096, 1048576, 10498048, 1.1e13};
    job->read_sizes.count[12] = 3;
    job->read_sizes.count[20] = 10;
    job->operation[QOS_OP_READ] = (QosSample){13, 1, 22, 100, 999};
    job->operation[QOS_OP_GETATTR] = (QosSample){1, 5, 5, 5, 25};
    assert_text(
        qos_report_job_stats(report),
        "job_stats:\n"
        "- job_id:          dd.0\n"
        "  snapshot_time:   1599999999.000000042 secs.nsecs\n"
        "  start_time:      1599999910.000000042 secs.nsecs\n"
        "  elapsed_time:    89.000000000 secs.nsecs\n"
        "  read:            { samples:          13, unit: usecs, min:        1, max:       22, "
        "sum:              100, sumsq:                999 }\n"
        "  write:           { samples:           0, unit: usecs, min:        0, max:        0, "
        "sum:                0, sumsq:                  0 }\n"
        "  read_bytes:      { samples:          13, unit: bytes, min:     4096, max:  1048576, "
        "sum:         10498048, sumsq:     11000000000000, hist: { 4K: 3, 1M: 10 } }\n"
        "  write_bytes:     { samples:           0, unit: bytes, min:        0, max:        0, "
        "sum:                0, sumsq:                  0 }\n"
        "  getattr:         { samples:           1, unit: usecs, min:        5, max:        5, "
        "sum:                5, sumsq:                 25 }\n");
}

/* A job that was cleared since its last request begins with the clear. */
static void test_job_stats_cleared(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    QosJob *job = add_job(report, "a");
    GString *text;

    job->started = NOW;
    text = qos_report_job_stats(report);
    assert_line(text, "  snapshot_time:   1600000000.000000042 secs.nsecs");
    assert_line(text, "  elapsed_time:    0.000000000 secs.nsecs");
    g_string_free(text, TRUE);
}

/* An expression without an anchor for an operation finds its own line, and no other that ends with
 * the same letters. */
static void test_job_stats_unanchored(void)
{
    for (guint done = 0; done < QOS_OP_COUNT; done++) {
        g_autoptr(QosReport) report = new_report(NULL);
        QosJob *job = add_job(report, "a");
        GString *text;

        job->operation[done].samples = 7;
        text = qos_report_job_stats(report);
        for (guint i = 0; i < QOS_OP_COUNT; i++) {
            g_autofree char *key = g_strconcat(qos_opcode_name(i), ": ", NULL);
            const char *found = strstr(text->str, key);

            if (found && found[-1] != ' ')
                g_error("\"%s\" finds another's line in:\n%s", key, text->str);
        }
        g_string_free(text, TRUE);
    }
}

/* Lustre's quoting: what is not alphanumeric or one of .@-_:/ is \xHH, quoted; so are a colon, a
 * leading @; and what YAML would read as anything but this string, or a number of these digits. */
static void test_job_stats_ids(void)
{
    static const struct {
        const char *id;
        const char *line;
    } cases[] = {
        {"a.b@c-d_e/f", "- job_id:          a.b@c-d_e/f"},
        {"a:b", "- job_id:          \"a:b\""},
        {"@a", "- job_id:          \"@a\""},
        {"a b", "- job_id:          \"a\\x20b\""},
        {"\"\\\xc3\xa4", "- job_id:          \"\\x22\\x5C\\u00E4\""},
        {"\xf0\x9f\x98\x80", "- job_id:          \"\\U0001F600\""},
        {"a\xff", "- job_id:          \"a\\xFF\""},
        {"", "- job_id:          \"\""},
        {"4711", "- job_id:          4711"},
        {"0", "- job_id:          0"},
        {"4711.server", "- job_id:          4711.server"},
        {"_a", "- job_id:          _a"},
        {"/a", "- job_id:          /a"},
        {"-", "- job_id:          \"-\""},
        {"-5", "- job_id:          \"-5\""},
        {"---", "- job_id:          \"---\""},
        {".inf", "- job_id:          \".inf\""},
        {"...", "- job_id:          \"...\""},
        {"007", "- job_id:          \"007\""},
        {"1234567890123456789", "- job_id:          \"1234567890123456789\""},
        {"1.5", "- job_id:          \"1.5\""},
        {"1e3", "- job_id:          \"1e3\""},
        {"0x1F", "- job_id:          \"0x1F\""},
        {"4711_3", "- job_id:          \"4711_3\""},
        {"2026-13-45", "- job_id:          \"2026-13-45\""},
        {"Null", "- job_id:          \"Null\""},
        {"yes", "- job_id:          \"yes\""},
        {"clear", "- job_id:          \"clear\""},
    };
    g_autoptr(QosReport) report = new_report(NULL);
    GString *text;

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        add_job(report, cases[i].id);
    text = qos_report_job_stats(report);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_line(text, cases[i].line);
    g_string_free(text, TRUE);
}

/* What job_stats shows is read back; a user may also write it as Lustre does. */
static void test_quoted_ids(void)
{
    static const char *const ids[] = {"-",     "a\"b\\", "\xc3\xa4\xf0\x9f\x98\x80",
                                      "a\xff", "",       " a "};
    static const char *const wrong[] = {
        "",         "a",         "\"",          "\"a",     "a\"",  "\"\\n\"",
        "\"\\x4\"", "\"\\x00\"", "\"\\uD800\"", "\"a\\\"", "\"\\x"};
    g_autofree char *bytes = qos_report_read_quoted_id("\"\\xC3\\xA4[1]\"");

    g_assert_cmpstr(bytes, ==, "\xc3\xa4[1]");
    for (guint i = 0; i < G_N_ELEMENTS(ids); i++) {
        g_autoptr(GString) text = g_string_new(NULL);
        g_autofree char *id = NULL;

        qos_report_append_yaml_id(text, ids[i]);
        id = qos_report_read_quoted_id(text->str);
        g_assert_cmpstr(id, ==, ids[i]);
    }
    for (guint i = 0; i < G_N_ELEMENTS(wrong); i++)
        g_assert_null(qos_report_read_quoted_id(wrong[i]));
}

/* The labels of the sizes, over all units. */
static void test_sizes(void)
{
    static const guint buckets[] = {0, 9, 10, 29, 30, 47};
    g_autoptr(QosReport) report = new_report(NULL);
    QosJob *job = add_job(report, "a");
    GString *text;

    for (guint i = 0; i < G_N_ELEMENTS(buckets); i++)
        job->write_sizes.count[buckets[i]] = 1;
    text = qos_report_job_stats(report);
    g_assert_nonnull(strstr(text->str, "hist: { 1: 1, 512: 1, 1K: 1, 512M: 1, 1G: 1, 128T: 1 } }"));
    g_string_free(text, TRUE);
}

static void test_nrs_tbf_rule(void)
{
    g_autoptr(QosReport) report = new_report((const char *[]){
        "start a jobid={dd.*}&uid={0 7},gid={3} rate=100", "start b opcode={data} bps=10M per=uid",
        "start c uid={1} rate=5 expire=30.5", NULL});

    report->rule_states[2].buckets = 7; /* of a: the newest stands first */
    assert_text(qos_report_nrs_tbf_rule(report), "regular_requests:\n"
                                                 "CPT 0:\n"
                                                 "c uid={1} expire=30 5, ref 0\n"
                                                 "b opcode={data} bps=10M per=uid 0, ref 0\n"
                                                 "a jobid={dd.*}&uid={0 7},gid={3} 100, ref 7\n"
                                                 "default * 0, ref 0\n"
                                                 "high_priority_requests:\n"
                                                 "CPT 0:\n");
}

static void test_nrs_policies(void)
{
    g_autoptr(QosReport) report = new_report(NULL);

    assert_text(qos_report_nrs_policies(report),
                "regular_requests:\n"
                "  - name: fifo\n    state: stopping\n    fallback: yes\n    queued: 4\n"
                "    active: 0\n\n"
                "  - name: tbf\n    state: started\n    fallback: no\n    queued: 5\n"
                "    active: 3\n\n"
                "high_priority_requests:\n"
                "  - name: fifo\n    state: started\n    fallback: yes\n    queued: 0\n"
                "    active: 0\n\n");
}

static void test_jobs(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    QosJob *job = add_job(report, "slow job");

    job->nodes = 12;
    job->operation_rate = 10.06;
    job->byte_rate = 2500000;
    job->sched.use.waiting = 4;
    job->wait_time = 3 * QOS_SECOND;
    job->store_time = QOS_SECOND;
    job->wait_count = 2;
    job->wait[0] = (QosWait){5, "hog", 1, 1, 1, 1, NOW - 9 * QOS_SECOND};
    job->wait[1] = (QosWait){0, QOS_WAIT_SLOTS, 1, 1, 1, 1, NOW - 99 * QOS_SECOND};
    job->requests = 123456;
    job->write_bytes.sum = 4096;
    add_job(report, "b");
    assert_text(qos_report_jobs(report), "JOB          NODES  OP/S  MB/S  WAITING  WAITED  LIMITED "
                                         "BY  REQUESTS  ERRORS  READ  WRITTEN\n"
                                         "slow\\x20job     12  10.1  2.50        4     75%  hog    "
                                         "       123456       0   0 B  4.0 KiB\n"
                                         "b                -   0.0  0.00        0      0%  -       "
                                         "           0       0   0 B      0 B\n");
}

/* What limits a job: the last thing that it waited for, while it waits and for 10 s. */
static void test_limit(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    QosJob *job = add_job(report, "a");

    g_assert_null(qos_report_limit(report, job));
    job->wait_count = 1;
    job->wait[0] = (QosWait){0, QOS_WAIT_SLOTS, 1, 1, 1, 1, NOW - 11 * QOS_SECOND};
    g_assert_null(qos_report_limit(report, job));
    job->sched.use.waiting = 1;
    g_assert_cmpstr(qos_report_limit(report, job), ==, QOS_WAIT_SLOTS);
    job->wait[job->wait_count++] = (QosWait){9, "r", 1, 1, 1, 1, NOW - 10 * QOS_SECOND};
    job->sched.use.waiting = 0;
    g_assert_cmpstr(qos_report_limit(report, job), ==, "r");
}

static void test_rules(void)
{
    g_autoptr(QosReport) report =
        new_report((const char *[]){"start a jobid={x y} rate=100 expire=90", NULL});

    report->rule_states[0] = (QosRuleState){.buckets = 2,
                                            .waiting = 3,
                                            .requests = 4,
                                            .bytes = 1024,
                                            .waits = 5,
                                            .waited = 1500 * QOS_MILLISECOND};
    assert_text(
        qos_report_rules(report),
        "RULE     LIMIT       EXPIRES  BUCKETS  WAITING  REQUESTS    BYTES  WAITS  WAITED  "
        "CONDITIONS\n"
        "a        rate=100   1 m 30 s        2        3         4  1.0 KiB      5  1.50 s  "
        "jobid={x y}\n"
        "default  rate=none         -        0        0         0      0 B      0     0 s  *\n");
}

static void test_metrics(void)
{
    g_autoptr(QosReport) report =
        new_report((const char *[]){"start a jobid={x} rate=100 bps=1K", NULL});
    GString *text;

    report->histograms.latency[QOS_OP_READ].count[5] = 2;
    report->histograms.latency[QOS_OP_READ].count[11] = 3;
    report->histograms.latency[QOS_OP_READ].count[40] = 1;
    report->histograms.latency_sum[QOS_OP_READ] = 2 * QOS_SECOND;
    add_job(report, "a\"b\\c")->requests = 7;
    text = qos_report_metrics(report);
    assert_line(text, "# TYPE qosfs_rule_wait_seconds_total counter");
    assert_line(text, "qosfs_job_requests_total{job=\"a\\\"b\\\\c\"} 7");
    assert_line(text, "qosfs_policy_queued{policy=\"fifo\"} 4");
    assert_line(text, "qosfs_operation_seconds_bucket{operation=\"read\",le=\"1.024e-06\"} 2");
    g_assert_null(strstr(text->str, "le=\"5.12e-07\"")); /* that is the first */
    assert_line(text, "qosfs_operation_seconds_bucket{operation=\"read\",le=\"2.048e-06\"} 5");
    assert_line(text, "qosfs_operation_seconds_bucket{operation=\"read\",le=\"68.719476736\"} 5");
    assert_line(text, "qosfs_operation_seconds_bucket{operation=\"read\",le=\"+Inf\"} 6");
    assert_line(text, "qosfs_operation_seconds_sum{operation=\"read\"} 2");
    assert_line(text, "qosfs_operation_seconds_count{operation=\"read\"} 6");
    assert_line(text, "qosfs_wait_seconds_bucket{le=\"+Inf\"} 0");
    assert_line(text, "qosfs_wait_seconds_count 0");
    g_assert_null(strstr(text->str, "operation=\"write\""));
    g_assert_null(strstr(text->str, "job=\"other\""));
    g_string_free(text, TRUE);
}

/* Each figure stands under its name. */
static void test_metrics_of_all(void)
{
    g_autoptr(QosReport) report =
        new_report((const char *[]){"start a jobid={x} rate=100 bps=1K", NULL});
    GString *text;

    count_in_rule(&report->rule_states[0]);
    count_in_job(add_job(report, "j"));
    text = qos_report_metrics(report);
    assert_metrics(text, "qosfs_rule_", "{rule=\"a\"}",
                   "rate_limit=100 bytes_limit=1024 buckets=2 waiting=3 requests_total=4 "
                   "bytes_total=5 waits_total=6 wait_seconds_total=0.5 dryrun_waits_total=7 "
                   "dryrun_bytes_total=8");
    assert_metrics(text, "qosfs_job_", "{job=\"j\"}",
                   "errors_total=3 waits_total=4 wait_seconds_total=5 store_seconds_total=6 "
                   "waiting=7 running=8 passthrough=11 read_bytes_total=16 write_bytes_total=17");
    g_string_free(text, TRUE);
}

/* Of many jobs the busiest are told apart, one that is called as the rest is part of it. */
static void test_metrics_top(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    GString *text;

    qos_tunables_take(&report->tunables, QOS_TUNABLE_METRICS_TOP_JOBS, g_strdup("2"));
    for (guint i = 0; i < 1000; i++) {
        g_autofree char *id = g_strdup_printf("%u", i);
        QosJob *job = add_job(report, i == 7 ? "other" : id);

        job->requests = 1;
        if (i == 500)
            job->operation_rate = 5;
        if (i == 600)
            job->byte_rate = 6 << 20;
        if (i == 7)
            job->operation_rate = 100;
    }
    text = qos_report_metrics(report);
    assert_line(text, "qosfs_job_requests_total{job=\"600\"} 1\n"
                      "qosfs_job_requests_total{job=\"500\"} 1\n"
                      "qosfs_job_requests_total{job=\"other\"} 998");
    g_string_free(text, TRUE);
}

/* state.json, parsed; `parser` keeps it. */
static JsonObject *state_of(const QosReport *report, JsonParser *parser)
{
    g_autoptr(GError) error = NULL;
    GString *text = qos_report_state(report);

    json_parser_load_from_data(parser, text->str, (gssize)text->len, &error);
    g_assert_no_error(error);
    g_string_free(text, TRUE);
    return json_node_get_object(json_parser_get_root(parser));
}

static JsonObject *element_of(JsonObject *object, const char *list, guint index)
{
    return json_array_get_object_element(json_object_get_array_member(object, list), index);
}

static void test_state(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    g_autoptr(JsonParser) parser = json_parser_new();
    JsonObject *state = state_of(report, parser);

    g_assert_cmpstr(json_object_get_string_member(state, "source"), ==,
                    "/sr\xef\xbf\xbd"
                    "c");
    g_assert_cmpint(json_object_get_int_member(state, "pid"), ==, 77);
    g_assert_cmpfloat(json_object_get_double_member(state, "started"), ==, 1599999900.000000042);
    g_assert_cmpstr(
        json_object_get_string_member(json_object_get_object_member(state, "tunables"), "slots"),
        ==, "64");
    assert_members(json_object_get_object_member(state, "slots"),
                   "total=64 running=3 held=2 draining=1 stalled=5 passing=6");
}

static void test_state_of_rules(void)
{
    g_autoptr(QosReport) report = new_report((const char *[]){
        "start a jobid={x} rate=100 bps=1K depth=5:2K per=rule weight=2 min=3 expire=4 dryrun=1",
        NULL});
    g_autoptr(JsonParser) parser = json_parser_new();
    JsonObject *state, *rule;

    count_in_rule(&report->rule_states[0]);
    state = state_of(report, parser);
    rule = element_of(state, "rules", 0);
    assert_members(rule,
                   "rate=100 bps=1024 depth_ops=5 depth_bytes=2048 weight=2 min=3 expires_in=4 "
                   "buckets=2 waiting=3 requests=4 bytes=5 waits=6 waited=0.5 dryrun_waits=7 "
                   "dryrun_bytes=8");
    g_assert_cmpstr(json_object_get_string_member(rule, "per"), ==, "rule");
    g_assert_true(json_object_get_boolean_member(rule, "dryrun"));
    g_assert_false(json_object_get_boolean_member(rule, "passthrough"));
    g_assert_true(json_object_get_null_member(element_of(state, "rules", 1), "expires_in"));
}

static void test_state_of_jobs(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    g_autoptr(JsonParser) parser = json_parser_new();
    QosJob *job = add_job(report, "a\"b");
    JsonObject *json_job, *operations;

    count_in_job(job);
    job->requests = G_MAXUINT64;
    job->operation[QOS_OP_OPEN] = (QosSample){3, 1, 2, 1500000, 5};
    job->wait_count = 1;
    job->wait[0] =
        (QosWait){0, QOS_WAIT_SLOTS, 4, 5 * QOS_SECOND, 2 * QOS_SECOND, NOW - QOS_SECOND, NOW};
    json_job = element_of(state_of(report, parser), "jobs", 0);
    g_assert_cmpstr(json_object_get_string_member(json_job, "id"), ==, "a\"b");
    g_assert_cmpint(json_object_get_int_member(json_job, "requests"), ==, G_MAXINT64);
    assert_members(json_job,
                   "nodes=2 errors=3 waits=4 wait_time=5 store_time=6 waiting=7 running=8 "
                   "parked_bytes=9 refused=10 passthrough=11 open_files=12 opens_refused=13 "
                   "operation_rate=14.5 byte_rate=15.5 read_bytes=16 write_bytes=17");
    operations = json_object_get_object_member(json_job, "operations");
    g_assert_cmpfloat(
        json_object_get_double_member(json_object_get_object_member(operations, "open"), "seconds"),
        ==, 1.5);
    g_assert_cmpstr(json_object_get_string_member(element_of(json_job, "wait", 0), "rule"), ==,
                    QOS_WAIT_SLOTS);
    assert_members(element_of(json_job, "wait", 0),
                   "count=4 waited=5 longest=2 first=1599999999.000000042 "
                   "last=1600000000.000000042");
}

/* --- adaptive sharing --- */

static void share(QosReport *report)
{
    static const QosReportShare taken = {.takes_part = TRUE,
                                         .weight = 3,
                                         .entitlement = 375,
                                         .demand = 60.25,
                                         .allocation = 70,
                                         .repayment = 37.5,
                                         .flow = 312.5,
                                         .partner = "41",
                                         .record = 3200,
                                         .lent = 31200,
                                         .returned = 28000,
                                         .borrowed = 1.5,
                                         .repaid = 0.5};

    report->adapt = (QosReportAdapt){
        .mode = QOS_ADAPT_FAIR,
        .period = 100 * QOS_MILLISECOND,
        .capacity = 500,
        .told = 500,
        .reserved = 40,
        .depth = 16,
        .members = 1,
        .shares = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
    };
    g_hash_table_insert(report->adapt.shares, g_strdup("a b"), g_memdup2(&taken, sizeof(taken)));
}

static void test_shares(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    GString *text;

    add_job(report, "a b");
    add_job(report, "idle");
    assert_text(qos_report_shares(report), "adapt:             \"off\"\n");
    share(report);
    assert_text(qos_report_shares(report), "adapt:             \"fair\"\n"
                                           "capacity:          500.0\n"
                                           "capacity_is:       told\n"
                                           "depth:             16\n"
                                           "told:              500.0\n"
                                           "reserved:          40.0\n"
                                           "period:            0.100\n"
                                           "shares:\n"
                                           "- job_id:          \"a\\x20b\"\n"
                                           "  weight:          3\n"
                                           "  entitlement:     375.0\n"
                                           "  demand:          60.2\n"
                                           "  allocation:      70.0\n"
                                           "  repayment:       37.5\n"
                                           "  flow:            312.5\n"
                                           "  partner:         \"41\"\n"
                                           "  record:          3200.0\n"
                                           "  lent:            31200.0\n"
                                           "  returned:        28000.0\n"
                                           "  borrowed:        1.5\n"
                                           "  repaid:          0.5\n");
    text = qos_report_metrics(report);
    assert_line(text, "qosfs_adapt_info{mode=\"fair\"} 1");
    assert_line(text, "qosfs_adapt_capacity 500");
    assert_line(text, "qosfs_job_entitlement{job=\"idle\"} 0");
    assert_metrics(text, "qosfs_job_", "{job=\"a b\"}",
                   "weight=3 entitlement=375 demand=60.25 allocation=70 record=3200 "
                   "lent_total=31200 returned_total=28000 borrowed_total=1.5 repaid_total=0.5");
    g_string_free(text, TRUE);
}

static void test_share_state(void)
{
    g_autoptr(QosReport) report = new_report(NULL);
    g_autoptr(JsonParser) parser = json_parser_new();
    JsonObject *state, *part;

    add_job(report, "a b");
    add_job(report, "idle");
    share(report);
    state = state_of(report, parser);
    part = json_object_get_object_member(state, "adapt");
    g_assert_cmpstr(json_object_get_string_member(part, "mode"), ==, "fair");
    g_assert_cmpfloat(json_object_get_double_member(part, "period"), ==, 0.1);
    g_assert_true(json_object_get_null_member(element_of(state, "jobs", 1), "share"));
    part = json_object_get_object_member(element_of(state, "jobs", 0), "share");
    g_assert_cmpstr(json_object_get_string_member(part, "partner"), ==, "41");
    assert_members(part,
                   "weight=3 entitlement=375 demand=60.25 allocation=70 repayment=37.5 "
                   "flow=312.5 record=3200 lent=31200 returned=28000 borrowed=1.5 repaid=0.5");
}

/* Sums are whole numbers, waiting is in microseconds, what was lent in operations. */
static void test_history(void)
{
    QosHistoryRow row = {.begin = 1800000000,
                         .step = 10,
                         .id = "a,\"b<",
                         .value = {1, G_GINT64_CONSTANT(1) << 53, 3, 4, 5999, 2500000, 1, 0,
                                   QOS_COST_UNIT * 1000000}};
    g_autoptr(GString) text = qos_report_history_head();
    gsize head = text->len;
    g_auto(GStrv) columns = g_strsplit(text->str, ",", -1);

    qos_report_append_history(text, &row);
    g_assert_cmpstr(
        text->str + head, ==,
        "1800000000,10,a\\x2C\\x22b\\x3C,1,9007199254740992,3,4,5,2.5,1e-06,0,1000000\n");
    g_assert_cmpuint(g_strv_length(columns), ==, 3 + QOS_HISTORY_COUNT);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/report/job-stats", test_job_stats);
    g_test_add_func("/report/job-stats-cleared", test_job_stats_cleared);
    g_test_add_func("/report/job-stats-unanchored", test_job_stats_unanchored);
    g_test_add_func("/report/job-stats-ids", test_job_stats_ids);
    g_test_add_func("/report/quoted-ids", test_quoted_ids);
    g_test_add_func("/report/sizes", test_sizes);
    g_test_add_func("/report/nrs-tbf-rule", test_nrs_tbf_rule);
    g_test_add_func("/report/nrs-policies", test_nrs_policies);
    g_test_add_func("/report/jobs", test_jobs);
    g_test_add_func("/report/limit", test_limit);
    g_test_add_func("/report/rules", test_rules);
    g_test_add_func("/report/metrics", test_metrics);
    g_test_add_func("/report/metrics-of-all", test_metrics_of_all);
    g_test_add_func("/report/metrics-top", test_metrics_top);
    g_test_add_func("/report/state", test_state);
    g_test_add_func("/report/state-of-rules", test_state_of_rules);
    g_test_add_func("/report/state-of-jobs", test_state_of_jobs);
    g_test_add_func("/report/shares", test_shares);
    g_test_add_func("/report/share-state", test_share_state);
    g_test_add_func("/report/history", test_history);
    return g_test_run();
}
