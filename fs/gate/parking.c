/*
 * The tables of parked requests, by the lock that the kernel holds for them.
 *
 * When a job comes to want a lock, the requests that hold it must be found among tens of thousands.
 * So they are parked in queues, one for each lock. A request that was boosted, or that arrived when
 * its lock was already contended, is parked in the queue of lock 0, because it cannot be boosted
 * again.
 */
#include "fs/gate/state.h"

QosParkedQueue *qos_gate_queue_of_locked(QosGate *gate, guint64 lock)
{
    return g_hash_table_lookup(gate->parked, &lock);
}

static QosParkedQueue *add_queue_locked(QosGate *gate, guint64 lock)
{
    QosParkedQueue *queue = g_new0(QosParkedQueue, 1);

    queue->lock = lock;
    queue->link.data = queue;
    g_hash_table_add(gate->parked, queue);
    g_atomic_int_add(&gate->lock_queues, lock != 0);
    g_queue_push_tail_link(&gate->queues, &queue->link);
    return queue;
}

static void join_locked(QosGate *gate, QosEntry *entry, guint64 lock)
{
    entry->queue = qos_gate_queue_of_locked(gate, lock) ?: add_queue_locked(gate, lock);
    entry->parked = (GList){.data = entry};
    g_queue_push_tail_link(&entry->queue->entries, &entry->parked);
}

static void drop_if_empty_locked(QosGate *gate, QosParkedQueue *queue)
{
    if (queue->entries.length > 0)
        return;
    g_atomic_int_add(&gate->lock_queues, -(queue->lock != 0));
    g_queue_unlink(&gate->queues, &queue->link);
    g_hash_table_remove(gate->parked, queue);
}

QosEntry *qos_gate_join_parked_locked(QosGate *gate, QosEntry *entry)
{
    entry->parking = QOS_ENTRY_PARKED;
    join_locked(gate, entry, entry->request.holds_lock ? 0 : entry->request.lock);
    return qos_gate_join_thread_locked(gate, entry);
}

void qos_gate_leave_parked_locked(QosGate *gate, QosEntry *entry)
{
    g_queue_unlink(&entry->queue->entries, &entry->parked);
    drop_if_empty_locked(gate, entry->queue);
    qos_gate_leave_thread_locked(gate, entry);
}

void qos_gate_change_queue_locked(QosGate *gate, QosEntry *entry, guint64 lock)
{
    QosParkedQueue *last = entry->queue;

    g_queue_unlink(&last->entries, &entry->parked);
    join_locked(gate, entry, lock);
    drop_if_empty_locked(gate, last);
}

void qos_gate_take_back_locked(QosGate *gate, QosEntry *entry)
{
    const QosTime now = qos_clock_now();

    entry->parking = QOS_ENTRY_CANCELLED;
    qos_gate_leave_parked_locked(gate, entry);
    qos_sched_cancel(gate->sched, &entry->request, now);
    qos_gate_wake_leader_locked(gate, now); /* it may have had a slot */
}

QosEntry *qos_gate_any_parked_locked(QosGate *gate)
{
    const QosParkedQueue *queue = g_queue_peek_head(&gate->queues);

    return queue != NULL ? queue->entries.head->data : NULL;
}
