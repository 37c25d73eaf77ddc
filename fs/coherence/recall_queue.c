/*
 * The order in which a mount forgets. fs/coherence/recall_queue.h has the contract.
 */
#include "fs/coherence/recall_queue.h"

static GArray *array_new(void)
{
    return g_array_new(FALSE, FALSE, sizeof(QosRecall));
}

void qos_recall_queue_init(QosRecallQueue *queue)
{
    queue->urgent = array_new();
    queue->shrinks = array_new();
}

void qos_recall_queue_clear(QosRecallQueue *queue)
{
    qos_recall_queue_free(queue->urgent);
    qos_recall_queue_free(queue->shrinks);
}

void qos_recall_queue_free(GArray *taken)
{
    for (guint i = 0; i < taken->len; i++) {
        QosRecall *loss = &g_array_index(taken, QosRecall, i);

        qos_credit_clear(qos_resource_type(loss->resource.type), &loss->credit);
    }
    g_array_unref(taken);
}

void qos_recall_queue_add(QosRecallQueue *queue, const QosResource *resource,
                          const QosCredit *credit, QosRecallKind kind)
{
    const QosRecall loss = {.resource = *resource,
                            .credit = qos_credit_copy(qos_resource_type(resource->type), credit),
                            .kind = kind};

    g_array_append_val(kind == QOS_RECALL_SHRINK ? queue->shrinks : queue->urgent, loss);
}

void qos_recall_queue_make_urgent(QosRecallQueue *queue, const QosResource *resource)
{
    for (guint i = 0; i < queue->shrinks->len; i++) {
        const QosRecall loss = g_array_index(queue->shrinks, QosRecall, i);

        if (qos_resource_equal(&loss.resource, resource)) {
            g_array_append_val(queue->urgent, loss);
            g_array_remove_index(queue->shrinks, i);
            return;
        }
    }
}

GArray *qos_recall_queue_take(QosRecallQueue *queue)
{
    GArray *taken = queue->urgent;

    if (taken->len > 0) {
        queue->urgent = array_new();
        return taken;
    }
    const guint count = MIN(queue->shrinks->len, QOS_RECALL_SLICE);
    if (count == 0)
        return NULL;
    taken = array_new();
    g_array_append_vals(taken, queue->shrinks->data, count);
    g_array_remove_range(queue->shrinks, 0, count);
    return taken;
}
