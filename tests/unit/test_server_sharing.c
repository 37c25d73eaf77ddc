/*
 * Jobs that divide what the store can do, over all mounts (server/sharing.c behind
 * server/budgets.c), with mounts (core/budget_member.c) at the other end and the time stepped by
 * hand. Messages take no time.
 *
 * Job a is on the mounts 1 to 3, job b on the mount 4.
 */
#include <string.h>

#include "server/budgets.h"

#define EPOCH  QOS_BUDGET_EPOCH
#define LEASE  QOS_SECOND
#define RULE   (G_GUINT64_CONSTANT(1) << 52)
#define OTHER  3
#define HEAVY  4 /* a rule whose jobs weigh three times as much */
#define MOUNTS 4
#define C      (1000 * G_GUINT64_CONSTANT(1000)) /* 1,000 op/s */

typedef struct {
    QosBudgetMount budget;
    const char *job;
    guint64 rule; /* of the sharing, that matches the job */
    guint64 demand, served;
    guint grants; /* that it took */
} Mount;

typedef struct {
    QosServerBudgets *server;
    Mount mounts[MOUNTS]; /* the clients 1 and on */
    GHashTable *told;     /* job -> its weight; NULL: nothing was told of any */
    QosTime now;
} World;

static void set_rules(World *world, guint64 capacity)
{
    const QosServerBudgetRule rules[] = {
        {.id = OTHER, .name = "big", .limit = {C, 0}, .share = QOS_BUDGET_FAIR},
        {.id = RULE,
         .name = "adapt",
         .limit = {capacity, 0},
         .share = QOS_BUDGET_FAIR,
         .away = QOS_BUDGET_AWAY_OPEN,
         .is_divided = TRUE},
        {.id = HEAVY,
         .name = "heavy",
         .limit = {capacity, 0},
         .share = QOS_BUDGET_FAIR,
         .away = QOS_BUDGET_AWAY_OPEN,
         .is_divided = TRUE,
         .weight = 3},
    };

    qos_server_budgets_set_rules(world->server, rules, capacity > 0 ? 3 : 1, EPOCH, LEASE, MOUNTS,
                                 world->now);
}

/* What batch systems have told. */
static guint64 weigh(const char *job, guint mounts, gpointer arg)
{
    const World *world = arg;
    const guint weight =
        world->told != NULL ? GPOINTER_TO_UINT(g_hash_table_lookup(world->told, job)) : 0;

    return weight > 0 ? weight : MAX(mounts, 1);
}

static void tell_of(World *world, const char *job, guint weight)
{
    if (world->told == NULL)
        world->told = g_hash_table_new(g_str_hash, g_str_equal);
    g_hash_table_insert(world->told, (gpointer)job, GUINT_TO_POINTER(weight));
}

static void world_init(World *world)
{
    static const char *const jobs[MOUNTS] = {"a", "a", "a", "b"};
    const QosBudgetConfig config = {.limit = C,
                                    .share = QOS_BUDGET_FAIR,
                                    .away = QOS_BUDGET_AWAY_OPEN,
                                    .epoch = EPOCH,
                                    .lease = LEASE,
                                    .registered = MOUNTS};

    *world = (World){.server = qos_server_budgets_new(0), .now = 1000 * QOS_SECOND};
    qos_server_budgets_set_weigher(world->server, weigh, world);
    set_rules(world, C);
    for (guint i = 0; i < MOUNTS; i++) {
        world->mounts[i].job = jobs[i];
        world->mounts[i].rule = RULE;
        qos_budget_mount_init(&world->mounts[i].budget, &config, 1, 0, 1);
    }
}

static void world_clear(World *world)
{
    qos_server_budgets_free(world->server);
    g_clear_pointer(&world->told, g_hash_table_unref);
}

static void take_grants(QosOwnerId client, const GByteArray *frames, gpointer arg)
{
    World *world = arg;
    Mount *mount = &world->mounts[client - 1];
    const guint8 *payload;
    QosWireReader reader;
    QosWireType type;
    gsize length;

    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, frames->data, frames->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        while (length > 0) {
            QosWireBudget item;
            QosBudgetGrant grant;

            g_assert_true(qos_wire_get_budget(&payload, &length, &item));
            g_assert_true(qos_budget_grant_decode(item.bytes, item.length, &grant));
            if (item.rule == mount->rule && g_str_equal(item.class, mount->job))
                mount->grants += qos_budget_mount_grant(&mount->budget, &grant, world->now);
        }
    }
    qos_wire_reader_clear(&reader);
}

static QosTime tick(World *world)
{
    return qos_server_budgets_tick(world->server, world->now, take_grants, world);
}

static void report_as(World *world, guint number, guint64 rule)
{
    Mount *mount = &world->mounts[number];
    g_autoptr(GByteArray) bytes = g_byte_array_new(), frame = g_byte_array_new();
    QosWireBudget item = {.rule = rule};
    gsize batch = QOS_WIRE_NO_BATCH;
    QosBudgetReport made = {0};

    qos_budget_mount_report(&mount->budget, mount->demand, mount->served, world->now, &made);
    qos_budget_report_encode(&made, bytes);
    g_strlcpy(item.class, mount->job, sizeof(item.class));
    item.bytes = bytes->data;
    item.length = bytes->len;
    qos_wire_put_budget(frame, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    g_assert_true(qos_server_budgets_report(world->server, number + 1, frame->data + 5,
                                            frame->len - 5, world->now));
    qos_budget_report_clear(&made);
}

static void report(World *world, guint number)
{
    report_as(world, number, world->mounts[number].rule);
    tick(world);
}

static guint64 rate(const World *world, guint number)
{
    return qos_budget_mount_rate(&world->mounts[number].budget, world->now);
}

static guint64 rate_of_a(const World *world)
{
    return rate(world, 0) + rate(world, 1) + rate(world, 2);
}

/* So many epochs, in which all mounts with demand report and have served what they may use. */
static void run(World *world, guint epochs)
{
    for (; epochs > 0; epochs--) {
        for (guint i = 0; i < MOUNTS; i++) {
            if (world->mounts[i].demand > 0)
                report(world, i);
        }
        tick(world);
        for (guint i = 0; i < MOUNTS; i++) {
            Mount *mount = &world->mounts[i];
            if (mount->demand > 0)
                mount->served += MIN(mount->demand, rate(world, i)) / (QOS_SECOND / EPOCH);
        }
        world->now += EPOCH;
    }
}

static void all_want(World *world, guint64 demand)
{
    for (guint i = 0; i < MOUNTS; i++)
        world->mounts[i].demand = demand;
}

static void assert_near(guint64 value, double expected)
{
    g_assert_cmpfloat((double)value, >=, expected * 0.99);
    g_assert_cmpfloat((double)value, <=, expected * 1.01);
}

/* --- the classes, as reports have them --- */

typedef struct {
    const char *job;
    QosServerBudgetsClass item;
    guint count;
} Wanted;

static void take_class(const QosServerBudgetsClass *item, gpointer arg)
{
    Wanted *wanted = arg;

    wanted->count++;
    if (g_str_equal(item->class_name, wanted->job) && item->rule == RULE)
        wanted->item = *item;
}

static Wanted look_for(const World *world, const char *job)
{
    Wanted wanted = {.job = job};

    qos_server_budgets_each(world->server, take_class, &wanted, world->now);
    return wanted;
}

/* --- tests --- */

/* Three mounts and one: by mounts where nothing was told of the jobs, */
static void test_by_mounts(void)
{
    World world;

    world_init(&world);
    all_want(&world, 2 * C);
    run(&world, 30);
    assert_near(rate_of_a(&world), 0.75 * C);
    assert_near(rate(&world, 3), 0.25 * C);
    g_assert_cmpuint(look_for(&world, "a").item.weight, ==, 3);
    g_assert_cmpuint(look_for(&world, "b").item.entitlement, ==, C / 4);
    world_clear(&world);
}

/* times what the rule says that matches the job, */
static void test_by_rule(void)
{
    World world;

    world_init(&world);
    world.mounts[3].rule = HEAVY;
    all_want(&world, 2 * C);
    run(&world, 30);
    assert_near(rate_of_a(&world), 0.5 * C);
    assert_near(rate(&world, 3), 0.5 * C);
    tell_of(&world, "a", 1);
    tell_of(&world, "b", 1);
    run(&world, 30);
    assert_near(rate_of_a(&world), 0.25 * C);
    assert_near(rate(&world, 3), 0.75 * C);
    world_clear(&world);
}

/* and as it was told else, from the next epoch on. */
static void test_by_weight(void)
{
    World world;

    world_init(&world);
    tell_of(&world, "a", 1);
    tell_of(&world, "b", 1);
    all_want(&world, 2 * C);
    run(&world, 30);
    assert_near(rate_of_a(&world), 0.5 * C);
    assert_near(rate(&world, 3), 0.5 * C);
    tell_of(&world, "b", 4);
    run(&world, 30);
    assert_near(rate(&world, 3), 0.8 * C);
    const Wanted found = look_for(&world, "b");
    g_assert_true(found.item.is_divided);
    g_assert_cmpuint(found.item.weight, ==, 4);
    g_assert_cmpuint(found.item.entitlement, ==, C * 8 / 10);
    assert_near(found.item.limit, 0.8 * C);
    g_assert_cmpstr(found.item.rule_name, ==, "adapt");
    world_clear(&world);
}

/* What a job does not want goes to the others, and comes back when it does. */
static void test_lends(void)
{
    World world;

    world_init(&world);
    tell_of(&world, "a", 1);
    tell_of(&world, "b", 1);
    all_want(&world, 2 * C);
    world.mounts[3].demand = C / 10;
    run(&world, 30);
    assert_near(rate_of_a(&world), 0.9 * C);
    world.mounts[3].demand = 2 * C;
    run(&world, 30);
    assert_near(rate(&world, 3), 0.5 * C);
    world_clear(&world);
}

/* All jobs have one epoch: a job that comes waits for the mounts of the others, for E at most; for
 * E/2 where nobody is awaited. */
static void test_one_epoch(void)
{
    World world;

    world_init(&world);
    const QosTime start = world.now;
    world.mounts[0].demand = world.mounts[3].demand = C;
    report(&world, 0); /* at once: it is the first */
    g_assert_cmpuint(world.mounts[0].grants, ==, 1);
    world.now = start + EPOCH / 4;
    report(&world, 3);
    g_assert_cmpuint(rate(&world, 3), ==, 0);
    g_assert_cmpint(tick(&world), ==, start + EPOCH); /* the first mount is awaited, */
    world.mounts[0].demand = 0;
    report(&world, 0); /* and says that it is idle */
    g_assert_cmpint(tick(&world), ==, start + EPOCH / 2);
    world.now = start + EPOCH / 2;
    tick(&world);
    g_assert_cmpuint(world.mounts[3].grants, ==, 1);
    g_assert_cmpuint(rate(&world, 3), >, C / 2);
    world_clear(&world);
}

/* Nobody waits for a mount that is known no more, and its job goes when its rates have ended. */
static void test_leave(void)
{
    World world;

    world_init(&world);
    all_want(&world, 2 * C);
    run(&world, 30);
    for (guint i = 0; i < 3; i++) {
        qos_server_budgets_leave(world.server, i + 1, world.now);
        world.mounts[i].demand = 0;
    }
    run(&world, 2);
    g_assert_cmpuint(look_for(&world, "a").item.weight, ==, 1);
    run(&world, 28);
    assert_near(rate(&world, 3), C);
    g_assert_cmpuint(look_for(&world, "a").count, ==, 1); /* b's */
    world.mounts[3].demand = 0;
    report(&world, 3);
    for (guint i = 0; i < 6; i++) {
        world.now += LEASE;
        tick(&world);
    }
    g_assert_cmpuint(look_for(&world, "b").count, ==, 0);
    g_assert_cmpint(tick(&world), ==, QOS_NEVER);
    world_clear(&world);
}

/* Another capacity holds from the next epoch on; without any the jobs are gone, and come again. The
 * classes of other rules stay. */
static void test_change(void)
{
    World world;

    world_init(&world);
    all_want(&world, 4 * C);
    run(&world, 30);
    set_rules(&world, 2 * C);
    run(&world, 30);
    assert_near(rate(&world, 3), 0.5 * C);
    report_as(&world, 0, OTHER);
    tick(&world);
    set_rules(&world, 0);
    g_assert_cmpuint(look_for(&world, "a").count, ==, 1);
    const guint before = world.mounts[3].grants;
    run(&world, 2);
    g_assert_cmpuint(world.mounts[3].grants, ==, before);
    set_rules(&world, C);
    run(&world, 30);
    assert_near(rate(&world, 3), 0.25 * C);
    world_clear(&world);
}

/* Jobs of other rules have epochs of their own beside it. */
static void test_beside_others(void)
{
    World world;

    world_init(&world);
    const QosTime start = world.now;
    world.mounts[0].demand = world.mounts[3].demand = C;
    report(&world, 0);
    report_as(&world, 1, OTHER);
    g_assert_cmpint(tick(&world), ==, start + LEASE + EPOCH + QOS_BUDGET_DRIFT(LEASE));
    world.now += EPOCH / 4;
    report(&world, 3);
    report_as(&world, 2, OTHER);
    g_assert_cmpint(tick(&world), ==, start + EPOCH);
    world_clear(&world);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/server-sharing/by-mounts", test_by_mounts);
    g_test_add_func("/server-sharing/by-rule", test_by_rule);
    g_test_add_func("/server-sharing/by-weight", test_by_weight);
    g_test_add_func("/server-sharing/lends", test_lends);
    g_test_add_func("/server-sharing/one-epoch", test_one_epoch);
    g_test_add_func("/server-sharing/leave", test_leave);
    g_test_add_func("/server-sharing/change", test_change);
    g_test_add_func("/server-sharing/beside-others", test_beside_others);
    return g_test_run();
}
