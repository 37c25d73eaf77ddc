/*
 * The rules for all mounts together in a report: what is taken of them, and their metrics.
 *
 * A mount keeps such rules like its own, and enforces the part of their rates that the lock server
 * lends it. So a report has the rules with what they did here, and of each class the rate in force
 * here beside the limit of all mounts.
 *
 * There may be thousands of classes. They are taken in one hold of the gate's lock, as a step of
 * budgets visits them (fs/budgets_walk.c), and only for reports that have all jobs.
 */
#include <math.h>
#include <string.h>

#include "base/prometheus.h"
#include "fs/control/report.h"

#define OTHER "other"

static const char *const unit_names[] = {
    [QOS_UNIT_OPERATIONS] = "operations", [QOS_UNIT_BYTES] = "bytes"};

/* --- the snapshot --- */

static void clear_class(gpointer data)
{
    QosBudgetsClass *class = data;

    g_free((char *)class->rule_name);
    g_free((char *)class->class_name);
}

static void add_class(QosReportCluster *cluster, const QosBudgetsClass *item)
{
    QosBudgetsClass copy = *item;

    copy.rule_name = g_strdup(item->rule_name);
    copy.class_name = g_strdup(item->class_name);
    g_array_append_val(cluster->classes, copy);
}

static void take_class(const QosBudgetsClass *item, gpointer arg)
{
    add_class(arg, item);
}

static void make_classes(QosReportCluster *cluster)
{
    if (cluster->classes != NULL)
        return;
    cluster->classes = g_array_new(FALSE, FALSE, sizeof(QosBudgetsClass));
    g_array_set_clear_func(cluster->classes, clear_class);
}

void qos_report_take_cluster(QosReportCluster *cluster, QosGate *gate, gboolean has_classes)
{
    const QosTime now = qos_clock_now();
    QosSched *sched = qos_gate_lock(gate);
    const QosBudgets *budgets = qos_gate_budgets(gate);

    if (budgets != NULL) {
        cluster->terms = qos_budgets_terms(budgets);
        if (qos_sched_cluster_rules(sched) != NULL)
            cluster->rules = qos_rules_ref(qos_sched_cluster_rules(sched));
        if (has_classes) {
            make_classes(cluster);
            qos_budgets_each(budgets, sched, take_class, cluster, now);
        }
    }
    qos_gate_unlock(gate);
    cluster->is_away = cluster->terms.version > 0 && !cluster->terms.is_connected &&
                       now - cluster->terms.since >= cluster->terms.lease;
    if (cluster->rules == NULL)
        return;
    cluster->rule_states = g_new0(QosRuleState, qos_rules_count(cluster->rules));
    for (guint i = 0; i < qos_rules_count(cluster->rules); i++) {
        qos_sched_rule_state(qos_gate_lock(gate), qos_rules_get(cluster->rules, i)->id,
                             &cluster->rule_states[i]);
        qos_gate_unlock(gate);
    }
}

typedef struct {
    QosReportCluster *cluster;
    const char *job;
} Asked;

/* Whether a class is the job's: its id, or an opcode and its id. */
static gboolean is_of_job(const char *class, const char *job)
{
    const char *colon = strchr(class, ':');

    return strcmp(class, job) == 0 || (colon != NULL && strcmp(colon + 1, job) == 0);
}

static void take_job_class(const QosBudgetsClass *item, gpointer arg)
{
    const Asked *asked = arg;
    const QosRule *rule =
        asked->cluster->rules != NULL ? qos_rules_by_id(asked->cluster->rules, item->rule) : NULL;

    if (rule == NULL)
        return;
    const gboolean is_shared =
        rule->per == QOS_PER_RULE || rule->per == QOS_PER_UID || rule->per == QOS_PER_GID;
    if (is_shared || is_of_job(item->class_name, asked->job))
        add_class(asked->cluster, item);
}

void qos_report_take_job_classes(QosReportCluster *cluster, QosGate *gate, const QosJob *job)
{
    Asked asked = {.cluster = cluster, .job = job->id};
    QosSched *sched = qos_gate_lock(gate);

    if (qos_gate_budgets(gate) != NULL) {
        make_classes(cluster);
        qos_budgets_each(qos_gate_budgets(gate), sched, take_job_class, &asked, qos_clock_now());
    }
    qos_gate_unlock(gate);
}

void qos_report_cluster_clear(QosReportCluster *cluster)
{
    g_clear_pointer(&cluster->classes, g_array_unref);
    g_clear_pointer(&cluster->rules, qos_rules_unref);
    g_clear_pointer(&cluster->rule_states, g_free);
}

guint qos_report_cluster_count(const QosReportCluster *cluster)
{
    return cluster->rules != NULL ? qos_rules_count(cluster->rules) - 1 : 0;
}

gboolean qos_report_is_cluster_wait(const QosWait *wait)
{
    return wait->rule_id > QOS_RULE_CLUSTER_ID && wait->rule_id != G_MAXUINT64;
}

/* --- metrics --- */

/* In units a second. */
static double rate_of(guint64 rate)
{
    return rate == QOS_BUDGET_NO_BOUND ? (double)INFINITY : (double)rate / QOS_BUDGET_UNIT;
}

static gint more_wanted_first(gconstpointer a, gconstpointer b)
{
    const QosBudgetsClass *first = *(const QosBudgetsClass *const *)a;
    const QosBudgetsClass *second = *(const QosBudgetsClass *const *)b;
    const double x = (double)first->demand / (double)first->limit;
    const double y = (double)second->demand / (double)second->limit;

    if (x != y)
        return x < y ? 1 : -1;
    if (first->rule != second->rule)
        return first->rule < second->rule ? -1 : 1;
    return strcmp(first->class_name, second->class_name);
}

static void append_rate(GString *text, const QosBudgetsClass *class, const char *name, double rate)
{
    const char *const labels[] = {"rule", class->rule_name,        "class", name,
                                  "unit", unit_names[class->unit], NULL};

    qos_prometheus_labelled(text, "qosfs_cluster_budget_rate", labels, rate);
}

/* The rates of the other classes of a rule in one, after its last. */
static void append_others(GString *text, const GPtrArray *ranked, guint first, const QosRule *rule)
{
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        const QosBudgetsClass *one = NULL;
        double sum = 0;

        for (guint i = first; i < ranked->len; i++) {
            const QosBudgetsClass *class = g_ptr_array_index(ranked, i);

            if (class->rule != rule->id || class->unit != unit)
                continue;
            one = class;
            sum += rate_of(class->rate);
        }
        if (one != NULL)
            append_rate(text, one, OTHER, sum);
    }
}

/* The rates in force of the classes that want most of their limits, as many as jobs have series. */
static void append_rates(GString *text, const QosReport *report)
{
    const QosReportCluster *cluster = &report->cluster;
    const guint top = (guint)qos_tunables_number(&report->tunables, QOS_TUNABLE_METRICS_TOP_JOBS);
    g_autoptr(GPtrArray) ranked = g_ptr_array_new();

    qos_prometheus_head(text, "qosfs_cluster_budget_rate", "gauge",
                        "Units a second that a class of a cluster rule may use here.");
    for (guint i = 0; cluster->classes != NULL && i < cluster->classes->len; i++)
        g_ptr_array_add(ranked, &g_array_index(cluster->classes, QosBudgetsClass, i));
    g_ptr_array_sort(ranked, more_wanted_first);
    for (guint i = 0; i < MIN(top, ranked->len); i++) {
        const QosBudgetsClass *class = g_ptr_array_index(ranked, i);
        append_rate(text, class, class->class_name, rate_of(class->rate));
    }
    for (guint i = 0; top < ranked->len && i < qos_report_cluster_count(cluster); i++)
        append_others(text, ranked, top, qos_rules_get(cluster->rules, i));
}

void qos_report_append_cluster_metrics(GString *text, const QosReport *report)
{
    const QosReportCluster *cluster = &report->cluster;

    if (cluster->terms.version == 0)
        return;
    qos_prometheus_one(text, "qosfs_cluster_rules_version", "gauge",
                       "Of the rules for all mounts together that are in force here.",
                       (double)cluster->terms.version);
    qos_prometheus_one(text, "qosfs_cluster_rules", "gauge", "How many they are.",
                       qos_report_cluster_count(cluster));
    qos_prometheus_one(text, "qosfs_cluster_budget_away", "gauge",
                       "1 while there has been no server for longer than a lease: what away= says "
                       "is in force.",
                       cluster->is_away);
    append_rates(text, report);
}
