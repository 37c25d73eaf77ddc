/*
 * What one epoch costs in a tree: messages, bytes and time, counted with the handlers themselves
 * and compared with the formulas of docs/design/epochs.md. `-m slow` adds trees of 1,000,000
 * participants (0.5 GB); the table is printed.
 *
 * All participants are ready at the time 0. A message is under way for TRAVEL; a node works on one
 * at a time, for WORK to send it and for WORK to receive it. Messages are delivered depth first,
 * which is right because what a node gets comes from one level at a time.
 */
#include "core/epoch.h"

#define TRAVEL (100 * QOS_MICROSECOND)
#define WORK   (2 * QOS_MICROSECOND)
#define DATA   1032 /* bytes, as the policy grr hands in */
#define LEVELS 8

typedef struct {
    QosEpochHandler *handler;
    gint64 epoch;      /* of a participant's scheduler */
    gboolean is_ready; /* in this round */
    gboolean is_waiting;
    QosTime busy; /* until then */
} Node;

typedef struct {
    guint participants;
    guint fan_in;
    guint height;
    guint count; /* of nodes; 0 is the coordinator, the participants are the last */
    Node *nodes;
    GArray *out[2 * LEVELS]; /* for each depth of delivery */
    guint64 messages;
    guint64 bytes;
    QosTime last; /* when the last participant was called back */
    guint called_back;
} Tree;

static void combine(void *combined, const void *a, gsize a_length, const void *b, gsize b_length)
{
    for (gsize i = 0; i < MIN(a_length, b_length) / sizeof(guint64); i++)
        ((guint64 *)combined)[i] = ((const guint64 *)a)[i] + ((const guint64 *)b)[i];
}

/* Nodes are numbered level by level, so that a node's children are next to each other. Handlers
 * know a node by its number plus one, as 0 is HERE. */
static guint parent_of(const Tree *tree, guint node)
{
    return (node - 1) / tree->fan_in;
}

static void tree_init(Tree *tree, guint participants, guint fan_in)
{
    *tree = (Tree){.participants = participants, .fan_in = fan_in, .count = 1};
    for (guint width = 1; width < participants; width *= fan_in) {
        tree->height++;
        tree->count += width * fan_in;
    }
    tree->nodes = g_new0(Node, tree->count);
    for (guint i = 0; i < tree->count; i++) {
        const QosEpochConfig config = {.parent = i > 0 ? parent_of(tree, i) + 1 : QOS_EPOCH_HERE,
                                       .incarnation = 1,
                                       .timeout = QOS_SECOND,
                                       .retry = QOS_SECOND,
                                       .patience = QOS_SECOND,
                                       .reduction = {.combine = combine}};
        tree->nodes[i].handler = qos_epoch_tree_new(&config);
    }
    for (guint depth = 0; depth < G_N_ELEMENTS(tree->out); depth++)
        tree->out[depth] = qos_epoch_actions_new();
}

static void tree_clear(Tree *tree)
{
    for (guint i = 0; i < tree->count; i++)
        qos_epoch_free(tree->nodes[i].handler);
    for (guint depth = 0; depth < G_N_ELEMENTS(tree->out); depth++)
        g_array_unref(tree->out[depth]);
    g_free(tree->nodes);
}

static void call_back(Tree *tree, Node *node, const QosEpochMessage *message)
{
    g_assert_cmpint(message->type, ==, QOS_EPOCH_START);
    node->epoch = message->epoch;
    node->is_waiting = FALSE;
    tree->last = MAX(tree->last, node->busy);
    tree->called_back++;
}

/* Does what the node at `depth` of delivery has handed out. */
static void deliver(Tree *tree, guint from, guint depth)
{
    GArray *out = tree->out[depth];

    for (guint i = 0; i < out->len; i++) {
        const QosEpochAction *action = &g_array_index(out, QosEpochAction, i);

        if (action->to == QOS_EPOCH_HERE) {
            call_back(tree, &tree->nodes[from], &action->message);
            continue;
        }
        Node *sender = &tree->nodes[from];
        Node *receiver = &tree->nodes[action->to - 1];

        tree->messages++;
        tree->bytes += QOS_EPOCH_HEADER + g_bytes_get_size(action->message.data);
        sender->busy += WORK;
        receiver->busy = MAX(receiver->busy, sender->busy + TRAVEL) + WORK;
        g_assert_true(qos_epoch_receive(receiver->handler, from + 1, &action->message, 0,
                                        tree->out[depth + 1]));
        deliver(tree, (guint)(action->to - 1), depth + 1);
    }
    g_array_set_size(out, 0);
}

/* Every participant that is in an epoch is ready for the next. */
static void all_ready(Tree *tree, GBytes *data)
{
    for (guint i = 0; i < tree->count; i++) {
        tree->nodes[i].busy = 0;
        tree->nodes[i].is_ready = !tree->nodes[i].is_waiting;
    }
    tree->messages = tree->bytes = tree->called_back = 0;
    tree->last = 0;
    for (guint i = tree->count - tree->participants; i < tree->count; i++) {
        Node *node = &tree->nodes[i];

        if (!node->is_ready)
            continue;
        node->is_waiting = TRUE;
        g_assert_cmpint(qos_epoch_next(node->handler, node->epoch, data, 0, tree->out[0]), ==, 0);
        deliver(tree, i, 0);
    }
}

static void check_cost(guint participants, guint fan_in)
{
    g_autoptr(GBytes) data = g_bytes_new_take(g_malloc0(DATA), DATA);
    guint rounds = 0;
    Tree tree;

    tree_init(&tree, participants, fan_in);
    do { /* at first they come in one by one, each level in its turn */
        all_ready(&tree, data);
        g_assert_cmpuint(rounds++, <, LEVELS);
    } while (tree.called_back < participants);

    gint64 start = g_get_monotonic_time();
    all_ready(&tree, data);
    gint64 took = g_get_monotonic_time() - start;
    g_assert_cmpuint(tree.called_back, ==, participants);
    guint64 messages = 2 * (guint64)(tree.count - 1);
    g_assert_cmpuint(tree.messages, ==, messages);
    g_assert_cmpuint(tree.bytes, ==, messages * (QOS_EPOCH_HEADER + DATA));
    g_assert_cmpint(tree.last, ==, 2 * (QosTime)tree.height * (TRAVEL + (fan_in + 1) * WORK));
    g_test_message("| %u | %u | %u | %" G_GUINT64_FORMAT " | %.1f MB | %u | %.2f ms | %.2f us |",
                   participants, tree.height, fan_in, tree.messages, (double)tree.bytes / 1e6,
                   2 * fan_in, (double)tree.last / QOS_MILLISECOND,
                   (double)took / (double)participants);
    tree_clear(&tree);
}

static void test_ten(void)
{
    check_cost(10, 10);
}

static void test_thousand(void)
{
    check_cost(1000, 1000);
}

static void test_three_levels(void)
{
    check_cost(8000, 20);
}

static void test_million(void)
{
    check_cost(1000000, 1000);
    check_cost(1000000, 100);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_message("| participants | height | fan-in | messages | bytes | at the coordinator | "
                   "latency | CPU for each |");
    g_test_add_func("/epoch-cost/10", test_ten);
    g_test_add_func("/epoch-cost/1000", test_thousand);
    g_test_add_func("/epoch-cost/8000", test_three_levels);
    if (g_test_slow())
        g_test_add_func("/epoch-cost/1000000", test_million);
    return g_test_run();
}
