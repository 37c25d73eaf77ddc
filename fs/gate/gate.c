/*
 * The way of a request through the gate. fs/gate/gate.h says what the gate is for, and has the
 * states of a parked request.
 */
#include <unistd.h>

#include "fs/gate/state.h"
#include "sys/mutex.h"

QosGate *qos_gate_new(const QosPolicyClass *policy, guint slots, QosTime job_cleanup_interval)
{
    QosGate *gate = g_new0(QosGate, 1);
    QosTime now = qos_clock_now();
    char host[256] = "";

    gethostname(host, sizeof(host) - 1);
    qos_mutex_init_adaptive(&gate->lock, QOS_MUTEX_GATE);
    pthread_cond_init(&gate->lead, NULL);
    pthread_cond_init(&gate->follow, NULL);
    gate->sched = qos_sched_new(policy, slots, host, job_cleanup_interval, now);
    gate->parked = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    gate->threads = qos_gate_threads_new();
    gate->workers = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    gate->housekeeping = now + QOS_GATE_HOUSEKEEPING;
    gate->leader_wake = QOS_NEVER;
    return gate;
}

void qos_gate_free(QosGate *gate)
{
    if (gate == NULL)
        return;
    g_assert(gate->workers->len == 0);
    qos_sched_free(gate->sched);
    qos_budgets_free(gate->budgets);
    g_hash_table_unref(gate->parked);
    g_hash_table_unref(gate->threads);
    g_array_unref(gate->workers);
    pthread_cond_destroy(&gate->follow);
    pthread_cond_destroy(&gate->lead);
    qos_mutex_destroy(&gate->lock);
    g_free(gate);
}

QosBudgets *qos_gate_budgets(QosGate *gate)
{
    return gate->budgets;
}

void qos_gate_set_budgets(QosGate *gate, QosBudgets *budgets)
{
    gate->budgets = budgets;
}

gboolean qos_gate_enter(QosGate *gate, QosEntry *entry)
{
    QosTime wake;

    entry->parking = QOS_ENTRY_ARRIVING;
    qos_mutex_lock(&gate->lock);
    QosVerdict verdict = qos_sched_enter(gate->sched, &entry->request, qos_clock_now(), &wake);
    if (verdict == QOS_GO)
        entry->parking = QOS_ENTRY_RUNNING;
    else
        qos_gate_wake_leader_locked(gate, wake);
    qos_mutex_unlock(&gate->lock);
    return verdict == QOS_GO;
}

gboolean qos_gate_park(QosGate *gate, QosEntry *entry)
{
    GQueue given_up = G_QUEUE_INIT;

    qos_mutex_lock(&gate->lock);
    gboolean is_due = entry->parking == QOS_ENTRY_DUE;
    if (is_due) {
        entry->parking = QOS_ENTRY_RUNNING;
    } else {
        QosEntry *ahead = qos_gate_join_parked_locked(gate, entry);
        if (ahead != NULL && entry->request.holds_lock)
            qos_gate_give_up_locked(gate, ahead, &given_up);
    }
    qos_mutex_unlock(&gate->lock);
    qos_gate_answer_given_up(&given_up);
    return is_due;
}

QosParkPlace qos_gate_park_place(QosGate *gate, QosEntry *entry, gboolean may_be_early)
{
    qos_mutex_lock(&gate->lock);
    /* A request that is already due is about to run, so its data stays in memory, and is not
     * counted. */
    QosParkPlace place = entry->parking == QOS_ENTRY_DUE
                             ? QOS_PARK_IN_MEMORY
                             : qos_sched_park_place(gate->sched, &entry->request, may_be_early);
    if (place == QOS_PARK_NOWHERE || place == QOS_PARK_TOO_MANY) {
        QosTime now = qos_clock_now();
        entry->parking = QOS_ENTRY_CANCELLED;
        qos_sched_cancel(gate->sched, &entry->request, now);
        qos_gate_wake_leader_locked(gate, now);
    }
    qos_mutex_unlock(&gate->lock);
    return place;
}

void qos_gate_note_stored(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_note_stored(gate->sched, &entry->request);
    qos_mutex_unlock(&gate->lock);
}

gboolean qos_gate_is_limited(QosGate *gate, const QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    gboolean is_limited = qos_sched_is_limited(gate->sched, &entry->request, qos_clock_now());
    qos_mutex_unlock(&gate->lock);
    return is_limited;
}

void qos_gate_pause(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    QosTime now = qos_clock_now();
    qos_sched_pause(gate->sched, &entry->request, now);
    if (qos_sched_has_waiting(gate->sched))
        qos_gate_wake_leader_locked(gate, now);
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_go_on(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    qos_sched_go_on(gate->sched, &entry->request, qos_clock_now());
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_resume(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    entry->parked = (GList){.data = entry};
    g_queue_push_tail_link(&gate->resumed, &entry->parked);
    qos_gate_wake_leader_locked(gate, 0);
    qos_mutex_unlock(&gate->lock);
}

gboolean qos_gate_leave(QosGate *gate, QosEntry *entry, guint64 bytes, int error)
{
    const QosRequest *request = &entry->request;
    QosTime now = qos_clock_now();

    qos_mutex_lock(&gate->lock);
    qos_sched_leave(gate->sched, &entry->request, bytes, error, now);
    const QosTime latency = now - request->start;
    qos_histogram_add(&gate->histograms.latency[request->opcode], (guint64)MAX(latency, 0));
    gate->histograms.latency_sum[request->opcode] += latency;
    gboolean do_others_wait = gate->resumed.length > 0 || qos_sched_has_waiting(gate->sched);
    if (!do_others_wait)
        qos_gate_wake_leader_locked(gate, qos_sched_next_period(gate->sched));
    qos_mutex_unlock(&gate->lock);
    return do_others_wait;
}

QosEntry *qos_gate_next(QosGate *gate)
{
    QosTime wake;
    QosEntry *next = NULL;

    qos_mutex_lock(&gate->lock);
    if (!gate->is_stopping) {
        next = qos_gate_take_locked(gate, qos_clock_now(), &wake);
        if (next == NULL)
            qos_gate_wake_leader_locked(gate, wake);
    }
    qos_mutex_unlock(&gate->lock);
    return next;
}

gboolean qos_gate_cancel(QosGate *gate, QosEntry *entry)
{
    qos_mutex_lock(&gate->lock);
    gboolean is_parked = entry->parking == QOS_ENTRY_PARKED;
    if (is_parked)
        qos_gate_take_back_locked(gate, entry);
    qos_mutex_unlock(&gate->lock);
    return is_parked;
}

QosUser *qos_gate_user(QosGate *gate, guint32 uid)
{
    qos_mutex_lock(&gate->lock);
    QosUser *user = qos_jobs_user(qos_sched_jobs(gate->sched), uid);
    qos_mutex_unlock(&gate->lock);
    return user;
}

QosJob *qos_gate_job(QosGate *gate, QosUser *user, const char *id, guint nodes)
{
    QosJobs *jobs = qos_sched_jobs(gate->sched);

    qos_mutex_lock(&gate->lock);
    QosJob *job = qos_jobs_job_for(jobs, user, id, qos_clock_now());
    if (nodes > 0)
        job->nodes = nodes;
    qos_mutex_unlock(&gate->lock);
    return job;
}

gboolean qos_gate_passes_through(QosGate *gate, const QosRequest *request, QosOpcodeSet opcodes)
{
    qos_mutex_lock(&gate->lock);
    gboolean passes = qos_sched_passes_through(gate->sched, request, opcodes);
    qos_mutex_unlock(&gate->lock);
    return passes;
}

void qos_gate_count_passthrough(QosGate *gate, QosJob *job, gint change)
{
    qos_mutex_lock(&gate->lock);
    job->passthrough += (guint)change;
    qos_mutex_unlock(&gate->lock);
}

QosSched *qos_gate_lock(QosGate *gate)
{
    qos_mutex_lock(&gate->lock);
    return gate->sched;
}

void qos_gate_unlock(QosGate *gate)
{
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_unlock_and_wake(QosGate *gate)
{
    qos_gate_wake_leader_locked(gate, qos_clock_now());
    qos_mutex_unlock(&gate->lock);
}

void qos_gate_histograms(QosGate *gate, QosGateHistograms *ret_histograms)
{
    qos_mutex_lock(&gate->lock);
    *ret_histograms = gate->histograms;
    qos_mutex_unlock(&gate->lock);
}
