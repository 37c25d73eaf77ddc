/*
 * What is told to the scheduler and asked of it, each under the gate's lock (fs/gate/gate.h).
 */
#include <stddef.h>
#include <string.h>

#include "fs/gate/state.h"

#define ACTIVE_RATE 0.05 /* op/s */

void qos_gate_set_policy(QosGate *gate, const QosPolicyClass *policy)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    qos_sched_set_policy(gate->sched, policy, now);
    qos_gate_wake_leader_locked(gate, now);
    qos_mutex_unlock(&gate->lock);
}

QosPolicyState qos_gate_policy_state(QosGate *gate, const QosPolicyClass *policy, guint *ret_queued)
{
    qos_mutex_lock(&gate->lock);
    QosPolicyState state = qos_sched_policy_state(gate->sched, policy, ret_queued);
    qos_mutex_unlock(&gate->lock);
    return state;
}

void qos_gate_set_rules(QosGate *gate, QosRules *rules)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    qos_sched_set_rules(gate->sched, rules, now);
    qos_gate_wake_leader_locked(gate, now);
    qos_mutex_unlock(&gate->lock);
}

QosRules *qos_gate_rules(QosGate *gate)
{
    qos_mutex_lock(&gate->lock);
    QosRules *rules = qos_rules_ref(qos_sched_rules(gate->sched));
    qos_mutex_unlock(&gate->lock);
    return rules;
}

gboolean qos_gate_rule_state(QosGate *gate, guint64 rule_id, QosRuleState *ret_state)
{
    qos_mutex_lock(&gate->lock);
    gboolean found = qos_sched_rule_state(gate->sched, rule_id, ret_state);
    qos_mutex_unlock(&gate->lock);
    return found;
}

void qos_gate_set_slots(QosGate *gate, guint slots)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_set_slots(gate->sched, slots, qos_gate_now());
    qos_gate_wake_leader_locked(gate, qos_gate_now());
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_set_parked_max(QosGate *gate, guint64 bytes)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_set_parked_max(gate->sched, bytes);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_set_background_room(QosGate *gate, guint requests)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_set_background_room(gate->sched, requests);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_set_request_memory(QosGate *gate, guint64 bytes)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_set_request_memory(gate->sched, bytes);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_set_max_wait(QosGate *gate, QosTime max_wait)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_set_max_wait(gate->sched, max_wait);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_set_adapt(QosGate *gate, const QosAdaptConfig *config)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    qos_sched_set_adapt(gate->sched, config, now);
    qos_gate_wake_leader_locked(gate, now);
    qos_mutex_unlock(&gate->lock);
}

static gboolean has_totals(const QosShareTotals *totals)
{
    return totals->lent || totals->returned || totals->borrowed || totals->repaid;
}

/* FALSE where it has none; its totals are 0 then. */
static gboolean take_share(const QosAdapt *adapt, const QosJob *job, QosGateShare *share)
{
    share->takes_part = qos_adapt_share_state(adapt, job, &share->state);
    share->period = qos_adapt_config(adapt)->period;
    g_strlcpy(share->job, job->id, sizeof(share->job));
    g_strlcpy(share->partner, share->state.partner ? share->state.partner->id : "",
              sizeof(share->partner));
    share->state.partner = NULL;
    return share->takes_part || has_totals(&share->state.totals);
}

GPtrArray *qos_gate_changed_shares(QosGate *gate, QosShareChanges *seen, gboolean *ret_is_all)
{
    GPtrArray *jobs = NULL;

    qos_mutex_lock(&gate->lock);
    const QosAdapt *adapt = qos_sched_adapt(gate->sched);
    const QosShareChanges changes = qos_adapt_changes(adapt);
    *ret_is_all = changes.others != seen->others;
    if (*ret_is_all)
        jobs = qos_account_list(qos_sched_account(gate->sched));
    else if (changes.members != seen->members)
        jobs = qos_adapt_list(adapt);
    *seen = changes;
    qos_mutex_unlock(&gate->lock);
    return jobs;
}

gboolean qos_gate_copy_share(QosGate *gate, const QosJob *job, gint64 *ret_record,
                             QosShareTotals *ret_totals)
{
    QosShareState state;

    qos_mutex_lock(&gate->lock);
    const gboolean takes_part = qos_adapt_share_state(qos_sched_adapt(gate->sched), job, &state);
    qos_mutex_unlock(&gate->lock);
    *ret_record = state.record;
    *ret_totals = state.totals;
    return takes_part || has_totals(&state.totals);
}

void qos_gate_adapt(QosGate *gate, QosGateAdapt *ret_adapt)
{
    QosSchedState state;

    qos_mutex_lock(&gate->lock);
    const QosAdapt *adapt = qos_sched_adapt(gate->sched);
    qos_sched_state(gate->sched, &state);
    *ret_adapt = (QosGateAdapt){
        .config = *qos_adapt_config(adapt),
        .capacity = qos_adapt_capacity(adapt),
        .reserved = qos_adapt_reserved(adapt),
        .depth = MIN(state.slots, qos_adapt_depth(adapt)),
        .members = qos_adapt_count(adapt),
    };
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_restore_share(QosGate *gate, const char *id, gint64 record,
                            const QosShareTotals *totals)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    QosJob *job = qos_account_job(qos_sched_account(gate->sched), id, now);
    qos_sched_restore_share(gate->sched, job, record, totals, now);
    qos_job_unref(job);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_set_job_cleanup_interval(QosGate *gate, QosTime interval)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_account(gate->sched)->cleanup_interval = interval;
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_state(QosGate *gate, QosSchedState *ret_state)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_state(gate->sched, ret_state);
    qos_mutex_unlock(&gate->lock);
}

GPtrArray *qos_gate_jobs(QosGate *gate)
{
    qos_mutex_lock(&gate->lock);
    GPtrArray *jobs = qos_account_list(qos_sched_account(gate->sched));
    qos_mutex_unlock(&gate->lock);
    return jobs;
}

QosJob *qos_gate_find_job(QosGate *gate, const char *id)
{
    qos_mutex_lock(&gate->lock);
    QosJob *job = qos_account_find(qos_sched_account(gate->sched), id);
    qos_mutex_unlock(&gate->lock);
    return job;
}

/* The lock is taken for each job, as for a copy. */
void qos_gate_count_jobs(QosGate *gate, QosGateJobCounts *ret_counts)
{
    g_autoptr(GPtrArray) jobs = qos_gate_jobs(gate);
    const QosTime now = qos_gate_now();

    *ret_counts = (QosGateJobCounts){.all = jobs->len};
    for (guint i = 0; i < jobs->len; i++) {
        const QosJob *job = g_ptr_array_index(jobs, i);
        double operations, bytes;

        qos_mutex_lock(&gate->lock);
        const gboolean waits = job->waiting > 0;
        const gboolean runs = job->use.running > 0;
        qos_job_rates(job, now, &operations, &bytes);
        qos_mutex_unlock(&gate->lock);
        ret_counts->waiting += waits;
        ret_counts->active += waits || runs || operations >= ACTIVE_RATE;
    }
}

gboolean qos_gate_copy_job(QosGate *gate, const QosJob *job, QosJob *ret_copy,
                           QosGateShare *ret_share)
{
    /* The atomic ones, which change without the lock, come before it. */
    const gsize start = offsetof(QosJob, nodes);

    ret_copy->references = 0;
    ret_copy->open_files = (guint)g_atomic_int_get(&job->open_files);
    ret_copy->opens_refused = (guint)g_atomic_int_get(&job->opens_refused);
    qos_mutex_lock(&gate->lock);
    memcpy((char *)ret_copy + start, (const char *)job + start, sizeof(*job) - start);
    qos_job_rates(job, qos_gate_now(), &ret_copy->operation_rate, &ret_copy->byte_rate);
    gboolean has_share = take_share(qos_sched_adapt(gate->sched), job, ret_share);
    ret_copy->share.totals = ret_share->state.totals;
    qos_mutex_unlock(&gate->lock);
    return has_share;
}

guint qos_gate_clear_jobs(QosGate *gate, const char *id)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    guint count = qos_sched_clear_jobs(gate->sched, id, now);
    qos_gate_wake_leader_locked(gate, now); /* to tell of it */
    qos_mutex_unlock(&gate->lock);
    return count;
}

void qos_gate_restore_job(QosGate *gate, const QosJob *totals)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_gate_now();
    QosJob *job = qos_account_job(qos_sched_account(gate->sched), totals->id, now);
    qos_job_restore(job, totals, now);
    qos_job_unref(job);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_histograms(QosGate *gate, QosGateHistograms *ret_histograms)
{
    qos_mutex_lock(&gate->lock);
    *ret_histograms = gate->histograms;
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_on_change(QosGate *gate, void (*changed)(QosGateChanges changes, void *arg),
                        void *arg)
{
    qos_mutex_lock(&gate->lock);
    gate->changed = changed;
    gate->changed_arg = arg;
    qos_gate_wake_leader_locked(gate, qos_gate_now()); /* to tell of what has changed before */
    qos_mutex_unlock(&gate->lock);
}
