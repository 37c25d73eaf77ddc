/*
 * The tbf policy where a class owes as much as it may: those behind a lock wait for one token, and
 * never for the debt.
 */
#include "sched_fixture.h"

static QosRequest *lock_holder_new(Fixture *f, QosOpcode opcode, guint64 bytes)
{
    QosRequest *request = request_new(f, "j", opcode, bytes);

    request->lock = 7;
    request->holds_lock = TRUE;
    return request;
}

/* Makes `job` owe what it may. The first that had to wait, and when it is due. */
static QosRequest *fill_debt(Fixture *f, QosOpcode opcode, guint64 bytes, QosTime *ret_due)
{
    for (;;) {
        QosRequest *request = lock_holder_new(f, opcode, bytes);

        if (qos_sched_enter(f->sched, request, f->now, ret_due) == QOS_WAIT)
            return request;
        leave(f, request);
    }
}

static void drop(Fixture *f, QosRequest *request)
{
    qos_sched_cancel(f->sched, request, f->now);
    request_free(request);
}

/* Whoever wants its lock gets on at the rule's rate. What holds nothing pays the debt. */
static void test_a_lock_waits_for_one_token(void)
{
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    QosRequest *payer = NULL;
    QosRequest *first = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    g_assert_cmpint(due, ==, f.now + QOS_SECOND / 10);

    payer = request_new(&f, "j", QOS_OP_READ, 0);
    g_assert_cmpint(enter(&f, payer), ==, QOS_WAIT);
    QosRequest *second = lock_holder_new(&f, QOS_OP_CREATE, 0);
    g_assert_cmpint(enter(&f, second), ==, QOS_WAIT);
    for (guint i = 0; i < 2; i++) {
        QosRequest *expected = i == 0 ? first : second;
        g_assert_null(next(&f));
        f.now += QOS_SECOND / 10;
        g_assert_true(next(&f) == expected);
        g_assert_true(expected->owes);
        leave(&f, expected);
    }
    g_assert_null(qos_sched_next(f.sched, f.now, &due));
    g_assert_cmpint(due, ==, f.now + QOS_DEBT_MAX + QOS_SECOND / 10);
    drop(&f, payer);
    fixture_clear(&f);
}

/* Whoever comes later waits behind those that wait, also where the debt allows one more. */
static void test_no_lock_goes_before_another(void)
{
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    QosRequest *first = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    f.now = due;
    QosRequest *second = lock_holder_new(&f, QOS_OP_CREATE, 0);
    g_assert_cmpint(enter(&f, second), ==, QOS_WAIT);
    g_assert_true(next(&f) == first);
    leave(&f, first);
    drop(&f, second);
    fixture_clear(&f);
}

static void test_bytes(void)
{
    static const struct {
        const char *rule;
        QosTime due;
    } cases[] = {
        {"start r jobid={j} bps=1M depth=1:4K", QOS_SECOND / 8},
        /* 300 s are less than QOS_DEBT_BYTES here */
        {"start r jobid={j} bps=4K depth=1:4K", 32 * QOS_SECOND},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        QosTime due;
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, cases[i].rule);
        QosRequest *write = fill_debt(&f, QOS_OP_WRITE, 128 << 10, &due);
        g_assert_cmpint(due - f.now, >, 0);
        g_assert_cmpint(due - f.now, <=, cases[i].due);
        f.now = due;
        g_assert_true(next(&f) == write);
        leave(&f, write);
        fixture_clear(&f);
    }
}

/* A debt that was made at a high rate would take days at the new one. */
static void test_a_lower_rate_forgives(void)
{
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=1000 bps=100M depth=1:4K");
    QosRequest *write = fill_debt(&f, QOS_OP_WRITE, 128 << 10, &due);

    fixture_rule(&f, "change r rate=1 bps=64K");
    g_assert_null(qos_sched_next(f.sched, f.now, &due));
    g_assert_cmpint(due - f.now, <=, 2 * QOS_SECOND);
    f.now = due;
    g_assert_true(next(&f) == write);
    leave(&f, write);
    QosRequest *payer = request_new(&f, "j", QOS_OP_READ, 0);
    g_assert_cmpint(qos_sched_enter(f.sched, payer, f.now, &due), ==, QOS_WAIT);
    g_assert_cmpint(due - f.now, <=, QOS_DEBT_MAX + 2 * QOS_SECOND);
    drop(&f, payer);
    fixture_clear(&f);
}

static guint count_classes(Fixture *f, const char *rule)
{
    QosRuleState state;
    g_assert_true(qos_sched_rule_state(
        f->sched, qos_rules_by_name(qos_sched_rules(f->sched), rule)->id, &state));
    return state.buckets;
}

/* A class that holds nothing back is forgotten when it is idle, but not while something waits in it
 * for a slot: least of all what holds a lock, and came there as its rule was stopped. */
static void test_what_waits_keeps_its_class(void)
{
    Fixture f;
    QosTime due;
    QosRequest *others[2], *lock_holders[2];
    fixture_init(&f, &qos_policy_tbf, 2); /* a job's share: 1 */
    fixture_rule(&f, "start r jobid={j k} rate=10 depth=5 per=rule");
    lock_holders[0] = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    f.now++; /* the others come later */
    lock_holders[1] = request_new(&f, "k", QOS_OP_CREATE, 0);
    lock_holders[1]->holds_lock = TRUE;
    g_assert_cmpint(enter(&f, lock_holders[1]), ==, QOS_WAIT);
    for (guint i = 0; i < 2; i++) {
        others[i] = request_new(&f, i == 0 ? "a" : "b", QOS_OP_READ, 0);
        g_assert_cmpint(enter(&f, others[i]), ==, QOS_GO);
    }
    QosRequest *reader = request_new(&f, "c", QOS_OP_READ, 0);
    g_assert_cmpint(enter(&f, reader), ==, QOS_WAIT);
    fixture_rule(&f, "stop r");
    leave(&f, others[0]);
    g_assert_true(next(&f) == lock_holders[0]);
    g_assert_null(next(&f)); /* both slots are taken */

    f.now += 20 * QOS_SECOND;
    g_assert_cmpuint(count_classes(&f, "default"), ==, 5);
    qos_sched_expire(f.sched, f.now);
    g_assert_cmpuint(count_classes(&f, "default"), ==, 4); /* without that of job a */
    leave(&f, others[1]);
    leave(&f, lock_holders[0]);
    QosRequest *last[] = {next(&f), next(&f)};
    g_assert_true(last[0] == lock_holders[1] || last[1] == lock_holders[1]);
    g_assert_true(last[0] == reader || last[1] == reader);
    for (guint i = 0; i < 2; i++)
        leave(&f, last[i]);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf-debt/a-lock-waits-for-one-token", test_a_lock_waits_for_one_token);
    g_test_add_func("/tbf-debt/no-lock-goes-before-another", test_no_lock_goes_before_another);
    g_test_add_func("/tbf-debt/bytes", test_bytes);
    g_test_add_func("/tbf-debt/a-lower-rate-forgives", test_a_lower_rate_forgives);
    g_test_add_func("/tbf-debt/what-waits-keeps-its-class", test_what_waits_keeps_its_class);
    return g_test_run();
}
