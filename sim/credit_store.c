/*
 * The store of the credit trial. It takes a use under a credit, unless it has already taken a
 * conflicting use under a later token (fencing).
 */
#include "base/bytes.h"
#include "sim/trial_credit.h"

gboolean qos_credit_world_is_broken(const QosCluster *cluster, const char *rule)
{
    return g_strcmp0(((const QosCreditWorld *)cluster->arg)->broken, rule) == 0;
}

static void start(QosNode *node)
{
    node->state = node;
}

static void stop(QosNode *node G_GNUC_UNUSED)
{
}

static void receive(QosNode *node, QosNode *from, GBytes *bytes)
{
    QosCreditWorld *world = node->cluster->arg;
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);
    QosToken token = 0;
    guint32 resource = 0;
    QosCredit credit = {0};

    qos_bytes_take_u32(&data, &length, &resource);
    qos_bytes_take_u64(&data, &length, &token);
    const QosResourceType *type = qos_observer_type(&world->observer, resource);
    type->decode(&credit, &data, &length);
    if (qos_credit_world_is_broken(node->cluster, "fencing") ||
        !qos_observer_is_late(&world->observer, from, resource, &credit, token))
        qos_observer_used(&world->observer, from, resource, &credit, token);
    else
        qos_cluster_trace(node->cluster, node, "refuses it: there was a later token");
    qos_credit_clear(type, &credit);
}

static char *describe(GBytes *bytes G_GNUC_UNUSED)
{
    return g_strdup("a use");
}

const QosNodeClass qos_credit_store_class = {start, stop, receive, stop, describe};
