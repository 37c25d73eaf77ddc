/*
 * The slots of the store (fs/slots.h).
 */
#include "fs/slots.h"

gboolean qos_slots_are_taken(QosSlots *slots, guint depth, QosTime now)
{
    while (slots->running - slots->stalled.length >= depth && qos_slots_next_stall(slots) <= now) {
        GList *link = g_queue_pop_head_link(&slots->inside);
        QosRequest *request = link->data;
        request->has_stalled = TRUE;
        slots->cost -= request->cost;
        g_queue_push_tail_link(&slots->stalled, link);
    }
    return slots->running - slots->stalled.length >= depth;
}

QosTime qos_slots_next_stall(const QosSlots *slots)
{
    if (slots->stalled.length >= QOS_STALLED_MAX)
        return QOS_NEVER;
    return qos_time_add(qos_slots_oldest(slots), slots->stall_time);
}

gboolean qos_slots_may_exceed(const QosSlots *slots, const QosRequest *request)
{
    return request->job->sched.use.over_limit < QOS_OVER_LIMIT_MAX &&
           slots->over_limit < QOS_OVER_LIMIT_ALL &&
           (request->user == NULL || request->user->use.over_limit < QOS_OVER_LIMIT_USER);
}

static void run(QosSlots *slots, const QosRequest *request, gint change)
{
    slots->running += (guint)change;
    request->job->sched.use.running += (guint)change;
    if (request->user != NULL)
        request->user->use.running += (guint)change;
}

void qos_slots_grant(QosSlots *slots, QosRequest *request)
{
    request->has_slot = TRUE;
    run(slots, request, 1);
}

void qos_slots_count_over_limit(QosSlots *slots, const QosRequest *request, gint change)
{
    slots->over_limit += (guint)change;
    request->job->sched.use.over_limit += (guint)change;
    if (request->user != NULL)
        request->user->use.over_limit += (guint)change;
}

void qos_slots_enter(QosSlots *slots, QosRequest *request, QosTime now)
{
    request->state = QOS_REQUEST_RUNNING;
    request->start = now;
    if (!request->has_slot)
        return;
    g_queue_push_tail_link(&slots->inside, &request->link);
    slots->cost += request->cost;
}

void qos_slots_give_back(QosSlots *slots, QosRequest *request)
{
    if (request->is_over_limit)
        qos_slots_count_over_limit(slots, request, -1);
    if (request->has_slot) {
        run(slots, request, -1);
        if (request->has_stalled) {
            g_queue_unlink(&slots->stalled, &request->link);
        } else if (request->state == QOS_REQUEST_RUNNING) {
            g_queue_unlink(&slots->inside, &request->link);
            slots->cost -= request->cost;
        }
    }
    request->is_over_limit = request->has_slot = request->has_stalled = FALSE;
}
