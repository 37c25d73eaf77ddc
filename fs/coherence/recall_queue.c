/*
 * The order in which a mount forgets. fs/coherence/recall_queue.h has the contract.
 */
#include "fs/coherence/recall_queue.h"

static GArray *array_new(void)
{
    return g_array_new(FALSE, FALSE, sizeof(QosLoss));
}

void qos_losses_init(QosLosses *losses)
{
    losses->urgent = array_new();
    losses->shrinks = array_new();
}

void qos_losses_clear(QosLosses *losses)
{
    qos_losses_free(losses->urgent);
    qos_losses_free(losses->shrinks);
}

void qos_losses_free(GArray *taken)
{
    for (guint i = 0; i < taken->len; i++) {
        QosLoss *loss = &g_array_index(taken, QosLoss, i);

        qos_credit_clear(qos_resource_type(loss->resource.type), &loss->credit);
    }
    g_array_unref(taken);
}

void qos_losses_add(QosLosses *losses, const QosResource *resource, const QosCredit *credit,
                    QosLossKind kind)
{
    const QosLoss loss = {.resource = *resource,
                          .credit = qos_credit_copy(qos_resource_type(resource->type), credit),
                          .kind = kind};

    g_array_append_val(kind == QOS_LOSS_SHRINK ? losses->shrinks : losses->urgent, loss);
}

void qos_losses_hurry(QosLosses *losses, const QosResource *resource)
{
    for (guint i = 0; i < losses->shrinks->len; i++) {
        const QosLoss loss = g_array_index(losses->shrinks, QosLoss, i);

        if (qos_resource_equal(&loss.resource, resource)) {
            g_array_append_val(losses->urgent, loss);
            g_array_remove_index(losses->shrinks, i);
            return;
        }
    }
}

GArray *qos_losses_take(QosLosses *losses)
{
    GArray *taken = losses->urgent;

    if (taken->len > 0) {
        losses->urgent = array_new();
        return taken;
    }
    const guint count = MIN(losses->shrinks->len, QOS_LOSSES_SLICE);
    if (count == 0)
        return NULL;
    taken = array_new();
    g_array_append_vals(taken, losses->shrinks->data, count);
    g_array_remove_range(losses->shrinks, 0, count);
    return taken;
}
