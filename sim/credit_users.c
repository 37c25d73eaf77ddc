/*
 * The users of the credit trial. At random they get credits, convert and use them, put them, give
 * back what is cached, and give up waiting.
 */
#include "base/bytes.h"
#include "sim/trial_credit.h"

#define INODES 6 /* that are renamed between: the fewer, the more conflicts */

QosTime qos_credit_soon(const QosNode *node, guint milliseconds)
{
    return qos_node_now(node) + qos_cluster_random(node->cluster, milliseconds) * QOS_MILLISECOND;
}

static QosCredit random_want(QosCluster *cluster, const QosResourceType *type)
{
    const gboolean writes = qos_cluster_chance(cluster, 400);
    guint32 bits;

    switch (type->shape) {
    case QOS_SHAPE_MODES:
        bits = 1 + qos_cluster_random(cluster, 7);
        return (QosCredit){.reads = bits, .writes = writes ? bits : 0};
    case QOS_SHAPE_SPANS:
        bits = type->divisible ? 0 : qos_cluster_random(cluster, 8);
        return qos_credit_span(bits, bits + qos_cluster_random(cluster, 4),
                               writes || type->divisible);
    default:
        return (QosCredit){.amount = 1 + qos_cluster_random(cluster, QOS_OBSERVED_AMOUNT * 2 / 3)};
    }
}

/* The hold that the user asks for, or has asked for last. */
static QosHold *asked(QosCreditUser *user)
{
    return user->next ? &user->before : &user->hold;
}

void qos_credit_user_settle(QosNode *node, QosCreditUser *user, QosCreditVerdict verdict,
                            QosTime delay)
{
    static const char *const verdicts[] = {
        [QOS_CREDIT_GRANTED] = "granted", [QOS_CREDIT_WAITING] = "waits",
        [QOS_CREDIT_DENIED] = "denied",   [QOS_CREDIT_RETRY] = "to come back",
        [QOS_CREDIT_ERROR] = "no lender",
    };
    QosCreditWorld *world = node->cluster->arg;
    const QosHold *hold = asked(user);

    user->due = qos_credit_soon(node, user->next ? 20 : 300);
    if (verdict != QOS_CREDIT_WAITING)
        qos_credit_clear(qos_observer_type(&world->observer, user->resource), &user->want);
    switch (verdict) {
    case QOS_CREDIT_WAITING:
        return;
    case QOS_CREDIT_GRANTED:
        user->state = QOS_USER_HOLDING;
        qos_observer_granted(&world->observer, node, user->resource, &hold->credit, hold->token);
        /* The grant came after the callback, which no longer wants this part: only the rest is
         * dropped, as in fs/lockengine/recall.c. */
        qos_observer_type(&world->observer, user->resource)
            ->yield(&((QosCreditNode *)node->state)->wanted[user->resource], &hold->credit);
        break;
    default:
        user->state = user->hold.book || user->before.book ? QOS_USER_HOLDING : QOS_USER_IDLE;
        user->next = 0;
        user->due += delay;
    }
    qos_cluster_trace(node->cluster, node, "user %d: %s",
                      (int)(user - ((QosCreditNode *)node->state)->users), verdicts[verdict]);
}

static void ask(QosNode *node, QosCreditUser *user, const QosCredit *want, guint flags)
{
    QosCreditWorld *world = node->cluster->arg;
    QosCreditNode *state = node->state;
    const QosResource *resource = &world->observer.resources[user->resource];
    const QosResourceType *type = qos_observer_type(&world->observer, user->resource);
    QosHold *hold = asked(user);
    g_autofree char *text = qos_credit_text(type, want);

    qos_cluster_trace(node->cluster, node, "user %d: get %s %s", (int)(user - state->users),
                      type->name, text);
    *hold = (QosHold){.user = user, .after = user->before.book ? &user->before : NULL};
    user->state = QOS_USER_WAITING;
    qos_credit_user_settle(
        node, user, qos_credit_get(state->owner, qos_node_now(node), resource, want, flags, hold),
        0);
}

static gboolean is_rename(const QosNode *node, const QosCreditUser *user)
{
    const QosCreditWorld *world = node->cluster->arg;

    return world->renames && user->resource == QOS_RESOURCE_INODES;
}

/* Asks for the inode of a directory, as fs/coherence/op_credits.c does it. */
static void get_inode(QosNode *node, QosCreditUser *user, guint place)
{
    QosCredit want = qos_credit_span(place, place, qos_cluster_chance(node->cluster, 600));

    ask(node, user, &want, QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &want);
}

static void get_first(QosNode *node, QosCreditUser *user)
{
    const guint place = qos_cluster_random(node->cluster, INODES);

    user->next = place + qos_cluster_random(node->cluster, INODES - place); /* or the same */
    if (user->next == place)
        user->next = 0;
    get_inode(node, user, place);
}

static void get_second(QosNode *node, QosCreditUser *user)
{
    const guint place = user->next;

    user->next = 0;
    get_inode(node, user, place);
}

static void get(QosNode *node, QosCreditUser *user)
{
    static const guint flags[] = {0,
                                  0,
                                  0,
                                  QOS_CREDIT_NON_BLOCK_LOCAL,
                                  QOS_CREDIT_NON_BLOCK_REMOTE,
                                  QOS_CREDIT_RESERVE,
                                  QOS_CREDIT_WAIT};
    QosCluster *cluster = node->cluster;
    QosCreditWorld *world = cluster->arg;

    user->resource = (world->first + qos_cluster_random(cluster, world->hot)) % QOS_OBSERVED;
    user->is_wanted = FALSE;
    user->next = 0; /* of a rename that lost the first */
    if (is_rename(node, user)) {
        get_first(node, user);
        return;
    }
    const QosResourceType *type = qos_observer_type(&world->observer, user->resource);
    QosCredit want = random_want(cluster, type);
    ask(node, user, &want, flags[qos_cluster_random(cluster, G_N_ELEMENTS(flags))]);
    qos_credit_clear(type, &want);
}

static void convert(QosNode *node, QosCreditUser *user)
{
    QosCreditWorld *world = node->cluster->arg;
    QosCreditNode *state = node->state;
    const QosResourceType *type = qos_observer_type(&world->observer, user->resource);
    QosCredit want = random_want(node->cluster, type);
    g_autofree char *text = qos_credit_text(type, &want);

    qos_cluster_trace(node->cluster, node, "user %d: convert to %s", (int)(user - state->users),
                      text);
    user->state = QOS_USER_CONVERTING;
    user->since = node->cluster->now;
    user->want = want;
    qos_credit_user_settle(
        node, user, qos_credit_convert(state->owner, qos_node_now(node), &want, 0, &user->hold), 0);
}

/* Sends what it does under its credit to the store. */
static void use(QosNode *node, QosCreditUser *user)
{
    QosCreditWorld *world = node->cluster->arg;
    GByteArray *bytes = g_byte_array_new();

    qos_bytes_put_u32(bytes, user->resource);
    qos_bytes_put_u64(bytes, user->hold.token);
    qos_observer_type(&world->observer, user->resource)->encode(&user->hold.credit, bytes);
    qos_node_send(node, world->store, g_byte_array_free_to_bytes(bytes));
    user->due = qos_credit_soon(node, 200);
}

/* Puts a hold; those of a rename one after the other. */
static void put(QosNode *node, QosCreditUser *user)
{
    QosCreditNode *state = node->state;
    QosHold *hold = user->hold.book || user->hold.request ? &user->hold : &user->before;

    if (user->before.book && qos_cluster_chance(node->cluster, 500))
        hold = &user->before;
    qos_cluster_trace(node->cluster, node, "user %d: put", (int)(user - state->users));
    qos_credit_put(state->owner, qos_node_now(node), hold);
    user->next = 0;
    if (!user->hold.request)
        user->state = user->hold.book || user->before.book ? QOS_USER_HOLDING : QOS_USER_IDLE;
    user->due = qos_credit_soon(node, 300);
}

/* Gives back what is cached of a resource without a callback. */
static void give_back(QosNode *node, QosCreditUser *user)
{
    QosCreditWorld *world = node->cluster->arg;
    QosCreditNode *state = node->state;
    const guint resource = qos_cluster_random(node->cluster, QOS_OBSERVED);
    const QosResourceType *type = qos_observer_type(&world->observer, resource);
    QosCredit theirs = random_want(node->cluster, type);

    qos_cluster_trace(node->cluster, node, "gives back %s", type->name);
    qos_credit_cancel(state->owner, qos_node_now(node), &world->observer.resources[resource],
                      &theirs, qos_cluster_chance(node->cluster, 500));
    qos_credit_clear(type, &theirs);
    user->due = qos_credit_soon(node, 300);
}

void qos_credit_user_act(QosNode *node, QosCreditUser *user)
{
    QosCluster *cluster = node->cluster;
    const QosCreditNode *state = node->state;
    const guint dice = qos_cluster_random(cluster, 100);
    const gboolean ends = cluster->now > QOS_CLUSTER_TROUBLE * 5 / 4;

    switch (user->state) {
    case QOS_USER_IDLE:
        if (ends)
            user->due = QOS_NEVER;
        else if (dice < 10)
            give_back(node, user);
        else
            get(node, user);
        return;
    case QOS_USER_WAITING: /* some give up */
        if (dice < 5)
            put(node, user);
        else
            user->due = qos_credit_soon(node, 1000);
        return;
    case QOS_USER_CONVERTING:
        user->due = QOS_NEVER;
        return;
    case QOS_USER_HOLDING:
        if (!qos_owner_is_alive(state->owner, qos_node_now(node)))
            user->due = qos_credit_soon(node, 100);
        else if (user->next)
            get_second(node, user);
        else if (dice < 40 && !user->is_wanted && !ends && user->hold.book)
            use(node, user);
        else if (dice < 70 && !user->is_wanted && !ends && !is_rename(node, user) &&
                 user->resource != QOS_RESOURCE_IDENTIFIER &&
                 user->resource != QOS_RESOURCE_QUANTITY)
            convert(node, user);
        else
            put(node, user);
    }
}
