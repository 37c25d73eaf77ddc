/*
 * What a mount reports of the rules for all mounts together: the texts of a snapshot that is made
 * by hand, and what a gate with budgets gives.
 */
#include <json-glib/json-glib.h>
#include <string.h>

#include "fs/control/report.h"

#define NOW  (5000 * QOS_SECOND)
#define WALL (1600000000 * QOS_SECOND)

static QosReport *new_report(void)
{
    static const QosRuleStart starts[] = {
        {QOS_RULE_CLUSTER_ID + 5, QOS_NEVER, "start big jobid={*} rate=2000 bps=1M away=open"},
        {QOS_RULE_CLUSTER_ID + 6, 90 * QOS_SECOND, "start all uid={7} rate=9 share=hard per=uid"},
    };
    QosReport *report = g_new0(QosReport, 1);

    report->now = NOW;
    report->wall = WALL;
    report->source = "/src";
    report->mountpoint = "/mnt";
    qos_tunables_init(&report->tunables);
    report->rules = qos_rules_new();
    report->rule_states = g_new0(QosRuleState, 1);
    report->jobs = g_ptr_array_new_with_free_func(g_free);
    report->cluster.terms = (QosBudgetsTerms){.version = 7,
                                              .rules = 2,
                                              .parts = 8,
                                              .epoch = QOS_BUDGET_EPOCH,
                                              .lease = QOS_SECOND,
                                              .is_connected = TRUE,
                                              .since = NOW - 10 * QOS_SECOND};
    report->cluster.rules = qos_rules_new_cluster_of(starts, G_N_ELEMENTS(starts), NOW, NULL);
    report->cluster.rule_states = g_new0(QosRuleState, 3);
    report->cluster.rule_states[0] = (QosRuleState){.buckets = 2, .requests = 4, .waits = 5};
    report->cluster.classes = g_array_new(FALSE, FALSE, sizeof(QosBudgetsClass));
    return report;
}

/* A class of the first rule that asks for `demand` and has `rate`. */
static void add_class(QosReport *report, const char *name, guint64 demand, guint64 rate)
{
    const QosBudgetsClass class = {.rule = QOS_RULE_CLUSTER_ID + 5,
                                   .rule_name = g_strdup("big"),
                                   .class_name = g_strdup(name),
                                   .limit = 2000 * QOS_BUDGET_UNIT,
                                   .demand = demand * QOS_BUDGET_UNIT,
                                   .rate = rate,
                                   .floor = 12500,
                                   .waiting = 3000,
                                   .away = QOS_BUDGET_AWAY_OPEN,
                                   .is_away = rate == QOS_BUDGET_NO_BOUND};

    g_array_append_val(report->cluster.classes, class);
}

static void free_classes(QosReport *report)
{
    for (guint i = 0; i < report->cluster.classes->len; i++) {
        g_free((char *)g_array_index(report->cluster.classes, QosBudgetsClass, i).rule_name);
        g_free((char *)g_array_index(report->cluster.classes, QosBudgetsClass, i).class_name);
    }
}

static void assert_has(GString *text, const char *part)
{
    if (!strstr(text->str, part))
        g_error("not \"%s\" in:\n%s", part, text->str);
}

static void test_rules(void)
{
    g_autoptr(QosReport) report = new_report();
    g_autoptr(GString) text = qos_report_rules(report);

    g_assert_cmpstr(strchr(text->str, '*'), ==,
                    "*\n\nfor all mounts together, version 7\n"
                    "RULE  LIMIT                                      EXPIRES  BUCKETS  "
                    "WAITING  REQUESTS  BYTES  WAITS  WAITED  CONDITIONS\n"
                    "big   rate=2000 bps=1M scope=cluster away=open         -        2  "
                    "      0         4    0 B      5     0 s  jobid={*}\n"
                    "all   rate=9 per=uid scope=cluster share=hard   1 m 30 s        0  "
                    "      0         0    0 B      0     0 s  uid={7}\n");
}

/* The object "cluster" of a state, and its root. */
static JsonObject *cluster_of(GString *text, JsonParser *parser)
{
    g_autoptr(GError) error = NULL;

    json_parser_load_from_data(parser, text->str, (gssize)text->len, &error);
    g_assert_no_error(error);
    g_string_free(text, TRUE);
    JsonObject *root = json_node_get_object(json_parser_get_root(parser));
    return json_object_has_member(root, "cluster") ? json_object_get_object_member(root, "cluster")
                                                   : NULL;
}

static void test_state(void)
{
    g_autoptr(QosReport) report = new_report();
    g_autoptr(JsonParser) parser = json_parser_new();

    add_class(report, "j", 300, 250500);
    add_class(report, "k", 0, QOS_BUDGET_NO_BOUND);
    JsonObject *cluster = cluster_of(qos_report_state(report), parser);
    g_assert_cmpint(json_object_get_int_member(cluster, "version"), ==, 7);
    g_assert_cmpint(json_object_get_int_member(cluster, "count"), ==, 2);
    g_assert_cmpint(json_object_get_int_member(cluster, "parts"), ==, 8);
    g_assert_cmpfloat(json_object_get_double_member(cluster, "epoch"), ==, 0.1);
    g_assert_cmpfloat(json_object_get_double_member(cluster, "lease"), ==, 1);
    g_assert_cmpfloat(json_object_get_double_member(cluster, "since"), ==, 1599999990);
    g_assert_true(json_object_get_boolean_member(cluster, "connected"));
    JsonObject *aways = json_object_get_object_member(cluster, "aways");
    g_assert_cmpint(json_object_get_int_member(aways, "floor"), ==, 1);
    g_assert_cmpint(json_object_get_int_member(aways, "open"), ==, 1);

    JsonArray *rules = json_object_get_array_member(cluster, "rules");
    g_assert_cmpuint(json_array_get_length(rules), ==, 2); /* no `default` */
    JsonObject *rule = json_array_get_object_element(rules, 1);
    g_assert_cmpstr(json_object_get_string_member(rule, "scope"), ==, "cluster");
    g_assert_cmpint(json_object_get_int_member(rule, "id"), ==, 6);
    g_assert_cmpstr(json_object_get_string_member(rule, "share"), ==, "hard");
    g_assert_cmpstr(json_object_get_string_member(rule, "away"), ==, "floor");
    g_assert_cmpfloat(json_object_get_double_member(rule, "expires_in"), ==, 90);

    JsonArray *classes = json_object_get_array_member(cluster, "classes");
    JsonObject *class = json_array_get_object_element(classes, 0);
    g_assert_cmpstr(json_object_get_string_member(class, "unit"), ==, "operations");
    g_assert_cmpfloat(json_object_get_double_member(class, "rate"), ==, 250.5);
    g_assert_cmpfloat(json_object_get_double_member(class, "limit"), ==, 2000);
    g_assert_cmpfloat(json_object_get_double_member(class, "demand"), ==, 300);
    g_assert_cmpfloat(json_object_get_double_member(class, "floor"), ==, 12.5);
    g_assert_cmpfloat(json_object_get_double_member(class, "waiting"), ==, 3);
    class = json_array_get_object_element(classes, 1);
    g_assert_true(json_object_get_null_member(class, "rate"));
    g_assert_true(json_object_get_boolean_member(class, "is_away"));

    cluster = cluster_of(qos_report_status(report), parser); /* without the lists */
    g_assert_cmpuint(json_array_get_length(json_object_get_array_member(cluster, "rules")), ==, 0);
    report->cluster.terms.version = 0; /* a mount without such rules */
    g_assert_null(cluster_of(qos_report_state(report), parser));
    free_classes(report);
}

/* A mount's rule and the cluster's have one name: a job has the one that it waited for. */
static void test_one_name(void)
{
    g_autoptr(QosReport) report = new_report();
    g_autoptr(JsonParser) parser = json_parser_new();
    g_autofree QosJob *job = g_new0(QosJob, 1);
    QosRules *rules = qos_rules_apply(report->rules, "start big jobid={*} rate=1", NOW, NULL);

    qos_rules_unref(report->rules);
    report->rules = rules;
    g_free(report->rule_states);
    report->rule_states = g_new0(QosRuleState, 2);
    g_strlcpy(job->id, "j", sizeof(job->id));
    qos_job_waits(job, QOS_RULE_CLUSTER_ID + 5, "big", NOW);
    JsonObject *cluster = cluster_of(qos_report_job_state(report, job), parser);
    JsonObject *root = json_node_get_object(json_parser_get_root(parser));
    g_assert_cmpuint(json_array_get_length(json_object_get_array_member(cluster, "rules")), ==, 1);
    g_assert_cmpuint(json_array_get_length(json_object_get_array_member(root, "rules")), ==, 0);
    JsonObject *told = json_array_get_object_element(json_object_get_array_member(root, "jobs"), 0);
    JsonObject *wait = json_array_get_object_element(json_object_get_array_member(told, "wait"), 0);
    g_assert_cmpstr(json_object_get_string_member(wait, "scope"), ==, "cluster");

    job->wait_count = 0;
    qos_job_waits(job, 2, "big", NOW);
    qos_job_waits(job, G_MAXUINT64, QOS_WAIT_OTHERS, NOW);
    cluster = cluster_of(qos_report_job_state(report, job), parser);
    root = json_node_get_object(json_parser_get_root(parser));
    g_assert_cmpuint(json_array_get_length(json_object_get_array_member(cluster, "rules")), ==, 0);
    g_assert_cmpuint(json_array_get_length(json_object_get_array_member(root, "rules")), ==, 1);
    g_assert_false(qos_report_is_cluster_wait(&job->wait[0]));
    g_assert_false(qos_report_is_cluster_wait(&job->wait[1]));
}

static void test_metrics(void)
{
    g_autoptr(QosReport) report = new_report();

    qos_tunables_take(&report->tunables, QOS_TUNABLE_METRICS_TOP_JOBS, g_strdup("2"));
    add_class(report, "a", 1, 1000);
    add_class(report, "b\"", 30, 2000);
    add_class(report, "c", 20, QOS_BUDGET_NO_BOUND);
    add_class(report, "d", 2, 4500);
    report->cluster.is_away = TRUE;
    g_autoptr(GString) text = qos_report_metrics(report);
    assert_has(text, "\nqosfs_cluster_rules_version 7\n");
    assert_has(text, "\nqosfs_cluster_rules 2\n");
    assert_has(text, "\nqosfs_cluster_budget_away 1\n");
    assert_has(
        text, "\nqosfs_cluster_budget_rate{rule=\"big\",class=\"b\\\"\",unit=\"operations\"} 2\n"
              "qosfs_cluster_budget_rate{rule=\"big\",class=\"c\",unit=\"operations\"} +Inf\n"
              "qosfs_cluster_budget_rate{rule=\"big\",class=\"other\",unit=\"operations\"} 5.5\n#");
    report->cluster.terms.version = 0;
    g_autoptr(GString) none = qos_report_metrics(report);
    g_assert_null(strstr(none->str, "cluster"));
    free_classes(report);
}

/* --- what is taken of a gate --- */

/* A request of the job goes through the gate. */
static void use(QosGate *gate, const char *name)
{
    QosJob *job = qos_gate_job(gate, qos_gate_user(gate, 1000), name, 0);
    QosEntry entry = {.request = {.job = job, .opcode = QOS_OP_READ, .uid = 1000}};

    entry.request.user = qos_gate_user(gate, 1000);
    g_assert_true(qos_gate_enter(gate, &entry));
    qos_gate_leave(gate, &entry, 0, 0);
    qos_job_unref(job);
}

static void test_take(void)
{
    QosGate *gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND);
    QosWireRules list = {.version = 3, .epoch = QOS_BUDGET_EPOCH, .lease = QOS_SECOND, .parts = 8};
    QosReportCluster cluster = {0}, of_job = {0};
    QosBudgets *budgets = qos_budgets_new(1);
    QosWireRule rule = {.id = 5, .left = QOS_NEVER};
    const QosTime now = qos_clock_now();

    qos_report_take_cluster(&cluster, gate, TRUE); /* no lock server */
    g_assert_cmpuint(cluster.terms.version, ==, 0);
    g_assert_null(cluster.rules);

    qos_gate_set_budgets(gate, budgets);
    rule.command = g_strdup("start big jobid={*} rate=1000 floor=8%");
    list.rules = g_array_new(FALSE, FALSE, sizeof(QosWireRule));
    g_array_append_val(list.rules, rule);
    list.total = 1;
    QosRules *rules = qos_budgets_read_rules(&list, now, NULL);
    qos_budgets_set_connected(budgets, TRUE, now);
    QosSched *sched = qos_gate_lock(gate);
    qos_budgets_set_rules(budgets, sched, rules, &list, now);
    qos_gate_unlock_and_wake(gate);
    use(gate, "j");
    use(gate, "k");

    qos_report_take_cluster(&cluster, gate, TRUE);
    g_assert_cmpuint(cluster.terms.version, ==, 3);
    g_assert_false(cluster.is_away);
    g_assert_cmpuint(qos_report_cluster_count(&cluster), ==, 1);
    g_assert_cmpuint(cluster.rule_states[0].requests, ==, 2);
    g_assert_cmpuint(cluster.classes->len, ==, 2);
    g_assert_cmpuint(g_array_index(cluster.classes, QosBudgetsClass, 0).rate, ==, 10000);
    qos_report_cluster_clear(&cluster);

    qos_gate_lock(gate);
    qos_budgets_set_connected(budgets, FALSE, now - 2 * QOS_SECOND);
    qos_gate_unlock(gate);
    qos_report_take_cluster(&of_job, gate, FALSE);
    g_assert_true(of_job.is_away);
    g_assert_null(of_job.classes);
    QosJob *job = qos_gate_job(gate, qos_gate_user(gate, 1000), "k", 0);
    qos_report_take_job_classes(&of_job, gate, job);
    g_assert_cmpuint(of_job.classes->len, ==, 1);
    g_assert_cmpstr(g_array_index(of_job.classes, QosBudgetsClass, 0).class_name, ==, "k");
    qos_report_cluster_clear(&of_job);
    qos_job_unref(job);
    qos_rules_unref(rules);
    qos_wire_rules_clear(&list);
    qos_gate_free(gate);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/report-cluster/rules", test_rules);
    g_test_add_func("/report-cluster/state", test_state);
    g_test_add_func("/report-cluster/one-name", test_one_name);
    g_test_add_func("/report-cluster/metrics", test_metrics);
    g_test_add_func("/report-cluster/take", test_take);
    return g_test_run();
}
