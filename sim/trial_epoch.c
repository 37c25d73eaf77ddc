/*
 * Epochs over a tree of three levels (core/epoch.h): a coordinator, combiners, and participants.
 * The schedulers of the participants ask for one epoch after the other with random data.
 *
 * An observer sees all participants at once, and records the data that each epoch begins with.
 */
#include <string.h>

#include "core/epoch.h"
#include "sim/trial.h"

#define COMBINERS    2
#define PARTICIPANTS 3 /* of each combiner */
#define TIMEOUT      (200 * QOS_MILLISECOND)
#define PATIENCE     (2 * QOS_SECOND)

/* What a participant hands in: sums and maxima may be taken in any order. */
typedef struct {
    guint64 sum, largest;
} Data;

/* What the observer knows of a participant. */
typedef struct {
    gint64 last;        /* epoch that began there, in all its lives */
    gboolean is_strict; /* the one after that comes next */
    QosTime began;      /* `last`, by the cluster's clock */
} Seen;

typedef struct {
    GHashTable *begun; /* epoch -> GBytes, as it began first */
    gboolean forgets;  /* broken: the coordinator does not know that it was there before */
} Observer;

typedef struct {
    QosEpochHandler *handler;
    GArray *actions;
    gint64 epoch; /* of the scheduler here */
    gboolean is_waiting;
    QosTime since; /* it waits */
    QosTime pause; /* until it is ready again */
    QosTime next;  /* when the handler has something to do */
} State;

static void combine(void *combined, const void *a, gsize a_length G_GNUC_UNUSED, const void *b,
                    gsize b_length G_GNUC_UNUSED)
{
    const Data *one = a, *other = b;
    const Data sum = {one->sum + other->sum, MAX(one->largest, other->largest)};

    memcpy(combined, &sum, sizeof(sum));
}

static gboolean is_participant(const QosNode *node)
{
    return node->parent && node->parent->parent;
}

/* --- what must hold --- */

static void note_begin(QosNode *node, gint64 epoch, GBytes *data)
{
    Observer *observer = node->cluster->arg;
    Seen *seen = node->arg;
    GBytes *first = g_hash_table_lookup(observer->begun, &epoch);
    const gboolean same_life = seen->last >> QOS_EPOCH_COUNT_BITS == epoch >> QOS_EPOCH_COUNT_BITS;

    if (!first)
        g_hash_table_insert(observer->begun, g_memdup2(&epoch, sizeof(epoch)), g_bytes_ref(data));
    else if (!g_bytes_equal(first, data))
        qos_cluster_fail(node->cluster,
                         "epoch %" G_GINT64_MODIFIER "x begins at %s with other data", epoch,
                         node->name);
    if (epoch <= seen->last)
        qos_cluster_fail(node->cluster,
                         "%s begins epoch %" G_GINT64_MODIFIER "x after %" G_GINT64_MODIFIER "x",
                         node->name, epoch, seen->last);
    if (seen->is_strict && same_life && epoch != seen->last + 1)
        qos_cluster_fail(node->cluster, "%s has missed an epoch before %" G_GINT64_MODIFIER "x",
                         node->name, epoch);
    *seen = (Seen){.last = epoch, .is_strict = TRUE, .began = node->cluster->now};
}

static void check(QosCluster *cluster, QosNode *node)
{
    const State *state = node->state;

    if (state && state->is_waiting && qos_node_now(node) > state->since + PATIENCE)
        qos_cluster_fail(cluster, "%s has waited for longer than its patience", node->name);
}

/* Each live participant takes part again, if its combiner and the coordinator live. */
static void settled(QosCluster *cluster)
{
    for (guint i = 0; i < cluster->nodes->len; i++) {
        const QosNode *node = cluster->nodes->pdata[i];
        const Seen *seen = node->arg;
        if (!is_participant(node) || node->is_dead || node->parent->is_dead ||
            node->parent->parent->is_dead)
            continue;
        if (seen->began < QOS_CLUSTER_TROUBLE * 3 / 2)
            qos_cluster_fail(cluster, "%s has not come back into the epochs", node->name);
    }
}

/* --- nodes --- */

static void call_back(QosNode *node, const QosEpochMessage *message)
{
    State *state = node->state;

    if (!state->is_waiting)
        qos_cluster_fail(node->cluster, "%s is called back twice", node->name);
    state->is_waiting = FALSE;
    state->pause = qos_node_now(node) + qos_cluster_random(node->cluster, 300) * QOS_MILLISECOND;
    if (message->type == QOS_EPOCH_START) {
        qos_cluster_trace(node->cluster, node, "epoch %" G_GINT64_MODIFIER "x begins",
                          message->epoch);
        state->epoch = message->epoch;
        note_begin(node, message->epoch, message->data);
        return;
    }
    qos_cluster_trace(node->cluster, node, "no epoch: %s", g_strerror((int)-message->epoch));
    state->epoch = QOS_EPOCH_FIRST;
    ((Seen *)node->arg)->is_strict = FALSE;
}

static void send_message(QosNode *node, guint64 to, const QosEpochMessage *message)
{
    GByteArray *bytes = g_byte_array_new();

    qos_epoch_encode(message, bytes);
    qos_node_send(node, node->cluster->nodes->pdata[to - 1], g_byte_array_free_to_bytes(bytes));
}

/* Does what the handler has handed out, and lets time pass. */
static void go_on(QosNode *node)
{
    State *state = node->state;

    state->next = qos_epoch_tick(state->handler, qos_node_now(node), state->actions);
    for (guint i = 0; i < state->actions->len; i++) {
        const QosEpochAction *action = &g_array_index(state->actions, QosEpochAction, i);
        if (action->to == QOS_EPOCH_HERE)
            call_back(node, &action->message);
        else
            send_message(node, action->to, &action->message);
    }
    g_array_set_size(state->actions, 0);
    qos_node_wake_at(node, is_participant(node) && !state->is_waiting
                               ? MIN(state->next, state->pause)
                               : state->next);
}

static void start(QosNode *node)
{
    const Observer *observer = node->cluster->arg;
    const gboolean forgets = observer->forgets && !node->parent;
    const QosEpochConfig config = {.parent = node->parent ? node->parent->number + 1 : 0,
                                   .incarnation = forgets ? 1 : node->incarnation,
                                   .timeout = node->parent ? TIMEOUT : 3 * TIMEOUT,
                                   .retry = 50 * QOS_MILLISECOND,
                                   .patience = PATIENCE,
                                   .reduction = {.combine = combine}};
    State *state = g_new0(State, 1);

    *state = (State){.handler = qos_epoch_tree_new(&config), .actions = qos_epoch_actions_new()};
    node->state = state;
    if (node->arg)
        ((Seen *)node->arg)->is_strict = FALSE;
    go_on(node);
}

static void stop(QosNode *node)
{
    State *state = node->state;

    qos_epoch_free(state->handler);
    g_array_unref(state->actions);
    g_free(state);
}

static void receive(QosNode *node, QosNode *from, GBytes *bytes)
{
    State *state = node->state;
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);
    QosEpochMessage message;

    if (!qos_epoch_decode(data, length, &message)) {
        qos_cluster_fail(node->cluster, "%s cannot decode a message of %s", node->name, from->name);
        return;
    }
    qos_epoch_receive(state->handler, from->number + 1, &message, qos_node_now(node),
                      state->actions);
    qos_epoch_message_clear(&message);
    go_on(node);
}

/* Leaves its peers, to come back as a new one. */
static void leave(QosNode *node)
{
    State *state = node->state;

    qos_cluster_trace(node->cluster, node, "leaves");
    if (qos_epoch_last(state->handler, state->epoch, qos_node_now(node), state->actions) != 0)
        qos_cluster_fail(node->cluster, "%s may not leave", node->name);
    state->epoch = QOS_EPOCH_FIRST;
    ((Seen *)node->arg)->is_strict = FALSE;
}

static void wake(QosNode *node)
{
    State *state = node->state;
    const QosTime now = qos_node_now(node);

    if (is_participant(node) && !state->is_waiting && now >= state->pause) {
        const guint value = qos_cluster_random(node->cluster, 1000);
        const Data data = {value, value};
        g_autoptr(GBytes) bytes = g_bytes_new(&data, sizeof(data));
        if (state->epoch != QOS_EPOCH_FIRST && qos_cluster_chance(node->cluster, 50))
            leave(node);
        state->is_waiting = TRUE;
        state->since = now;
        qos_cluster_trace(node->cluster, node, "is ready for the next epoch");
        if (qos_epoch_next(state->handler, state->epoch, bytes, now, state->actions) != 0)
            qos_cluster_fail(node->cluster, "%s may not be ready", node->name);
    }
    go_on(node);
}

static char *describe(GBytes *bytes)
{
    static const char *const names[] = {"?", "READY", "LEAVE", "START", "REFUSE"};
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);
    QosEpochMessage message = {0};

    qos_epoch_decode(data, length, &message);
    char *text = g_strdup_printf("%s epoch %" G_GINT64_MODIFIER "x ticket %" G_GINT64_MODIFIER "x",
                                 names[message.type], message.epoch, message.ticket);
    qos_epoch_message_clear(&message);
    return text;
}

static const QosNodeClass node_class = {start, stop, receive, wake, describe};

/* --- the trial --- */

static void build(QosCluster *cluster, const char *broken)
{
    Observer *observer = g_new0(Observer, 1);
    QosNode *coordinator = qos_cluster_add(cluster, &node_class, NULL, "root");

    observer->begun =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, (GDestroyNotify)g_bytes_unref);
    observer->forgets = g_strcmp0(broken, "incarnation") == 0;
    cluster->arg = observer;
    for (guint i = 0; i < COMBINERS; i++) {
        QosNode *combiner = qos_cluster_add(cluster, &node_class, coordinator, "server%u", i);
        for (guint j = 0; j < PARTICIPANTS; j++)
            qos_cluster_add(cluster, &node_class, combiner, "mount%u", i * PARTICIPANTS + j)->arg =
                g_new0(Seen, 1);
    }
}

static void clear(QosCluster *cluster)
{
    Observer *observer = cluster->arg;

    g_hash_table_unref(observer->begun);
    g_free(observer);
}

static const char *const rules[] = {"incarnation", NULL};

const QosTrial qos_trial_epoch = {
    .name = "epoch",
    .promise =
        "an epoch begins with the same data everywhere, once, in order; each call is answered",
    .rules = rules,
    .settles = PATIENCE + 5 * TIMEOUT,
    .build = build,
    .clear = clear,
    .check = check,
    .settled = settled,
};
