/*
 * Joins the mounts to the coordinator of their epochs. server/epochs.h has the contract.
 */
#include "server/epochs.h"

#include "fs/policy.h"

/* Three turns of grr: a mount whose requests are long is late by more, and is not waited for. */
#define TIMEOUT (60 * QOS_MILLISECOND)
/* Only nodes with a parent or a scheduler need it. */
#define UNUSED QOS_SECOND

struct QosServerEpochs {
    QosEpochHandler *handler;
    GArray *actions;
    GByteArray *frame;
};

QosServerEpochs *qos_server_epochs_new(guint32 incarnation)
{
    const QosEpochConfig config = {.parent = QOS_EPOCH_HERE,
                                   .incarnation = CLAMP(incarnation, 1, QOS_EPOCH_INCARNATION_MAX),
                                   .timeout = TIMEOUT,
                                   .retry = UNUSED,
                                   .patience = UNUSED,
                                   .reduction = qos_policy_grr.reduction};
    QosServerEpochs *epochs = g_new0(QosServerEpochs, 1);

    epochs->handler = qos_epoch_tree_new(&config);
    epochs->actions = qos_epoch_actions_new();
    epochs->frame = g_byte_array_new();
    return epochs;
}

void qos_server_epochs_free(QosServerEpochs *epochs)
{
    if (epochs == NULL)
        return;
    qos_epoch_free(epochs->handler);
    g_array_unref(epochs->actions);
    g_byte_array_unref(epochs->frame);
    g_free(epochs);
}

/* What a mount says to a coordinator. Data of another length would shorten that of all. */
static gboolean is_from_mount(const QosEpochMessage *message)
{
    switch (message->type) {
    case QOS_EPOCH_READY:
        return message->data != NULL && g_bytes_get_size(message->data) == qos_grr_data_length;
    case QOS_EPOCH_LEAVE:
        return TRUE;
    case QOS_EPOCH_START:
    case QOS_EPOCH_REFUSE:
        break;
    }
    return FALSE;
}

gboolean qos_server_epochs_receive(QosServerEpochs *epochs, QosOwnerId client,
                                   const guint8 *payload, gsize length, QosTime now)
{
    QosEpochMessage message;

    if (!qos_wire_get_epoch(payload, length, &message))
        return FALSE;
    const gboolean is_good = is_from_mount(&message);
    if (is_good)
        qos_epoch_receive(epochs->handler, client, &message, now, epochs->actions);
    qos_epoch_message_clear(&message);
    return is_good;
}

void qos_server_epochs_leave(QosServerEpochs *epochs, QosOwnerId client, QosTime now)
{
    const QosEpochMessage leave = {.type = QOS_EPOCH_LEAVE, .ticket = G_MAXUINT64};

    qos_epoch_receive(epochs->handler, client, &leave, now, epochs->actions);
}

QosTime qos_server_epochs_step(QosServerEpochs *epochs, QosTime now, QosServerEpochsSend send,
                               gpointer arg)
{
    const QosTime next = qos_epoch_tick(epochs->handler, now, epochs->actions);

    for (guint i = 0; i < epochs->actions->len; i++) {
        const QosEpochAction *action = &g_array_index(epochs->actions, QosEpochAction, i);

        g_byte_array_set_size(epochs->frame, 0);
        if (qos_wire_put_epoch(epochs->frame, &action->message))
            send(action->to, epochs->frame, arg);
    }
    g_array_set_size(epochs->actions, 0);
    return next;
}

gint64 qos_server_epochs_latest(const QosServerEpochs *epochs)
{
    return epochs->handler->epoch;
}
