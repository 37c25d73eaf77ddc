/*
 * The tbf policy with the time stepped by hand: rates, deadlines, classes, changes of rules, dry
 * runs, and the defects of Lustre's (docs/reference/rules.md) that must not come back.
 */
#include "sched_fixture.h"

/* Serves for `duration` a client that always has `depth` requests outstanding: how many it got. The
 * time steps from one deadline to the next; the store takes no time. */
static guint serve_greedy(Fixture *f, const char *job, QosOpcode opcode, guint64 bytes,
                          QosTime duration)
{
    QosTime end = f->now + duration;
    guint served = 0;
    while (f->now <= end) {
        QosRequest *request = request_new(f, job, opcode, bytes);
        QosTime wake;
        if (qos_sched_enter(f->sched, request, f->now, &wake) == QOS_WAIT) {
            QosRequest *due;
            while ((due = qos_sched_next(f->sched, f->now, &wake)) == NULL)
                f->now = wake;
            g_assert_true(due == request);
        }
        served += f->now <= end;
        leave(f, request);
    }
    return served;
}

static void test_rates_are_exact(void)
{
    static const gint64 rates[] = {1, 3, 10, 100, 1000, 5000};
    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        Fixture f;
        fixture_init(&f, &qos_policy_tbf, 64);
        g_autofree char *rule =
            g_strdup_printf("start r jobid={j} rate=%" G_GINT64_FORMAT " depth=3", rates[i]);
        fixture_rule(&f, rule);
        guint served = serve_greedy(&f, "j", QOS_OP_READ, 4096, 10 * QOS_SECOND);
        g_assert_cmpuint(served, ==, 3 + 10 * rates[i]);
        fixture_clear(&f);
    }
}

static void test_bytes_do_not_depend_on_the_block(void)
{
    static const guint64 blocks[] = {4096, 65536, 1048576};
    for (guint i = 0; i < G_N_ELEMENTS(blocks); i++) {
        Fixture f;
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, "start r jobid={j} bps=10M depth=1:4K");
        guint served = serve_greedy(&f, "j", QOS_OP_WRITE, blocks[i], 10 * QOS_SECOND);
        gint64 moved = (gint64)(served * blocks[i]);
        g_assert_cmpint(ABS(moved - 100 * 1048576), <=, (gint64)blocks[i] + 4096);
        fixture_clear(&f);
    }
}

/* Operations and bytes bound together: the tighter one decides. */
static void test_both_bounds(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=100 bps=1M depth=1:4K");
    guint small = serve_greedy(&f, "j", QOS_OP_READ, 1024, 10 * QOS_SECOND);
    g_assert_cmpuint(small, >=, 1000);
    g_assert_cmpuint(small, <=, 1002);
    guint large = serve_greedy(&f, "j", QOS_OP_READ, 104858, 10 * QOS_SECOND);
    g_assert_cmpuint(large, >=, 99);
    g_assert_cmpuint(large, <=, 102);
    fixture_clear(&f);
}

static void test_default_is_unlimited_until_given_a_rate(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    for (guint i = 0; i < 1000; i++) {
        QosRequest *request = request_new(&f, "any", QOS_OP_GETATTR, 0);
        g_assert_cmpint(enter(&f, request), ==, QOS_GO);
        leave(&f, request);
    }
    fixture_rule(&f, "change default rate=10");
    guint served = serve_greedy(&f, "any", QOS_OP_READ, 0, 10 * QOS_SECOND);
    g_assert_cmpuint(served, ==, 103);
    fixture_clear(&f);
}

#define BURST_BYTES 10

/* How many of `count` requests of `job` go at once. Ten users are a group. */
static guint burst(Fixture *f, const char *job, guint32 uid, QosOpcode opcode, guint count)
{
    guint went = 0;
    for (guint i = 0; i < count; i++) {
        QosRequest *request = request_new(f, job, opcode, BURST_BYTES);
        request->uid = uid;
        request->gid = uid / 10;
        if (enter(f, request) == QOS_GO) {
            went++;
            leave(f, request);
        } else {
            qos_sched_cancel(f->sched, request, f->now);
            request_free(request);
        }
    }
    return went;
}

/* `per` says what has a bucket of its own. */
static void test_classes(void)
{
    static const struct {
        const char *per;
        guint first, other_job, other_user, other_group, other_opcode;
    } cases[] = {
        {"jobid", 5, 5, 0, 0, 0}, {"uid", 5, 0, 5, 5, 0},          {"gid", 5, 0, 0, 5, 0},
        {"rule", 5, 0, 0, 0, 0},  {"jobid+opcode", 5, 5, 0, 0, 5},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        fixture_init(&f, &qos_policy_tbf, 64);
        g_autofree char *rule =
            g_strdup_printf("start r opcode={*} rate=1 depth=5 per=%s", cases[i].per);
        fixture_rule(&f, rule);
        g_assert_cmpuint(burst(&f, "a", 1, QOS_OP_READ, 9), ==, cases[i].first);
        g_assert_cmpuint(burst(&f, "b", 1, QOS_OP_READ, 9), ==, cases[i].other_job);
        g_assert_cmpuint(burst(&f, "a", 2, QOS_OP_READ, 9), ==, cases[i].other_user);
        g_assert_cmpuint(burst(&f, "a", 11, QOS_OP_READ, 9), ==, cases[i].other_group);
        g_assert_cmpuint(burst(&f, "a", 1, QOS_OP_WRITE, 9), ==, cases[i].other_opcode);
        fixture_clear(&f);
    }
}

/* Defect 2: saved tokens count; a fresh class does not wait behind one without tokens. */
static void test_deadlines_order_the_classes(void)
{
    Fixture f;
    QosRuleState state;
    QosTime wake;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start slow jobid={slow} rate=1 depth=1");
    fixture_rule(&f, "start fast jobid={fast} rate=100 depth=1");
    QosRequest *slow[2] = {request_new(&f, "slow", QOS_OP_READ, 1),
                           request_new(&f, "slow", QOS_OP_READ, 1)};
    QosRequest *fast[2] = {request_new(&f, "fast", QOS_OP_READ, 1),
                           request_new(&f, "fast", QOS_OP_READ, 1)};
    g_assert_cmpint(enter(&f, slow[0]), ==, QOS_GO);
    g_assert_cmpint(enter(&f, slow[1]), ==, QOS_WAIT);
    g_assert_cmpint(enter(&f, fast[0]), ==, QOS_GO);
    g_assert_cmpint(qos_sched_enter(f.sched, fast[1], f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + 10 * QOS_MILLISECOND);
    f.now = wake;
    g_assert_true(qos_sched_next(f.sched, f.now, &wake) == fast[1]);
    g_assert_null(qos_sched_next(f.sched, f.now, &wake));
    g_assert_cmpint(wake, ==, slow[1]->arrival + QOS_SECOND);
    f.now = wake;
    g_assert_true(qos_sched_next(f.sched, f.now, &wake) == slow[1]);
    g_assert_cmpuint(slow[1]->job->wait[0].count, ==, 1);
    g_assert_cmpstr(slow[1]->job->wait[0].rule_name, ==, "slow");
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "slow")->id, &state));
    g_assert_cmpuint(state.waits, ==, 1);
    g_assert_cmpint(state.waited, ==, QOS_SECOND);
    for (guint i = 0; i < 2; i++) {
        leave(&f, slow[i]);
        leave(&f, fast[i]);
    }
    fixture_clear(&f);
}

/* Defect 2: saved tokens count. A class that has some goes at once, also where another without any
 * would be due before its next token. */
static void test_saved_tokens_count(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start slow jobid={slow} rate=1 depth=2");
    fixture_rule(&f, "start fast jobid={fast} rate=100 depth=1");
    QosRequest *fast[2] = {request_new(&f, "fast", QOS_OP_READ, 1),
                           request_new(&f, "fast", QOS_OP_READ, 1)};
    g_assert_cmpint(enter(&f, fast[0]), ==, QOS_GO);
    g_assert_cmpint(enter(&f, fast[1]), ==, QOS_WAIT);
    g_assert_cmpuint(burst(&f, "slow", 0, QOS_OP_READ, 2), ==, 2);
    f.now += QOS_SECOND / 100;
    g_assert_true(next(&f) == fast[1]);
    leave(&f, fast[0]);
    leave(&f, fast[1]);
    fixture_clear(&f);
}

/* Defect 5: however long a class was idle, its burst is its depth. */
static void test_idle_class_saves_its_depth_alone(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=1000 depth=7");
    for (guint i = 0; i < 3; i++) {
        g_assert_cmpuint(burst(&f, "j", 0, QOS_OP_READ, 100), ==, 7);
        f.now += 24 * 3600 * QOS_SECOND;
        if (i == 1)
            qos_sched_expire(f.sched, f.now);
    }
    fixture_clear(&f);
}

/* Defect 3: a change of rank, rate or the end of a rule reaches what waits already. */
static void test_changes_reach_what_waits(void)
{
    static const char *const changes[] = {"stop tight", "change tight rate=1000",
                                          "change loose rank=tight",
                                          "start third jobid={j} rate=1000"};
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        Fixture f;
        QosRequest *requests[5];
        fixture_init(&f, &qos_policy_tbf, 64);
        fixture_rule(&f, "start loose jobid={j} rate=1000");
        fixture_rule(&f, "start tight jobid={j} rate=1 depth=1");
        for (guint r = 0; r < 5; r++) {
            requests[r] = request_new(&f, "j", QOS_OP_READ, 1);
            g_assert_cmpint(enter(&f, requests[r]), ==, r == 0 ? QOS_GO : QOS_WAIT);
        }
        fixture_rule(&f, changes[i]);
        QosTime end = f.now + 10 * QOS_MILLISECOND;
        for (guint r = 1; r < 5; r++) {
            QosRequest *due;
            while ((due = next(&f)) == NULL && f.now < end)
                f.now += QOS_MILLISECOND;
            g_assert_true(due == requests[r]);
        }
        for (guint r = 0; r < 5; r++)
            leave(&f, requests[r]);
        fixture_clear(&f);
    }
}

/* More waiting requests than one call matches again: none is lost, none overtakes. */
static void test_many_are_matched_again_in_order(void)
{
    Fixture f;
    QosRequest *requests[1000];
    fixture_init(&f, &qos_policy_tbf, 4096);
    fixture_rule(&f, "start tight jobid={j} rate=1 depth=1");
    for (guint r = 0; r < 1000; r++) {
        requests[r] = request_new(&f, "j", QOS_OP_READ, 1);
        enter(&f, requests[r]);
    }
    fixture_rule(&f, "stop tight");
    QosTime wake = f.now;
    for (guint r = 1; r < 1000; r++) {
        QosRequest *due;
        while ((due = qos_sched_next(f.sched, f.now, &wake)) == NULL)
            g_assert_cmpint(wake, ==, f.now);
        g_assert_true(due == requests[r]);
    }
    for (guint r = 0; r < 1000; r++)
        leave(&f, requests[r]);
    fixture_clear(&f);
}

/* A class keeps its tokens over a change of its rule: no fresh burst. */
static void test_change_gives_no_burst(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=1 depth=100");
    g_assert_cmpuint(burst(&f, "j", 0, QOS_OP_READ, 200), ==, 100);
    fixture_rule(&f, "change r rate=2");
    g_assert_cmpuint(burst(&f, "j", 0, QOS_OP_READ, 200), ==, 0);
    fixture_rule(&f, "start other jobid={x} rate=2");
    g_assert_cmpuint(burst(&f, "j", 0, QOS_OP_READ, 200), ==, 0);
    fixture_clear(&f);
}

static gboolean has_flow(Fixture *f, const char *id)
{
    QosJob *job = qos_jobs_find(qos_sched_jobs(f->sched), id);
    gboolean has = job->tbf.flow != NULL;
    qos_job_unref(job);
    return has;
}

/* An idle class goes, one in debt stays: idling does not pay. Nor does a job remember what is gone.
 */
static void test_idle_classes_go(void)
{
    Fixture f;
    QosRuleState state;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j*} rate=1 depth=100");
    const QosRule *rule = qos_rules_by_name(qos_sched_rules(f.sched), "r");
    guint64 id = rule->id;
    g_assert_cmpuint(burst(&f, "j1", 0, QOS_OP_READ, 200), ==, 100);
    g_assert_cmpuint(burst(&f, "j2", 0, QOS_OP_READ, 1), ==, 1);
    g_assert_true(qos_sched_rule_state(f.sched, id, &state));
    g_assert_cmpuint(state.buckets, ==, 2);
    g_assert_true(has_flow(&f, "j1"));

    f.now += 20 * QOS_SECOND;
    qos_sched_expire(f.sched, f.now);
    g_assert_false(has_flow(&f, "j1"));
    qos_sched_rule_state(f.sched, id, &state);
    g_assert_cmpuint(state.buckets, ==, 1);
    g_assert_cmpuint(burst(&f, "j1", 0, QOS_OP_READ, 200), ==, 20);

    f.now += 3600 * QOS_SECOND;
    qos_sched_expire(f.sched, f.now);
    qos_sched_rule_state(f.sched, id, &state);
    g_assert_cmpuint(state.buckets, ==, 0);
    g_assert_cmpuint(state.requests, ==, 121);
    fixture_clear(&f);
}

/* A dry run counts what it would delay, and delays nothing. */
static void test_dry_run(void)
{
    Fixture f;
    QosRuleState state;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start real jobid={j} rate=50 depth=50");
    fixture_rule(&f, "start dry jobid={j} rate=10 depth=10 dryrun=1");
    guint64 dry = qos_rules_by_name(qos_sched_rules(f.sched), "dry")->id;
    guint64 real = qos_rules_by_name(qos_sched_rules(f.sched), "real")->id;
    g_assert_cmpuint(burst(&f, "j", 0, QOS_OP_READ, 40), ==, 40);
    g_assert_true(qos_sched_rule_state(f.sched, dry, &state));
    g_assert_cmpuint(state.requests, ==, 40);
    g_assert_cmpuint(state.bytes, ==, 40 * BURST_BYTES);
    g_assert_cmpuint(state.dryrun_waits, ==, 30);
    g_assert_cmpuint(state.dryrun_bytes, ==, 30 * BURST_BYTES);
    g_assert_cmpuint(state.waits, ==, 0);
    qos_sched_rule_state(f.sched, real, &state);
    g_assert_cmpuint(state.requests, ==, 40);

    f.now += 3600 * QOS_SECOND; /* it goes as any other */
    qos_sched_expire(f.sched, f.now);
    qos_sched_rule_state(f.sched, dry, &state);
    g_assert_cmpuint(state.buckets, ==, 0);
    fixture_clear(&f);
}

/* Releases and the like go at once, and the job's next requests pay for them. */
static void test_charge_is_debt(void)
{
    Fixture f;
    QosTime wake;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (guint i = 0; i < 25; i++) {
        QosRequest *request = request_new(&f, "j", QOS_OP_CLOSE, 0);
        enter_close(&f, request);
        leave(&f, request);
    }
    QosRequest *request = request_new(&f, "j", QOS_OP_READ, 0);
    g_assert_cmpint(qos_sched_enter(f.sched, request, f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + 2100 * QOS_MILLISECOND);
    f.now = wake;
    g_assert_true(next(&f) == request);
    leave(&f, request);
    fixture_clear(&f);
}

/* What holds a directory's lock does not wait, up to a bound; what holds nothing pays for it. */
static void test_what_holds_a_lock_goes_into_debt(void)
{
    Fixture f;
    QosTime wake;
    guint passed = 0;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} rate=10 depth=5");
    for (;; passed++) {
        QosRequest *create = request_new(&f, "j", QOS_OP_CREATE, 0);
        create->holds_lock = TRUE;
        if (enter(&f, create) == QOS_WAIT) {
            qos_sched_cancel(f.sched, create, f.now);
            request_free(create);
            break;
        }
        g_assert_cmpint(create->owes, ==, passed >= 5);
        leave(&f, create);
    }
    /* 5 saved, and the debt of 2 s: the last is let in when it is just reached. */
    g_assert_cmpuint(passed, ==, 5 + 20);

    QosRequest *payer = request_new(&f, "j", QOS_OP_GETATTR, 0);
    g_assert_cmpint(qos_sched_enter(f.sched, payer, f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + QOS_DEBT_MAX + QOS_SECOND / 10);
    qos_sched_cancel(f.sched, payer, f.now);
    request_free(payer);
    fixture_clear(&f);
}

/* What holds a lock waits for a thread where its job has too many, but for no token. */
static void test_what_holds_a_lock_waits_for_no_token(void)
{
    Fixture f;
    QosRequest *inside[1 + QOS_OVER_LIMIT_MAX];
    fixture_init(&f, &qos_policy_tbf, 2); /* a job's share: 1 */
    fixture_rule(&f, "start r jobid={j} rate=10 depth=1");
    for (guint i = 0; i < G_N_ELEMENTS(inside); i++) {
        inside[i] = request_new(&f, "j", QOS_OP_READ, 0);
        inside[i]->holds_lock = TRUE;
        g_assert_cmpint(enter(&f, inside[i]), ==, QOS_GO);
    }
    QosRequest *more = request_new(&f, "j", QOS_OP_READ, 0);
    more->holds_lock = TRUE;
    g_assert_cmpint(enter(&f, more), ==, QOS_WAIT);
    g_assert_true(more->owes);
    g_assert_null(next(&f));
    leave(&f, inside[0]);
    g_assert_true(next(&f) == more);
    leave(&f, more);
    for (guint i = 1; i < G_N_ELEMENTS(inside); i++)
        leave(&f, inside[i]);
    fixture_clear(&f);
}

/* A payment waits for the class in debt, also where that is not its own, and pays for the next
 * there.
 */
static void test_a_toll_pays_for_another_class(void)
{
    Fixture f;
    QosTime wake;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r opcode={create} rate=10 depth=1");
    for (guint i = 0; i < 3; i++) {
        QosRequest *create = request_new(&f, "j", QOS_OP_CREATE, 0);
        create->holds_lock = TRUE;
        g_assert_cmpint(enter(&f, create), ==, QOS_GO);
        leave(&f, create);
    }
    QosRequest *payment = request_new(&f, "j", QOS_OP_GETATTR, 0);
    payment->is_at_pay_point = TRUE;
    payment->pay_opcode = QOS_OP_CREATE;
    g_assert_cmpint(qos_sched_enter(f.sched, payment, f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + 3 * QOS_SECOND / 10);
    f.now = wake;
    g_assert_true(next(&f) == payment);
    g_assert_true(payment->prepays);
    leave(&f, payment);

    QosRequest *create = request_new(&f, "j", QOS_OP_CREATE, 0);
    create->holds_lock = create->is_free = TRUE;
    g_assert_cmpint(enter(&f, create), ==, QOS_GO);
    g_assert_false(create->owes);
    leave(&f, create);

    payment = request_new(&f, "j", QOS_OP_GETATTR, 0);
    payment->is_at_pay_point = TRUE;
    payment->pay_opcode = QOS_OP_CREATE;
    g_assert_cmpint(qos_sched_enter(f.sched, payment, f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + QOS_SECOND / 10);
    qos_sched_cancel(f.sched, payment, f.now);
    request_free(payment);
    fixture_clear(&f);
}

/* What a request did not move is given back: a copy of an unknown length costs what it copied. */
static void test_settle(void)
{
    Fixture f;
    QosRuleState state;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start r jobid={j} bps=1M depth=1:1M");
    guint64 id = qos_rules_by_name(qos_sched_rules(f.sched), "r")->id;
    QosRequest *copy = request_new(&f, "j", QOS_OP_COPY, G_GUINT64_CONSTANT(1) << 40);
    g_assert_cmpint(enter(&f, copy), ==, QOS_GO);
    QosRequest *after = request_new(&f, "j", QOS_OP_READ, 4096);
    g_assert_cmpint(enter(&f, after), ==, QOS_WAIT);
    qos_sched_leave(f.sched, copy, 1000, 0, f.now);
    request_free(copy);
    g_assert_true(next(&f) == after);
    leave(&f, after);
    g_assert_true(qos_sched_rule_state(f.sched, id, &state));
    g_assert_cmpuint(state.bytes, ==, 1000 + 4096);
    fixture_clear(&f);
}

static void test_max_wait(void)
{
    Fixture f;
    QosTime wake;
    fixture_init(&f, &qos_policy_tbf, 64);
    qos_sched_set_max_wait(f.sched, 30 * QOS_SECOND);
    fixture_rule(&f, "start r jobid={j} bps=1 depth=1:1");
    QosRequest *first = request_new(&f, "j", QOS_OP_READ, 1048576);
    g_assert_cmpint(enter(&f, first), ==, QOS_GO);
    QosRequest *second = request_new(&f, "j", QOS_OP_READ, 1048576);
    g_assert_cmpint(qos_sched_enter(f.sched, second, f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now + 30 * QOS_SECOND);
    f.now = wake;
    g_assert_true(next(&f) == second);
    leave(&f, first);
    leave(&f, second);
    fixture_clear(&f);
}

/* 10,000 jobs under 1,000 rules: each holds its own rate, and the flows of idle jobs go. */
static void test_ten_thousand_jobs(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 64);
    for (guint i = 0; i < 1000; i++) {
        g_autofree char *rule =
            g_strdup_printf("start r%u jobid={job%u.*} rate=%u depth=2", i, i, 10 + i);
        fixture_rule(&f, rule);
    }
    for (guint i = 0; i < 10000; i++) {
        g_autofree char *job = g_strdup_printf("job%u.%u", i % 1000, i);
        g_assert_cmpuint(burst(&f, job, 0, QOS_OP_READ, 4), ==, 2);
    }
    f.now += QOS_SECOND / 10;
    for (guint i = 0; i < 10000; i++) {
        g_autofree char *job = g_strdup_printf("job%u.%u", i % 1000, i);
        g_assert_cmpuint(burst(&f, job, 0, QOS_OP_READ, 1), ==, 1);
    }
    f.now += 3600 * QOS_SECOND;
    qos_sched_expire(f.sched, f.now);
    qos_sched_expire(f.sched, f.now);
    g_assert_cmpuint(g_hash_table_size(qos_sched_jobs(f.sched)->by_id), ==, 0);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tbf/rates-are-exact", test_rates_are_exact);
    g_test_add_func("/tbf/bytes-do-not-depend-on-the-block", test_bytes_do_not_depend_on_the_block);
    g_test_add_func("/tbf/both-bounds", test_both_bounds);
    g_test_add_func("/tbf/default-is-unlimited-until-given-a-rate",
                    test_default_is_unlimited_until_given_a_rate);
    g_test_add_func("/tbf/classes", test_classes);
    g_test_add_func("/tbf/deadlines-order-the-classes", test_deadlines_order_the_classes);
    g_test_add_func("/tbf/saved-tokens-count", test_saved_tokens_count);
    g_test_add_func("/tbf/idle-class-saves-its-depth-alone", test_idle_class_saves_its_depth_alone);
    g_test_add_func("/tbf/changes-reach-what-waits", test_changes_reach_what_waits);
    g_test_add_func("/tbf/many-are-matched-again-in-order", test_many_are_matched_again_in_order);
    g_test_add_func("/tbf/change-gives-no-burst", test_change_gives_no_burst);
    g_test_add_func("/tbf/idle-classes-go", test_idle_classes_go);
    g_test_add_func("/tbf/dry-run", test_dry_run);
    g_test_add_func("/tbf/charge-is-debt", test_charge_is_debt);
    g_test_add_func("/tbf/what-holds-a-lock-goes-into-debt", test_what_holds_a_lock_goes_into_debt);
    g_test_add_func("/tbf/what-holds-a-lock-waits-for-no-token",
                    test_what_holds_a_lock_waits_for_no_token);
    g_test_add_func("/tbf/a-toll-pays-for-another-class", test_a_toll_pays_for_another_class);
    g_test_add_func("/tbf/settle", test_settle);
    g_test_add_func("/tbf/max-wait", test_max_wait);
    g_test_add_func("/tbf/ten-thousand-jobs", test_ten_thousand_jobs);
    return g_test_run();
}
