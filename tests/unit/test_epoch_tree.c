/*
 * A tree of epoch handlers over a network that loses, repeats, delays and reorders, with nodes that
 * crash and come back and links that are cut, both ways or one way, against the promises of
 * core/epoch.h. GLib prints the seed; --seed repeats a run. All messages go as bytes.
 *
 * Each participant hands in a number that it never used before, in its own place of an array; the
 * reduction takes the greater at each place. So what an epoch began with says which participants'
 * data is in it.
 */
#include <errno.h>
#include <string.h>

#include "core/epoch.h"

#define PARTICIPANTS 9
#define COMBINERS    3
#define NODES        (1 + COMBINERS + PARTICIPANTS) /* numbered from 1: the coordinator is 1 */
#define STEP         QOS_MILLISECOND
#define TIMEOUT      (100 * QOS_MILLISECOND)
#define RETRY        (20 * QOS_MILLISECOND)
#define PATIENCE     (600 * QOS_MILLISECOND)

typedef struct {
    guint64 handed_in[PARTICIPANTS];
} Policy;

typedef struct {
    QosEpochHandler *handler;
    guint64 parent;
    guint32 incarnation;
    QosTime cut_up; /* until when nothing from it reaches its parent, and from the parent it */
    QosTime cut_down;
    /* of the scheduler of a participant */
    gint64 epoch;     /* that it is in, as it knows; QOS_EPOCH_FIRST after a restart or an error */
    gint64 greatest;  /* that it ever began */
    guint64 waits_in; /* the number that it waits for a call-back with; 0: it does not */
    QosTime waits_since;
    QosTime next; /* when it is ready again */
    guint begun;
} Node;

typedef struct {
    QosTime due;
    guint64 from;
    guint64 to;
    GByteArray *bytes;
} Packet;

typedef struct {
    QosTime now;
    Node nodes[NODES + 1];
    GPtrArray *network; /* of Packet */
    GHashTable *begun;  /* epoch -> Policy that it began with */
    guint64 number;     /* the last handed in */
    gboolean is_hostile;
    guint crashes;
    guint errors[2]; /* -ESTALE, -ETIMEDOUT */
} World;

static void combine(void *combined, const void *a, gsize a_length, const void *b, gsize b_length)
{
    Policy *sum = combined;
    const Policy *one = a, *other = b;

    g_assert_cmpuint(a_length, ==, sizeof(Policy));
    g_assert_cmpuint(b_length, ==, sizeof(Policy));
    for (guint i = 0; i < PARTICIPANTS; i++)
        sum->handed_in[i] = MAX(one->handed_in[i], other->handed_in[i]);
}

static gboolean is_participant(guint64 id)
{
    return id > 1 + COMBINERS;
}

/* The height of the node, 0 for participants. */
static guint height(guint64 id)
{
    return is_participant(id) ? 0 : id == 1 ? 2 : 1;
}

static void boot(World *world, guint64 id)
{
    Node *node = &world->nodes[id];
    const QosEpochConfig config = {
        .parent = node->parent,
        .incarnation = ++node->incarnation,
        .timeout = TIMEOUT << (height(id) == 2 ? 1 : 0),
        .retry = RETRY,
        .patience = PATIENCE,
        .reduction = {.combine = combine},
    };

    qos_epoch_free(node->handler);
    node->handler = qos_epoch_tree_new(&config);
    node->epoch = QOS_EPOCH_FIRST;
    node->waits_in = 0;
    node->next = world->now;
}

static void packet_free(gpointer data)
{
    Packet *packet = data;

    g_byte_array_unref(packet->bytes);
    g_free(packet);
}

static void world_init(World *world)
{
    *world = (World){0};
    world->network = g_ptr_array_new_with_free_func(packet_free);
    world->begun = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    for (guint64 id = 1; id <= NODES; id++) {
        /* The last participant is the coordinator's own child. */
        world->nodes[id].parent = id == 1                            ? QOS_EPOCH_HERE
                                  : is_participant(id) && id < NODES ? 2 + id % COMBINERS
                                                                     : 1;
        boot(world, id);
    }
}

static void world_clear(World *world)
{
    for (guint64 id = 1; id <= NODES; id++)
        qos_epoch_free(world->nodes[id].handler);
    g_ptr_array_unref(world->network);
    g_hash_table_unref(world->begun);
}

static gboolean chance(guint percent)
{
    return (guint)g_test_rand_int_range(0, 100) < percent;
}

static void post(World *world, guint64 from, const QosEpochAction *action)
{
    gboolean is_up = world->nodes[from].parent == action->to;
    gboolean is_cut = is_up ? world->nodes[from].cut_up > world->now
                            : world->nodes[action->to].cut_down > world->now;
    guint copies = !world->is_hostile ? 1 : is_cut || chance(20) ? 0 : chance(20) ? 2 : 1;

    for (guint i = 0; i < copies; i++) {
        Packet *packet = g_new0(Packet, 1);

        packet->from = from;
        packet->to = action->to;
        packet->due = world->now + STEP;
        if (world->is_hostile)
            packet->due += chance(5) ? g_test_rand_int_range(0, 1000) * STEP
                                     : g_test_rand_int_range(0, 10) * STEP;
        packet->bytes = g_byte_array_new();
        qos_epoch_encode(&action->message, packet->bytes);
        g_ptr_array_add(world->network, packet);
    }
}

/* The scheduler begins an epoch: in order, with the data that all begin it with, its own among
 * these. */
static void begin(World *world, guint64 id, const QosEpochMessage *start)
{
    Node *node = &world->nodes[id];
    gsize length;
    const Policy *policy = g_bytes_get_data(start->data, &length);
    const Policy *first = g_hash_table_lookup(world->begun, &start->epoch);

    g_assert_cmpuint(length, ==, sizeof(Policy));
    if (first != NULL)
        g_assert_cmpmem(policy, length, first, sizeof(Policy));
    else
        g_hash_table_insert(world->begun, g_memdup2(&start->epoch, sizeof(start->epoch)),
                            g_memdup2(policy, length));
    g_assert_cmpuint(policy->handed_in[id - COMBINERS - 2], ==, node->waits_in);
    g_assert_cmpint(start->epoch, >, node->greatest);
    if (node->epoch != QOS_EPOCH_FIRST && start->epoch != node->epoch + 1)
        g_assert_cmpint(start->epoch >> QOS_EPOCH_COUNT_BITS, >,
                        node->epoch >> QOS_EPOCH_COUNT_BITS);
    node->epoch = node->greatest = start->epoch;
    node->begun++;
}

static void call_back(World *world, guint64 id, const QosEpochMessage *message)
{
    Node *node = &world->nodes[id];

    g_assert_cmpuint(node->waits_in, !=, 0);
    g_assert_cmpint(world->now - node->waits_since, <=, PATIENCE);
    if (message->type == QOS_EPOCH_START) {
        begin(world, id, message);
    } else {
        g_assert_true(message->epoch == -ESTALE || message->epoch == -ETIMEDOUT);
        world->errors[message->epoch == -ETIMEDOUT]++;
        node->epoch = QOS_EPOCH_FIRST;
    }
    node->waits_in = 0;
    /* Some are slower than the timeout. */
    node->next =
        world->now + g_test_rand_int_range(1, world->is_hostile && chance(5) ? 500 : 50) * STEP;
}

static void act(World *world, guint64 id, GArray *out)
{
    for (guint i = 0; i < out->len; i++) {
        const QosEpochAction *action = &g_array_index(out, QosEpochAction, i);

        if (action->to == QOS_EPOCH_HERE)
            call_back(world, id, &action->message);
        else
            post(world, id, action);
    }
    g_array_set_size(out, 0);
}

static void deliver(World *world, GArray *out)
{
    for (guint i = 0; i < world->network->len;) {
        if (((Packet *)world->network->pdata[i])->due > world->now) {
            i++;
            continue;
        }
        Packet *packet = g_ptr_array_steal_index_fast(world->network, i);
        QosEpochMessage message;

        g_assert_true(qos_epoch_decode(packet->bytes->data, packet->bytes->len, &message));
        qos_epoch_receive(world->nodes[packet->to].handler, packet->from, &message, world->now,
                          out);
        act(world, packet->to, out);
        qos_epoch_message_clear(&message);
        packet_free(packet);
    }
}

static void schedule(World *world, guint64 id, GArray *out)
{
    Node *node = &world->nodes[id];
    Policy policy = {0};

    if (node->waits_in != 0 || node->next > world->now)
        return;
    if (world->is_hostile && node->epoch != QOS_EPOCH_FIRST && chance(3)) {
        g_assert_cmpint(qos_epoch_last(node->handler, node->epoch, world->now, out), ==, 0);
        act(world, id, out);
        node->epoch = QOS_EPOCH_FIRST;
    }
    node->waits_in = policy.handed_in[id - COMBINERS - 2] = ++world->number;
    node->waits_since = world->now;
    g_autoptr(GBytes) data = g_bytes_new(&policy, sizeof(policy));
    g_assert_cmpint(qos_epoch_next(node->handler, node->epoch, data, world->now, out), ==, 0);
    act(world, id, out);
}

static void harm(World *world, guint64 id)
{
    QosTime until = world->now + g_test_rand_int_range(0, 1500) * STEP;

    switch (g_test_rand_int_range(0, 12000)) {
    case 0:
    case 1:
    case 2:
        boot(world, id);
        world->crashes++;
        break;
    case 3:
        world->nodes[id].cut_up = until;
        break;
    case 4:
        world->nodes[id].cut_down = until;
        break;
    case 5:
        world->nodes[id].cut_up = world->nodes[id].cut_down = until;
        break;
    }
}

static void run(World *world, QosTime length)
{
    g_autoptr(GArray) out = qos_epoch_actions_new();

    for (QosTime end = world->now + length; world->now < end; world->now += STEP) {
        deliver(world, out);
        for (guint64 id = 1; id <= NODES; id++) {
            if (world->is_hostile)
                harm(world, id);
            qos_epoch_tick(world->nodes[id].handler, world->now, out);
            act(world, id, out);
            if (is_participant(id))
                schedule(world, id, out);
        }
    }
}

/* Nothing is lost: all go from epoch to epoch together, without an error. */
static void test_calm(void)
{
    World world;

    world_init(&world);
    run(&world, QOS_SECOND);
    for (guint64 id = COMBINERS + 2; id <= NODES; id++)
        world.nodes[id].begun = 0;
    run(&world, 10 * QOS_SECOND);
    for (guint64 id = COMBINERS + 2; id <= NODES; id++) {
        g_assert_cmpint(ABS((gint)(world.nodes[id].begun - world.nodes[NODES].begun)), <=, 1);
        g_assert_cmpuint(world.nodes[id].begun, >, 100);
    }
    g_assert_cmpuint(world.errors[0] + world.errors[1], ==, 0);
    world_clear(&world);
}

/* Whatever happened, once it is over all are in the same epochs again soon. */
static void test_hostile(void)
{
    guint errors[2] = {0};

    for (guint round = 0; round < 40; round++) {
        World world;

        world_init(&world);
        world.is_hostile = TRUE;
        run(&world, 10 * QOS_SECOND);
        g_assert_cmpuint(g_hash_table_size(world.begun), >, 20);
        g_assert_cmpuint(world.crashes, >, 0);
        world.is_hostile = FALSE;
        run(&world, 3 * QOS_SECOND);
        for (guint i = 0; i < 2; i++) {
            errors[i] += world.errors[i];
            world.errors[i] = 0;
        }
        run(&world, 2 * QOS_SECOND);
        g_assert_cmpuint(world.errors[0] + world.errors[1], ==, 0);
        const Policy *last = g_hash_table_lookup(world.begun, &world.nodes[NODES].greatest);
        for (guint i = 0; i < PARTICIPANTS; i++)
            g_assert_cmpuint(last->handed_in[i], >, 0);
        for (guint64 id = COMBINERS + 2; id < NODES; id++)
            g_assert_cmpint(ABS(world.nodes[id].greatest - world.nodes[NODES].greatest), <=, 1);
        world_clear(&world);
    }
    g_assert_cmpuint(errors[0], >, 0);
    g_assert_cmpuint(errors[1], >, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/epoch-tree/calm", test_calm);
    g_test_add_func("/epoch-tree/hostile", test_hostile);
    return g_test_run();
}
