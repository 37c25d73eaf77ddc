/*
 * The policy `jrr`: round robin over the jobs, one request a turn. Nothing is throttled. A job with
 * a thousand waiting requests delays the next job's request by no more than a turn.
 *
 * The jobs with waiting requests stand in a ring, in order of their turns; a new job enters at the
 * end.
 */
#include "fs/policy.h"

typedef struct {
    GHashTable *turns; /* QosJob -> Turn */
    GQueue ring;       /* of Turn, by its link */
} Jrr;

typedef struct {
    QosJob *job;     /* borrowed from the requests */
    GQueue requests; /* of QosRequest, by its link; never empty */
    GList link;
} Turn;

static void *jrr_init(const QosPolicyContext *context G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED)
{
    Jrr *jrr = g_new0(Jrr, 1);
    jrr->turns = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return jrr;
}

static void jrr_shutdown(void *self G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED)
{
}

static void jrr_fini(void *self)
{
    Jrr *jrr = self;
    g_hash_table_unref(jrr->turns);
    g_free(jrr);
}

static void jrr_incoming(void *self, QosRequest *request, QosTime now G_GNUC_UNUSED)
{
    Jrr *jrr = self;
    Turn *turn = g_hash_table_lookup(jrr->turns, request->job);
    if (turn == NULL) {
        turn = g_new0(Turn, 1);
        turn->job = request->job;
        turn->link.data = turn;
        g_hash_table_insert(jrr->turns, turn->job, turn);
        g_queue_push_tail_link(&jrr->ring, &turn->link);
    }
    request->queue = turn;
    g_queue_push_tail_link(&turn->requests, &request->link);
}

static void remove_if_empty(Jrr *jrr, Turn *turn)
{
    if (turn->requests.length > 0)
        return;
    g_queue_unlink(&jrr->ring, &turn->link);
    g_hash_table_remove(jrr->turns, turn->job);
}

static QosTime jrr_get_next(void *self, QosTime now, QosReadyFunc ready, void *arg)
{
    Jrr *jrr = self;
    GList *link = g_queue_pop_head_link(&jrr->ring);
    if (link == NULL)
        return QOS_NEVER;
    g_queue_push_tail_link(&jrr->ring, link);

    Turn *turn = link->data;
    QosRequest *request = g_queue_pop_head_link(&turn->requests)->data;
    request->queue = NULL;
    remove_if_empty(jrr, turn);
    ready(request, arg);
    return now;
}

static void jrr_cancel(void *self, QosRequest *request, QosTime now G_GNUC_UNUSED)
{
    Turn *turn = request->queue;
    g_queue_unlink(&turn->requests, &request->link);
    request->queue = NULL;
    remove_if_empty(self, turn);
}

const QosPolicyClass qos_policy_jrr = {
    .name = "jrr",
    .init = jrr_init,
    .shutdown = jrr_shutdown,
    .fini = jrr_fini,
    .incoming = jrr_incoming,
    .get_next = jrr_get_next,
    .cancel = jrr_cancel,
};
