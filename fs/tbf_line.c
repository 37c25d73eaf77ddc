/*
 * Lets queues that wait for the same class take turns.
 *
 * Several queues may wait for one bucket. If all of them stood in the heap by the time of its next
 * token, each token would wake them all, and the same one might get it each time.
 *
 * So queues that wait for a shared class stand in the class's line, and only the first of them
 * stands in the heap of the policy. It is the one that has waited longest since it was last served.
 * A lock holder counts as having waited QOS_DEBT_MAX longer, so it goes before requests that hold
 * nothing. But it does not go before a queue that has waited for that long, and then it may not go
 * into debt before it either. Otherwise one job's lock holders could keep a class in debt, and the
 * other jobs of the class would never have a token. A queue whose other class has tokens later
 * stands in no line, so it holds up no other.
 *
 * Limit: the wait of a lock holder for such a queue may take as long as the class needs to pay its
 * debt.
 */
#include "fs/tbf_private.h"

static QosTbfQueue *first_of(const QosTbfClass *class)
{
    const QosHeapNode *node = qos_heap_peek(class->line);

    return node != NULL ? (QosTbfQueue *)((char *)node - G_STRUCT_OFFSET(QosTbfQueue, turn)) : NULL;
}

void qos_tbf_set_deadline(QosTbf *tbf, QosTbfQueue *queue, QosTime deadline)
{
    if (deadline == QOS_NEVER)
        qos_heap_remove(&tbf->heap, &queue->heap);
    else if (qos_heap_contains(&queue->heap))
        qos_heap_update(&tbf->heap, &queue->heap, deadline);
    else
        qos_heap_push(&tbf->heap, &queue->heap, deadline);
}

/* The line's first queue stands in the heap. When it is due was worked out while others came before
 * it, so it is looked at anew, now. */
static void show_first(QosTbf *tbf, QosTbfClass *class, QosTime now)
{
    QosTbfQueue *const old = class->first, *const first = first_of(class);

    if (first == old)
        return;
    class->first = first;
    if (old != NULL && old->line == class)
        qos_tbf_set_deadline(tbf, old, old->limit);
    if (first != NULL)
        qos_tbf_set_deadline(tbf, first, now);
}

void qos_tbf_line_join(QosTbf *tbf, QosTbfQueue *queue, QosTbfClass *class, QosTime turn,
                       QosTime now)
{
    if (queue->line == class && queue->turn.key == turn)
        return;
    qos_tbf_line_leave(tbf, queue, now);
    if (class->line == NULL) {
        class->line = g_new0(QosHeap, 1);
        qos_heap_init(class->line);
    }
    queue->line = class;
    qos_heap_push(class->line, &queue->turn, turn);
    show_first(tbf, class, now);
}

void qos_tbf_line_leave(QosTbf *tbf, QosTbfQueue *queue, QosTime now)
{
    QosTbfClass *class = queue->line;

    if (class == NULL)
        return;
    queue->line = NULL;
    qos_heap_remove(class->line, &queue->turn);
    show_first(tbf, class, now);
}

void qos_tbf_line_look(QosTbf *tbf, QosTbfClass *class, QosTime now)
{
    if (class != NULL && class->first != NULL)
        qos_tbf_set_deadline(tbf, class->first, now);
}

gboolean qos_tbf_line_is_due(const QosTbfQueue *queue, QosTime now)
{
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        const QosTbfClass *class = queue->classes[layer];

        if (class != NULL && class->first != NULL && class->first != queue &&
            class->first->turn.key < now - QOS_DEBT_MAX)
            return TRUE;
    }
    return FALSE;
}
