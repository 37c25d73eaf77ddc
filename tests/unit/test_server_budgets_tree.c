/*
 * Budgets over servers that combine (server/budgets.c): a root, one or two levels of combiners, and
 * mounts (core/budget_member.c), with the time stepped by hand. Messages take no time, but come one
 * after another, and some are lost.
 */
#include "core/wire_cluster.h"
#include "server/budgets.h"

#define EPOCH      QOS_BUDGET_EPOCH
#define LEASE      QOS_SECOND
#define STEP       (5 * QOS_MILLISECOND)
#define RULE       7
#define CLASS      "job1"
#define MOUNTS     8
#define SERVERS    4
#define MOUNT_ID   100 /* of the first one, as a client; a server's is its number */
#define R          (1000 * G_GUINT64_CONSTANT(1000))
#define FLOOR_EACH (R / 10 / MOUNTS)

/* Parents of servers, and of mounts; the root is server 0. A server without mounts is not there. */
typedef struct {
    guint parents[SERVERS], homes[MOUNTS];
} Shape;

static const Shape flat = {{0, 0, 0}, {1, 1, 1, 1, 2, 2, 0, 0}};
static const Shape deep = {{0, 0, 1, 1}, {2, 2, 2, 3, 3, 1, 0, 0}};

typedef struct World World;

typedef struct {
    World *world;
    QosServerBudgets *budgets;
    guint number;
    guint32 incarnation;
    QosTime next; /* when it is to be called */
} Server;

typedef struct {
    QosBudgetMount budget;
    QosTime at; /* when it reports next */
    guint64 demand, served;
    gboolean is_idle; /* it has said so */
    guint grants;
} Mount;

typedef struct {
    guint from, to;
    GByteArray *frames;
} Message;

struct World {
    const Shape *shape;
    QosBudgetShare share;
    Server servers[SERVERS];
    Mount mounts[MOUNTS];
    GQueue messages; /* of Message, owned */
    GRand *random;   /* NULL: nothing is lost */
    QosTime now;
    guint64 highest; /* of all rates in force, summed */
};

/* Mounts behind the server. */
static guint mounts_of(const World *world, guint server)
{
    guint count = 0;

    for (guint i = 0; i < MOUNTS; i++) {
        guint above = world->shape->homes[i];
        while (above != server && above != 0)
            above = world->shape->parents[above];
        count += above == server;
    }
    return count;
}

static void set_rule(Server *server, guint64 limit)
{
    const World *world = server->world;
    const QosServerBudgetRule rule = {
        .id = RULE, .name = "big", .limit = {limit, 0}, .share = world->share, .floor = 10};

    for (guint i = 1; i < SERVERS; i++) {
        if (world->shape->parents[i] == server->number && mounts_of(world, i) > 0)
            qos_server_budgets_set_weight(server->budgets, i, mounts_of(world, i));
    }
    if (server->number > 0)
        qos_server_budgets_set_lent(server->budgets, mounts_of(world, server->number));
    qos_server_budgets_set_rules(server->budgets, &rule, 1, EPOCH, LEASE, MOUNTS, world->now);
}

/* It starts, for the first time or again. */
static void start(Server *server)
{
    const gboolean is_again = server->budgets != NULL;

    qos_server_budgets_free(server->budgets);
    server->budgets = server->number > 0
                          ? qos_server_budgets_new_combiner(++server->incarnation)
                          : qos_server_budgets_new(is_again ? server->world->now + LEASE : 0);
    server->next = QOS_NEVER;
    set_rule(server, R);
}

static void world_init(World *world, const Shape *shape, QosBudgetShare share)
{
    const QosBudgetConfig config = {.limit = R,
                                    .share = share,
                                    .floor = 10,
                                    .epoch = EPOCH,
                                    .lease = LEASE,
                                    .registered = MOUNTS};

    *world = (World){.shape = shape, .share = share, .now = 1000 * QOS_SECOND};
    for (guint i = 0; i < SERVERS; i++) {
        world->servers[i].world = world;
        world->servers[i].number = i;
        start(&world->servers[i]);
    }
    for (guint i = 0; i < MOUNTS; i++) {
        qos_budget_mount_init(&world->mounts[i].budget, &config, 1, FLOOR_EACH, 1);
        world->mounts[i].at = world->now + i * 11 * QOS_MILLISECOND;
        world->mounts[i].is_idle = TRUE;
    }
}

static void free_message(gpointer data)
{
    Message *message = data;

    g_byte_array_unref(message->frames);
    g_free(message);
}

static void world_clear(World *world)
{
    g_queue_clear_full(&world->messages, free_message);
    for (guint i = 0; i < SERVERS; i++)
        qos_server_budgets_free(world->servers[i].budgets);
}

static void send_frames(World *world, guint from, guint to, const GByteArray *frames)
{
    Message *message = g_new(Message, 1);

    *message = (Message){from, to, g_byte_array_sized_new(frames->len)};
    g_byte_array_append(message->frames, frames->data, frames->len);
    g_queue_push_tail(&world->messages, message);
}

static void send_from_server(QosOwnerId client, const GByteArray *frames, gpointer arg)
{
    const Server *server = arg;
    const World *world = server->world;
    const guint to =
        client == QOS_SERVER_BUDGETS_PARENT ? world->shape->parents[server->number] : (guint)client;

    send_frames(server->world, server->number, to, frames);
}

static void tick(Server *server)
{
    server->next =
        qos_server_budgets_tick(server->budgets, server->world->now, send_from_server, server);
}

static void take_grant(World *world, Mount *mount, const guint8 *payload, gsize length)
{
    QosWireBudget item;
    QosBudgetGrant grant;

    g_assert_true(qos_wire_get_budget(&payload, &length, &item));
    g_assert_cmpuint(length, ==, 0);
    g_assert_true(qos_budget_grant_decode(item.bytes, item.length, &grant));
    mount->grants += qos_budget_mount_grant(&mount->budget, &grant, world->now);
}

static void deliver_one(World *world, const Message *message)
{
    const guint8 *payload = message->frames->data + 5;
    const gsize length = message->frames->len - 5;

    if (world->random != NULL && g_rand_int_range(world->random, 0, 20) == 0)
        return;
    if (message->to >= MOUNT_ID) {
        take_grant(world, &world->mounts[message->to - MOUNT_ID], payload, length);
        return;
    }
    Server *server = &world->servers[message->to];
    if (message->frames->data[4] == QOS_WIRE_BUDGET_REPORT)
        g_assert_true(
            qos_server_budgets_report(server->budgets, message->from, payload, length, world->now));
    else
        g_assert_true(qos_server_budgets_grant(server->budgets, payload, length, world->now));
    tick(server);
}

static void deliver(World *world)
{
    Message *message;

    while ((message = g_queue_pop_head(&world->messages)) != NULL) {
        deliver_one(world, message);
        free_message(message);
    }
}

static void report(World *world, guint number)
{
    Mount *mount = &world->mounts[number];
    g_autoptr(GByteArray) bytes = g_byte_array_new(), frame = g_byte_array_new();
    QosWireBudget item = {.rule = RULE, .class = CLASS};
    QosBudgetReport made = {0};
    gsize batch = QOS_WIRE_NO_BATCH;

    qos_budget_mount_report(&mount->budget, mount->demand, mount->served, world->now, &made);
    mount->is_idle = mount->demand == 0;
    qos_budget_report_encode(&made, bytes);
    qos_budget_report_clear(&made);
    item.bytes = bytes->data;
    item.length = bytes->len;
    qos_wire_put_budget(frame, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    send_frames(world, MOUNT_ID + number, world->shape->homes[number], frame);
}

static guint64 rate(const World *world, guint number)
{
    return qos_budget_mount_rate(&world->mounts[number].budget, world->now);
}

static guint64 sum(const World *world)
{
    guint64 rates = 0;

    for (guint i = 0; i < MOUNTS; i++)
        rates += rate(world, i);
    return rates;
}

static void step(World *world)
{
    for (guint i = 0; i < MOUNTS; i++) {
        Mount *mount = &world->mounts[i];
        mount->served += MIN(mount->demand, rate(world, i)) / (QOS_SECOND / STEP);
        if (world->now < mount->at)
            continue;
        mount->at += EPOCH;
        if (mount->demand > 0 || !mount->is_idle)
            report(world, i);
        deliver(world);
    }
    for (guint i = 0; i < SERVERS; i++) {
        if (world->now >= world->servers[i].next)
            tick(&world->servers[i]);
        deliver(world);
    }
    if (world->share == QOS_BUDGET_HARD)
        g_assert_cmpuint(sum(world), <=, R);
    world->highest = MAX(world->highest, sum(world));
    world->now += STEP;
}

static void run(World *world, QosTime duration)
{
    for (const QosTime end = world->now + duration; world->now < end;)
        step(world);
}

/* No answer came to a report that another had followed. */
static void assert_none_void(const World *world)
{
    for (guint i = 0; i < SERVERS; i++)
        g_assert_cmpuint(qos_server_budgets_passed_over(world->servers[i].budgets), ==, 0);
}

/* --- tests --- */

/* All want more than R: each has an eighth, wherever it is in the tree. */
static void test_equal(gconstpointer arg)
{
    World world;

    world_init(&world, arg, QOS_BUDGET_FAIR);
    for (guint i = 0; i < MOUNTS; i++)
        world.mounts[i].demand = 2 * R;
    run(&world, 5 * QOS_SECOND);
    for (guint i = 0; i < MOUNTS; i++) {
        g_assert_cmpuint(rate(&world, i), >, R / MOUNTS * 0.98);
        g_assert_cmpuint(rate(&world, i), <, R / MOUNTS * 1.02);
    }
    assert_none_void(&world);
    world_clear(&world);
}

/* HARD: never more than R, and what mounts of other servers leave is used before their leases
 * end. */
static void test_hard(gconstpointer arg)
{
    World world;

    world_init(&world, arg, QOS_BUDGET_HARD);
    for (guint i = 0; i < MOUNTS; i++)
        world.mounts[i].demand = 2 * R;
    run(&world, 3 * QOS_SECOND);
    g_assert_cmpuint(sum(&world), >, R * 0.98);
    for (guint i = 1; i < MOUNTS; i++)
        world.mounts[i].demand = 0;
    run(&world, 6 * EPOCH);
    g_assert_cmpuint(rate(&world, 0), >, R * 0.85); /* all but the floors and the pool */
    assert_none_void(&world);
    world_clear(&world);
}

static void note_class(const QosServerBudgetsClass *item, gpointer arg)
{
    *(QosServerBudgetsClass *)arg = *item;
}

/* Each server of the tree can say what the mounts behind it want and were served. */
static void test_state(gconstpointer arg)
{
    World world;

    world_init(&world, arg, QOS_BUDGET_FAIR);
    for (guint i = 0; i < MOUNTS; i++)
        world.mounts[i].demand = R / 10;
    run(&world, 3 * QOS_SECOND);
    for (guint i = 0; i < SERVERS; i++) {
        QosServerBudgetsClass class = {0};
        qos_server_budgets_each(world.servers[i].budgets, note_class, &class, world.now);
        /* A member's report may come just after the end of an epoch. */
        g_assert_cmpuint(class.demand, <=, R / 10 * mounts_of(&world, i));
        g_assert_cmpuint(class.demand, >=, R / 20 * mounts_of(&world, i));
        g_assert_cmpuint(class.served, <=, R / 5 * mounts_of(&world, i));
        g_assert_cmpuint(class.served, >=, R / 20 * mounts_of(&world, i));
    }
    world_clear(&world);
}

static void count_class(const QosServerBudgetsClass *item G_GNUC_UNUSED, gpointer arg)
{
    ++*(guint *)arg;
}

/* A class that is idle is freed by all servers, and its next life is answered like the first. */
static void test_rest(gconstpointer arg)
{
    World world;

    world_init(&world, arg, QOS_BUDGET_HARD);
    for (guint life = 0; life < 2; life++) {
        guint count = 0;

        world.mounts[0].demand = 2 * R;
        run(&world, 5 * EPOCH);
        g_assert_cmpuint(rate(&world, 0), >, R * 0.85);
        world.mounts[0].demand = 0;
        run(&world, 4 * LEASE);
        for (guint i = 0; i < SERVERS; i++) {
            qos_server_budgets_each(world.servers[i].budgets, count_class, &count, world.now);
            g_assert_cmpint(world.servers[i].next, ==, QOS_NEVER);
        }
        g_assert_cmpuint(count, ==, 0);
    }
    world_clear(&world);
}

/* The same where the root's class lives on: to it the reports of both lives are of one member. */
static void test_rest_below(gconstpointer arg)
{
    World world;

    world_init(&world, arg, QOS_BUDGET_HARD);
    world.mounts[MOUNTS - 1].demand = R / 10;
    for (guint life = 0; life < 3; life++) {
        guint count = 0;

        world.mounts[0].demand = 2 * R;
        run(&world, 6 * EPOCH);
        g_assert_cmpuint(rate(&world, 0), >, R * 0.75);
        world.mounts[0].demand = 0;
        run(&world, 4 * LEASE);
        qos_server_budgets_each(world.servers[1].budgets, count_class, &count, world.now);
        g_assert_cmpuint(count, ==, 0);
    }
    world_clear(&world);
}

/* What comes while a combiner waits for its parent goes up an epoch after the report before, and
 * not sooner than the answer; without one, after half a lease. */
static void test_asking(void)
{
    World world;

    world_init(&world, &flat, QOS_BUDGET_FAIR);
    const QosTime start_time = world.now;
    for (guint i = 0; i < MOUNTS; i++)
        world.mounts[i].demand = R;
    report(&world, 7); /* at the root, which counts on it from now on */
    deliver(&world);
    world.now = start_time + 10 * QOS_MILLISECOND;
    report(&world, 0);
    deliver(&world);
    world.now = start_time + 20 * QOS_MILLISECOND;
    report(&world, 1);
    deliver(&world);
    g_assert_cmpint(world.servers[0].next, ==, start_time + EPOCH);
    g_assert_cmpint(world.servers[1].next, ==, start_time + 10 * QOS_MILLISECOND + LEASE / 2);
    world.now = start_time + EPOCH;
    tick(&world.servers[0]);
    deliver(&world);
    g_assert_cmpuint(world.mounts[0].grants, ==, 1);
    g_assert_cmpuint(world.mounts[1].grants, ==, 0);
    g_assert_cmpint(world.servers[1].next, ==, start_time + 10 * QOS_MILLISECOND + EPOCH);
    world_clear(&world);
}

/* A grant that nobody asked for changes nothing; coordinators take none. */
static void test_hostile(void)
{
    const QosBudgetGrant grant = {.ticket = 1, .level = R, .raise = R, .lease = LEASE};
    g_autoptr(GByteArray) bytes = g_byte_array_new(), frame = g_byte_array_new();
    QosWireBudget item = {.rule = RULE, .class = CLASS};
    gsize batch = QOS_WIRE_NO_BATCH;
    World world;

    world_init(&world, &flat, QOS_BUDGET_HARD);
    qos_budget_grant_encode(&grant, bytes);
    item.bytes = bytes->data;
    item.length = bytes->len;
    qos_wire_put_budget(frame, &batch, QOS_WIRE_BUDGET_GRANT, &item);
    g_assert_false(qos_server_budgets_grant(world.servers[0].budgets, frame->data + 5,
                                            frame->len - 5, world.now));
    g_assert_false(qos_server_budgets_grant(world.servers[1].budgets, frame->data + 5,
                                            frame->len - 6, world.now));
    g_assert_true(qos_server_budgets_grant(world.servers[1].budgets, frame->data + 5,
                                           frame->len - 5, world.now));
    g_assert_cmpuint(qos_server_budgets_passed_over(world.servers[1].budgets), ==, 1);
    world.mounts[0].demand = R;
    run(&world, 2 * STEP);
    g_assert_true(qos_server_budgets_grant(world.servers[1].budgets, frame->data + 5,
                                           frame->len - 5, world.now));
    g_assert_cmpuint(qos_server_budgets_passed_over(world.servers[1].budgets), ==, 2);
    world_clear(&world);
}

static void happen(World *world)
{
    Mount *mount = &world->mounts[g_rand_int_range(world->random, 0, MOUNTS)];

    if (g_rand_int_range(world->random, 0, 20) == 0)
        mount->demand = g_rand_int_range(world->random, 0, 3) == 0
                            ? 0
                            : (guint64)g_rand_int_range(world->random, 1, 3000) * 1000;
    if (g_rand_int_range(world->random, 0, 500) == 0)
        start(&world->servers[g_rand_int_range(world->random, 0, SERVERS)]);
}

/* HARD, with messages that are lost and servers that start again: step() checks the sum. */
static void test_random(gconstpointer arg)
{
    guint64 highest = 0;

    for (guint seed = 0; seed < 60; seed++) {
        g_autoptr(GRand) random = g_rand_new_with_seed(seed);
        World world;

        g_test_message("seed %u", seed);
        world_init(&world, arg, QOS_BUDGET_HARD);
        world.random = random;
        for (guint i = 0; i < 1500; i++) {
            happen(&world);
            step(&world);
        }
        highest = MAX(highest, world.highest);
        world_clear(&world);
    }
    g_assert_cmpuint(highest, >, R * 0.97); /* it was put to the test */
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/server-budgets-tree/two/equal", &flat, test_equal);
    g_test_add_data_func("/server-budgets-tree/two/hard", &flat, test_hard);
    g_test_add_data_func("/server-budgets-tree/two/rest", &flat, test_rest);
    g_test_add_data_func("/server-budgets-tree/two/rest-below", &flat, test_rest_below);
    g_test_add_data_func("/server-budgets-tree/two/random", &flat, test_random);
    g_test_add_data_func("/server-budgets-tree/three/equal", &deep, test_equal);
    g_test_add_data_func("/server-budgets-tree/three/hard", &deep, test_hard);
    g_test_add_data_func("/server-budgets-tree/three/state", &deep, test_state);
    g_test_add_data_func("/server-budgets-tree/three/rest", &deep, test_rest);
    g_test_add_data_func("/server-budgets-tree/three/rest-below", &deep, test_rest_below);
    g_test_add_data_func("/server-budgets-tree/three/random", &deep, test_random);
    g_test_add_func("/server-budgets-tree/asking", test_asking);
    g_test_add_func("/server-budgets-tree/hostile", test_hostile);
    return g_test_run();
}
