/*
 * Takes the snapshot for a report, and has what the formats share.
 *
 * The jobs are copied one by one, each with its share, so that the gate's lock is held for one job
 * at a time. So each job is consistent in itself, and two jobs are apart by the milliseconds that
 * copying takes.
 */
#include "fs/control/report.h"

#include <string.h>
#include <unistd.h>

#include "fs/store/inode.h"

#define RECENT      (10 * QOS_SECOND)
#define ACTIVE_RATE 0.05 /* op/s */

static gint more_recent_first(gconstpointer a, gconstpointer b)
{
    const QosJob *first = *(const QosJob *const *)a;
    const QosJob *second = *(const QosJob *const *)b;

    if (first->seen != second->seen)
        return first->seen < second->seen ? 1 : -1;
    return strcmp(first->id, second->id);
}

/* All jobs, one reference each. */
static GPtrArray *list_jobs(QosGate *gate)
{
    GPtrArray *jobs = qos_jobs_list(qos_sched_jobs(qos_gate_lock(gate)));

    qos_gate_unlock(gate);
    return jobs;
}

/* A copy of the job, to be freed with g_free(); its share, where it has one, goes to `adapt`, if
 * that is not NULL. */
static QosJob *copy_job(QosGate *gate, const QosJob *job, QosReportAdapt *adapt)
{
    QosJob *copy = g_new(QosJob, 1);
    QosSchedShare share;
    const QosSched *sched = qos_gate_lock(gate);
    const gboolean has_share = qos_sched_copy_job(sched, job, copy, &share, qos_clock_now());

    qos_gate_unlock(gate);
    if (has_share && adapt)
        qos_report_add_share(adapt, &share);
    return copy;
}

GPtrArray *qos_report_copy_jobs(QosGate *gate, QosReportAdapt *adapt)
{
    g_autoptr(GPtrArray) jobs = list_jobs(gate);
    GPtrArray *copies = g_ptr_array_new_full(jobs->len, g_free);

    for (guint i = 0; i < jobs->len; i++)
        g_ptr_array_add(copies, copy_job(gate, g_ptr_array_index(jobs, i), adapt));
    g_ptr_array_sort(copies, more_recent_first);
    return copies;
}

QosJob *qos_report_take_job(QosReport *report, QosGate *gate, const char *id)
{
    QosJob *job = qos_jobs_find(qos_sched_jobs(qos_gate_lock(gate)), id), *copy;

    qos_gate_unlock(gate);
    if (!job)
        return NULL;
    copy = copy_job(gate, job, &report->adapt);
    qos_report_take_job_classes(&report->cluster, gate, copy);
    qos_job_unref(job);
    return copy;
}

static void count_jobs(QosGate *gate, QosReportJobCounts *counts)
{
    g_autoptr(GPtrArray) jobs = list_jobs(gate);
    const QosTime now = qos_clock_now();

    *counts = (QosReportJobCounts){.all = jobs->len};
    for (guint i = 0; i < jobs->len; i++) {
        const QosJob *job = g_ptr_array_index(jobs, i);
        double operations, bytes;

        qos_gate_lock(gate);
        const gboolean waits = job->sched.use.waiting > 0;
        const gboolean runs = job->sched.use.running > 0;
        qos_job_rates(job, now, &operations, &bytes);
        qos_gate_unlock(gate);
        counts->waiting += waits;
        counts->active += waits || runs || operations >= ACTIVE_RATE;
    }
}

/* The policies, the rules and what became of these. */
static void take_rules(QosReport *report, QosGate *gate)
{
    const QosSched *sched = qos_gate_lock(gate);

    for (guint i = 0; qos_policies[i] && i < QOS_REPORT_POLICIES_MAX; i++) {
        QosReportPolicy *policy = &report->policies[report->policy_count++];

        policy->policy = qos_policies[i];
        policy->state = qos_sched_policy_state(sched, policy->policy, &policy->queued);
    }
    report->rules = qos_rules_ref(qos_sched_rules(sched));
    qos_gate_unlock(gate);
    report->rule_states = g_new0(QosRuleState, qos_rules_count(report->rules));
    for (guint i = 0; i < qos_rules_count(report->rules); i++) {
        qos_sched_rule_state(qos_gate_lock(gate), qos_rules_get(report->rules, i)->id,
                             &report->rule_states[i]);
        qos_gate_unlock(gate);
    }
}

QosReport *qos_report_new(QosFs *fs, const QosTunables *tunables, QosTime started,
                          QosReportJobs jobs)
{
    QosReport *report = g_new0(QosReport, 1);

    report->started = started;
    report->source = fs->source;
    report->mountpoint = fs->mountpoint;
    report->pid = getpid();
    report->inodes = qos_inodes_count(fs->inodes);
    report->callers = qos_callers_count(fs->callers);
    qos_tunables_copy(&report->tunables, tunables);
    take_rules(report, fs->gate);
    qos_report_take_cluster(&report->cluster, fs->gate, jobs == QOS_REPORT_ALL_JOBS);
    if (fs->shared_rules)
        qos_shared_rules_fault(fs->shared_rules, report->cluster.fault);
    qos_report_take_adapt(&report->adapt, fs->gate);
    report->jobs = jobs == QOS_REPORT_ALL_JOBS ? qos_report_copy_jobs(fs->gate, &report->adapt)
                                               : g_ptr_array_new();
    if (jobs == QOS_REPORT_JOB_COUNTS)
        count_jobs(fs->gate, &report->counts);
    qos_sched_state(qos_gate_lock(fs->gate), &report->slots);
    qos_gate_unlock(fs->gate);
    qos_gate_histograms(fs->gate, &report->histograms);
    report->is_shared = fs->lockclient != NULL;
    if (report->is_shared)
        qos_lockclient_status(fs->lockclient, &report->sharing);
    report->wall = g_get_real_time() * QOS_MICROSECOND;
    report->now = qos_clock_now();
    return report;
}

void qos_report_free(QosReport *report)
{
    if (!report)
        return;
    qos_tunables_clear(&report->tunables);
    qos_rules_unref(report->rules);
    g_free(report->rule_states);
    qos_report_cluster_clear(&report->cluster);
    g_ptr_array_unref(report->jobs);
    qos_report_adapt_clear(&report->adapt);
    g_free(report);
}

const char *qos_report_limit(const QosReport *report, const QosJob *job)
{
    const QosWait *latest = NULL;

    for (guint i = 0; i < job->wait_count; i++) {
        if (!latest || job->wait[i].last > latest->last)
            latest = &job->wait[i];
    }
    if (!latest || (!job->sched.use.waiting && report->now - latest->last > RECENT))
        return NULL;
    return latest->rule_name;
}

QosTime qos_report_wall(const QosReport *report, QosTime time)
{
    return report->wall - (report->now - time);
}
