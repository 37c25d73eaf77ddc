/*
 * Reports and grants of budgets, hostile ones too. The input is a list of steps: two bytes of
 * length and sender, then as many bytes. Sender 0 is time that passes and an epoch that ends, 1 a
 * grant for a mount and a combiner, others a report. What is decoded is encoded to the same bytes
 * again, reports combine in any order, a level hands out no more than its budget, and a
 * coordinator with share=hard never counts on more than R.
 */
#include <glib.h>

#include "base/bytes.h"
#include "core/budget.h"

#define R       (G_GUINT64_CONSTANT(1000) * QOS_BUDGET_UNIT)
#define MEMBERS 4

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

typedef struct {
    QosBudget *root, *combiner;
    QosBudgetMount mount;
    QosBudgetReport sum; /* of all reports so far */
    QosTime now;
    GArray *answers;
} World;

static void check_sums(World *world, const QosBudgetReport *report)
{
    QosBudgetReport other = {0};
    const double budget = (double)(report->held >> 4);

    qos_budget_report_add(&other, report); /* other + sum = sum + other */
    qos_budget_report_add(&other, &world->sum);
    qos_budget_report_add(&world->sum, report);
    g_assert_true(qos_budget_report_equal(&other, &world->sum));
    qos_budget_report_clear(&other);
    const double level = qos_budget_level(&world->sum, budget);
    g_assert_cmpfloat(level, >=, 0);
    g_assert_cmpfloat(qos_budget_take(&world->sum, level), <=, budget);
}

static void take_report(World *world, guint8 from, const guint8 *bytes, gsize length)
{
    QosBudgetReport report = {0};
    g_autoptr(GByteArray) again = g_byte_array_new();

    if (!qos_budget_report_decode(bytes, length, &report))
        return;
    qos_budget_report_encode(&report, again);
    g_assert_cmpmem(again->data, again->len, bytes, length);
    check_sums(world, &report);
    qos_budget_report(world->root, from % MEMBERS, &report, world->now);
    qos_budget_report(world->combiner, from % MEMBERS, &report, world->now);
    qos_budget_report_clear(&report);
}

static void take_grant(World *world, const guint8 *bytes, gsize length)
{
    QosBudgetReport report = {0};
    QosBudgetGrant grant;
    g_autoptr(GByteArray) again = g_byte_array_new();

    if (!qos_budget_grant_decode(bytes, length, &grant))
        return;
    qos_budget_grant_encode(&grant, again);
    g_assert_cmpmem(again->data, again->len, bytes, length);
    qos_budget_mount_report(&world->mount, R, 0, world->now, &report);
    grant.ticket = report.ticket;
    g_assert_true(qos_budget_mount_grant(&world->mount, &grant, world->now));
    qos_budget_pass_up(world->combiner, world->now, &report);
    grant.ticket = report.ticket;
    qos_budget_pass_down(world->combiner, &grant, world->now, world->answers);
    g_array_set_size(world->answers, 0);
    qos_budget_report_clear(&report);
}

static void step(World *world, guint8 from, const guint8 *bytes, gsize length)
{
    if (from == 0) {
        world->now += (QosTime)length * 10 * QOS_MILLISECOND;
        qos_budget_close(world->root, world->now, world->answers);
        g_array_set_size(world->answers, 0);
    } else if (from == 1) {
        take_grant(world, bytes, length);
    } else {
        take_report(world, from, bytes, length);
    }
    g_assert_cmpuint(qos_budget_state(world->root, world->now).in_force, <=, R);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    const QosBudgetConfig config = {.limit = R,
                                    .share = QOS_BUDGET_HARD,
                                    .floor = 10,
                                    .epoch = QOS_BUDGET_EPOCH,
                                    .lease = QOS_SECOND,
                                    .registered = 4 * MEMBERS};
    World world = {.root = qos_budget_new(&config, TRUE, 0),
                   .combiner = qos_budget_combiner_new(&config, R / 10, 1, 0),
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer))};
    guint8 length, from;

    qos_budget_mount_init(&world.mount, &config, 1, R / 100, 1);
    for (guint i = 0; i < MEMBERS; i++) {
        qos_budget_join(world.root, i, 4, 0);
        qos_budget_join(world.combiner, i, 4, 0);
    }
    while (qos_bytes_take_u8(&data, &size, &length) && qos_bytes_take_u8(&data, &size, &from)) {
        const gsize taken = MIN(length, size);
        step(&world, from, data, taken);
        data += taken;
        size -= taken;
    }
    qos_budget_report_clear(&world.sum);
    qos_budget_free(world.root);
    qos_budget_free(world.combiner);
    g_array_unref(world.answers);
    return 0;
}
