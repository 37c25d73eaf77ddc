/*
 * The policy `fifo`: requests go in order of arrival, and nothing is throttled.
 */
#include "fs/policy.h"

typedef struct {
    GQueue requests; /* of QosRequest, by its link */
} Fifo;

static void *fifo_init(const QosPolicyContext *context G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED)
{
    return g_new0(Fifo, 1);
}

static void fifo_shutdown(void *self G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED)
{
}

static void fifo_fini(void *self)
{
    g_free(self);
}

static gboolean fifo_try_now(void *self, QosRequest *request G_GNUC_UNUSED,
                             QosTime now G_GNUC_UNUSED)
{
    const Fifo *fifo = self;
    return fifo->requests.length == 0;
}

static void fifo_incoming(void *self, QosRequest *request, QosTime now G_GNUC_UNUSED)
{
    Fifo *fifo = self;
    g_queue_push_tail_link(&fifo->requests, &request->link);
}

static QosTime fifo_get_next(void *self, QosTime now, QosReadyFunc ready, void *arg)
{
    Fifo *fifo = self;
    GList *link = g_queue_pop_head_link(&fifo->requests);
    if (link == NULL)
        return QOS_NEVER;
    ready(link->data, arg);
    return now;
}

static void fifo_cancel(void *self, QosRequest *request, QosTime now G_GNUC_UNUSED)
{
    Fifo *fifo = self;
    g_queue_unlink(&fifo->requests, &request->link);
}

const QosPolicyClass qos_policy_fifo = {
    .name = "fifo",
    .init = fifo_init,
    .shutdown = fifo_shutdown,
    .fini = fifo_fini,
    .try_now = fifo_try_now,
    .incoming = fifo_incoming,
    .get_next = fifo_get_next,
    .cancel = fifo_cancel,
};
