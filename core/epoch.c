/*
 * What all epoch handlers have in common. core/epoch.h has the contract.
 */
#include <errno.h>

#include "core/epoch.h"

void qos_epoch_free(QosEpochHandler *handler)
{
    if (handler != NULL)
        handler->class->free(handler);
}

void qos_epoch_message_clear(QosEpochMessage *message)
{
    g_clear_pointer(&message->data, g_bytes_unref);
}

static void clear_action(gpointer action)
{
    qos_epoch_message_clear(&((QosEpochAction *)action)->message);
}

GArray *qos_epoch_actions_new(void)
{
    GArray *actions = g_array_new(FALSE, FALSE, sizeof(QosEpochAction));

    g_array_set_clear_func(actions, clear_action);
    return actions;
}

gboolean qos_epoch_take_call_back(GArray *actions, QosEpochMessage *ret_message)
{
    for (guint i = 0; i < actions->len; i++) {
        QosEpochAction *action = &g_array_index(actions, QosEpochAction, i);

        if (action->to != QOS_EPOCH_HERE)
            continue;
        *ret_message = action->message;
        action->message.data = NULL;
        g_array_remove_index(actions, i);
        return TRUE;
    }
    return FALSE;
}

static gboolean is_too_long(GBytes *data)
{
    return data != NULL && g_bytes_get_size(data) > QOS_EPOCH_DATA_MAX;
}

int qos_epoch_next(QosEpochHandler *handler, gint64 epoch, GBytes *data, QosTime now, GArray *out)
{
    if (epoch < 0 || epoch > handler->epoch)
        return -EINVAL;
    if (is_too_long(data))
        return -EMSGSIZE;

    g_autoptr(GBytes) some = data != NULL ? g_bytes_ref(data) : g_bytes_new(NULL, 0);
    return handler->class->next(handler, epoch, some, now, out);
}

int qos_epoch_last(QosEpochHandler *handler, gint64 epoch, QosTime now, GArray *out)
{
    if (epoch < 0 || epoch > handler->epoch)
        return -EINVAL;
    return handler->class->last(handler, epoch, now, out);
}

gboolean qos_epoch_receive(QosEpochHandler *handler, guint64 from, const QosEpochMessage *message,
                           QosTime now, GArray *out)
{
    if (from == QOS_EPOCH_HERE || is_too_long(message->data))
        return FALSE;
    return handler->class->receive(handler, from, message, now, out);
}

QosTime qos_epoch_tick(QosEpochHandler *handler, QosTime now, GArray *out)
{
    return handler->class->tick(handler, now, out);
}
