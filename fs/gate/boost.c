/*
 * The boost: a job that wants a lock makes the parked requests that hold it go.
 *
 * The first call for a lock boosts the requests of other jobs in its queue: they go into debt as
 * far as their class may owe. Read-ahead that may not owe more is given up (read_ahead.c). Later
 * calls skip what was boosted, because it is in the queue of lock 0 by then.
 *
 * A queue may be as long as the kernel's room for requests in the background. So it is walked in
 * batches, and other threads have the gate in between. Meanwhile some entries may go, be taken
 * back, or come. A job that comes calls for itself, so that no more entries are looked at than
 * there were at first.
 */
#include <errno.h>

#include "fs/gate/state.h"

#define BATCH 128 /* keeps the lock for up to 60 us */

void qos_gate_give_up_locked(QosGate *gate, QosEntry *entry, GQueue *given_up)
{
    if (!entry->request.holds_lock || entry->request.state != QOS_REQUEST_QUEUED)
        return;
    qos_gate_take_back_locked(gate, entry);
    g_queue_push_tail_link(given_up, &entry->parked);
}

void qos_gate_answer_given_up(GQueue *given_up)
{
    for (GList *link; (link = g_queue_pop_head_link(given_up)) != NULL;) {
        QosEntry *entry = link->data;
        entry->cancelled(entry, EAGAIN);
    }
}

/* Boosts the first of a queue, which then leaves it. One of the job itself goes to the end of the
 * queue: other threads must never see a queue end that does not. */
static void boost_one_locked(QosGate *gate, QosParkedQueue *queue, const QosJob *job, QosTime now,
                             GQueue *given_up)
{
    QosEntry *entry = queue->entries.head->data;
    const gboolean is_own = entry->request.job == job;

    if (!is_own)
        qos_sched_boost(gate->sched, &entry->request, now);
    qos_gate_change_queue_locked(gate, entry, is_own ? queue->lock : 0);
    if (!is_own && qos_gate_is_read_ahead_locked(gate, entry))
        qos_gate_give_up_locked(gate, entry, given_up);
}

/* Looks at up to `left` of them. Returns how many are left for the next time. */
static guint boost_some_locked(QosGate *gate, guint64 lock, const QosJob *job, guint left,
                               GQueue *given_up)
{
    const QosTime now = qos_clock_now();

    for (guint i = 0; i < BATCH && left > 0; i++, left--) {
        QosParkedQueue *queue = qos_gate_queue_of_locked(gate, lock);
        if (queue == NULL) {
            left = 0;
            break;
        }
        left = MIN(left, queue->entries.length); /* some may have gone meanwhile */
        boost_one_locked(gate, queue, job, now, given_up);
    }
    qos_gate_wake_leader_locked(gate, now);
    return left;
}

/* A thread that lets go of the lock and takes it again at once is before all that have to wake up
 * for it: with 50,000 to boost they waited for 1 to 3 ms. */
static void let_others_in_locked(QosGate *gate)
{
    qos_mutex_unlock(&gate->lock);
    g_usleep(1);
    qos_mutex_lock(&gate->lock);
}

/* Each open calls this. A request that waits was counted before its thread looked whether other
 * jobs have the file open, and a job that opens it has told that before it calls. */
void qos_gate_boost(QosGate *gate, guint64 lock, const QosJob *job)
{
    GQueue given_up = G_QUEUE_INIT;

    if (g_atomic_int_get(&gate->lock_queues) == 0)
        return;
    qos_mutex_lock(&gate->lock);
    const QosParkedQueue *queue = qos_gate_queue_of_locked(gate, lock);
    guint left = queue != NULL ? queue->entries.length : 0;
    while (left > 0) {
        left = boost_some_locked(gate, lock, job, left, &given_up);
        if (left > 0)
            let_others_in_locked(gate);
    }
    qos_mutex_unlock(&gate->lock);
    qos_gate_answer_given_up(&given_up);
}

QosGateHolder qos_gate_holder(QosGate *gate, guint64 lock, const QosJob *job)
{
    QosGateHolder holder = QOS_GATE_NOBODY;

    if (g_atomic_int_get(&gate->lock_queues) == 0)
        return holder;
    qos_mutex_lock(&gate->lock);
    const QosParkedQueue *queue = qos_gate_queue_of_locked(gate, lock);
    if (queue != NULL) {
        const QosEntry *first = queue->entries.head->data;
        holder = first->request.job == job ? QOS_GATE_THE_JOB : QOS_GATE_ANOTHER;
    }
    qos_mutex_unlock(&gate->lock);
    return holder;
}
