/*
 * The checks of the credit observer (sim/credit_observer.h). While all clocks are within the bound,
 * no two owners may use conflicting credits. However wrong the clocks are, the store refuses a use
 * if it has taken a conflicting use that was granted later.
 */
#include "sim/credit_observer.h"

const QosResourceType *qos_observer_type(const QosObserver *observer, guint resource)
{
    return qos_resource_type(observer->resources[resource].type);
}

void qos_observer_init(QosObserver *observer, const QosOwner *(*owner)(const QosNode *node))
{
    *observer = (QosObserver){.owner = owner};
    G_STATIC_ASSERT(QOS_OBSERVED == QOS_RESOURCE_TYPES);
    for (guint i = 0; i < QOS_OBSERVED; i++) {
        qos_resource_init(&observer->resources[i], i, "thing", 5);
        observer->grants[i] = g_array_new(FALSE, FALSE, sizeof(QosObservation));
        observer->uses[i] = g_array_new(FALSE, FALSE, sizeof(QosObservation));
    }
}

static void free_observations(const QosResourceType *type, GArray *observations)
{
    for (guint i = 0; i < observations->len; i++)
        qos_credit_clear(type, &g_array_index(observations, QosObservation, i).credit);
    g_array_free(observations, TRUE);
}

void qos_observer_clear(QosObserver *observer)
{
    for (guint i = 0; i < QOS_OBSERVED; i++) {
        free_observations(qos_observer_type(observer, i), observer->grants[i]);
        free_observations(qos_observer_type(observer, i), observer->uses[i]);
        for (guint j = 0; j < QOS_OBSERVED_NODES; j++)
            qos_credit_clear(qos_observer_type(observer, i), &observer->usable[j][i]);
    }
}

/* Somebody else's that conflicts, under a token that is not smaller; or NULL. */
static const QosObservation *find_later(const QosResourceType *type, const GArray *observations,
                                        const QosNode *node, const QosCredit *credit,
                                        QosToken token)
{
    for (guint i = 0; i < observations->len; i++) {
        const QosObservation *seen = &g_array_index(observations, QosObservation, i);
        if (seen->node != node && seen->token >= token && type->conflicts(&seen->credit, credit))
            return seen;
    }
    return NULL;
}

/* Instead of those of the same node that it stands for as well. */
static void note(const QosResourceType *type, GArray *observations, const QosNode *node,
                 const QosCredit *credit, QosToken token)
{
    const QosObservation now = {node, token, qos_credit_copy(type, credit)};

    for (guint i = observations->len; i-- > 0;) {
        QosObservation *seen = &g_array_index(observations, QosObservation, i);
        if (seen->node == node && seen->token <= token && type->matches(&seen->credit, credit)) {
            qos_credit_clear(type, &seen->credit);
            g_array_remove_index_fast(observations, i);
        }
    }
    g_array_append_val(observations, now);
}

void qos_observer_granted(QosObserver *observer, const QosNode *node, guint resource,
                          const QosCredit *credit, QosToken token)
{
    const QosResourceType *type = qos_observer_type(observer, resource);
    const QosObservation *later = find_later(type, observer->grants[resource], node, credit, token);

    if (later && qos_faults_keep_time(&node->cluster->faults))
        qos_cluster_fail(node->cluster,
                         "%s is granted %s under token %" G_GINT64_MODIFIER
                         "x, and %s was before it under %" G_GINT64_MODIFIER "x",
                         node->name, type->name, token, later->node->name, later->token);
    note(type, observer->grants[resource], node, credit, token);
}

gboolean qos_observer_is_late(const QosObserver *observer, const QosNode *node, guint resource,
                              const QosCredit *credit, QosToken token)
{
    return find_later(qos_observer_type(observer, resource), observer->uses[resource], node, credit,
                      token) != NULL;
}

void qos_observer_used(QosObserver *observer, const QosNode *node, guint resource,
                       const QosCredit *credit, QosToken token)
{
    if (qos_observer_is_late(observer, node, resource, credit, token))
        qos_cluster_fail(node->cluster,
                         "the store takes what %s does after its credit has passed on", node->name);
    note(qos_observer_type(observer, resource), observer->uses[resource], node, credit, token);
}

/* In its grace a lender uses nothing, and grants nothing. */
static gboolean may_use(const QosObserver *observer, const QosNode *node)
{
    const QosOwner *owner = observer->owner(node);

    return owner && qos_owner_is_alive(owner, qos_node_now(node)) && !qos_owner_in_grace(owner);
}

static void check_conflict(QosObserver *observer, const QosNode *node, const QosNode *other,
                           guint resource)
{
    const QosResourceType *type = qos_observer_type(observer, resource);
    const QosCredit *mine = &observer->usable[node->number][resource];
    const QosCredit *theirs = &observer->usable[other->number][resource];

    if (!type->conflicts(mine, theirs))
        return;
    g_autofree char *one = qos_credit_text(type, mine);
    g_autofree char *two = qos_credit_text(type, theirs);
    qos_cluster_fail(node->cluster, "%s may use %s of %s, and %s may use %s", node->name, one,
                     type->name, other->name, two);
}

/* With all others', if it has changed. Theirs change with their steps, or end with their leases. */
static void check_resource(QosObserver *observer, const QosNode *node, guint resource)
{
    const QosResourceType *type = qos_observer_type(observer, resource);
    const GPtrArray *nodes = node->cluster->nodes;
    QosCredit *mine = &observer->usable[node->number][resource];
    QosCredit now = {0};
    guint64 sum = 0;

    if (may_use(observer, node))
        now = qos_credit_owned(observer->owner(node), &observer->resources[resource]);
    const gboolean is_same = qos_credit_equal(type, mine, &now);
    qos_credit_clear(type, mine);
    *mine = now;
    if (is_same)
        return;
    for (guint i = 0; i < nodes->len; i++) {
        const QosNode *other = nodes->pdata[i];
        if (other != node && may_use(observer, other))
            check_conflict(observer, node, other, resource);
        if (type->shape == QOS_SHAPE_AMOUNT && may_use(observer, other))
            sum += observer->usable[i][resource].amount;
    }
    if (sum > QOS_OBSERVED_AMOUNT)
        qos_cluster_fail(node->cluster, "there are %d, and they have %d", QOS_OBSERVED_AMOUNT,
                         (int)sum);
}

void qos_observer_check(QosObserver *observer, const QosNode *node)
{
    const QosOwner *owner = observer->owner(node);

    if (owner && !node->parent) {
        if (qos_owner_token(owner) < observer->newest)
            qos_cluster_fail(node->cluster, "the root's tokens begin anew");
        observer->newest = qos_owner_token(owner);
    }
    if (!qos_faults_keep_time(&node->cluster->faults))
        return;
    for (guint i = 0; i < QOS_OBSERVED; i++)
        check_resource(observer, node, i);
}

typedef struct {
    const QosObserver *observer;
    QosOwnerId borrower;
    QosCredit lent[QOS_OBSERVED];
} Lent;

static void add_lent(QosOwnerId borrower, const QosResource *resource, const QosCredit *credit,
                     QosToken token G_GNUC_UNUSED, gpointer data)
{
    Lent *lent = data;

    for (guint i = 0; i < QOS_OBSERVED; i++)
        if (borrower == lent->borrower &&
            qos_resource_equal(resource, &lent->observer->resources[i]))
            qos_observer_type(lent->observer, i)->join(&lent->lent[i], credit);
}

void qos_observer_check_books(QosObserver *observer, QosCluster *cluster)
{
    for (guint i = 0; i < cluster->nodes->len; i++) {
        const QosNode *node = cluster->nodes->pdata[i];
        const QosOwner *lender = node->parent ? observer->owner(node->parent) : NULL;
        Lent lent = {.observer = observer, .borrower = node->number + 1};
        if (!lender || !observer->owner(node))
            continue;
        qos_owner_each_sublet(lender, add_lent, &lent);
        for (guint j = 0; j < QOS_OBSERVED; j++) {
            const QosResourceType *type = qos_observer_type(observer, j);
            if (may_use(observer, node) &&
                !type->matches(&observer->usable[node->number][j], &lent.lent[j]))
                qos_cluster_fail(cluster, "%s has of %s what %s has not lent to it", node->name,
                                 type->name, node->parent->name);
            qos_credit_clear(type, &lent.lent[j]);
        }
    }
}
