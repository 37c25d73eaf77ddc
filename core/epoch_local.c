/*
 * The local epoch handler (seed 003, 4.3): a lone scheduler is the only participant, so each epoch
 * begins as soon as the scheduler asks for it.
 */
#include <errno.h>

#include "core/epoch.h"

static int local_next(QosEpochHandler *handler, gint64 epoch G_GNUC_UNUSED, GBytes *data,
                      QosTime now G_GNUC_UNUSED, GArray *out)
{
    QosEpochAction action = {.to = QOS_EPOCH_HERE};

    handler->state = QOS_EPOCH_WAITING;
    handler->epoch++;
    action.message = (QosEpochMessage){
        .type = QOS_EPOCH_START, .epoch = handler->epoch, .data = g_bytes_ref(data)};
    g_array_append_val(out, action);
    return 0;
}

static int local_last(QosEpochHandler *handler, gint64 epoch G_GNUC_UNUSED,
                      QosTime now G_GNUC_UNUSED, GArray *out G_GNUC_UNUSED)
{
    if (handler->state == QOS_EPOCH_IDLE)
        return -EINVAL;
    handler->state = QOS_EPOCH_IDLE;
    return 0;
}

static gboolean local_receive(QosEpochHandler *handler G_GNUC_UNUSED, guint64 from G_GNUC_UNUSED,
                              const QosEpochMessage *message G_GNUC_UNUSED,
                              QosTime now G_GNUC_UNUSED, GArray *out G_GNUC_UNUSED)
{
    return FALSE;
}

static QosTime local_tick(QosEpochHandler *handler G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED,
                          GArray *out G_GNUC_UNUSED)
{
    return QOS_NEVER;
}

static void local_free(QosEpochHandler *handler)
{
    g_free(handler);
}

QosEpochHandler *qos_epoch_local_new(void)
{
    static const QosEpochClass local = {
        .next = local_next,
        .last = local_last,
        .receive = local_receive,
        .tick = local_tick,
        .free = local_free,
    };
    QosEpochHandler *handler = g_new0(QosEpochHandler, 1);

    handler->class = &local;
    return handler;
}
