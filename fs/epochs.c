/*
 * Joins the scheduler to a node of the tree of epoch handlers (core/epoch.h) under the lock server.
 *
 * A server that is met again may have forgotten the mount, and so may a peer that was evicted. The
 * handler says so with an error, upon which the policy goes on by its own wish and asks anew.
 */
#include "fs/epochs.h"

/* A turn of grr lasts 20 ms. A message is lost only with its connection. */
#define RETRY    (40 * QOS_MILLISECOND)
#define PATIENCE (250 * QOS_MILLISECOND)
/* Of a coordinator's. This node has no members but the scheduler here. */
#define TIMEOUT (60 * QOS_MILLISECOND)

struct QosEpochs {
    QosOwnerId server;        /* that the handler is for */
    QosEpochHandler *handler; /* NULL: no server was met */
    gboolean is_joined;
    GArray *actions;
    void (*waker)(void *arg);
    void *waker_arg;
};

QosEpochs *qos_epochs_new(void)
{
    QosEpochs *epochs = g_new0(QosEpochs, 1);

    epochs->actions = qos_epoch_actions_new();
    return epochs;
}

void qos_epochs_free(QosEpochs *epochs)
{
    if (epochs == NULL)
        return;
    qos_epoch_free(epochs->handler);
    g_array_unref(epochs->actions);
    g_free(epochs);
}

void qos_epochs_set_waker(QosEpochs *epochs, void (*waker)(void *arg), void *arg)
{
    epochs->waker = waker;
    epochs->waker_arg = arg;
}

/* Another server counts its epochs by its own incarnation, which may be smaller: so the handler,
 * which takes only greater numbers, begins anew. */
static void make_handler(QosEpochs *epochs, QosOwnerId server, guint32 incarnation)
{
    const QosEpochConfig config = {.parent = server,
                                   .incarnation = MIN(incarnation, QOS_EPOCH_INCARNATION_MAX),
                                   .timeout = TIMEOUT,
                                   .retry = RETRY,
                                   .patience = PATIENCE,
                                   .reduction = qos_policy_grr.reduction};

    qos_epoch_free(epochs->handler);
    epochs->handler = qos_epoch_tree_new(&config);
    epochs->server = server;
}

void qos_epochs_join(QosEpochs *epochs, QosSched *sched, QosOwnerId server, guint32 incarnation,
                     QosTime now)
{
    qos_epochs_leave(epochs, sched, now);
    if (epochs->handler == NULL || server != epochs->server)
        make_handler(epochs, server, incarnation);
    epochs->is_joined = epochs->handler != NULL;
    qos_sched_set_epochs(sched, epochs->handler, epochs->actions, epochs->waker, epochs->waker_arg,
                         now);
}

void qos_epochs_leave(QosEpochs *epochs, QosSched *sched, QosTime now)
{
    if (!epochs->is_joined)
        return;
    epochs->is_joined = FALSE;
    qos_sched_set_epochs(sched, NULL, NULL, NULL, NULL, now);
    g_array_set_size(epochs->actions, 0); /* there is nobody to tell that the policy has left */
}

/* Calls the policy back. It may ask again at once. */
static void call_back(QosEpochs *epochs, QosSched *sched, QosTime now)
{
    QosEpochMessage answer;

    while (qos_epoch_take_call_back(epochs->actions, &answer)) {
        gsize length = 0;
        gconstpointer data = answer.data != NULL ? g_bytes_get_data(answer.data, &length) : NULL;

        qos_sched_start_epoch(sched, answer.epoch, data, length, now);
        qos_epoch_message_clear(&answer);
    }
}

gboolean qos_epochs_receive(QosEpochs *epochs, QosSched *sched, const guint8 *payload, gsize length,
                            QosTime now)
{
    QosEpochMessage message;

    if (!qos_wire_get_epoch(payload, length, &message))
        return FALSE;
    if (epochs->is_joined) {
        qos_epoch_receive(epochs->handler, epochs->server, &message, now, epochs->actions);
        call_back(epochs, sched, now);
    }
    qos_epoch_message_clear(&message);
    return TRUE;
}

gboolean qos_epochs_have_messages(const QosEpochs *epochs)
{
    return epochs->actions->len > 0;
}

QosTime qos_epochs_step(QosEpochs *epochs, QosSched *sched, QosTime now, GByteArray *frames)
{
    QosTime next = QOS_NEVER;

    if (epochs->is_joined) {
        next = qos_epoch_tick(epochs->handler, now, epochs->actions);
        call_back(epochs, sched, now);
    }
    for (guint i = 0; i < epochs->actions->len; i++)
        qos_wire_put_epoch(frames, &g_array_index(epochs->actions, QosEpochAction, i).message);
    g_array_set_size(epochs->actions, 0);
    return next;
}
