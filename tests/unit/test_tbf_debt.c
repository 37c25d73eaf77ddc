/*
 * The tbf policy where a class owes: what others want goes at once; where it owes as much as it
 * may, those behind a lock wait for one token, and never for the debt.
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

/* Of a file of its own, and with no lock: it is the kernel's room for such pages that others want.
 */
static void test_write_back_owes_first(void)
{
    Fixture f;
    QosTime due = 0;
    guint gone = 0;
    QosRequest *first;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    QosRequest *payer = request_new(&f, "j", QOS_OP_READ, 1 << 20);
    g_assert_cmpint(enter(&f, payer), ==, QOS_GO);
    leave(&f, payer);
    payer = request_new(&f, "j", QOS_OP_READ, 1 << 20);
    g_assert_cmpint(enter(&f, payer), ==, QOS_WAIT);
    for (;; gone++) {
        first = request_new(&f, "j", QOS_OP_WRITE, 1 << 20);
        first->lock = 7;
        first->writes_back = TRUE;
        if (qos_sched_enter(f.sched, first, f.now, &due) == QOS_WAIT)
            break;
        g_assert_true(first->owes);
        leave(&f, first);
    }
    g_assert_cmpuint(gone, ==, 300);
    g_assert_null(next(&f));
    f.now = due;
    g_assert_true(next(&f) == first); /* before what waits for tokens */
    g_assert_true(first->owes);
    leave(&f, first);
    g_assert_null(next(&f));
    drop(&f, payer);
    fixture_clear(&f);
}

/* One that goes at once, as `owes_much` says it. */
static gboolean owes_much(Fixture *f)
{
    QosRequest *request = lock_holder_new(f, QOS_OP_LOOKUP, 0);

    g_assert_cmpint(enter(f, request), ==, QOS_GO);
    const gboolean much = request->owes_much;
    leave(f, request);
    return much;
}

/* Who owes for less than a second, and has nothing waiting, does not owe much. */
static void test_who_owes_much(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (guint i = 0; i < 5 + 10; i++)
        g_assert_false(owes_much(&f));
    g_assert_true(owes_much(&f));
    f.now += QOS_SECOND;
    g_assert_false(owes_much(&f));
    fixture_clear(&f);
}

/* What waits counts, also where the bucket itself owes little. */
static void test_who_has_much_waiting(void)
{
    static const char *const rules[] = {"start r jobid={j} rate=10 depth=1",
                                        "start r jobid={j} bps=1M depth=1:1"};
    for (guint i = 0; i < G_N_ELEMENTS(rules); i++) {
        const guint count = i == 0 ? 11 : 1;
        QosRequest *waiting[11];
        Fixture f;
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, rules[i]);
        QosRequest *first = request_new(&f, "j", QOS_OP_READ, 1000);
        g_assert_cmpint(enter(&f, first), ==, QOS_GO);
        for (guint n = 0; n < count; n++) {
            waiting[n] = request_new(&f, "j", QOS_OP_READ, 1000);
            g_assert_cmpint(enter(&f, waiting[n]), ==, QOS_WAIT);
        }
        g_assert_true(owes_much(&f));
        for (guint n = 0; n < count; n++)
            drop(&f, waiting[n]);
        leave(&f, first);
        fixture_clear(&f);
    }
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

/* What others want goes though nothing is due, and the class owes for it. */
static void test_what_is_released_owes(void)
{
    Fixture f;
    QosTime wake;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    QosRequest *requests[3];
    for (guint i = 0; i < 3; i++) {
        requests[i] = request_new(&f, "j", QOS_OP_WRITE, 0);
        g_assert_cmpint(qos_sched_enter(f.sched, requests[i], f.now, &wake), ==,
                        i == 0 ? QOS_GO : QOS_WAIT);
    }
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND / 10);
    qos_sched_release(f.sched, requests[2], QOS_DEBT_MAX, f.now);
    g_assert_true(qos_sched_next(f.sched, f.now, &wake) == requests[2]);
    g_assert_true(requests[2]->owes);
    g_assert_null(qos_sched_next(f.sched, f.now, &wake));
    g_assert_cmpint(wake, ==, f.now + 2 * QOS_SECOND / 10);
    f.now = wake;
    g_assert_true(next(&f) == requests[1]);
    for (guint i = 0; i < 3; i++)
        leave(&f, requests[i]);
    fixture_clear(&f);
}

/* So many that wait, at a rate of 10; the first took the token. */
#define WAITING 3100

static void let_wait(Fixture *f, QosRequest *waiting[WAITING])
{
    QosRequest *first = request_new(f, "j", QOS_OP_WRITE, 0);

    g_assert_cmpint(enter(f, first), ==, QOS_GO);
    leave(f, first);
    for (guint i = 0; i < WAITING; i++) {
        waiting[i] = request_new(f, "j", QOS_OP_WRITE, 0);
        waiting[i]->lock = 7;
        g_assert_cmpint(enter(f, waiting[i]), ==, QOS_WAIT);
    }
}

static void release_all(Fixture *f, QosRequest *waiting[WAITING], QosTime max_debt)
{
    for (guint i = 0; i < WAITING; i++)
        qos_sched_release(f->sched, waiting[i], max_debt, f->now);
}

/* Takes all that may go; they must be those from `begin` on. How many. */
static guint take(Fixture *f, QosRequest *waiting[WAITING], guint begin, QosTime *ret_wake)
{
    QosRequest *request;
    guint count = 0;

    while ((request = qos_sched_next(f->sched, f->now, ret_wake)) != NULL) {
        g_assert_true(request == waiting[begin + count++]);
        leave(f, request);
    }
    return count;
}

/* What others want makes no debt beyond the bound, however much of it waits: the rest goes on at
 * the rule's rate, before what nobody wants, and each has waited once. */
static void test_what_is_released_meets_the_bound(void)
{
    enum { GO = 10 * 300 };
    QosRequest *waiting[WAITING];
    QosRuleState state;
    QosTime wake;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    let_wait(&f, waiting);
    QosRequest *payer = request_new(&f, "j", QOS_OP_READ, 0);
    g_assert_cmpint(enter(&f, payer), ==, QOS_WAIT);
    release_all(&f, waiting, QOS_DEBT_MAX);
    g_assert_cmpint(waiting[GO - 1]->state, !=, QOS_REQUEST_QUEUED);
    g_assert_cmpint(waiting[GO]->state, ==, QOS_REQUEST_QUEUED);
    g_assert_true(waiting[GO]->holds_lock);
    g_assert_cmpuint(take(&f, waiting, 0, &wake), ==, GO);
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND / 10);
    for (guint i = GO; i < WAITING; i++) {
        f.now = wake;
        g_assert_cmpuint(take(&f, waiting, i, &wake), ==, 1);
    }
    g_assert_cmpint(wake, ==, f.now + QOS_DEBT_MAX + QOS_SECOND / 10);
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "r")->id, &state));
    g_assert_cmpuint(state.waits, ==, WAITING - GO);
    drop(&f, payer);
    fixture_clear(&f);
}

/* Nor is there a bound for who waits for pages, also where others have met one. */
static void test_what_is_released_without_bound(void)
{
    QosRequest *waiting[WAITING];
    QosTime wake;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    let_wait(&f, waiting);
    release_all(&f, waiting, QOS_DEBT_MAX);
    release_all(&f, waiting, QOS_NEVER);
    g_assert_cmpuint(take(&f, waiting, 0, &wake), ==, WAITING);
    fixture_clear(&f);
}

/* Also what waits to be matched by new rules. */
static void test_what_is_released_while_rules_change(void)
{
    QosRequest *waiting[WAITING];
    QosTime wake;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    let_wait(&f, waiting);
    fixture_rule(&f, "change r rate=1");
    release_all(&f, waiting, QOS_DEBT_MAX);
    g_assert_cmpuint(take(&f, waiting, 0, &wake), ==, 300);
    while (wake == f.now) /* the rest of it is matched, some at a time */
        g_assert_cmpuint(take(&f, waiting, 300, &wake), ==, 0);
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND);
    for (guint i = 300; i < WAITING; i++)
        drop(&f, waiting[i]);
    fixture_clear(&f);
}

/* By its turn, by others who want its lock, or by a kill: the rule counts what the job does. */
static void test_waits_count_however_they_end(void)
{
    Fixture f;
    QosRuleState state;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    QosRequest *requests[4];
    for (guint i = 0; i < 4; i++) {
        requests[i] = request_new(&f, "j", QOS_OP_WRITE, 0);
        g_assert_cmpint(enter(&f, requests[i]), ==, i == 0 ? QOS_GO : QOS_WAIT);
    }
    f.now += 50 * QOS_MILLISECOND;
    qos_sched_release(f.sched, requests[3], QOS_DEBT_MAX, f.now);
    g_assert_true(next(&f) == requests[3]);
    qos_sched_cancel(f.sched, requests[2], f.now);
    f.now += QOS_SECOND;
    g_assert_true(next(&f) == requests[1]);
    const QosWait *wait = &requests[0]->job->wait[0];
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "r")->id, &state));
    g_assert_cmpuint(wait->count, ==, 3);
    g_assert_cmpuint(state.waits, ==, wait->count);
    g_assert_cmpint(state.waited, ==, wait->waited);
    request_free(requests[2]);
    leave(&f, requests[0]);
    leave(&f, requests[1]);
    leave(&f, requests[3]);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf-debt/a-lock-waits-for-one-token", test_a_lock_waits_for_one_token);
    g_test_add_func("/tbf-debt/write-back-owes-first", test_write_back_owes_first);
    g_test_add_func("/tbf-debt/no-lock-goes-before-another", test_no_lock_goes_before_another);
    g_test_add_func("/tbf-debt/who-owes-much", test_who_owes_much);
    g_test_add_func("/tbf-debt/who-has-much-waiting", test_who_has_much_waiting);
    g_test_add_func("/tbf-debt/bytes", test_bytes);
    g_test_add_func("/tbf-debt/a-lower-rate-forgives", test_a_lower_rate_forgives);
    g_test_add_func("/tbf-debt/what-waits-keeps-its-class", test_what_waits_keeps_its_class);
    g_test_add_func("/tbf-debt/what-is-released-owes", test_what_is_released_owes);
    g_test_add_func("/tbf-debt/what-is-released-meets-the-bound",
                    test_what_is_released_meets_the_bound);
    g_test_add_func("/tbf-debt/what-is-released-without-bound",
                    test_what_is_released_without_bound);
    g_test_add_func("/tbf-debt/what-is-released-while-rules-change",
                    test_what_is_released_while_rules_change);
    g_test_add_func("/tbf-debt/waits-count-however-they-end", test_waits_count_however_they_end);
    return g_test_run();
}
