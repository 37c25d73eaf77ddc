/*
 * The lines of a class of the tbf policy: what has a lock and what has none, write-back, and what
 * takes nothing that the rule bounds. None of them keeps another from its turn.
 */
#include "sched_fixture.h"

#define MIB (1 << 20)

static QosRequest *with_lock(Fixture *f, QosOpcode opcode, guint64 bytes)
{
    QosRequest *request = request_new(f, "j", opcode, bytes);

    request->lock = 7;
    return request;
}

static QosRequest *wanted(Fixture *f, QosOpcode opcode, guint64 bytes)
{
    QosRequest *request = with_lock(f, opcode, bytes);

    request->holds_lock = TRUE;
    return request;
}

static void enter_all(Fixture *f, QosRequest **requests, guint count, guint64 bytes)
{
    for (guint i = 0; i < count; i++) {
        requests[i] = request_new(f, "j", QOS_OP_READ, bytes);
        enter(f, requests[i]);
    }
}

/* Lets time go on until something is due. */
static QosRequest *await(Fixture *f)
{
    for (;;) {
        QosTime wake;
        QosRequest *request = qos_sched_next(f->sched, f->now, &wake);

        if (request != NULL)
            return request;
        g_assert_cmpint(wake, !=, QOS_NEVER);
        f->now = wake;
    }
}

/* Makes the class owe what it may: the first that had to wait for that. */
static QosRequest *fill_debt(Fixture *f, QosOpcode opcode, guint64 bytes)
{
    for (;;) {
        QosRequest *request = wanted(f, opcode, bytes);

        if (enter(f, request) == QOS_WAIT)
            return request;
        leave(f, request);
    }
}

/* However many large reads of its job wait: a job that nobody has heard of may want the lock. */
static void test_no_lock_waits_behind_reads(void)
{
    enum { READS = 64 };
    QosRequest *reads[READS];
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    enter_all(&f, reads, READS, MIB);
    g_assert_cmpint(reads[0]->state, ==, QOS_REQUEST_RUNNING);
    leave(&f, reads[0]);
    const QosTime began = f.now;
    for (guint i = 0; i < 100; i++) {
        QosRequest *write = with_lock(&f, QOS_OP_WRITE, 4096), *gone;

        g_assert_cmpint(enter(&f, write), ==, QOS_WAIT);
        if ((gone = await(&f)) != write) {
            g_assert_true(gone == reads[1]); /* one read had its turn */
            leave(&f, gone);
            gone = await(&f);
        }
        g_assert_true(gone == write);
        leave(&f, write);
    }
    /* After one read those with a lock have as much. */
    g_assert_cmpint(f.now - began, >, QOS_SECOND);
    g_assert_cmpint(f.now - began, <, 3 * QOS_SECOND / 2);
    for (guint i = 2; i < READS; i++)
        drop(&f, reads[i]);
    fixture_clear(&f);
}

/* One thread, which always has a request with a lock waiting. */
static void test_no_lock_keeps_reads_waiting(void)
{
    enum { READS = 50 };
    QosRequest *reads[READS];
    guint locked = 0, done = 0;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    enter_all(&f, reads, READS, 4096);
    leave(&f, reads[done++]);
    QosRequest *setattr = with_lock(&f, QOS_OP_SETATTR, 0);
    g_assert_cmpint(enter(&f, setattr), ==, QOS_WAIT);
    for (guint i = 0; i < 40; i++) {
        QosRequest *gone = await(&f);

        if (gone == setattr) {
            locked++;
            leave(&f, gone);
            setattr = with_lock(&f, QOS_OP_SETATTR, 0);
            enter(&f, setattr);
        } else {
            g_assert_true(gone == reads[done++]);
            leave(&f, gone);
        }
    }
    g_assert_cmpuint(locked, ==, 20);
    while (done < READS)
        drop(&f, reads[done++]);
    drop(&f, setattr);
    fixture_clear(&f);
}

/* At the bound all that have a lock go in order: what is wanted does not stand before the rest. */
static void test_locks_go_in_order_at_the_bound(void)
{
    enum { COUNT = 6 };
    QosRequest *holders[COUNT];
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    holders[0] = fill_debt(&f, QOS_OP_CREATE, 0);
    for (guint i = 1; i < COUNT; i++) {
        holders[i] = i % 2 == 1 ? with_lock(&f, QOS_OP_SETATTR, 0) : wanted(&f, QOS_OP_CREATE, 0);
        g_assert_cmpint(enter(&f, holders[i]), ==, QOS_WAIT);
    }
    for (guint i = 0; i < COUNT - 1; i++) {
        f.now += QOS_SECOND / 10;
        g_assert_true(next(&f) == holders[i]);
        g_assert_true(holders[i]->owes);
        g_assert_null(next(&f));
        leave(&f, holders[i]);
    }
    /* Nobody wants the last: it waits until all is paid. */
    const QosTime began = f.now;
    g_assert_true(await(&f) == holders[COUNT - 1]);
    g_assert_cmpint(f.now - began, ==, QOS_DEBT_MAX + QOS_SECOND / 10);
    g_assert_false(holders[COUNT - 1]->owes);
    leave(&f, holders[COUNT - 1]);
    fixture_clear(&f);
}

/* A released request keeps its place, and makes those before it go at the bound, too. */
static void test_what_is_released_keeps_its_place(void)
{
    QosRequest *holders[2];
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    QosRequest *first = fill_debt(&f, QOS_OP_CREATE, 0);
    for (guint i = 0; i < 2; i++) {
        holders[i] = with_lock(&f, QOS_OP_SETATTR, 0);
        enter(&f, holders[i]);
    }
    qos_sched_boost(f.sched, holders[1], f.now);
    g_assert_cmpint(holders[1]->state, ==, QOS_REQUEST_QUEUED);
    for (guint i = 0; i < 3; i++) {
        QosRequest *expected = i == 0 ? first : holders[i - 1];

        f.now += QOS_SECOND / 10;
        g_assert_true(next(&f) == expected);
        leave(&f, expected);
    }
    fixture_clear(&f);
}

/* While large reads that were passed over have their turns, small writes have as much time. */
static void test_turns_are_of_time(void)
{
    enum { READS = 8 };
    QosRequest *reads[READS];
    guint64 read = 0, written = 0;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    enter_all(&f, reads, READS, MIB);
    leave(&f, reads[0]);
    QosRequest *write = fill_debt(&f, QOS_OP_WRITE, 4096);
    for (const QosTime end = f.now + 20 * QOS_SECOND; f.now < end;) {
        QosRequest *gone = await(&f);

        if (gone != write) {
            read += gone->bytes;
            leave(&f, gone);
            continue;
        }
        written += gone->bytes;
        leave(&f, gone);
        write = wanted(&f, QOS_OP_WRITE, 4096);
        if (enter(&f, write) == QOS_GO) {
            written += write->bytes;
            leave(&f, write);
            write = fill_debt(&f, QOS_OP_WRITE, 4096);
        }
    }
    g_assert_cmpuint(read, >, 5 * MIB);
    g_assert_cmpuint(written, >, 5 * MIB);
    drop(&f, write);
    for (guint i = 1 + (guint)(read / MIB); i < READS; i++)
        drop(&f, reads[i]);
    fixture_clear(&f);
}

/* A large read that has its turn takes the class no deeper into debt than a lock holder may. */
static void test_no_turn_makes_the_debt_larger(void)
{
    QosRequest *reads[2], *payment;
    QosTime due;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    enter_all(&f, reads, 2, MIB);
    leave(&f, reads[0]);
    QosRequest *write = fill_debt(&f, QOS_OP_WRITE, 4096), *gone;
    while ((gone = await(&f)) != reads[1]) { /* it is passed over at first */
        g_assert_true(gone == write);
        leave(&f, write);
        write = fill_debt(&f, QOS_OP_WRITE, 4096);
    }
    leave(&f, reads[1]);
    payment = request_new(&f, "j", QOS_OP_GETATTR, 0);
    payment->is_at_pay_point = TRUE;
    payment->pay_opcode = QOS_OP_WRITE;
    drop(&f, write);
    g_assert_cmpint(qos_sched_enter(f.sched, payment, f.now, &due), ==, QOS_WAIT);
    g_assert_cmpint(due - f.now, >, QOS_SECOND);
    g_assert_cmpint(due - f.now, <=, QOS_DEBT_MAX);
    drop(&f, payment);
    fixture_clear(&f);
}

/* What moves no bytes takes nothing of the rule's time, and still has its turn after each read. */
static void test_what_takes_no_time_has_turns(void)
{
    enum { READS = 64 };
    QosRequest *reads[READS];
    guint done = 0;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    enter_all(&f, reads, READS, MIB);
    leave(&f, reads[done++]);
    for (guint i = 0; i < 8; i++) {
        const QosTime began = f.now;
        QosRequest *setattr = with_lock(&f, QOS_OP_SETATTR, 0);

        for (QosVerdict verdict = enter(&f, setattr); verdict == QOS_WAIT;) {
            QosRequest *gone = await(&f);

            verdict = gone == setattr ? QOS_GO : QOS_WAIT;
            if (gone != setattr)
                leave(&f, reads[done++]);
        }
        g_assert_cmpint(f.now - began, <=, 2 * QOS_SECOND);
        leave(&f, setattr);
        leave(&f, await(&f));
        done++;
    }
    while (done < READS)
        drop(&f, reads[done++]);
    fixture_clear(&f);
}

/* Nor do stats, which take as little, keep it from that. */
static void test_stats_keep_no_lock_waiting(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 8);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    QosRequest *read = request_new(&f, "j", QOS_OP_READ, 2 * MIB);
    g_assert_cmpint(enter(&f, read), ==, QOS_GO);
    QosRequest *setattr = with_lock(&f, QOS_OP_SETATTR, 0), *stat;
    stat = request_new(&f, "j", QOS_OP_GETATTR, 0);
    g_assert_cmpint(enter(&f, stat), ==, QOS_WAIT);
    g_assert_cmpint(enter(&f, setattr), ==, QOS_WAIT);
    leave(&f, await(&f)); /* all that take nothing may go from now on */
    for (guint i = 0; setattr->state == QOS_REQUEST_QUEUED; i++) {
        g_assert_cmpuint(i, <, 3);
        stat = request_new(&f, "j", QOS_OP_GETATTR, 0);
        if (enter(&f, stat) == QOS_WAIT)
            break;
        leave(&f, stat);
    }
    while (qos_sched_has_waiting(f.sched))
        leave(&f, await(&f));
    leave(&f, read);
    fixture_clear(&f);
}

/* What waits is put into the lines of the new rule, from those of the old one. */
static void test_lines_change_with_the_rule(void)
{
    enum { READS = 8 };
    QosRequest *reads[READS];
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 32);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    enter_all(&f, reads, READS, MIB);
    leave(&f, reads[0]);
    QosRequest *locked = with_lock(&f, QOS_OP_WRITE, 4096), *held = wanted(&f, QOS_OP_CREATE, 0);
    g_assert_cmpint(enter(&f, locked), ==, QOS_WAIT);
    g_assert_cmpint(enter(&f, held), ==, QOS_GO);
    leave(&f, held);
    fixture_rule(&f, "change r rate=10 bps=none"); /* its bucket is full */
    g_assert_true(await(&f) == locked || reads[1]->state == QOS_REQUEST_RUNNING);
    QosRequest *stat = request_new(&f, "j", QOS_OP_GETATTR, 0);
    g_assert_cmpint(enter(&f, stat), ==, QOS_WAIT);
    fixture_rule(&f, "change r rate=none weight=1"); /* no bound: all go */
    while (stat->state == QOS_REQUEST_QUEUED)
        g_assert_nonnull(next(&f));
    leave(&f, locked);
    leave(&f, stat);
    for (guint i = 1; i < READS; i++)
        leave(&f, reads[i]);
    fixture_clear(&f);
}

/* Of whatever line: the kernel would take the mount for dead. */
static void test_nobody_waits_longer_than_any_may(void)
{
    enum { COUNT = 100 };
    QosRequest *requests[3 * COUNT];
    guint gone = 0;
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 4 * COUNT);
    qos_sched_set_max_wait(f.sched, 30 * QOS_SECOND);
    fixture_rule(&f, "start r jobid={j} rate=1 depth=1");
    const QosTime began = f.now;
    for (guint i = 0; i < G_N_ELEMENTS(requests); i++) {
        requests[i] = i % 6 == 0   ? with_lock(&f, QOS_OP_SETATTR, 0)
                      : i % 6 == 3 ? wanted(&f, QOS_OP_CREATE, 0)
                                   : request_new(&f, "j", QOS_OP_READ, 4096);
        gone += enter(&f, requests[i]) == QOS_GO;
    }
    for (f.now += 29 * QOS_SECOND; next(&f) != NULL; gone++)
        continue;                                    /* what the rule lets through */
    QosRequest *late = wanted(&f, QOS_OP_CREATE, 0); /* in the line that goes first */
    g_assert_cmpint(enter(&f, late), ==, QOS_WAIT);
    for (; gone < G_N_ELEMENTS(requests); gone++)
        g_assert_true(await(&f) != late);
    g_assert_cmpint(f.now - began, ==, 30 * QOS_SECOND);
    drop(&f, late);
    for (guint i = 0; i < G_N_ELEMENTS(requests); i++)
        leave(&f, requests[i]);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf-lines/no-lock-waits-behind-reads", test_no_lock_waits_behind_reads);
    g_test_add_func("/tbf-lines/no-lock-keeps-reads-waiting", test_no_lock_keeps_reads_waiting);
    g_test_add_func("/tbf-lines/locks-go-in-order-at-the-bound",
                    test_locks_go_in_order_at_the_bound);
    g_test_add_func("/tbf-lines/what-is-released-keeps-its-place",
                    test_what_is_released_keeps_its_place);
    g_test_add_func("/tbf-lines/turns-are-of-time", test_turns_are_of_time);
    g_test_add_func("/tbf-lines/no-turn-makes-the-debt-larger", test_no_turn_makes_the_debt_larger);
    g_test_add_func("/tbf-lines/what-takes-no-time-has-turns", test_what_takes_no_time_has_turns);
    g_test_add_func("/tbf-lines/stats-keep-no-lock-waiting", test_stats_keep_no_lock_waiting);
    g_test_add_func("/tbf-lines/lines-change-with-the-rule", test_lines_change_with_the_rule);
    g_test_add_func("/tbf-lines/nobody-waits-longer-than-any-may",
                    test_nobody_waits_longer_than_any_may);
    return g_test_run();
}
