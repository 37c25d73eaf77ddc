/*
 * The tables of parked requests, by the lock that the kernel holds for them.
 *
 * When a job comes to want a lock, the requests that hold it must be found among tens of thousands.
 * So they are parked in lines, one for each lock. A request that was boosted, or that arrived when
 * its lock was already wanted, is parked in the line of lock 0, because it cannot be boosted again.
 */
#include "fs/gate/state.h"

QosGateLine *qos_gate_line_locked(QosGate *gate, guint64 lock)
{
    return g_hash_table_lookup(gate->parked, &lock);
}

static QosGateLine *add_line_locked(QosGate *gate, guint64 lock)
{
    QosGateLine *line = g_new0(QosGateLine, 1);

    line->lock = lock;
    line->link.data = line;
    g_hash_table_add(gate->parked, line);
    g_atomic_int_add(&gate->locked_lines, lock != 0);
    g_queue_push_tail_link(&gate->lines, &line->link);
    return line;
}

static void join_locked(QosGate *gate, QosEntry *entry, guint64 lock)
{
    entry->line = qos_gate_line_locked(gate, lock) ?: add_line_locked(gate, lock);
    entry->parked = (GList){.data = entry};
    g_queue_push_tail_link(&entry->line->entries, &entry->parked);
}

static void drop_if_empty_locked(QosGate *gate, QosGateLine *line)
{
    if (line->entries.length > 0)
        return;
    g_atomic_int_add(&gate->locked_lines, -(line->lock != 0));
    g_queue_unlink(&gate->lines, &line->link);
    g_hash_table_remove(gate->parked, line);
}

QosEntry *qos_gate_join_parked_locked(QosGate *gate, QosEntry *entry)
{
    entry->parking = QOS_ENTRY_PARKED;
    join_locked(gate, entry, entry->request.holds_lock ? 0 : entry->request.lock);
    return qos_gate_join_thread_locked(gate, entry);
}

void qos_gate_leave_parked_locked(QosGate *gate, QosEntry *entry)
{
    g_queue_unlink(&entry->line->entries, &entry->parked);
    drop_if_empty_locked(gate, entry->line);
    qos_gate_leave_thread_locked(gate, entry);
}

void qos_gate_change_line_locked(QosGate *gate, QosEntry *entry, guint64 lock)
{
    QosGateLine *last = entry->line;

    g_queue_unlink(&last->entries, &entry->parked);
    join_locked(gate, entry, lock);
    drop_if_empty_locked(gate, last);
}

void qos_gate_take_back_locked(QosGate *gate, QosEntry *entry)
{
    const QosTime now = qos_gate_now();

    entry->parking = QOS_ENTRY_CANCELLED;
    qos_gate_leave_parked_locked(gate, entry);
    qos_sched_cancel(gate->sched, &entry->request, now);
    qos_gate_wake_leader_locked(gate, now); /* it may have had a slot */
}

QosEntry *qos_gate_any_parked_locked(QosGate *gate)
{
    const QosGateLine *line = g_queue_peek_head(&gate->lines);

    return line != NULL ? line->entries.head->data : NULL;
}
