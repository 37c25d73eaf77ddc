/*
 * The server's coordinators of budgets, with clients that report at will. The input is a list of
 * steps: two bytes of length and kind, then as many bytes. Kind 0 is time that passes and a tick, 1
 * the rule that goes and comes back, 2 a client that leaves, others are payloads of BUDGET_REPORT.
 * Each answer is whole, to a client that reported, and with share=hard no class counts on more than
 * R.
 */
#include <glib.h>

#include "base/bytes.h"
#include "server/budgets.h"

#define R       (G_GUINT64_CONSTANT(1000) * QOS_BUDGET_UNIT)
#define CLIENTS 4
#define RULE    1

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static void set_rule(QosServerBudgets *budgets, guint count, QosTime now)
{
    const QosServerBudgetRule rule = {
        .id = RULE, .name = "big", .limit = {R, R}, .share = QOS_BUDGET_HARD, .floor = 10};

    qos_server_budgets_set_rules(budgets, &rule, count, QOS_BUDGET_EPOCH, QOS_SECOND, 2 * CLIENTS,
                                 now);
}

static void take_grants(QosOwnerId client, const GByteArray *frames, gpointer arg G_GNUC_UNUSED)
{
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
        g_assert_cmpint(type, ==, QOS_WIRE_BUDGET_GRANT);
        while (length > 0) {
            g_assert_true(qos_wire_get_budget(&payload, &length, &item));
            g_assert_cmpuint(item.rule, ==, RULE);
            g_assert_true(qos_budget_grant_decode(item.bytes, item.length, &grant));
        }
    }
    qos_wire_reader_clear(&reader);
}

static void check_class(const QosServerBudgetsClass *class, gpointer arg G_GNUC_UNUSED)
{
    g_assert_cmpuint(class->state.in_force, <=, R);
}

static void step(QosServerBudgets *budgets, guint8 kind, const guint8 *bytes, gsize length,
                 QosTime *now)
{
    switch (kind) {
    case 0:
        *now += (QosTime)length * 10 * QOS_MILLISECOND;
        qos_server_budgets_tick(budgets, *now, take_grants, NULL);
        break;
    case 1:
        set_rule(budgets, 0, *now);
        set_rule(budgets, 1, *now);
        break;
    case 2:
        qos_server_budgets_leave(budgets, length % CLIENTS, *now);
        break;
    default:
        qos_server_budgets_report(budgets, kind % CLIENTS, bytes, length, *now);
    }
    qos_server_budgets_each(budgets, check_class, NULL, *now);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    QosServerBudgets *budgets = qos_server_budgets_new(0);
    QosTime now = QOS_SECOND;
    guint8 length, kind;

    set_rule(budgets, 1, now);
    while (qos_bytes_take_u8(&data, &size, &length) && qos_bytes_take_u8(&data, &size, &kind)) {
        const gsize taken = MIN(length, size);
        step(budgets, kind, data, taken, &now);
        data += taken;
        size -= taken;
    }
    qos_server_budgets_free(budgets);
    return 0;
}
