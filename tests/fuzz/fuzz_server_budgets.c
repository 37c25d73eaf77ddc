/*
 * The server's coordinators of budgets, and combiners, with clients that report at will. The input
 * is a list of steps: two bytes of length and kind, then as many bytes. Kind 0 is time that passes
 * and a tick, 1 the rules that go and come back, 2 a client that leaves, 3 a payload of
 * BUDGET_GRANT for the combiners, others are payloads of BUDGET_REPORT for both. What combiners
 * report, the coordinators take. There are two rules: one with share=hard, and one that jobs
 * divide. Each frame is whole, and with share=hard no class of a coordinator's counts on more than
 * R.
 */
#include <glib.h>

#include "base/bytes.h"
#include "server/budgets.h"

#define R       (G_GUINT64_CONSTANT(1000) * QOS_BUDGET_UNIT)
#define CLIENTS 4 /* the last one is the combiner */
#define RULE    1
#define SHARING 2

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

typedef struct {
    QosServerBudgets *root, *combiner;
    QosTime now;
} World;

static void set_rule(QosServerBudgets *budgets, guint count, QosTime now)
{
    const QosServerBudgetRule rules[] = {
        {.id = RULE, .name = "big", .limit = {R, R}, .share = QOS_BUDGET_HARD, .floor = 10},
        {.id = SHARING,
         .name = "adapt",
         .limit = {R, 0},
         .share = QOS_BUDGET_FAIR,
         .away = QOS_BUDGET_AWAY_OPEN,
         .is_divided = TRUE}};

    qos_server_budgets_set_rules(budgets, rules, count, QOS_BUDGET_EPOCH, QOS_SECOND, 2 * CLIENTS,
                                 now);
}

static void take_frames(QosOwnerId client, const GByteArray *frames, gpointer arg)
{
    World *world = arg;
    QosWireReader reader;
    const guint8 *payload;
    QosWireType type;
    QosWireBudget item;
    QosBudgetGrant grant;
    gsize length;

    g_assert_cmpuint(client, <, CLIENTS);
    qos_wire_reader_init(&reader);
    qos_wire_reader_feed(&reader, frames->data, frames->len);
    while (qos_wire_reader_next(&reader, &type, &payload, &length) == QOS_WIRE_FRAME) {
        if (type == QOS_WIRE_BUDGET_REPORT) {
            g_assert_cmpuint(client, ==, QOS_SERVER_BUDGETS_PARENT);
            g_assert_true(
                qos_server_budgets_report(world->root, CLIENTS - 1, payload, length, world->now));
            continue;
        }
        g_assert_cmpint(type, ==, QOS_WIRE_BUDGET_GRANT);
        while (length > 0) {
            g_assert_true(qos_wire_get_budget(&payload, &length, &item));
            g_assert_true(item.rule == RULE || item.rule == SHARING);
            g_assert_true(qos_budget_grant_decode(item.bytes, item.length, &grant));
        }
    }
    qos_wire_reader_clear(&reader);
}

static void check_class(const QosServerBudgetsClass *class, gpointer arg G_GNUC_UNUSED)
{
    if (class->rule == RULE)
        g_assert_cmpuint(class->state.in_force, <=, R);
    g_assert_true(class->is_divided == (class->rule == SHARING));
}

static void step(World *world, guint8 kind, const guint8 *bytes, gsize length)
{
    switch (kind) {
    case 0:
        world->now += (QosTime)length * 10 * QOS_MILLISECOND;
        qos_server_budgets_tick(world->combiner, world->now, take_frames, world);
        qos_server_budgets_tick(world->root, world->now, take_frames, world);
        break;
    case 1:
        for (guint count = 0; count < 3; count += 1 + length % 2) {
            set_rule(world->root, count, world->now);
            set_rule(world->combiner, count, world->now);
        }
        break;
    case 2:
        qos_server_budgets_leave(world->root, length % CLIENTS, world->now);
        qos_server_budgets_leave(world->combiner, length % CLIENTS, world->now);
        break;
    case 3:
        qos_server_budgets_grant(world->combiner, bytes, length, world->now);
        break;
    default:
        qos_server_budgets_report(world->root, kind % CLIENTS, bytes, length, world->now);
        qos_server_budgets_report(world->combiner, kind % CLIENTS, bytes, length, world->now);
    }
    qos_server_budgets_each(world->root, check_class, NULL, world->now);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    World world = {.root = qos_server_budgets_new(0),
                   .combiner = qos_server_budgets_new_combiner(1),
                   .now = QOS_SECOND};
    guint8 length, kind;

    qos_server_budgets_set_weight(world.root, CLIENTS - 1, CLIENTS);
    qos_server_budgets_set_lent(world.combiner, CLIENTS);
    set_rule(world.root, 2, world.now);
    set_rule(world.combiner, 2, world.now);
    while (qos_bytes_take_u8(&data, &size, &length) && qos_bytes_take_u8(&data, &size, &kind)) {
        const gsize taken = MIN(length, size);
        step(&world, kind, data, taken);
        data += taken;
        size -= taken;
    }
    qos_server_budgets_free(world.root);
    qos_server_budgets_free(world.combiner);
    return 0;
}
