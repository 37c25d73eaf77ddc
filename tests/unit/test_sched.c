/*
 * Slots, each job's share of them, the plain policies, cancelling, and the change of policies and
 * slots under load.
 */
#include "sched_fixture.h"

static void test_goes_at_once_while_slots_are_free(void)
{
    Fixture f;
    QosRequest *requests[4];
    fixture_init(&f, &qos_policy_fifo, 4);
    for (guint i = 0; i < 4; i++) {
        g_autofree char *job = g_strdup_printf("job%u", i);
        requests[i] = request_new(&f, job, QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, requests[i]), ==, QOS_GO);
    }
    QosRequest *late = request_new(&f, "late", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, late), ==, QOS_WAIT);
    g_assert_null(next(&f));

    f.now += QOS_SECOND;
    leave(&f, requests[2]);
    g_assert_true(next(&f) == late);
    g_assert_cmpint(late->start - late->arrival, ==, QOS_SECOND);
    g_assert_cmpuint(late->job->waits, ==, 1);
    g_assert_cmpstr(late->job->wait[0].rule_name, ==, QOS_WAIT_SLOTS);
    g_assert_cmpint(late->job->wait[0].waited, ==, QOS_SECOND);
    leave(&f, late);
    leave(&f, requests[0]);
    leave(&f, requests[1]);
    leave(&f, requests[3]);
    fixture_clear(&f);
}

static void assert_waited_for(const QosRequest *request, const char *name)
{
    g_assert_cmpuint(request->job->wait_count, ==, 1);
    g_assert_cmpstr(request->job->wait[0].rule_name, ==, name);
}

/* With adaptive sharing a job waits for a slot where none is free... */
static void test_waits_for_slots(void)
{
    Fixture f;
    const QosAdaptConfig config = {.mode = QOS_ADAPT_FAIR, .period = QOS_ADAPT_PERIOD};

    fixture_init(&f, &qos_policy_fifo, 1);
    qos_sched_set_adapt(f.sched, &config, f.now);
    QosRequest *first = request_new(&f, "first", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, first), ==, QOS_GO);
    QosRequest *late = request_new(&f, "late", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, late), ==, QOS_WAIT);
    assert_waited_for(late, QOS_WAIT_SLOTS);
    leave(&f, first);
    g_assert_true(next(&f) == late);
    leave(&f, late);
    fixture_clear(&f);
}

/* ...and where some are, for its turn: it has a share from the second period on. */
static void test_waits_for_its_share(void)
{
    Fixture f;
    const QosAdaptConfig config = {
        .mode = QOS_ADAPT_PAPER, .period = QOS_ADAPT_PERIOD, .capacity = 1};
    guint sent = 0;

    fixture_init(&f, &qos_policy_fifo, 4);
    qos_sched_set_adapt(f.sched, &config, f.now);
    QosRequest *request = request_new(&f, "job", QOS_OP_READ, 1);
    while (enter(&f, request) == QOS_GO) {
        leave(&f, request);
        if (sent == 0)
            f.now += QOS_ADAPT_PERIOD;
        g_assert_cmpuint(++sent, <, 20);
        request = request_new(&f, "job", QOS_OP_READ, 1);
    }
    assert_waited_for(request, QOS_WAIT_SHARE);
    f.now += QOS_SECOND; /* it was issued in this period, which has not a whole token */
    g_assert_null(next(&f));
    f.now += QOS_ADAPT_PERIOD; /* in this one the job has issued nothing, and has no rule */
    g_assert_true(next(&f) == request);
    leave(&f, request);
    fixture_clear(&f);
}

/* With 16 slots a job has at most 14; what it has beyond is held, and goes as its own leave. */
static void test_no_job_holds_all_slots(void)
{
    static const QosPolicyClass *const all[] = {&qos_policy_fifo, &qos_policy_grr, &qos_policy_jrr,
                                                &qos_policy_tbf};
    for (guint p = 0; p < G_N_ELEMENTS(all); p++) {
        Fixture f;
        QosSchedState state;
        QosRequest *hog[100];
        guint went = 0;
        fixture_init(&f, all[p], 16);
        for (guint i = 0; i < 100; i++) {
            hog[i] = request_new(&f, "hog", QOS_OP_READ, 1);
            went += enter(&f, hog[i]) == QOS_GO;
        }
        g_assert_cmpuint(went, ==, 14);

        QosRequest *other = request_new(&f, "other", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, other), ==, QOS_GO);
        qos_sched_state(f.sched, &state);
        g_assert_cmpuint(state.running, ==, 15);
        g_assert_cmpuint(state.at_limit, ==, 86);

        for (guint i = 0; i < 100; i++) {
            leave(&f, hog[i]);
            QosRequest *due = next(&f);
            g_assert_true(due == (i + 14 < 100 ? hog[i + 14] : NULL));
            g_assert_null(next(&f));
        }
        leave(&f, other);
        qos_sched_state(f.sched, &state);
        g_assert_cmpuint(state.running, ==, 0);
        g_assert_cmpuint(state.at_limit, ==, 0);
        fixture_clear(&f);
    }
}

/* What the store does not answer counts against its job alone, up to a bound. */
static void test_stalled_requests_free_their_slots(void)
{
    enum { SLOTS = 16, SHARE = 14, HANGING = QOS_STALLED_MAX / SHARE + 3 };
    Fixture f;
    QosSchedState state;
    GQueue inside = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, SLOTS);
    for (guint job = 0; job < HANGING; job++) {
        g_autofree char *name = g_strdup_printf("hang%u", job);
        guint went = 0;
        for (guint i = 0; i < SHARE; i++) {
            QosRequest *request = request_new(&f, name, QOS_OP_READ, 1);
            if (enter(&f, request) == QOS_GO) {
                g_queue_push_tail(&inside, request);
                went++;
            } else {
                qos_sched_cancel(f.sched, request, f.now);
                request_free(request);
            }
        }
        g_assert_cmpuint(went, ==, job < HANGING - 2 ? SHARE : job < HANGING - 1 ? 6 : 0);
        f.now += QOS_STALL_TIME;
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.stalled, ==, QOS_STALLED_MAX);
    g_assert_cmpuint(state.running, ==, QOS_STALLED_MAX + SLOTS);

    /* One that ends makes room for another. */
    leave(&f, g_queue_pop_head(&inside));
    QosRequest *one = request_new(&f, "other", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, one), ==, QOS_GO);
    leave(&f, one);
    while (inside.length > 0)
        leave(&f, g_queue_pop_tail(&inside));
    fixture_clear(&f);
}

/* A waiting request is called when the oldest stalls, and not before. The rest of its job is held.
 */
static void test_a_stall_calls_the_waiting(void)
{
    enum { SLOTS = 16, SHARE = 14 };
    Fixture f;
    QosSchedState state;
    QosTime wake;
    fixture_init(&f, &qos_policy_tbf, SLOTS);
    QosRequest *hog[SLOTS], *slow[SLOTS - SHARE], *late;
    for (guint i = 0; i < SLOTS; i++)
        g_assert_cmpint(enter(&f, hog[i] = request_new(&f, "hog", QOS_OP_READ, 1)), ==,
                        i < SHARE ? QOS_GO : QOS_WAIT);
    f.now += QOS_SECOND;
    for (guint i = 0; i < G_N_ELEMENTS(slow); i++)
        g_assert_cmpint(enter(&f, slow[i] = request_new(&f, "slow", QOS_OP_READ, 1)), ==, QOS_GO);
    late = request_new(&f, "late", QOS_OP_READ, 1);
    g_assert_cmpint(qos_sched_enter(f.sched, late, f.now, &wake), ==, QOS_WAIT);
    g_assert_cmpint(wake, ==, f.now - QOS_SECOND + QOS_STALL_TIME);
    f.now = wake - 1;
    g_assert_null(qos_sched_next(f.sched, f.now, &wake));
    g_assert_cmpint(wake, ==, f.now + 1);
    f.now = wake;
    g_assert_true(next(&f) == late);
    g_assert_null(next(&f));
    leave(&f, late);
    for (guint i = 0; i < G_N_ELEMENTS(slow); i++)
        leave(&f, slow[i]);
    for (guint i = 0; i < SLOTS; i++) {
        leave(&f, hog[i]);
        g_assert_true(next(&f) == (i < SLOTS - SHARE ? hog[SHARE + i] : NULL));
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running + state.stalled + state.at_limit, ==, 0);
    fixture_clear(&f);
}

/* Round robin: each job's first request goes before any job's second. */
static void test_jrr_takes_turns(void)
{
    Fixture f;
    QosRequest *requests[3][5];
    fixture_init(&f, &qos_policy_jrr, 1);
    QosRequest *running = request_new(&f, "first", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    for (guint job = 0; job < 3; job++) {
        g_autofree char *name = g_strdup_printf("job%u", job);
        for (guint i = 0; i < 5; i++) {
            requests[job][i] = request_new(&f, name, QOS_OP_READ, 1);
            g_assert_cmpint(enter(&f, requests[job][i]), ==, QOS_WAIT);
        }
    }
    for (guint i = 0; i < 5; i++) {
        for (guint job = 0; job < 3; job++) {
            leave(&f, running);
            running = next(&f);
            g_assert_true(running == requests[job][i]);
        }
    }
    leave(&f, running);
    g_assert_null(next(&f));
    fixture_clear(&f);
}

/* What holds a lock goes without a slot, but one job has only so many of these inside. */
static void test_what_holds_a_lock_needs_no_slot(void)
{
    static const QosPolicyClass *const all[] = {&qos_policy_fifo, &qos_policy_grr, &qos_policy_jrr,
                                                &qos_policy_tbf};
    for (guint p = 0; p < G_N_ELEMENTS(all); p++) {
        Fixture f;
        QosRequest *inside[1 + QOS_OVER_LIMIT_MAX];
        QosSchedState state;
        fixture_init(&f, all[p], 2); /* a job's share: 1 */
        for (guint i = 0; i < G_N_ELEMENTS(inside); i++) {
            inside[i] = request_new(&f, "hog", QOS_OP_UNLINK, 0);
            inside[i]->holds_lock = TRUE;
            g_assert_cmpint(enter(&f, inside[i]), ==, QOS_GO);
            g_assert_cmpint(inside[i]->has_slot, ==, i == 0);
        }
        QosRequest *more = request_new(&f, "hog", QOS_OP_UNLINK, 0);
        more->holds_lock = TRUE;
        g_assert_cmpint(enter(&f, more), ==, QOS_WAIT);
        QosRequest *other = request_new(&f, "other", QOS_OP_UNLINK, 0);
        g_assert_cmpint(enter(&f, other), ==, QOS_GO);
        qos_sched_state(f.sched, &state);
        g_assert_cmpuint(state.running, ==, 2);

        for (guint i = 0; i < G_N_ELEMENTS(inside); i++)
            leave(&f, inside[i]);
        g_assert_true(next(&f) == more);
        leave(&f, more);
        leave(&f, other);
        fixture_clear(&f);
    }
}

/* What waits goes when others come to want its lock: from the policy's queue, and held in its job.
 */
static void test_boost(void)
{
    static const QosPolicyClass *const all[] = {&qos_policy_fifo, &qos_policy_grr, &qos_policy_jrr,
                                                &qos_policy_tbf};
    for (guint p = 0; p < G_N_ELEMENTS(all); p++) {
        Fixture f;
        QosSchedState state;
        QosRequest *requests[3];
        fixture_init(&f, all[p], 2); /* a job's share: 1 */
        for (guint i = 0; i < 3; i++) {
            requests[i] = request_new(&f, "hog", QOS_OP_WRITE, 1);
            g_assert_cmpint(enter(&f, requests[i]), ==, i == 0 ? QOS_GO : QOS_WAIT);
        }
        g_assert_null(next(&f));
        qos_sched_boost(f.sched, requests[2], f.now);
        qos_sched_boost(f.sched, requests[2], f.now); /* once is enough */
        qos_sched_boost(f.sched, requests[0], f.now); /* it runs */
        g_assert_true(next(&f) == requests[2]);
        g_assert_null(next(&f));
        qos_sched_state(f.sched, &state);
        g_assert_cmpuint(state.running, ==, 1);
        leave(&f, requests[2]);
        g_assert_null(next(&f));
        leave(&f, requests[0]);
        g_assert_true(next(&f) == requests[1]);
        leave(&f, requests[1]);
        fixture_clear(&f);
    }
}

static void test_cancel(void)
{
    static const QosPolicyClass *const all[] = {&qos_policy_fifo, &qos_policy_grr, &qos_policy_jrr,
                                                &qos_policy_tbf};
    for (guint p = 0; p < G_N_ELEMENTS(all); p++) {
        Fixture f;
        QosSchedState state;
        QosRequest *requests[10];
        fixture_init(&f, all[p], 2);
        for (guint i = 0; i < 10; i++) {
            requests[i] = request_new(&f, i < 5 ? "a" : "b", QOS_OP_READ, 1);
            enter(&f, requests[i]);
        }
        /* a's first and b's first run; the others are held or queued. */
        for (guint i = 0; i < 10; i++) {
            if (i % 5 == 0)
                continue;
            qos_sched_cancel(f.sched, requests[i], f.now + QOS_SECOND);
            request_free(requests[i]);
        }
        leave(&f, requests[0]);
        leave(&f, requests[5]);
        g_assert_null(next(&f));
        qos_sched_state(f.sched, &state);
        g_assert_cmpuint(state.running + state.at_limit, ==, 0);
        fixture_clear(&f);
    }
}

/* Switching loses nothing and releases nothing: what tbf holds goes at its rate, while fifo serves
 * the new. */
static void test_switch_under_load(void)
{
    Fixture f;
    QosRequest *slow[20];
    QosRuleState state;
    guint queued;
    fixture_init(&f, &qos_policy_tbf, 64);
    fixture_rule(&f, "start limit jobid={slow} rate=10 depth=1");
    guint64 limit = qos_rules_by_name(qos_sched_rules(f.sched), "limit")->id;
    for (guint i = 0; i < 20; i++) {
        slow[i] = request_new(&f, "slow", QOS_OP_READ, 1);
        g_assert_cmpint(enter(&f, slow[i]), ==, i == 0 ? QOS_GO : QOS_WAIT);
    }
    qos_sched_set_policy(f.sched, &qos_policy_fifo, f.now);
    g_assert_cmpint(qos_sched_policy_state(f.sched, &qos_policy_tbf, &queued), ==,
                    QOS_POLICY_STOPPING);
    g_assert_cmpuint(queued, ==, 19);
    g_assert_true(qos_sched_rule_state(f.sched, limit, &state));
    g_assert_cmpuint(state.waiting, ==, 19);
    g_assert_null(next(&f));

    QosRequest *fresh = request_new(&f, "slow", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, fresh), ==, QOS_GO);
    leave(&f, fresh);

    for (guint i = 1; i < 10; i++) {
        f.now += QOS_SECOND / 10 - 1;
        g_assert_null(next(&f));
        f.now += 1;
        g_assert_true(next(&f) == slow[i]);
        g_assert_null(next(&f));
    }
    /* Back to tbf: the one that drains is taken up again, with its empty bucket. */
    qos_sched_set_policy(f.sched, &qos_policy_tbf, f.now);
    QosRequest *again = request_new(&f, "slow", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, again), ==, QOS_WAIT);
    for (guint i = 10; i < 20; i++) {
        f.now += QOS_SECOND / 10;
        g_assert_true(next(&f) == slow[i]);
    }
    f.now += QOS_SECOND / 10;
    g_assert_true(next(&f) == again);
    leave(&f, again);
    for (guint i = 0; i < 20; i++)
        leave(&f, slow[i]);
    g_assert_cmpint(qos_sched_policy_state(f.sched, &qos_policy_fifo, &queued), ==,
                    QOS_POLICY_STOPPED);
    fixture_clear(&f);
}

/* Slots taken away are not refilled; what is held goes on when there is room again. */
static void test_slots_shrink_under_load(void)
{
    Fixture f;
    QosRequest *requests[40];
    fixture_init(&f, &qos_policy_fifo, 16);
    for (guint i = 0; i < 40; i++) {
        requests[i] = request_new(&f, "hog", QOS_OP_READ, 1);
        enter(&f, requests[i]);
    }
    qos_sched_set_slots(f.sched, 2, f.now); /* share: 1 */
    for (guint i = 0; i < 13; i++) {
        leave(&f, requests[i]);
        g_assert_null(next(&f));
    }
    for (guint i = 13; i < 39; i++) {
        leave(&f, requests[i]);
        g_assert_true(next(&f) == requests[i + 1]);
        g_assert_null(next(&f));
    }
    leave(&f, requests[39]);
    fixture_clear(&f);
}

static void test_only_policies_with_rules_pass_through(void)
{
    Fixture f;
    const QosOpcodeSet reads = 1 << QOS_OP_READ;
    fixture_init(&f, &qos_policy_tbf, 4);
    QosRequest *request = request_new(&f, "free", QOS_OP_OPEN, 0);
    g_assert_false(qos_sched_passes_through(f.sched, request, reads));
    fixture_rule(&f, "start exempt jobid={free}&uid={1000}&gid={100}&host={node7} passthrough");
    g_assert_true(qos_sched_passes_through(f.sched, request, reads));
    qos_sched_set_policy(f.sched, &qos_policy_fifo, f.now);
    g_assert_false(qos_sched_passes_through(f.sched, request, reads));
    request_free(request);
    fixture_clear(&f);
}

/* A worker is told when to ask again. If it asks before, it is told the same, but not once
 * something has changed. */
static void test_changes_are_seen_at_once(void)
{
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 1);
    fixture_rule(&f, "start slow jobid={a} rate=1 depth=1");
    QosRequest *first = request_new(&f, "a", QOS_OP_READ, 1);
    QosRequest *second = request_new(&f, "a", QOS_OP_READ, 1);
    QosRequest *other = request_new(&f, "b", QOS_OP_READ, 1);
    QosRequest *last = request_new(&f, "c", QOS_OP_READ, 1);

    g_assert_cmpint(enter(&f, first), ==, QOS_GO);
    leave(&f, first);
    g_assert_cmpint(enter(&f, second), ==, QOS_WAIT);
    g_assert_null(next(&f));
    g_assert_cmpint(enter(&f, other), ==, QOS_GO);
    fixture_rule(&f, "stop slow");
    g_assert_null(next(&f)); /* the slot is taken */
    qos_sched_set_slots(f.sched, 2, f.now);
    g_assert_true(next(&f) == second);
    g_assert_cmpint(enter(&f, last), ==, QOS_WAIT);
    g_assert_null(next(&f));
    leave(&f, other);
    g_assert_true(next(&f) == last);
    leave(&f, second);
    leave(&f, last);

    fixture_rule(&f, "start slow jobid={a} rate=1 depth=1");
    first = request_new(&f, "a", QOS_OP_READ, 1);
    second = request_new(&f, "a", QOS_OP_READ, 1);
    g_assert_cmpint(enter(&f, first), ==, QOS_GO);
    leave(&f, first);
    g_assert_cmpint(enter(&f, second), ==, QOS_WAIT);
    g_assert_null(next(&f));
    fixture_rule(&f, "stop slow");
    g_assert_true(next(&f) == second);
    leave(&f, second);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sched/waits-for-slots", test_waits_for_slots);
    g_test_add_func("/sched/waits-for-its-share", test_waits_for_its_share);
    g_test_add_func("/sched/goes-at-once-while-slots-are-free",
                    test_goes_at_once_while_slots_are_free);
    g_test_add_func("/sched/no-job-holds-all-slots", test_no_job_holds_all_slots);
    g_test_add_func("/sched/stalled-requests", test_stalled_requests_free_their_slots);
    g_test_add_func("/sched/a-stall-calls-the-waiting", test_a_stall_calls_the_waiting);
    g_test_add_func("/sched/jrr-takes-turns", test_jrr_takes_turns);
    g_test_add_func("/sched/what-holds-a-lock-needs-no-slot", test_what_holds_a_lock_needs_no_slot);
    g_test_add_func("/sched/boost", test_boost);
    g_test_add_func("/sched/cancel", test_cancel);
    g_test_add_func("/sched/switch-under-load", test_switch_under_load);
    g_test_add_func("/sched/slots-shrink-under-load", test_slots_shrink_under_load);
    g_test_add_func("/sched/changes-are-seen-at-once", test_changes_are_seen_at_once);
    g_test_add_func("/sched/passthrough", test_only_policies_with_rules_pass_through);
    return g_test_run();
}
