/*
 * The metrics, in Prometheus' text format, version 0.0.4.
 *
 * The number of series is bounded by three things: the rules, which an administrator makes; the
 * operations; and metrics_top_jobs, the number of jobs that have series of their own. These are the
 * jobs that do most now, where a request a second counts as much as a MiB a second. All other jobs
 * are summed up as job="other", so that sums over the jobs stay right. To rate(), a series that
 * moves in or out of "other" looks like a counter that was reset.
 */
#include <string.h>

#include "base/prometheus.h"
#include "fs/control/report.h"

#define LATENCY_FIRST 10 /* 2^10 ns = 1 us: the buckets that are told apart */
#define LATENCY_LAST  36 /* 2^36 ns = 69 s */
#define OTHER         "other"

static double seconds(QosTime time)
{
    return (double)time / (double)QOS_SECOND;
}

/* --- the mount --- */

static void append_mount(GString *text, const QosReport *report)
{
    qos_prometheus_head(text, "qosfs_info", "gauge", "The version of qosfs.");
    qos_prometheus_value(text, "qosfs_info", "version", QOSFS_VERSION, 1);
    qos_prometheus_one(text, "qosfs_start_time_seconds", "gauge",
                       "When it was mounted, since 1970.", seconds(report->started));
    qos_prometheus_one(text, "qosfs_slots", "gauge", "Requests that may be in the store at a time.",
                       report->slots.slots);
    qos_prometheus_one(text, "qosfs_slots_running", "gauge", "Requests in the store.",
                       report->slots.running);
    qos_prometheus_one(text, "qosfs_slots_stalled", "gauge",
                       "Of these, requests that the store has not answered for long.",
                       report->slots.stalled);
    qos_prometheus_one(text, "qosfs_slots_passing", "gauge",
                       "Requests in the store without a slot, as they must not wait.",
                       report->slots.over_limit);
    qos_prometheus_one(text, "qosfs_slots_held", "gauge",
                       "Requests that are due, of jobs that have their full share of slots.",
                       report->slots.at_limit);
    qos_prometheus_one(text, "qosfs_parked_bytes", "gauge",
                       "Memory that waiting requests and their data take.",
                       report->slots.parked_bytes);
    qos_prometheus_one(text, "qosfs_refused_total", "counter",
                       "Requests that failed because there was no room for them to wait.",
                       report->slots.refused);
    qos_prometheus_one(text, "qosfs_inodes", "gauge", "Files that the kernel knows.",
                       report->inodes);
    qos_prometheus_one(text, "qosfs_callers", "gauge", "Callers that are remembered.",
                       report->callers);
    qos_prometheus_one(text, "qosfs_jobs", "gauge", "Jobs that are remembered.", report->jobs->len);
    qos_prometheus_head(text, "qosfs_policy_queued", "gauge", "Requests that wait in a policy.");
    for (guint i = 0; i < report->policy_count; i++)
        qos_prometheus_value(text, "qosfs_policy_queued", "policy",
                             report->policies[i].policy->name, report->policies[i].queued);
}

static void append_adapt(GString *text, const QosReport *report)
{
    const QosReportAdapt *adapt = &report->adapt;

    qos_prometheus_head(text, "qosfs_adapt_info", "gauge", "How the store is shared.");
    qos_prometheus_value(text, "qosfs_adapt_info", "mode", qos_adapt_mode_names[adapt->mode], 1);
    if (adapt->mode == QOS_ADAPT_OFF)
        return;
    qos_prometheus_one(text, "qosfs_adapt_capacity", "gauge",
                       "Operations a second, as told or estimated.", adapt->capacity);
    qos_prometheus_one(text, "qosfs_adapt_depth", "gauge",
                       "Requests that sharing has in the store at most.", adapt->depth);
    qos_prometheus_one(text, "qosfs_adapt_members", "gauge", "Jobs that take part.",
                       adapt->members);
}

/* --- the lock server --- */

static void append_lockclient(GString *text, const QosLockclientStatus *status)
{
    qos_prometheus_one(text, "qosfs_lockclient_up", "gauge",
                       "1 while there is a connection to the lock server.",
                       status->state == QOS_LOCKCLIENT_UP);
    qos_prometheus_one(text, "qosfs_lockclient_valid_seconds", "gauge",
                       "For how long what is cached may be used without the server; 0: not at all.",
                       seconds(status->valid));
    qos_prometheus_one(text, "qosfs_lockclient_credits", "gauge",
                       "Resources of which the mount has credits.", (double)status->credits);
    qos_prometheus_one(text, "qosfs_lockclient_cached_bytes", "gauge",
                       "What the credits that are not in use take at the server.",
                       (double)status->bytes);
    qos_prometheus_one(text, "qosfs_lockclient_lock_rate", "gauge",
                       "The server's SLR, in byte-milliseconds.", (double)status->rate);
    qos_prometheus_one(text, "qosfs_lockclient_hits_total", "counter",
                       "Uses of credits that asked nobody.", status->hits);
    qos_prometheus_one(text, "qosfs_lockclient_misses_total", "counter",
                       "Uses that asked the server, or waited.", status->misses);
    qos_prometheus_one(text, "qosfs_lockclient_refusals_total", "counter",
                       "Uses that went on without a credit.", status->refusals);
    qos_prometheus_one(text, "qosfs_lockclient_enqueues_total", "counter", "Requests for credits.",
                       status->enqueues);
    qos_prometheus_one(text, "qosfs_lockclient_cancels_total", "counter", "Credits given back.",
                       status->cancels);
    qos_prometheus_one(text, "qosfs_lockclient_cancel_messages_total", "counter",
                       "Messages sent for nothing but to give back.", status->cancel_messages);
    qos_prometheus_one(text, "qosfs_lockclient_revocations_total", "counter",
                       "Credits that the server called back.", status->revocations);
    qos_prometheus_one(text, "qosfs_lockclient_evictions_total", "counter",
                       "Times that all was lost.", status->evictions);
    qos_prometheus_one(text, "qosfs_lockclient_reconnects_total", "counter",
                       "Connections after the first.", status->reconnects);
}

/* --- rules --- */

typedef struct {
    const char *name;
    const char *type;
    const char *help;
    double (*value)(const QosRule *rule, const QosRuleState *state);
} RuleMetric;

#define RULE_VALUE(name, expression)                                                               \
    static double rule_##name(G_GNUC_UNUSED const QosRule *rule,                                   \
                              G_GNUC_UNUSED const QosRuleState *state)                             \
    {                                                                                              \
        return (double)(expression);                                                               \
    }
RULE_VALUE(rate, rule->rate)
RULE_VALUE(bps, rule->bps)
RULE_VALUE(buckets, state->buckets)
RULE_VALUE(waiting, state->waiting)
RULE_VALUE(requests, state->requests)
RULE_VALUE(bytes, state->bytes)
RULE_VALUE(waits, state->waits)
RULE_VALUE(waited, seconds(state->waited))
RULE_VALUE(dryrun_waits, state->dryrun_waits)
RULE_VALUE(dryrun_bytes, state->dryrun_bytes)

static const RuleMetric rule_metrics[] = {
    {"qosfs_rule_rate_limit", "gauge", "Requests a second of a bucket, 0: no bound.", rule_rate},
    {"qosfs_rule_bytes_limit", "gauge", "Bytes a second of a bucket, 0: no bound.", rule_bps},
    {"qosfs_rule_buckets", "gauge", "Classes bound to the rule.", rule_buckets},
    {"qosfs_rule_waiting", "gauge", "Requests that wait for the rule.", rule_waiting},
    {"qosfs_rule_requests_total", "counter", "Requests that the rule let through.", rule_requests},
    {"qosfs_rule_bytes_total", "counter", "Bytes that they moved.", rule_bytes},
    {"qosfs_rule_waits_total", "counter", "Requests that waited for the rule.", rule_waits},
    {"qosfs_rule_wait_seconds_total", "counter", "How long they waited.", rule_waited},
    {"qosfs_rule_dryrun_waits_total", "counter", "Requests that would have waited.",
     rule_dryrun_waits},
    {"qosfs_rule_dryrun_bytes_total", "counter", "Bytes of requests that would have waited.",
     rule_dryrun_bytes},
};

static void append_rules(GString *text, const QosReport *report)
{
    for (guint m = 0; m < G_N_ELEMENTS(rule_metrics); m++) {
        const RuleMetric *metric = &rule_metrics[m];

        qos_prometheus_head(text, metric->name, metric->type, metric->help);
        for (guint i = 0; i < qos_rules_count(report->rules); i++) {
            const QosRule *rule = qos_rules_get(report->rules, i);

            qos_prometheus_value(text, metric->name, "rule", rule->name,
                                 metric->value(rule, &report->rule_states[i]));
        }
    }
}

/* --- jobs --- */

typedef struct {
    const char *name;
    const char *type;
    const char *help;
    double (*value)(const QosJob *job, const QosReportShare *share);
    gboolean of_share; /* there where sharing is on */
} JobMetric;

#define JOB_VALUE(name, expression)                                                                \
    static double job_##name(G_GNUC_UNUSED const QosJob *job,                                      \
                             G_GNUC_UNUSED const QosReportShare *share)                            \
    {                                                                                              \
        return (double)(expression);                                                               \
    }
JOB_VALUE(requests, job->requests)
JOB_VALUE(errors, job->errors)
JOB_VALUE(read_bytes, job->read_bytes.sum)
JOB_VALUE(write_bytes, job->write_bytes.sum)
JOB_VALUE(store_time, seconds(job->store_time))
JOB_VALUE(waits, job->waits)
JOB_VALUE(wait_time, seconds(job->wait_time))
JOB_VALUE(waiting, job->sched.use.waiting)
JOB_VALUE(running, job->sched.use.running)
JOB_VALUE(passthrough, job->passthrough)
JOB_VALUE(weight, share->weight)
JOB_VALUE(entitlement, share->entitlement)
JOB_VALUE(demand, share->demand)
JOB_VALUE(allocation, share->allocation)
JOB_VALUE(record, share->record)
JOB_VALUE(lent, share->lent)
JOB_VALUE(returned, share->returned)
JOB_VALUE(borrowed, share->borrowed)
JOB_VALUE(repaid, share->repaid)

static const JobMetric job_metrics[] = {
    {"qosfs_job_requests_total", "counter", "Requests served.", job_requests, FALSE},
    {"qosfs_job_errors_total", "counter", "Requests that the store refused.", job_errors, FALSE},
    {"qosfs_job_read_bytes_total", "counter", "Bytes read.", job_read_bytes, FALSE},
    {"qosfs_job_write_bytes_total", "counter", "Bytes written.", job_write_bytes, FALSE},
    {"qosfs_job_store_seconds_total", "counter", "Time spent in the store.", job_store_time, FALSE},
    {"qosfs_job_waits_total", "counter", "Requests that waited.", job_waits, FALSE},
    {"qosfs_job_wait_seconds_total", "counter", "How long they waited.", job_wait_time, FALSE},
    {"qosfs_job_waiting", "gauge", "Requests that wait.", job_waiting, FALSE},
    {"qosfs_job_running", "gauge", "Requests in the store.", job_running, FALSE},
    {"qosfs_job_passthrough", "gauge", "Open files whose reads and writes are not counted.",
     job_passthrough, FALSE},
    {"qosfs_job_weight", "gauge", "Weight in the adaptive sharing.", job_weight, TRUE},
    {"qosfs_job_entitlement", "gauge", "Operations a second when all jobs want theirs.",
     job_entitlement, TRUE},
    {"qosfs_job_demand", "gauge", "Operations a second that it asked for.", job_demand, TRUE},
    {"qosfs_job_allocation", "gauge", "Operations a second that it is to have.", job_allocation,
     TRUE},
    {"qosfs_job_record", "gauge", "Operations lent (borrowed: below 0) and not paid back.",
     job_record, TRUE},
    {"qosfs_job_lent_total", "counter", "Operations lent to others.", job_lent, TRUE},
    {"qosfs_job_returned_total", "counter", "Of these, paid back to it.", job_returned, TRUE},
    {"qosfs_job_borrowed_total", "counter", "Operations borrowed from others.", job_borrowed, TRUE},
    {"qosfs_job_repaid_total", "counter", "Of these, paid back by it.", job_repaid, TRUE},
};

static double use(const QosJob *job)
{
    return job->operation_rate + job->byte_rate / (1 << 20);
}

static gint more_use_first(gconstpointer a, gconstpointer b)
{
    const QosJob *first = *(const QosJob *const *)a;
    const QosJob *second = *(const QosJob *const *)b;

    if (use(first) != use(second))
        return use(first) < use(second) ? 1 : -1;
    if (first->seen != second->seen)
        return first->seen < second->seen ? 1 : -1;
    return strcmp(first->id, second->id);
}

/* The jobs, most use first; one that is named as the rest is part of the rest, thus last. */
static GPtrArray *rank_jobs(const QosReport *report)
{
    GPtrArray *ranked = g_ptr_array_sized_new(report->jobs->len);
    const QosJob *namesake = NULL;

    for (guint i = 0; i < report->jobs->len; i++) {
        QosJob *job = g_ptr_array_index(report->jobs, i);

        if (strcmp(job->id, OTHER) == 0)
            namesake = job;
        else
            g_ptr_array_add(ranked, job);
    }
    g_ptr_array_sort(ranked, more_use_first);
    if (namesake)
        g_ptr_array_add(ranked, (gpointer)namesake);
    return ranked;
}

/* One metric of the first `named` jobs, and of the rest in one. */
static void append_job_metric(GString *text, const QosReport *report, const JobMetric *metric,
                              const GPtrArray *ranked, guint named)
{
    static const QosReportShare none;
    double rest = 0;

    qos_prometheus_head(text, metric->name, metric->type, metric->help);
    for (guint i = 0; i < ranked->len; i++) {
        const QosJob *job = g_ptr_array_index(ranked, i);
        const QosReportShare *share = qos_report_share(report, job->id);
        double value = metric->value(job, share ? share : &none);

        if (i < named)
            qos_prometheus_value(text, metric->name, "job", job->id, value);
        else
            rest += value;
    }
    if (named < ranked->len)
        qos_prometheus_value(text, metric->name, "job", OTHER, rest);
}

static void append_jobs(GString *text, const QosReport *report)
{
    g_autoptr(GPtrArray) ranked = rank_jobs(report);
    guint top = (guint)qos_tunables_number(&report->tunables, QOS_TUNABLE_METRICS_TOP_JOBS);
    guint named = ranked->len;

    if (named && strcmp(((QosJob *)g_ptr_array_index(ranked, named - 1))->id, OTHER) == 0)
        named--;
    named = MIN(named, top);
    for (guint m = 0; m < G_N_ELEMENTS(job_metrics); m++) {
        if (!job_metrics[m].of_share || report->adapt.mode != QOS_ADAPT_OFF)
            append_job_metric(text, report, &job_metrics[m], ranked, named);
    }
}

/* --- histograms --- */

/* Of one `operation`, or (NULL) of no one in particular. */
static void append_histogram(GString *text, const char *name, const char *operation,
                             const QosHistogram *histogram, QosTime sum)
{
    const char *label = operation ? "operation" : NULL;
    g_autofree char *labels =
        operation ? g_strdup_printf("operation=\"%s\",", operation) : g_strdup("");
    g_autofree char *name_of_sum = g_strconcat(name, "_sum", NULL);
    g_autofree char *name_of_count = g_strconcat(name, "_count", NULL);
    guint64 total = qos_histogram_total(histogram);
    guint64 count = 0;
    char buffer[G_ASCII_DTOSTR_BUF_SIZE];

    for (guint i = 0; i <= LATENCY_LAST; i++) {
        count += histogram->count[i];
        if (i < LATENCY_FIRST)
            continue;
        g_string_append_printf(text, "%s_bucket{%sle=\"%s\"} %" G_GUINT64_FORMAT "\n", name, labels,
                               g_ascii_formatd(buffer, sizeof(buffer), "%.12g",
                                               seconds((QosTime)qos_histogram_bound(i))),
                               count);
    }
    g_string_append_printf(text, "%s_bucket{%sle=\"+Inf\"} %" G_GUINT64_FORMAT "\n", name, labels,
                           total);
    qos_prometheus_value(text, name_of_sum, label, operation, seconds(sum));
    qos_prometheus_value(text, name_of_count, label, operation, (double)total);
}

static void append_histograms(GString *text, const QosReport *report)
{
    const QosGateHistograms *histograms = &report->histograms;

    qos_prometheus_head(text, "qosfs_operation_seconds", "histogram",
                        "The time that the store took, by operation.");
    for (guint i = 0; i < QOS_OP_COUNT; i++) {
        if (qos_histogram_total(&histograms->latency[i]))
            append_histogram(text, "qosfs_operation_seconds", qos_opcode_name(i),
                             &histograms->latency[i], histograms->latency_sum[i]);
    }
    qos_prometheus_head(text, "qosfs_wait_seconds", "histogram",
                        "How long the requests that waited did so.");
    append_histogram(text, "qosfs_wait_seconds", NULL, &histograms->waiting,
                     histograms->waiting_sum);
}

GString *qos_report_metrics(const QosReport *report)
{
    GString *text = g_string_new(NULL);

    append_mount(text, report);
    append_adapt(text, report);
    if (report->is_shared)
        append_lockclient(text, &report->sharing);
    append_rules(text, report);
    qos_report_append_cluster_metrics(text, report);
    append_jobs(text, report);
    append_histograms(text, report);
    return text;
}
