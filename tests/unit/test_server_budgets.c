/*
 * The coordinators of all budgets (server/budgets.c), with mounts (core/budget_member.c) at the
 * other end and the time stepped by hand. Messages take no time.
 */
#include <string.h>

#include "core/wire_cluster.h"
#include "server/budgets.h"

#define EPOCH  QOS_BUDGET_EPOCH
#define LEASE  QOS_SECOND
#define RULE   7
#define MOUNTS 8                                 /* as many as there are parts of the floors */
#define R      (1000 * G_GUINT64_CONSTANT(1000)) /* 1,000 op/s */

typedef struct {
    QosBudgetMount budget;
    guint64 demand; /* that it reports each epoch */
    guint64 served;
    gboolean is_cut;  /* its reports are lost */
    gboolean is_deaf; /* the answers are */
    guint grants;     /* that it took */
} Mount;

typedef struct {
    QosServerBudgets *server;
    QosServerBudgetRule rule;
    Mount mounts[MOUNTS]; /* the clients 1 and on */
    const char *class_name;
    QosTime now;
    guint sends;
} World;

static void set_rule(World *world, guint64 limit, QosBudgetShare share, guint parts)
{
    world->rule = (QosServerBudgetRule){
        .id = RULE, .name = "big", .limit = {limit, 0}, .share = share, .floor = 10};
    qos_server_budgets_set_rules(world->server, &world->rule, 1, EPOCH, LEASE, parts, world->now);
}

static void world_init(World *world, QosBudgetShare share, QosTime grace)
{
    const QosBudgetConfig config = {.limit = R,
                                    .share = share,
                                    .floor = 10,
                                    .epoch = EPOCH,
                                    .lease = LEASE,
                                    .registered = MOUNTS};

    *world = (World){.server = qos_server_budgets_new(grace), .class_name = "job1"};
    world->now = 1000 * QOS_SECOND;
    set_rule(world, R, share, MOUNTS);
    for (guint i = 0; i < MOUNTS; i++)
        qos_budget_mount_init(&world->mounts[i].budget, &config, 1, R / 10 / MOUNTS, 1);
}

static void world_clear(World *world)
{
    qos_server_budgets_free(world->server);
}

static void take_grants(QosOwnerId client, const GByteArray *frames, gpointer arg)
{
    World *world = arg;
    Mount *mount = &world->mounts[client - 1];
    const guint8 *payload;
    QosWireReader reader;
    QosWireType type;
    gsize length;

    world->sends++;
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, frames->data, frames->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        g_assert_cmpint(type, ==, QOS_WIRE_BUDGET_GRANT);
        while (length > 0) {
            QosWireBudget item;
            QosBudgetGrant grant;

            g_assert_true(qos_wire_get_budget(&payload, &length, &item));
            g_assert_cmpuint(item.rule, ==, RULE);
            g_assert_cmpuint(item.unit, ==, 0);
            g_assert_true(qos_budget_grant_decode(item.bytes, item.length, &grant));
            if (g_str_equal(item.class, world->class_name) && !mount->is_deaf)
                mount->grants += qos_budget_mount_grant(&mount->budget, &grant, world->now);
        }
    }
    qos_wire_reader_clear(&reader);
}

static QosTime tick(World *world)
{
    return qos_server_budgets_tick(world->server, world->now, take_grants, world);
}

/* A frame of one report, of any class. */
static gboolean tell(World *world, QosOwnerId client, guint64 rule, const char *class,
                     const QosBudgetReport *report)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new(), frame = g_byte_array_new();
    QosWireBudget item = {.rule = rule};
    gsize batch = QOS_WIRE_NO_BATCH;

    qos_budget_report_encode(report, bytes);
    g_strlcpy(item.class, class, sizeof(item.class));
    item.bytes = bytes->data;
    item.length = bytes->len;
    qos_wire_put_budget(frame, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    return qos_server_budgets_report(world->server, client, frame->data + 5, frame->len - 5,
                                     world->now);
}

static void report(World *world, guint number)
{
    Mount *mount = &world->mounts[number];
    QosBudgetReport made = {0};

    qos_budget_mount_report(&mount->budget, mount->demand, mount->served, world->now, &made);
    if (!mount->is_cut)
        g_assert_true(tell(world, number + 1, RULE, world->class_name, &made));
    qos_budget_report_clear(&made);
    tick(world);
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

/* All mounts with demand report, and have what they may use served until the next epoch. */
static void epoch(World *world)
{
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

/* --- tests --- */

/* One mount has all of R within its first report. */
static void test_one(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    g_assert_cmpuint(rate(&world, 0), ==, R / 80);
    world.mounts[0].demand = 2 * R;
    report(&world, 0);
    g_assert_cmpuint(world.mounts[0].grants, ==, 1);
    g_assert_cmpuint(rate(&world, 0), >=, R * 0.999);
    g_assert_cmpuint(rate(&world, 0), <=, R);
    world_clear(&world);
}

/* Two share by their hunger; what one leaves goes to the other. A newcomer has its share within an
 * epoch. */
static void test_two(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    world.mounts[0].demand = R / 4;
    world.mounts[1].demand = 2 * R;
    for (guint i = 0; i < 20; i++)
        epoch(&world);
    g_assert_cmpuint(rate(&world, 0), ==, R / 4);
    g_assert_cmpuint(rate(&world, 1), >, R * 0.74);
    g_assert_cmpuint(rate(&world, 1), <, R * 0.76);
    world.mounts[2].demand = 2 * R;
    epoch(&world);
    epoch(&world);
    g_assert_cmpuint(rate(&world, 2), >, R * 0.36);
    g_assert_cmpuint(rate(&world, 2), <, R * 0.39);
    world_clear(&world);
}

/* A newcomer waits for half an epoch at most when nobody is awaited, and for the others else. */
static void test_newcomer(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    const QosTime start = world.now;
    world.mounts[0].demand = world.mounts[1].demand = R;
    report(&world, 0);
    world.now = start + 30 * QOS_MILLISECOND;
    report(&world, 1);
    g_assert_cmpint(tick(&world), ==, start + EPOCH); /* the first one is awaited, */
    world.mounts[0].demand = 0;
    report(&world, 0); /* and is idle */
    g_assert_cmpint(tick(&world), ==, start + EPOCH / 2);
    world.now = start + EPOCH / 2 - 1;
    tick(&world);
    g_assert_cmpuint(world.mounts[1].grants, ==, 0);
    world.now++;
    tick(&world);
    g_assert_cmpuint(world.mounts[1].grants, ==, 1);
    world_clear(&world);
}

/* Nobody waits for a client that is known no more. */
static void test_leave(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    world.mounts[0].demand = world.mounts[1].demand = R;
    const QosTime start = world.now;
    report(&world, 0);
    report(&world, 1);
    world.now = start + EPOCH - 1;
    g_assert_cmpint(tick(&world), ==, start + EPOCH);
    g_assert_cmpuint(world.mounts[1].grants, ==, 0);
    qos_server_budgets_leave(world.server, 1, world.now);
    tick(&world);
    g_assert_cmpuint(world.mounts[1].grants, ==, 1);
    world_clear(&world);
}

/* HARD: the floors of mounts that never reported stay theirs. */
static void test_hard(void)
{
    World world;

    world_init(&world, QOS_BUDGET_HARD, 0);
    world.mounts[0].demand = world.mounts[1].demand = 2 * R;
    for (guint i = 0; i < 20; i++) {
        epoch(&world);
        g_assert_cmpuint(sum(&world), <=, R);
    }
    g_assert_cmpuint(sum(&world), >, R * 0.98);
    world_clear(&world);
}

/* A silent mount's share is lent on when its lease has ended, and it is at its floor by then. */
static void test_silence(void)
{
    World world;

    world_init(&world, QOS_BUDGET_HARD, 0);
    world.mounts[0].demand = world.mounts[1].demand = 2 * R;
    for (guint i = 0; i < 20; i++)
        epoch(&world);
    world.mounts[0].is_cut = TRUE;
    for (guint i = 0; i < 8; i++) {
        epoch(&world);
        g_assert_cmpuint(rate(&world, 1), <, R * 0.5);
    }
    for (guint i = 0; i < 5; i++) {
        epoch(&world);
        g_assert_cmpuint(sum(&world), <=, R);
    }
    g_assert_cmpuint(rate(&world, 0), ==, R / 80);
    g_assert_cmpuint(rate(&world, 1), >, R * 0.89);
    world_clear(&world);
}

/* After a restart nothing is raised until all leases of the former life have ended. */
static void test_restart(void)
{
    World world;

    world_init(&world, QOS_BUDGET_HARD, 0);
    world.mounts[0].demand = 2 * R;
    for (guint i = 0; i < 20; i++)
        epoch(&world);
    qos_server_budgets_free(world.server);
    world.server = qos_server_budgets_new(world.now + LEASE);
    set_rule(&world, R, QOS_BUDGET_HARD, MOUNTS);
    world.mounts[0].is_cut = TRUE; /* it lives on, and nobody hears of it */
    world.mounts[1].demand = 2 * R;
    for (guint i = 0; i < 10; i++) {
        epoch(&world);
        g_assert_cmpuint(sum(&world), <=, R);
        g_assert_cmpuint(rate(&world, 1), ==, R / 80);
    }
    for (guint i = 0; i < 3; i++) {
        epoch(&world);
        g_assert_cmpuint(sum(&world), <=, R);
    }
    g_assert_cmpuint(rate(&world, 1), >, R * 0.89);
    world_clear(&world);
}

/* A rule's change holds within an epoch. Without the rule the class is gone, and reports of it are
 * passed over. */
static void test_change(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    world.mounts[0].demand = 4 * R;
    epoch(&world);
    set_rule(&world, 2 * R, QOS_BUDGET_FAIR, MOUNTS);
    epoch(&world);
    epoch(&world);
    g_assert_cmpuint(rate(&world, 0), >, 1.9 * R);
    qos_server_budgets_set_rules(world.server, NULL, 0, EPOCH, LEASE, MOUNTS, world.now);
    const guint before = world.mounts[0].grants;
    epoch(&world);
    g_assert_cmpuint(world.mounts[0].grants, ==, before);
    g_assert_cmpuint(qos_server_budgets_passed_over(world.server), ==, 1);
    world_clear(&world);
}

/* More parts: what the floors of all mounts lose is free for as many new mounts, once all of them
 * have put that in force. */
static void test_parts(void)
{
    World world;

    world_init(&world, QOS_BUDGET_HARD, 0);
    for (guint i = 0; i < 4; i++)
        world.mounts[i].demand = 2 * R;
    for (guint i = 0; i < 20; i++)
        epoch(&world);
    set_rule(&world, R, QOS_BUDGET_HARD, 2 * MOUNTS);
    for (guint i = 0; i < MOUNTS; i++) {
        const QosBudgetConfig config = {.limit = R,
                                        .share = QOS_BUDGET_HARD,
                                        .floor = 10,
                                        .epoch = EPOCH,
                                        .lease = LEASE,
                                        .registered = 2 * MOUNTS};
        epoch(&world);
        g_assert_cmpuint(sum(&world), <=, R);
        qos_budget_mount_configure(&world.mounts[i].budget, &config, R / 10 / (2 * MOUNTS));
    }
    for (guint i = 0; i < 20; i++) {
        g_assert_cmpuint(sum(&world) + MOUNTS * (R / 10 / (2 * MOUNTS)), <=, R);
        epoch(&world);
    }
    g_assert_cmpuint(sum(&world), >, R * 0.93);
    world_clear(&world);
}

static void count_class(const QosServerBudgetsClass *item G_GNUC_UNUSED, gpointer arg)
{
    ++*(guint *)arg;
}

static guint classes_of(const World *world)
{
    guint count = 0;

    qos_server_budgets_each(world->server, count_class, &count, world->now);
    return count;
}

/* A class that nobody uses is freed when no lease of it can run. */
static void test_rest(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    world.mounts[0].demand = R;
    epoch(&world);
    g_assert_cmpuint(classes_of(&world), ==, 1);
    world.mounts[0].demand = 0;
    report(&world, 0); /* idle */
    world.now += LEASE;
    tick(&world);
    g_assert_cmpuint(classes_of(&world), ==, 1);
    for (guint i = 0; i < 4; i++) {
        world.now += LEASE;
        tick(&world);
    }
    g_assert_cmpuint(classes_of(&world), ==, 0);
    g_assert_cmpint(tick(&world), ==, QOS_NEVER);
    world_clear(&world);
}

static void count_member(const QosServerBudgetsMember *member G_GNUC_UNUSED, gpointer arg)
{
    ++*(guint *)arg;
}

static guint members_of(const World *world)
{
    guint count = 0;

    qos_server_budgets_each_member(world->server, RULE, world->class_name, 0, count_member, &count,
                                   world->now);
    return count;
}

/* Mounts that are long idle in a class that others use cost nothing, and are welcome again. */
static void test_long_idle(void)
{
    World world;

    world_init(&world, QOS_BUDGET_HARD, 0);
    for (guint i = 0; i < MOUNTS; i++)
        world.mounts[i].demand = 2 * R;
    epoch(&world);
    epoch(&world);
    for (guint i = 1; i < MOUNTS; i++) {
        world.mounts[i].demand = 0;
        report(&world, i);
    }
    for (guint i = 0; i < 50; i++)
        epoch(&world);
    g_assert_cmpuint(members_of(&world), ==, MOUNTS);
    for (guint i = 0; i < 200; i++)
        epoch(&world);
    g_assert_cmpuint(members_of(&world), ==, 1);
    world.mounts[1].demand = 2 * R;
    for (guint i = 0; i < 5; i++) {
        epoch(&world);
        g_assert_cmpuint(sum(&world), <=, R);
    }
    g_assert_cmpuint(members_of(&world), ==, 2);
    g_assert_cmpuint(rate(&world, 1), >, R * 0.4);
    g_assert_cmpuint(rate(&world, 1), <, R * 0.5);
    world_clear(&world);
}

static void note_class(const QosServerBudgetsClass *item, gpointer arg)
{
    *(QosServerBudgetsClass *)arg = *item;
}

/* What status, `jobs` and `why` are told. */
static void test_state(void)
{
    QosServerBudgetsClass class = {0};
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    world.mounts[0].demand = R / 4;
    world.mounts[1].demand = R / 2;
    for (guint i = 0; i < 30; i++)
        epoch(&world);
    qos_server_budgets_each(world.server, note_class, &class, world.now);
    g_assert_cmpuint(class.rule, ==, RULE);
    g_assert_cmpstr(class.rule_name, ==, "big");
    g_assert_cmpstr(class.class_name, ==, "job1");
    g_assert_cmpuint(class.limit, ==, R);
    g_assert_cmpuint(class.demand, ==, R / 4 + R / 2);
    g_assert_cmpuint(class.served, ==, R / 4 + R / 2);
    g_assert_cmpuint(class.state.members, ==, 2);
    world_clear(&world);
}

/* A unit whose limit goes is freed, and the other one stays. */
static void test_units(void)
{
    QosBudgetReport made = {0};
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    world.mounts[0].demand = R;
    epoch(&world);
    g_assert_cmpuint(classes_of(&world), ==, 1);
    world.rule.limit[0] = 0;
    world.rule.limit[1] = R;
    qos_server_budgets_set_rules(world.server, &world.rule, 1, EPOCH, LEASE, MOUNTS, world.now);
    g_assert_cmpuint(classes_of(&world), ==, 0);
    qos_budget_mount_report(&world.mounts[0].budget, R, 0, world.now, &made);
    g_assert_true(tell(&world, 1, RULE, "job1", &made));
    g_assert_cmpuint(classes_of(&world), ==, 0);
    g_assert_cmpuint(qos_server_budgets_passed_over(world.server), ==, 1);
    qos_budget_report_clear(&made);
    world_clear(&world);
}

/* 1,000 classes of a mount are answered in one send. */
static void test_many(void)
{
    World world;

    world_init(&world, QOS_BUDGET_FAIR, 0);
    for (guint i = 0; i < 1000; i++) {
        g_autofree char *name = g_strdup_printf("job%u", i);
        QosBudgetMount mount = world.mounts[0].budget;
        QosBudgetReport made = {0};

        qos_budget_mount_report(&mount, R, 0, world.now, &made);
        g_assert_true(tell(&world, 1, RULE, name, &made));
        qos_budget_report_clear(&made);
    }
    g_assert_cmpuint(classes_of(&world), ==, 1000);
    tick(&world);
    g_assert_cmpuint(world.sends, ==, 1);
    qos_server_budgets_leave(world.server, 1, world.now);
    world_clear(&world);
}

/* What a mount may say at will: nothing breaks, and no more classes are made than it may. */
static void test_hostile(void)
{
    QosBudgetStep step = {.step = 5, .demand = R, .weight = 1};
    QosBudgetReport made = {.ticket = 1, .count = 1, .allocated = 1, .steps = &step};
    World world;

    world_init(&world, QOS_BUDGET_HARD, 0);
    g_assert_false(qos_server_budgets_report(world.server, 1, (const guint8 *)"x", 1, world.now));
    g_assert_true(tell(&world, 1, RULE + 1, "job1", &made));
    g_assert_cmpuint(qos_server_budgets_passed_over(world.server), ==, 1);
    step.weight = 2; /* more than a mount has */
    g_assert_true(tell(&world, 1, RULE, "job1", &made));
    g_assert_cmpuint(qos_server_budgets_passed_over(world.server), ==, 2);
    step.weight = 1;
    for (guint i = 0; i < 10010; i++) {
        g_autofree char *name = g_strdup_printf("no job %u", i);
        g_assert_true(tell(&world, 1, RULE, name, &made));
    }
    g_assert_cmpuint(classes_of(&world), ==, 10000);
    g_assert_cmpuint(qos_server_budgets_passed_over(world.server), ==, 2 + 11);
    tick(&world);
    world_clear(&world);
}

/* Reports and answers are lost, clients leave when nothing of theirs is in force, and the server
 * starts again. */
static void happen(World *world, GRand *random, Mount *mount)
{
    switch (g_rand_int_range(random, 0, 40)) {
    case 0:
    case 1:
    case 2:
        mount->is_cut = !mount->is_cut;
        break;
    case 3:
    case 4:
        mount->is_deaf = !mount->is_deaf;
        break;
    case 5:
        if (g_rand_int_range(random, 0, 4) > 0)
            break;
        qos_server_budgets_free(world->server);
        world->server = qos_server_budgets_new(world->now + LEASE);
        set_rule(world, R, QOS_BUDGET_HARD, MOUNTS);
        break;
    case 6:
        if (world->now < mount->budget.until)
            break;
        qos_server_budgets_leave(world->server, (QosOwnerId)(mount - world->mounts) + 1,
                                 world->now);
        break;
    default:
        break;
    }
}

/* Random mounts and losses: with HARD the rates in force are never above R. Half of the seeds leave
 * two mounts that never report and use their floors. */
static void test_random(void)
{
    guint64 highest = 0;

    for (guint seed = 0; seed < 200; seed++) {
        g_autoptr(GRand) random = g_rand_new_with_seed(seed);
        const gint awake = seed % 2 == 0 ? MOUNTS : MOUNTS - 2;
        World world;

        world_init(&world, QOS_BUDGET_HARD, 0);
        for (guint step = 0; step < 300; step++) {
            Mount *mount = &world.mounts[g_rand_int_range(random, 0, awake)];

            if (g_rand_int_range(random, 0, 4) == 0)
                mount->demand = g_rand_int_range(random, 0, 3) == 0
                                    ? 0
                                    : (guint64)g_rand_int_range(random, 1, 3000) * 1000;
            happen(&world, random, mount);
            if (g_rand_int_range(random, 0, 5) > 0)
                report(&world, (guint)(mount - world.mounts));
            world.now += g_rand_int_range(random, 1, 60) * QOS_MILLISECOND;
            tick(&world);
            if (sum(&world) > R)
                g_error("seed %u, step %u: %" G_GUINT64_FORMAT, seed, step, sum(&world));
            highest = MAX(highest, sum(&world));
        }
        world_clear(&world);
    }
    g_assert_cmpuint(highest, >, R * 0.98); /* it was put to the test */
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/server-budgets/one", test_one);
    g_test_add_func("/server-budgets/two", test_two);
    g_test_add_func("/server-budgets/newcomer", test_newcomer);
    g_test_add_func("/server-budgets/leave", test_leave);
    g_test_add_func("/server-budgets/hard", test_hard);
    g_test_add_func("/server-budgets/silence", test_silence);
    g_test_add_func("/server-budgets/restart", test_restart);
    g_test_add_func("/server-budgets/change", test_change);
    g_test_add_func("/server-budgets/parts", test_parts);
    g_test_add_func("/server-budgets/rest", test_rest);
    g_test_add_func("/server-budgets/long-idle", test_long_idle);
    g_test_add_func("/server-budgets/state", test_state);
    g_test_add_func("/server-budgets/units", test_units);
    g_test_add_func("/server-budgets/many", test_many);
    g_test_add_func("/server-budgets/hostile", test_hostile);
    g_test_add_func("/server-budgets/random", test_random);
    return g_test_run();
}
