/*
 * Slots, each job's share of them, the plain policies, cancelling, and the change of policies under
 * load.
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
    f.now += QOS_SECOND;
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
        g_assert_cmpuint(state.held, ==, 86);

        for (guint i = 0; i < 100; i++) {
            leave(&f, hog[i]);
            QosRequest *due = next(&f);
            g_assert_true(due == (i + 14 < 100 ? hog[i + 14] : NULL));
            g_assert_null(next(&f));
        }
        leave(&f, other);
        qos_sched_state(f.sched, &state);
        g_assert_cmpuint(state.running, ==, 0);
        g_assert_cmpuint(state.held, ==, 0);
        fixture_clear(&f);
    }
}

/* Round robin: each job's first request goes before any job's second. */
/* What the store does not answer counts against its job alone, up to a bound. */
static void test_stalled_requests_free_their_slots(void)
{
    enum { SLOTS = 16, SHARE = 14, HANGING = QOS_STALLED_MAX / SHARE + 3 };
    Fixture f;
    QosSchedState state;
    QosTime wake;
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

    /* Who waits is called when the oldest stalls, and not before; the rest of its job is held. */
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
    g_assert_cmpuint(state.running + state.stalled + state.held, ==, 0);
    fixture_clear(&f);
}

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
        QosRequest *inside[1 + QOS_PASSING_MAX];
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

/* Jobs whose closes hang: each has so many inside beside the slots, and all have so many. */
static void test_closes_are_bounded(void)
{
    enum { JOBS = QOS_PASSING_ALL / QOS_PASSING_MAX + 2, CLOSES = 20, SLOTS = 4 };
    Fixture f;
    QosSchedState state;
    QosRequest *close[JOBS][CLOSES];
    fixture_init(&f, &qos_policy_tbf, SLOTS);
    for (guint job = 0; job < JOBS; job++) {
        g_autofree char *name = g_strdup_printf("job%u", job);
        for (guint i = 0; i < CLOSES; i++) {
            close[job][i] = request_new(&f, name, QOS_OP_CLOSE, 0);
            QosVerdict verdict = qos_sched_charge(f.sched, close[job][i], f.now);
            g_assert_true((verdict == QOS_GO) ==
                          (close[job][i]->has_slot || close[job][i]->is_passing));
        }
        g_assert_cmpuint(close[job][0]->job->use.passing, <=, QOS_PASSING_MAX);
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running, ==, SLOTS); /* three of the first job, one of the second */
    g_assert_cmpuint(state.passing, ==, QOS_PASSING_ALL);
    g_assert_cmpuint(state.held, ==, JOBS * CLOSES - SLOTS - QOS_PASSING_ALL);

    QosRequest *lookup = request_new(&f, "guest", QOS_OP_LOOKUP, 0);
    lookup->holds_lock = TRUE;
    g_assert_cmpint(enter(&f, lookup), ==, QOS_WAIT);

    /* All go in the end: what is held, as slots come free. */
    GQueue inside = G_QUEUE_INIT;
    for (guint job = 0; job < JOBS; job++) {
        for (guint i = 0; i < CLOSES; i++) {
            if (close[job][i]->state == QOS_REQUEST_RUNNING)
                g_queue_push_tail(&inside, close[job][i]);
        }
    }
    guint left = 0;
    for (QosRequest *done; (done = g_queue_pop_head(&inside)) != NULL; left++) {
        leave(&f, done);
        for (QosRequest *due; (due = next(&f)) != NULL;) {
            g_assert_true(due->has_slot);
            g_queue_push_tail(&inside, due);
        }
    }
    g_assert_cmpuint(left, ==, JOBS * CLOSES + 1);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running + state.passing + state.held, ==, 0);
    fixture_clear(&f);
}

/* What waits goes when others come to want its lock: from the policy's queue, and held in its job.
 */
static void test_release(void)
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
        qos_sched_release(f.sched, requests[2], f.now);
        qos_sched_release(f.sched, requests[2], f.now); /* once is enough */
        qos_sched_release(f.sched, requests[0], f.now); /* it runs */
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

/* Data that waits: in memory up to half, then in the store by so many, then in memory up to all. */
static void test_data_that_waits_is_bounded(void)
{
    enum { UNIT = 1 << 10, ALL = 64 * UNIT, SHARE = 28, FULL = 56 };
    Fixture f;
    QosSchedState state;
    GQueue waiting = G_QUEUE_INIT;
    guint in_memory = 0, in_store = 0;
    QosKeep keep;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    qos_sched_set_parked_max(f.sched, ALL);
    QosRequest *running = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    do {
        QosRequest *request = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
        request->data = UNIT;
        g_assert_cmpint(enter(&f, request), ==, QOS_WAIT);
        keep = qos_sched_keep(f.sched, request);
        in_memory += keep == QOS_KEEP_IN_MEMORY;
        in_store += keep == QOS_KEEP_IN_STORE;
        if (in_store == 1 && keep == QOS_KEEP_IN_STORE)
            g_assert_cmpuint(in_memory, ==, SHARE);
        g_queue_push_tail(&waiting, request);
    } while (keep != QOS_KEEP_NOWHERE);
    g_assert_cmpuint(in_memory, ==, FULL);
    g_assert_cmpuint(in_store, ==, QOS_PASSING_MAX);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, FULL * UNIT);
    g_assert_cmpuint(running->job->use.parked_bytes, ==, FULL * UNIT);
    g_assert_cmpuint(state.refused, ==, 1);

    /* What is left is for others. */
    QosRequest *other = request_new(&f, "other", QOS_OP_WRITE, UNIT);
    other->data = (64 - FULL) * UNIT;
    g_assert_cmpint(qos_sched_keep(f.sched, other), ==, QOS_KEEP_IN_STORE);
    qos_sched_kept(f.sched, other);
    request_free(other);

    /* Once the store has taken one, it may have another. */
    QosRequest *stored = g_queue_peek_nth(&waiting, SHARE);
    qos_sched_kept(f.sched, stored);
    g_assert_cmpuint(running->job->use.passing, ==, QOS_PASSING_MAX - 1);

    for (guint i = 1; i < QOS_PASSING_MAX; i++)
        qos_sched_kept(f.sched, g_queue_peek_nth(&waiting, SHARE + i));
    leave(&f, running);
    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;) {
        if (waiting.length % 2 == 0) {
            qos_sched_cancel(f.sched, request, f.now);
            request_free(request);
        } else {
            f.now += 2 * QOS_SECOND;
            g_assert_true(next(&f) == request);
            leave(&f, request);
        }
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, 0);
    g_assert_cmpuint(state.passing, ==, 0);
    fixture_clear(&f);
}

/* Each request that waits takes some, too; only a close is kept where none is left. */
static void test_requests_that_wait_are_bounded(void)
{
    enum { UNIT = 1 << 10, ALL = 64 * UNIT, FULL = 56 };
    Fixture f;
    QosSchedState state;
    GQueue waiting = G_QUEUE_INIT;
    QosKeep keep;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    qos_sched_set_parked_max(f.sched, ALL);
    qos_sched_set_request_memory(f.sched, UNIT);
    QosRequest *running = request_new(&f, "hog", QOS_OP_READ, UNIT);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    do {
        QosRequest *request = request_new(&f, "hog", QOS_OP_READ, UNIT);
        request->cannot_fail = waiting.length == FULL + 1;
        g_assert_cmpint(enter(&f, request), ==, QOS_WAIT);
        keep = qos_sched_keep(f.sched, request);
        g_assert_true((keep == QOS_KEEP_NOWHERE) == (waiting.length == FULL));
        g_queue_push_tail(&waiting, request);
    } while (waiting.length < FULL + 2);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, (FULL + 1) * UNIT);
    g_assert_cmpuint(running->job->use.parked_bytes, ==, (FULL + 1) * UNIT);
    g_assert_cmpuint(state.refused, ==, 1);

    /* Data goes to the store at once where half is used up; its answer takes what a request takes.
     */
    QosRequest *other = request_new(&f, "other", QOS_OP_WRITE, UNIT);
    other->data = UNIT;
    g_assert_cmpint(qos_sched_keep(f.sched, other), ==, QOS_KEEP_IN_STORE);
    g_assert_cmpuint(other->job->use.parked_bytes, ==, UNIT);
    qos_sched_kept(f.sched, other);

    leave(&f, running);
    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;) {
        qos_sched_cancel(f.sched, request, f.now);
        request_free(request);
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, UNIT); /* the other's, which never entered */
    request_free(other);
    fixture_clear(&f);
}

/* Keeps a request that has to wait, or takes it back: FALSE. */
static gboolean keeps(Fixture *f, GQueue *waiting, const char *job, QosOpcode opcode)
{
    QosRequest *request = request_new(f, job, opcode, 1);
    g_assert_cmpint(enter(f, request), ==, QOS_WAIT);
    QosKeep keep = qos_sched_keep(f->sched, request);
    if (keep == QOS_KEEP_IN_MEMORY) {
        g_queue_push_tail(waiting, request);
        return TRUE;
    }
    g_assert_cmpint(keep, ==, QOS_KEEP_TOO_MANY);
    qos_sched_cancel(f->sched, request, f->now);
    request_free(request);
    return FALSE;
}

/* The kernel has room for so many in the background, and does not tell which are: one job leaves
 * some to the others, and all some to those that need not wait. */
static void test_the_background_is_bounded(void)
{
    enum { ROOM = 64, ALL = 56, SHARE = 49 };
    Fixture f;
    GQueue waiting = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog other} rate=1 depth=1:1");
    qos_sched_set_background_room(f.sched, ROOM);
    QosRequest *first[] = {request_new(&f, "hog", QOS_OP_READ, 1),
                           request_new(&f, "other", QOS_OP_READ, 1)};
    for (guint i = 0; i < G_N_ELEMENTS(first); i++) {
        g_assert_cmpint(enter(&f, first[i]), ==, QOS_GO);
        leave(&f, first[i]);
    }

    for (guint i = 0; i < SHARE; i++)
        g_assert_true(keeps(&f, &waiting, "hog", i % 2 == 0 ? QOS_OP_READ : QOS_OP_WRITE));
    g_assert_false(keeps(&f, &waiting, "hog", QOS_OP_READ));
    g_assert_false(keeps(&f, &waiting, "hog", QOS_OP_WRITE));
    g_assert_true(keeps(&f, &waiting, "hog", QOS_OP_GETATTR)); /* somebody waits for it */
    QosRequest *ahead = request_new(&f, "hog", QOS_OP_READ, 1);
    ahead->fills_cache = TRUE;
    g_assert_cmpint(enter(&f, ahead), ==, QOS_GO);
    leave(&f, ahead);

    for (guint i = SHARE; i < ALL; i++)
        g_assert_true(keeps(&f, &waiting, "other", QOS_OP_READ));
    g_assert_false(keeps(&f, &waiting, "other", QOS_OP_READ));
    qos_sched_cancel(f.sched, g_queue_peek_head(&waiting), f.now);
    request_free(g_queue_pop_head(&waiting));
    g_assert_true(keeps(&f, &waiting, "other", QOS_OP_READ));

    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;) {
        qos_sched_cancel(f.sched, request, f.now);
        request_free(request);
    }
    fixture_clear(&f);
}

/* Read-ahead that waits takes room in the kernel: beyond so many it goes, as debt. */
static void test_reading_ahead_is_bounded(void)
{
    enum { MORE = 10 };
    Fixture f;
    GQueue waiting = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    for (guint i = 0; i <= QOS_FILLING_MAX; i++) {
        QosRequest *request = request_new(&f, "hog", QOS_OP_READ, 1);
        request->fills_cache = TRUE;
        if (enter(&f, request) == QOS_WAIT)
            g_queue_push_tail(&waiting, request);
        else
            leave(&f, request);
    }
    g_assert_cmpuint(waiting.length, ==, QOS_FILLING_MAX);
    for (guint i = 0; i < MORE; i++) {
        QosRequest *request = request_new(&f, "hog", QOS_OP_READ, 1);
        request->fills_cache = i != 0; /* one that fills nothing waits as ever */
        g_assert_cmpint(enter(&f, request), ==, i == 0 ? QOS_WAIT : QOS_GO);
        if (i == 0)
            g_queue_push_tail(&waiting, request);
        else
            leave(&f, request);
    }
    f.now += (MORE - 1) * QOS_SECOND; /* their debt */
    g_assert_null(next(&f));
    f.now += QOS_SECOND;
    QosRequest *first = next(&f);
    g_assert_true(first == g_queue_pop_head(&waiting));
    g_assert_cmpuint(first->job->filling, ==, QOS_FILLING_MAX - 1);
    leave(&f, first);
    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;) {
        qos_sched_cancel(f.sched, request, f.now);
        if (waiting.length == 0)
            g_assert_cmpuint(request->job->filling, ==, 0);
        request_free(request);
    }
    fixture_clear(&f);
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
        g_assert_cmpuint(state.running + state.held, ==, 0);
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

typedef struct {
    GPtrArray *waiting;
    GPtrArray *running;
} Live;

static guint count_slots(const GPtrArray *running)
{
    guint count = 0;
    for (guint i = 0; i < running->len; i++)
        count += ((const QosRequest *)running->pdata[i])->has_slot;
    return count;
}

static void check_one_left(Fixture *f, Live *live, GRand *random)
{
    guint i = (guint)g_rand_int_range(random, 0, (gint32)live->running->len);
    leave(f, g_ptr_array_steal_index_fast(live->running, i));
}

/* Any sequence of calls: each request goes exactly once or is cancelled, and the slots are never
 * exceeded. */
static void test_random_sequences(void)
{
    guint32 seed = g_test_rand_int();
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    g_test_message("seed %u", seed);

    for (guint round = 0; round < 50; round++) {
        Fixture f;
        QosSchedState state;
        Live live = {g_ptr_array_new(), g_ptr_array_new()};
        guint slots = (guint)g_rand_int_range(random, 1, 20);
        fixture_init(&f, qos_policies[round % 3], slots);
        fixture_rule(&f, "start some jobid={j1 j2} rate=500 bps=1M");
        for (guint step = 0; step < 2000; step++) {
            f.now += g_rand_int_range(random, 0, 3000000);
            int what = g_rand_int_range(random, 0, 100);
            QosRequest *request;
            if (what < 40) {
                g_autofree char *job = g_strdup_printf("j%d", g_rand_int_range(random, 0, 6));
                request = request_new(&f, job, (QosOpcode)g_rand_int_range(random, 0, QOS_OP_COUNT),
                                      (guint64)g_rand_int_range(random, 0, 10000));
                request->holds_lock = g_rand_int_range(random, 0, 4) == 0;
                g_ptr_array_add(enter(&f, request) == QOS_GO ? live.running : live.waiting,
                                request);
            } else if (what < 70 && live.running->len > 0) {
                check_one_left(&f, &live, random);
            } else if (what < 75 && live.waiting->len > 0) {
                guint i = (guint)g_rand_int_range(random, 0, (gint32)live.waiting->len);
                request = g_ptr_array_steal_index_fast(live.waiting, i);
                qos_sched_cancel(f.sched, request, f.now);
                request_free(request);
            } else if (what < 77 && live.waiting->len > 0) {
                guint i = (guint)g_rand_int_range(random, 0, (gint32)live.waiting->len);
                qos_sched_release(f.sched, live.waiting->pdata[i], f.now);
            } else if (what == 77) {
                qos_sched_set_policy(f.sched, qos_policies[g_rand_int_range(random, 0, 3)], f.now);
            } else if (what == 78) {
                fixture_rule(&f, g_rand_boolean(random) ? "change some rate=50"
                                                        : "change some rate=5000 per=rule");
            } else if (what == 79) {
                qos_sched_expire(f.sched, f.now);
            }
            while ((request = next(&f)) != NULL) {
                g_assert_true(g_ptr_array_remove_fast(live.waiting, request));
                g_ptr_array_add(live.running, request);
            }
            qos_sched_state(f.sched, &state);
            g_assert_cmpuint(state.running, ==, count_slots(live.running));
            g_assert_cmpuint(state.running, <=, slots);
        }
        while (live.running->len + live.waiting->len > 0) {
            QosRequest *request;
            f.now += QOS_SECOND;
            while (live.running->len > 0)
                check_one_left(&f, &live, random);
            while ((request = next(&f)) != NULL) {
                g_assert_true(g_ptr_array_remove_fast(live.waiting, request));
                g_ptr_array_add(live.running, request);
            }
        }
        fixture_clear(&f);
        g_ptr_array_unref(live.waiting);
        g_ptr_array_unref(live.running);
    }
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

/* One of two schedulers that are given the same, and what runs in it. */
typedef struct {
    Fixture fixture;
    GPtrArray *running; /* of QosRequest, in the order they went */
} Twin;

static void twin_init(Twin *twin, const QosPolicyClass *policy)
{
    fixture_init(&twin->fixture, policy, 4);
    twin->running = g_ptr_array_new();
    fixture_rule(&twin->fixture, "start narrow jobid={narrow} rate=20 depth=2");
    fixture_rule(&twin->fixture, "start bytes jobid={wide}&opcode={read} bps=1M");
}

static void twin_drain(Twin *twin)
{
    QosRequest *request;
    while ((request = next(&twin->fixture)) != NULL)
        g_ptr_array_add(twin->running, request);
}

/* What goes at once is what would have gone through the queue, and nothing is passed over for it.
 */
static void test_the_short_way_decides_the_same(void)
{
    static const char *const jobs[] = {"narrow", "wide", "free"};
    static const QosPolicyClass *const all[] = {&qos_policy_fifo, &qos_policy_tbf};
    for (guint p = 0; p < G_N_ELEMENTS(all); p++) {
        QosPolicyClass queueing = *all[p];
        Twin twins[2];
        queueing.try_now = NULL;
        twin_init(&twins[0], all[p]);
        twin_init(&twins[1], &queueing);
        for (guint serial = 0; serial < 20000; serial++) {
            gint action = g_test_rand_int_range(0, 10);
            const char *job = jobs[g_test_rand_int_range(0, G_N_ELEMENTS(jobs))];
            QosOpcode opcode = g_test_rand_bit() ? QOS_OP_READ : QOS_OP_GETATTR;
            guint64 bytes = (guint64)g_test_rand_int_range(0, 100000);
            QosTime pause = g_test_rand_int_range(0, 20) * QOS_MILLISECOND;
            guint place = (guint)g_test_rand_int_range(0, 4);
            for (guint i = 0; i < 2; i++) {
                Fixture *f = &twins[i].fixture;
                GPtrArray *running = twins[i].running;
                if (action < 4) {
                    QosRequest *request = request_new(f, job, opcode, bytes);
                    request->uid = serial;
                    if (enter(f, request) == QOS_GO)
                        g_ptr_array_add(running, request);
                } else if (action < 8 && place < running->len) {
                    leave(f, g_ptr_array_remove_index(running, place));
                } else if (action >= 8) {
                    f->now += pause;
                }
                if (action % 2 == 0)
                    twin_drain(&twins[i]);
            }
            g_assert_cmpuint(twins[0].running->len, ==, twins[1].running->len);
            for (guint i = 0; i < twins[0].running->len; i++) {
                const QosRequest *a = twins[0].running->pdata[i];
                const QosRequest *b = twins[1].running->pdata[i];
                g_assert_cmpuint(a->uid, ==, b->uid);
                g_assert_cmpint(a->start, ==, b->start);
            }
        }
        for (guint i = 0; i < 2; i++) {
            do {
                twins[i].fixture.now += 1000 * QOS_SECOND; /* tokens for what waits */
                while (twins[i].running->len > 0)
                    leave(&twins[i].fixture, g_ptr_array_remove_index(twins[i].running, 0));
                twin_drain(&twins[i]);
            } while (twins[i].running->len > 0);
            g_ptr_array_unref(twins[i].running);
            fixture_clear(&twins[i].fixture);
        }
    }
}

/* Told when to ask again, who asks before is told the same: but not once something has changed. */
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
    g_test_add_func("/sched/jrr-takes-turns", test_jrr_takes_turns);
    g_test_add_func("/sched/what-holds-a-lock-needs-no-slot", test_what_holds_a_lock_needs_no_slot);
    g_test_add_func("/sched/closes-are-bounded", test_closes_are_bounded);
    g_test_add_func("/sched/release", test_release);
    g_test_add_func("/sched/data-that-waits-is-bounded", test_data_that_waits_is_bounded);
    g_test_add_func("/sched/requests-that-wait-are-bounded", test_requests_that_wait_are_bounded);
    g_test_add_func("/sched/the-background-is-bounded", test_the_background_is_bounded);
    g_test_add_func("/sched/reading-ahead-is-bounded", test_reading_ahead_is_bounded);
    g_test_add_func("/sched/cancel", test_cancel);
    g_test_add_func("/sched/switch-under-load", test_switch_under_load);
    g_test_add_func("/sched/slots-shrink-under-load", test_slots_shrink_under_load);
    g_test_add_func("/sched/random-sequences", test_random_sequences);
    g_test_add_func("/sched/changes-are-seen-at-once", test_changes_are_seen_at_once);
    g_test_add_func("/sched/passthrough", test_only_policies_with_rules_pass_through);
    g_test_add_func("/sched/the-short-way-decides-the-same", test_the_short_way_decides_the_same);
    return g_test_run();
}
