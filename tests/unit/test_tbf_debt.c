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

/* A job that wants its lock gets on at the rule's rate. What holds nothing pays the debt. */
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
    /* It was passed over by two, and another before these was at the bound. */
    g_assert_cmpint(due, ==, payer->arrival + QOS_DEBT_MAX + 3 * QOS_SECOND / 10);
    drop(&f, payer);
    fixture_clear(&f);
}

/* A page of a file makes a pay point only where its class owes more than 10 ms. The first beyond
 * the tokens owes one operation. */
static void test_what_owes_much(void)
{
    const struct {
        const char *rule;
        guint little; /* reads that owe 10 ms or less */
    } cases[] = {{"start r jobid={j} rate=1000 depth=3", 10},
                 {"start r jobid={j} rate=100 depth=3", 1},
                 {"start r jobid={j} rate=10 depth=3", 0},
                 {"start r jobid={j} bps=4096000 depth=1:12288", 10}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, cases[i].rule);
        for (guint number = 0; number < 3 + 20; number++) {
            QosRequest *request = lock_holder_new(&f, QOS_OP_READ, 4096);

            if (enter(&f, request) == QOS_WAIT) {
                g_assert_cmpuint(number, >, 3 + cases[i].little);
                drop(&f, request);
                break;
            }
            g_assert_cmpint(request->owes, ==, number >= 3);
            g_assert_cmpint(request->owes_much, ==, number >= 3 + cases[i].little);
            leave(&f, request);
        }
        fixture_clear(&f);
    }
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
    g_assert_cmpuint(gone, ==, 2);
    g_assert_null(next(&f));
    f.now = due;
    g_assert_true(next(&f) == first); /* before what waits for tokens */
    g_assert_true(first->owes);
    leave(&f, first);
    g_assert_null(next(&f));
    drop(&f, payer);
    fixture_clear(&f);
}

/* At however low a rate the class owes 2 s and one request: what came on top of that is gone. */
static void test_no_class_owes_more(void)
{
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} bps=4K depth=1:4K");
    QosRequest *second = fill_debt(&f, QOS_OP_READ, 128 << 10, &due);
    /* The first took the 4 KiB that were saved, and 31 s of the rate. */
    g_assert_cmpint(due - f.now, >, 29 * QOS_SECOND);
    g_assert_cmpint(due - f.now, <, 30 * QOS_SECOND);
    drop(&f, second);
    fixture_clear(&f);
}

/* A close goes into debt, and at the bound it waits like all else. */
static void test_a_close_meets_the_bound(void)
{
    Fixture f;
    QosTime due = 0;
    guint gone = 0;
    QosRequest *close;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (;; gone++) {
        close = request_new(&f, "j", QOS_OP_CLOSE, 0);
        close->cannot_fail = TRUE;
        if (qos_sched_enter(f.sched, close, f.now, &due) == QOS_WAIT)
            break;
        leave(&f, close);
    }
    g_assert_cmpuint(gone, ==, 5 + 20);
    g_assert_cmpint(due, ==, f.now + QOS_SECOND / 10);
    drop(&f, close);
    fixture_clear(&f);
}

/* What the program did not ask for takes no token and waits for none, whatever the class owes. */
static void test_what_is_free(void)
{
    Fixture f;
    QosTime due;
    QosRuleState state;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    QosRequest *holder = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    for (guint i = 0; i < 64; i++) {
        QosRequest *free = request_new(&f, "j", QOS_OP_GETATTR, 0);
        free->is_free = TRUE;
        g_assert_cmpint(enter(&f, free), ==, QOS_GO);
        g_assert_false(free->owes);
        leave(&f, free);
    }
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "r")->id, &state));
    g_assert_cmpuint(state.requests, ==, 5 + 20);
    f.now = due;
    g_assert_true(next(&f) == holder);
    leave(&f, holder);
    fixture_clear(&f);
}

/* A program that does nothing but make the kernel ask is charged for it, beyond an allowance that
 * grows with what it asks for itself. */
static void test_free_requests_are_bounded(void)
{
    enum { RATE = 10, SECONDS = 10 };
    Fixture f;
    guint gone = 0;
    QosRequest *waiting = NULL;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (guint step = 0; step < SECONDS * RATE; step++, f.now += QOS_SECOND / RATE) {
        while (waiting == NULL) {
            QosRequest *free = request_new(&f, "j", QOS_OP_GETATTR, 0);
            free->is_free = TRUE;
            if (enter(&f, free) == QOS_WAIT) {
                waiting = free;
            } else {
                leave(&f, free);
                gone++;
            }
        }
        if (next(&f) != NULL) {
            leave(&f, waiting);
            waiting = NULL;
            gone++;
        }
    }
    const guint charged = RATE * (SECONDS + 2) + 5 + 1;
    g_assert_cmpuint(gone, <=, charged * (1 + 4) + 64);
    if (waiting != NULL)
        drop(&f, waiting);
    fixture_clear(&f);
}

/* What the kernel asks because of another job takes from no allowance: however much of it there is,
 * none waits, and none is charged. */
static void test_what_others_impose_is_free(void)
{
    Fixture f;
    QosRuleState state;

    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (guint i = 0; i < 10000; i++) {
        QosRequest *imposed = request_new(&f, "j", QOS_OP_GETATTR, 0);

        imposed->is_free = imposed->is_imposed = TRUE;
        g_assert_cmpint(enter(&f, imposed), ==, QOS_GO);
        leave(&f, imposed);
    }
    QosRequest *own = request_new(&f, "j", QOS_OP_GETATTR, 0);
    g_assert_cmpint(enter(&f, own), ==, QOS_GO);
    leave(&f, own);
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "r")->id, &state));
    g_assert_cmpuint(state.requests, ==, 1);
    fixture_clear(&f);
}

/* Thousands of pages that are written back keep no lock holder waiting: they take turns. */
static void test_write_back_takes_turns(void)
{
    enum { PAGES = 1000 };
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    QosRequest *first = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    GQueue pages = G_QUEUE_INIT;
    for (guint i = 0; i < PAGES; i++) {
        QosRequest *page = request_new(&f, "j", QOS_OP_WRITE, 4096);
        page->writes_back = TRUE;
        g_assert_cmpint(enter(&f, page), ==, QOS_WAIT);
        g_queue_push_tail(&pages, page);
    }
    QosRequest *second = lock_holder_new(&f, QOS_OP_CREATE, 0);
    g_assert_cmpint(enter(&f, second), ==, QOS_WAIT);
    for (guint i = 0; i < 4; i++) {
        qos_sched_next(f.sched, f.now, &due);
        g_assert_cmpint(due, ==, f.now + QOS_SECOND / 10);
        f.now = due;
        QosRequest *gone = next(&f);
        g_assert_cmpint(gone->writes_back, ==, i % 2);
        if (gone->writes_back)
            g_queue_remove(&pages, gone);
        else
            g_assert_true(gone == (i == 0 ? first : second));
        leave(&f, gone);
    }
    for (QosRequest *page; (page = g_queue_pop_head(&pages)) != NULL;)
        drop(&f, page);
    fixture_clear(&f);
}

/* What was paid for at a pay point moves no bytes for nothing. */
static void test_bytes_are_never_free(void)
{
    Fixture f;
    QosTime due = 0;
    guint gone = 0;
    QosRequest *read;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=1 bps=1M depth=1:1M");
    for (;; gone++) {
        read = lock_holder_new(&f, QOS_OP_READ, 1 << 20);
        read->is_free = TRUE;
        if (qos_sched_enter(f.sched, read, f.now, &due) == QOS_WAIT)
            break;
        leave(&f, read);
    }
    g_assert_cmpuint(gone, ==, 1 + 2);
    drop(&f, read);
    fixture_clear(&f);
}

/* Lock holders that keep their class in debt pass its other requests over for 2 s. Then all of
 * these go on with them, in the order in which they came. */
static void test_lock_holders_starve_nothing(void)
{
    enum { READS = 5 };
    Fixture f;
    QosTime due;
    guint gone = 0;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    QosRequest *holder = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    for (guint i = 0; i < READS; i++)
        g_assert_cmpint(enter(&f, request_new(&f, "j", QOS_OP_READ, 0)), ==, QOS_WAIT);
    const QosTime began = f.now;
    while (gone < READS) {
        QosRequest *request;
        qos_sched_next(f.sched, f.now, &due);
        f.now = due;
        while ((request = next(&f)) != NULL) {
            gone += request->opcode == QOS_OP_READ;
            if (request == holder)
                holder = fill_debt(&f, QOS_OP_CREATE, 0, &due);
            leave(&f, request);
        }
    }
    /* The holder that waits then waits until the debt is paid; then they take turns. */
    g_assert_cmpint(f.now - began, >, QOS_DEBT_MAX);
    g_assert_cmpint(f.now - began, <=, 2 * QOS_DEBT_MAX + (2 * READS + 2) * QOS_SECOND / 10);
    drop(&f, holder);
    fixture_clear(&f);
}

/* Lock holders that leave a token over now and then starve nothing either: with each read that has
 * it the time of the others goes on. */
static void test_a_token_now_and_then_is_not_enough(void)
{
    enum { READS = 20 };
    const QosTime pause = 10200 * QOS_MICROSECOND; /* a token comes each 10 ms */
    Fixture f;
    QosTime due;
    guint gone = 0;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=100 depth=1");
    const QosTime began = f.now;
    QosTime arrival = f.now; /* of the next lock holder */
    QosRequest *token = request_new(&f, "j", QOS_OP_READ, 0);
    g_assert_cmpint(enter(&f, token), ==, QOS_GO);
    leave(&f, token);
    for (guint i = 0; i < READS; i++)
        g_assert_cmpint(enter(&f, request_new(&f, "j", QOS_OP_READ, 0)), ==, QOS_WAIT);
    while (gone < READS && f.now < began + 60 * QOS_SECOND) {
        QosRequest *request = qos_sched_next(f.sched, f.now, &due);
        if (request != NULL) {
            gone += request->opcode == QOS_OP_READ;
            leave(&f, request);
            continue;
        }
        f.now = MIN(due, arrival);
        if (f.now < arrival)
            continue;
        request = lock_holder_new(&f, QOS_OP_CREATE, 0);
        if (enter(&f, request) == QOS_GO)
            leave(&f, request);
        arrival += pause;
    }
    /* One in half a second until they have been passed over for long enough; then all go before the
     * next lock holder. */
    g_assert_cmpuint(gone, ==, READS);
    g_assert_cmpint(f.now - began, <=, QOS_DEBT_MAX + 2 * READS * QOS_SECOND / 100);
    for (QosRequest *rest;
         (rest = qos_sched_next(f.sched, f.now, &due)) != NULL || due != QOS_NEVER;)
        if (rest != NULL)
            leave(&f, rest);
        else
            f.now = due;
    fixture_clear(&f);
}

/* A request at a pay point is to pay: it goes once the debt is paid, and lock holders that passed
 * it over for 2 s wait until then. */
static void test_a_payer_is_not_starved(void)
{
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    QosRequest *holder = fill_debt(&f, QOS_OP_CREATE, 0, &due);
    QosRequest *payer = request_new(&f, "j", QOS_OP_GETATTR, 0);
    payer->is_at_pay_point = TRUE;
    payer->pay_opcode = QOS_OP_CREATE;
    g_assert_cmpint(enter(&f, payer), ==, QOS_WAIT);
    const QosTime began = f.now;
    for (QosRequest *request = NULL; request != payer;) {
        qos_sched_next(f.sched, f.now, &due);
        f.now = due;
        request = next(&f);
        if (request == holder) {
            leave(&f, request);
            holder = lock_holder_new(&f, QOS_OP_CREATE, 0);
            g_assert_cmpint(enter(&f, holder), ==, QOS_WAIT);
        }
    }
    g_assert_false(payer->owes);
    g_assert_cmpint(f.now - began, >=, 2 * QOS_DEBT_MAX);
    g_assert_cmpint(f.now - began, <=, 2 * QOS_DEBT_MAX + 3 * QOS_SECOND / 10);
    leave(&f, payer);
    drop(&f, holder);
    fixture_clear(&f);
}

/* A job that waits for its tokens by itself goes into no debt, however long its line is. */
static void test_a_long_line_is_not_overdue(void)
{
    enum { READS = 50 };
    Fixture f;
    QosTime due;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    for (guint i = 0; i <= READS; i++) {
        QosRequest *read = request_new(&f, "j", QOS_OP_READ, 0);
        g_assert_cmpint(enter(&f, read), ==, i == 0 ? QOS_GO : QOS_WAIT);
        if (i == 0)
            leave(&f, read);
    }
    for (guint i = 0; i < READS; i++) {
        g_assert_null(qos_sched_next(f.sched, f.now, &due));
        g_assert_cmpint(due, ==, f.now + QOS_SECOND / 10);
        f.now = due;
        QosRequest *read = next(&f);
        g_assert_false(read->owes);
        leave(&f, read);
    }
    fixture_clear(&f);
}

/* The law, for whatever a job does: in any window of t seconds at most rate x (t + 2 s), the depth,
 * and one request. Write-back aside, which has a bound of its own. */
static void test_no_window_has_more(void)
{
    enum { RATE = 10, DEPTH = 5, COUNT = 4000 };
    const guint32 seed = g_test_rand_int();
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    g_autoptr(GArray) gone = g_array_new(FALSE, FALSE, sizeof(QosTime));
    GQueue waiting = G_QUEUE_INIT;
    Fixture f;
    g_test_message("seed %u", seed);
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (guint i = 0; i < COUNT; i++) {
        QosRequest *request = request_new(&f, "j", QOS_OP_WRITE, 0);
        request->lock = 7;
        request->holds_lock = g_rand_boolean(random);
        request->cannot_fail = g_rand_int_range(random, 0, 8) == 0;
        if (enter(&f, request) == QOS_GO) {
            g_array_append_val(gone, f.now);
            leave(&f, request);
        } else {
            g_queue_push_tail(&waiting, request);
        }
        if (waiting.length > 0 && g_rand_int_range(random, 0, 4) == 0)
            qos_sched_boost(f.sched, g_queue_peek_head(&waiting), f.now);
        if (g_rand_int_range(random, 0, 3) == 0)
            f.now += g_rand_int_range(random, 0, QOS_SECOND);
        while ((request = next(&f)) != NULL) {
            g_assert_true(g_queue_remove(&waiting, request));
            g_array_append_val(gone, f.now);
            leave(&f, request);
        }
    }
    for (guint first = 0; first < gone->len; first += 7) {
        for (guint last = first; last < gone->len; last++) {
            const QosTime time =
                g_array_index(gone, QosTime, last) - g_array_index(gone, QosTime, first);
            const gint64 most = RATE * (time + QOS_DEBT_MAX) / QOS_SECOND + DEPTH + 1;
            g_assert_cmpint(last - first + 1, <=, most + 1 /* the time is cut */);
        }
    }
    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;)
        drop(&f, request);
    fixture_clear(&f);
}

/* A latecomer waits behind those that wait, also where the debt allows one more. */
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
        {"start r jobid={j} bps=4K depth=1:4K", 32 * QOS_SECOND}, /* one request is more than 2 s */
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
    qos_sched_boost(f.sched, requests[2], f.now);
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
#define WAITING 120

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

static void release_all(Fixture *f, QosRequest *waiting[WAITING])
{
    for (guint i = 0; i < WAITING; i++)
        qos_sched_boost(f->sched, waiting[i], f->now);
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
 * the rule's rate, and each has waited once. What nobody wants has its turn after 2 s. */
static void test_what_is_released_meets_the_bound(void)
{
    enum { GO = 10 * 2 };
    QosRequest *waiting[WAITING];
    QosRuleState state;
    QosTime wake;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    let_wait(&f, waiting);
    QosRequest *payer = request_new(&f, "j", QOS_OP_READ, 0);
    g_assert_cmpint(enter(&f, payer), ==, QOS_WAIT);
    release_all(&f, waiting);
    g_assert_cmpint(waiting[GO - 1]->state, !=, QOS_REQUEST_QUEUED);
    g_assert_cmpint(waiting[GO]->state, ==, QOS_REQUEST_QUEUED);
    g_assert_true(waiting[GO]->holds_lock);
    g_assert_cmpuint(take(&f, waiting, 0, &wake), ==, GO);
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND / 10);
    const QosTime began = f.now;
    for (guint i = GO; i < WAITING;) {
        QosRequest *request;
        f.now = wake;
        while ((request = qos_sched_next(f.sched, f.now, &wake)) != NULL) {
            g_assert_true(request == waiting[i] || request == payer);
            if (request == payer)
                g_assert_cmpint(f.now - began, >=, QOS_DEBT_MAX); /* it was passed over */
            else
                i++;
            payer = request == payer ? NULL : payer;
            leave(&f, request);
        }
    }
    g_assert_null(payer);
    g_assert_cmpint(f.now - began, <=, (WAITING - GO + 2) * QOS_SECOND / 10);
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "r")->id, &state));
    g_assert_cmpuint(state.waits, ==, WAITING - GO + 1);
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
    release_all(&f, waiting);
    g_assert_cmpuint(take(&f, waiting, 0, &wake), ==, 2);
    while (wake == f.now) /* the rest of it is matched, some at a time */
        g_assert_cmpuint(take(&f, waiting, 2, &wake), ==, 0);
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND);
    for (guint i = 2; i < WAITING; i++)
        drop(&f, waiting[i]);
    fixture_clear(&f);
}

/* A wait ends by its turn, by others that want its lock, or by a kill: the rule counts what the job
 * does. */
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
    qos_sched_boost(f.sched, requests[3], f.now);
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
    g_test_add_func("/tbf-debt/what-owes-much", test_what_owes_much);
    g_test_add_func("/tbf-debt/no-class-owes-more", test_no_class_owes_more);
    g_test_add_func("/tbf-debt/a-close-meets-the-bound", test_a_close_meets_the_bound);
    g_test_add_func("/tbf-debt/what-is-free", test_what_is_free);
    g_test_add_func("/tbf-debt/free-requests-are-bounded", test_free_requests_are_bounded);
    g_test_add_func("/tbf-debt/what-others-impose-is-free", test_what_others_impose_is_free);
    g_test_add_func("/tbf-debt/write-back-takes-turns", test_write_back_takes_turns);
    g_test_add_func("/tbf-debt/bytes-are-never-free", test_bytes_are_never_free);
    g_test_add_func("/tbf-debt/lock-holders-starve-nothing", test_lock_holders_starve_nothing);
    g_test_add_func("/tbf-debt/a-token-now-and-then-is-not-enough",
                    test_a_token_now_and_then_is_not_enough);
    g_test_add_func("/tbf-debt/a-payer-is-not-starved", test_a_payer_is_not_starved);
    g_test_add_func("/tbf-debt/a-long-line-is-not-overdue", test_a_long_line_is_not_overdue);
    g_test_add_func("/tbf-debt/no-window-has-more", test_no_window_has_more);
    g_test_add_func("/tbf-debt/bytes", test_bytes);
    g_test_add_func("/tbf-debt/a-lower-rate-forgives", test_a_lower_rate_forgives);
    g_test_add_func("/tbf-debt/what-waits-keeps-its-class", test_what_waits_keeps_its_class);
    g_test_add_func("/tbf-debt/what-is-released-owes", test_what_is_released_owes);
    g_test_add_func("/tbf-debt/what-is-released-meets-the-bound",
                    test_what_is_released_meets_the_bound);
    g_test_add_func("/tbf-debt/what-is-released-while-rules-change",
                    test_what_is_released_while_rules_change);
    g_test_add_func("/tbf-debt/waits-count-however-they-end", test_waits_count_however_they_end);
    return g_test_run();
}
