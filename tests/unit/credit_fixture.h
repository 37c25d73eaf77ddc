/*
 * A cluster of owners in virtual time, with a network between them that may lose, repeat, delay and
 * reorder messages. Node 1 is the root; each other node is below the lender that it is told.
 */
#pragma once

#include "core/credit.h"

#define NODES 8
#define LEASE (10 * QOS_SECOND)

typedef struct {
    QosTime due;
    QosOwnerId from, to;
    GByteArray *bytes;
} Letter;

typedef struct Cluster Cluster;

typedef struct {
    QosOwnerConfig config;
    QosOwner *owner; /* NULL: down */
    gint64 drift;    /* of its clock, in millionths */
    gboolean is_deaf;
    gboolean agrees; /* to callbacks, at once */
    void (*conflicted)(Cluster *c, QosOwnerId id, const QosOutput *output); /* NULL is allowed */
    guint conflicts, lost;
    QosCredit wanted;    /* by the last conflict, of modes and amounts */
    GHashTable *clients; /* the durable list */
} Node;

struct Cluster {
    Node nodes[NODES + 1];
    QosTime now, latency;
    GPtrArray *letters; /* of Letter, by age */
    GRand *random;
    guint loss, repeat; /* percent */
    QosTime jitter;
    guint64 messages; /* that were sent */
    guint longest;    /* of them, bytes */
};

/* A hold with what became of it. */
typedef struct {
    QosHold hold;
    QosCreditVerdict verdict;
    QosTime delay;
} Use;

/* What the node's clock shows. */
static QosTime clock_of(const Cluster *c, QosOwnerId id)
{
    return c->now + c->now / 1000 * c->nodes[id].drift / 1000;
}

/* When its clock will show `local`, or a little later. */
static QosTime time_of(const Cluster *c, QosOwnerId id, QosTime local)
{
    if (local == QOS_NEVER)
        return QOS_NEVER;
    QosTime wait = MAX(local - clock_of(c, id), 0);
    return c->now + wait / 1000 * 1000000 / (1000000 + c->nodes[id].drift) * 1000 + 2000;
}

static void letter_free(Letter *letter)
{
    g_byte_array_unref(letter->bytes);
    g_free(letter);
}

static void post(Cluster *c, QosOwnerId from, QosOwnerId to, const QosCreditMessage *message)
{
    guint copies = 1;

    c->messages++;
    if (c->random != NULL && g_rand_int_range(c->random, 0, 100) < (gint)c->loss)
        copies = 0;
    else if (c->random != NULL && g_rand_int_range(c->random, 0, 100) < (gint)c->repeat)
        copies = 2;
    for (guint i = 0; i < copies; i++) {
        Letter *letter = g_new0(Letter, 1);
        *letter = (Letter){.due = c->now + c->latency, .from = from, .to = to};
        if (c->jitter > 0)
            letter->due += (QosTime)(g_rand_double(c->random) * (double)c->jitter);
        letter->bytes = g_byte_array_new();
        qos_credit_message_encode(message, letter->bytes);
        c->longest = MAX(c->longest, letter->bytes->len);
        g_ptr_array_add(c->letters, letter);
    }
}

/* Does what the owner hands out. */
static void drain(Cluster *c, QosOwnerId id)
{
    Node *node = &c->nodes[id];
    QosOutput output;

    while (node->owner != NULL && qos_owner_output(node->owner, &output)) {
        Use *use = (Use *)output.hold;
        switch (output.kind) {
        case QOS_OUTPUT_SEND:
            post(c, id, output.peer, output.message);
            break;
        case QOS_OUTPUT_DONE:
            use->verdict = output.verdict;
            use->delay = output.delay;
            break;
        case QOS_OUTPUT_CONFLICT:
            node->conflicts++;
            node->wanted = output.credit;
            if (node->conflicted != NULL)
                node->conflicted(c, id, &output);
            if (node->agrees)
                qos_credit_cancel(node->owner, clock_of(c, id), &output.resource, &output.credit,
                                  FALSE);
            break;
        case QOS_OUTPUT_LOST:
            node->lost++;
            break;
        case QOS_OUTPUT_SAVE:
            g_hash_table_add(node->clients, GUINT_TO_POINTER(output.peer));
            qos_owner_saved(node->owner, output.peer, clock_of(c, id));
            break;
        case QOS_OUTPUT_FORGET:
            g_hash_table_remove(node->clients, GUINT_TO_POINTER(output.peer));
            break;
        }
    }
}

static void deliver(Cluster *c, Letter *letter)
{
    Node *node = &c->nodes[letter->to];
    QosCreditMessage message;

    g_assert_true(qos_credit_message_decode(&message, letter->bytes->data, letter->bytes->len));
    if (node->owner != NULL && !node->is_deaf && !c->nodes[letter->from].is_deaf)
        qos_owner_receive(node->owner, letter->from, &message, clock_of(c, letter->to));
    qos_credit_message_clear(&message);
    drain(c, letter->to);
}

/* The next thing to happen up to `until`: FALSE if there is none. */
static gboolean step(Cluster *c, QosTime until)
{
    guint first = 0;
    QosTime due = until;
    QosOwnerId ticks = 0;

    for (guint i = 0; i < c->letters->len; i++) {
        const Letter *letter = c->letters->pdata[i];
        if (letter->due < ((const Letter *)c->letters->pdata[first])->due)
            first = i;
    }
    if (c->letters->len > 0)
        due = MIN(due, ((const Letter *)c->letters->pdata[first])->due);
    for (QosOwnerId id = 1; id <= NODES; id++) {
        if (c->nodes[id].owner == NULL)
            continue;
        QosTime next = time_of(c, id, qos_owner_next(c->nodes[id].owner));
        if (next >= due)
            continue;
        due = next;
        ticks = id;
    }
    c->now = MAX(c->now, due);
    if (ticks != 0) {
        qos_owner_tick(c->nodes[ticks].owner, clock_of(c, ticks));
        drain(c, ticks);
        return TRUE;
    }
    if (c->letters->len == 0 || ((const Letter *)c->letters->pdata[first])->due > due)
        return FALSE;
    Letter *letter = g_ptr_array_steal_index(c->letters, first);
    deliver(c, letter);
    letter_free(letter);
    return TRUE;
}

static void run(Cluster *c, QosTime duration)
{
    QosTime until = c->now + duration;

    for (QosOwnerId id = 1; id <= NODES; id++)
        drain(c, id);
    while (step(c, until))
        ;
}

static void start(Cluster *c, QosOwnerId id)
{
    Node *node = &c->nodes[id];
    g_autofree QosOwnerId *clients = g_new(QosOwnerId, g_hash_table_size(node->clients) + 1);
    GHashTableIter iter;
    gpointer client;
    guint count = 0;

    g_hash_table_iter_init(&iter, node->clients);
    while (g_hash_table_iter_next(&iter, &client, NULL))
        clients[count++] = GPOINTER_TO_UINT(client);
    node->owner = qos_owner_new(&node->config, clients, count, clock_of(c, id));
    drain(c, id);
}

/* Without a word. */
G_GNUC_UNUSED static void crash(Cluster *c, QosOwnerId id)
{
    g_clear_pointer(&c->nodes[id].owner, qos_owner_free);
    c->nodes[id].config.incarnation++;
}

static QosOwnerConfig *node_config(Cluster *c, QosOwnerId id, QosOwnerId above)
{
    QosOwnerConfig *config = &c->nodes[id].config;

    qos_owner_config_init(config, id, 1);
    config->above = above;
    config->lease = LEASE;
    config->lends = id <= 3; /* by convention: 1 is the root, 2 and 3 may be between */
    return config;
}

static void cluster_init(Cluster *c)
{
    *c = (Cluster){.now = QOS_SECOND, .latency = QOS_MILLISECOND};
    c->letters = g_ptr_array_new_with_free_func((GDestroyNotify)letter_free);
    for (QosOwnerId id = 1; id <= NODES; id++)
        c->nodes[id].clients = g_hash_table_new(NULL, NULL);
    node_config(c, 1, 0);
}

static void cluster_clear(Cluster *c)
{
    for (QosOwnerId id = 1; id <= NODES; id++) {
        qos_owner_free(c->nodes[id].owner);
        g_hash_table_unref(c->nodes[id].clients);
    }
    g_ptr_array_unref(c->letters);
    g_clear_pointer(&c->random, g_rand_free);
}

static QosResource inode(guint8 number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODE, &number, 1);
    return resource;
}

static const QosCredit reading = {.reads = QOS_INODE_ATTRIBUTES};
static const QosCredit writing = {.reads = QOS_INODE_ATTRIBUTES, .writes = QOS_INODE_ATTRIBUTES};

static gboolean is_alive(const Cluster *c, QosOwnerId id)
{
    return qos_owner_is_alive(c->nodes[id].owner, clock_of(c, id));
}

static QosCreditVerdict get_of(Cluster *c, QosOwnerId id, QosResource resource, QosCredit want,
                               guint flags, Use *use)
{
    memset(use, 0, sizeof(*use));
    use->verdict =
        qos_credit_get(c->nodes[id].owner, clock_of(c, id), &resource, &want, flags, &use->hold);
    drain(c, id);
    return use->verdict;
}

static QosCreditVerdict get(Cluster *c, QosOwnerId id, QosCredit want, guint flags, Use *use)
{
    return get_of(c, id, inode(7), want, flags, use);
}

G_GNUC_UNUSED static QosCreditVerdict convert(Cluster *c, QosOwnerId id, QosCredit want,
                                              guint flags, Use *use)
{
    use->verdict =
        qos_credit_convert(c->nodes[id].owner, clock_of(c, id), &want, flags, &use->hold);
    drain(c, id);
    return use->verdict;
}

static void put(Cluster *c, QosOwnerId id, Use *use)
{
    qos_credit_put(c->nodes[id].owner, clock_of(c, id), &use->hold);
    drain(c, id);
}

/* A get that has ended after `duration`. */
G_GNUC_UNUSED static QosCreditVerdict got(Cluster *c, QosOwnerId id, QosCredit want, guint flags,
                                          Use *use)
{
    get(c, id, want, flags, use);
    run(c, 100 * QOS_MILLISECOND);
    return use->verdict;
}

/* A root and `count` mounts, from 4 on. */
G_GNUC_UNUSED static void mounts_init(Cluster *c, guint count)
{
    cluster_init(c);
    start(c, 1);
    for (QosOwnerId id = 4; id < 4 + count; id++) {
        node_config(c, id, 1);
        start(c, id);
    }
    run(c, 10 * QOS_MILLISECOND);
    for (QosOwnerId id = 4; id < 4 + count; id++)
        g_assert_true(is_alive(c, id));
}

/* The root's: all of what is free of conflict, and 1000 of each amount. */
static inline void quantities(const QosResource *resource, QosCredit *ret_credit,
                              gpointer arg G_GNUC_UNUSED)
{
    switch (qos_resource_type(resource->type)->shape) {
    case QOS_SHAPE_MODES:
        *ret_credit = (QosCredit){.reads = G_MAXUINT32, .writes = G_MAXUINT32};
        break;
    case QOS_SHAPE_SPANS:
        *ret_credit = qos_credit_span(0, G_MAXUINT64, TRUE);
        break;
    case QOS_SHAPE_AMOUNT:
        ret_credit->amount = 1000;
        break;
    }
}
