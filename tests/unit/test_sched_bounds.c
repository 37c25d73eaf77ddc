/*
 * What one job may have waiting or in the store beside its slots, and what goes or fails beyond.
 */
#include "fs/sched_state.h"
#include "sched_fixture.h"

/* Jobs with hanging closes: each has so many inside beside the slots, and all have so many. */
static void test_closes_are_bounded(void)
{
    enum { JOBS = QOS_OVER_LIMIT_ALL / QOS_OVER_LIMIT_MAX + 2, CLOSES = 20, SLOTS = 4 };
    Fixture f;
    QosSchedState state;
    QosRequest *close[JOBS][CLOSES];
    fixture_init(&f, &qos_policy_tbf, SLOTS);
    for (guint job = 0; job < JOBS; job++) {
        g_autofree char *name = g_strdup_printf("job%u", job);
        for (guint i = 0; i < CLOSES; i++) {
            close[job][i] = request_new(&f, name, QOS_OP_CLOSE, 0);
            QosVerdict verdict = enter_close(&f, close[job][i]);
            g_assert_true((verdict == QOS_GO) ==
                          (close[job][i]->has_slot || close[job][i]->is_over_limit));
        }
        g_assert_cmpuint(close[job][0]->job->sched.use.over_limit, <=, QOS_OVER_LIMIT_MAX);
    }
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running, ==, SLOTS); /* three of the first job, one of the second */
    g_assert_cmpuint(state.over_limit, ==, QOS_OVER_LIMIT_ALL);
    g_assert_cmpuint(state.at_limit, ==, JOBS * CLOSES - SLOTS - QOS_OVER_LIMIT_ALL);

    QosRequest *lookup = request_new(&f, "guest", QOS_OP_LOOKUP, 0);
    lookup->holds_lock = TRUE;
    g_assert_cmpint(enter(&f, lookup), ==, QOS_WAIT);

    /* All go in the end: what is queued, as slots come free, and as those over the limit leave. */
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
            g_assert_true(due->has_slot || due->is_over_limit);
            g_assert_cmpuint(due->job->sched.use.over_limit, <=, QOS_OVER_LIMIT_MAX);
            g_queue_push_tail(&inside, due);
        }
    }
    g_assert_cmpuint(left, ==, JOBS * CLOSES + 1);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.running + state.over_limit + state.at_limit, ==, 0);
    fixture_clear(&f);
}

/* What hangs in the store has all slots. Of those that go beside them one more goes for each that
 * leaves, the first that waits. */
static void test_one_passes_for_each_that_leaves(void)
{
    enum { SLOTS = 8, COUNT = 3 * QOS_OVER_LIMIT_MAX };
    Fixture f;
    QosRequest *hangs[SLOTS], *wanted[COUNT];
    guint inside = 0;
    fixture_init(&f, &qos_policy_fifo, SLOTS);
    for (guint i = 0; i < SLOTS; i++) {
        hangs[i] = request_new(&f, "j", QOS_OP_READ, 0);
        enter(&f, hangs[i]);
    }
    for (guint i = 0; i < COUNT; i++) {
        wanted[i] = request_new(&f, "j", QOS_OP_CREATE, 0);
        wanted[i]->lock = 7;
        wanted[i]->holds_lock = TRUE;
        inside += enter(&f, wanted[i]) == QOS_GO;
    }
    g_assert_cmpuint(inside, >=, QOS_OVER_LIMIT_MAX);
    g_assert_cmpuint(inside, <, COUNT);
    for (guint i = 0; i + inside < COUNT; i++) {
        leave(&f, wanted[i]);
        g_assert_true(next(&f) == wanted[i + inside]);
        g_assert_null(next(&f));
    }
    for (guint i = COUNT - inside; i < COUNT; i++)
        leave(&f, wanted[i]);
    for (guint i = 0; i < SLOTS; i++) {
        if (hangs[i]->state == QOS_REQUEST_RUNNING)
            leave(&f, hangs[i]);
        else
            drop(&f, hangs[i]);
    }
    fixture_clear(&f);
}

/* All of them, in their order, by turns. */
static void serve_or_cancel(Fixture *f, GQueue *waiting)
{
    for (QosRequest *request; (request = g_queue_pop_head(waiting)) != NULL;) {
        if (waiting->length % 2 == 0) {
            qos_sched_cancel(f->sched, request, f->now);
            request_free(request);
        } else {
            f->now += 60 * QOS_SECOND; /* what was cancelled is owed too */
            g_assert_true(next(f) == request);
            leave(f, request);
        }
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
    QosParkPlace place;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    qos_sched_set_parked_max(f.sched, ALL);
    QosRequest *running = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    do {
        QosRequest *request = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
        request->data = UNIT;
        g_assert_cmpint(enter(&f, request), ==, QOS_WAIT);
        place = qos_sched_park_place(f.sched, request, TRUE);
        in_memory += place == QOS_PARK_IN_MEMORY;
        in_store += place == QOS_PARK_IN_STORE;
        if (in_store == 1 && place == QOS_PARK_IN_STORE)
            g_assert_cmpuint(in_memory, ==, SHARE);
        g_queue_push_tail(&waiting, request);
    } while (place != QOS_PARK_NOWHERE);
    g_assert_cmpuint(in_memory, ==, FULL);
    g_assert_cmpuint(in_store, ==, QOS_OVER_LIMIT_MAX);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, FULL * UNIT);
    g_assert_cmpuint(running->job->sched.use.parked_bytes, ==, FULL * UNIT);
    g_assert_cmpuint(state.refused, ==, 1);

    /* What is left is for others. */
    QosRequest *other = request_new(&f, "other", QOS_OP_WRITE, UNIT);
    other->data = (64 - FULL) * UNIT;
    g_assert_cmpint(qos_sched_park_place(f.sched, other, TRUE), ==, QOS_PARK_IN_STORE);
    qos_sched_note_stored(f.sched, other);
    request_free(other);

    /* Once the store has taken one, it may have another. */
    QosRequest *stored = g_queue_peek_nth(&waiting, SHARE);
    qos_sched_note_stored(f.sched, stored);
    g_assert_cmpuint(running->job->sched.use.over_limit, ==, QOS_OVER_LIMIT_MAX - 1);

    for (guint i = 1; i < QOS_OVER_LIMIT_MAX; i++)
        qos_sched_note_stored(f.sched, g_queue_peek_nth(&waiting, SHARE + i));
    leave(&f, running);
    serve_or_cancel(&f, &waiting);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, 0);
    g_assert_cmpuint(state.over_limit, ==, 0);
    fixture_clear(&f);
}

/* What may not be in the store before its turn is in memory up to all. */
static void test_data_that_awaits_its_turn_is_bounded(void)
{
    enum { UNIT = 1 << 10, ALL = 64 * UNIT, FULL = 56 };
    Fixture f;
    GQueue waiting = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    qos_sched_set_parked_max(f.sched, ALL);
    QosRequest *running = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    for (guint i = 0; i <= FULL; i++) {
        QosRequest *request = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
        request->data = UNIT;
        g_assert_cmpint(enter(&f, request), ==, QOS_WAIT);
        g_assert_cmpint(qos_sched_park_place(f.sched, request, FALSE), ==,
                        i < FULL ? QOS_PARK_IN_MEMORY : QOS_PARK_NOWHERE);
        g_queue_push_tail(&waiting, request);
    }
    g_assert_cmpuint(running->job->sched.use.parked_bytes, ==, FULL * UNIT);
    g_assert_cmpuint(running->job->sched.use.over_limit, ==, 0);
    leave(&f, running);
    serve_or_cancel(&f, &waiting);
    fixture_clear(&f);
}

/* If a process is killed while the reply to an early write waits, its job has paid for the write
 * all the same. */
static void test_what_was_written_early_is_paid_for(const void *data)
{
    const gboolean is_held = GPOINTER_TO_INT(data);
    enum { UNIT = 1 << 10, SLOTS = 4 };
    QosRequest *running[SLOTS - 1];
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, SLOTS);
    fixture_rule(&f, is_held ? "start r jobid={hog} bps=4096 depth=1000:1M"
                             : "start r jobid={hog} bps=4096 depth=3:3K");
    qos_sched_set_parked_max(f.sched, UNIT);
    for (guint i = 0; i < G_N_ELEMENTS(running); i++) {
        running[i] = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
        g_assert_cmpint(enter(&f, running[i]), ==, QOS_GO);
    }
    QosJob *job = qos_job_ref(running[0]->job);

    /* All bytes of ten seconds, in ten requests. */
    for (guint i = 0; i < 10; i++) {
        QosRequest *request = request_new(&f, "hog", QOS_OP_WRITE, 4096);
        request->data = 4096;
        g_assert_cmpint(enter(&f, request), ==, QOS_WAIT);
        g_assert_cmpint(request->state, ==, is_held ? QOS_REQUEST_AT_LIMIT : QOS_REQUEST_QUEUED);
        g_assert_cmpint(qos_sched_park_place(f.sched, request, TRUE), ==, QOS_PARK_IN_STORE);
        qos_sched_note_stored(f.sched, request);
        qos_sched_cancel(f.sched, request, f.now);
        request_free(request);
    }
    g_assert_cmpuint(job->write_bytes.sum, ==, 10 * 4096);
    for (guint i = 0; i < G_N_ELEMENTS(running); i++)
        leave(&f, running[i]);
    QosRuleState state;
    g_assert_true(qos_sched_rule_state(
        f.sched, qos_rules_by_name(qos_sched_rules(f.sched), "r")->id, &state));
    g_assert_cmpuint(state.bytes, ==, 3 * UNIT + 10 * 4096);
    if (!is_held) {
        QosRequest *later = request_new(&f, "hog", QOS_OP_WRITE, UNIT);
        g_assert_cmpint(enter(&f, later), ==, QOS_WAIT);
        f.now += 9 * QOS_SECOND;
        g_assert_null(next(&f));
        f.now += 2 * QOS_SECOND;
        g_assert_true(next(&f) == later);
        leave(&f, later);
    }
    qos_job_unref(job);
    fixture_clear(&f);
}

/* A request that is taken back when its turn has come costs its job no share. */
static void test_what_is_taken_back_costs_nothing(void)
{
    const QosAdaptConfig config = {
        .mode = QOS_ADAPT_FAIR, .period = QOS_ADAPT_PERIOD, .capacity = 1000};
    QosRequest *requests[3];
    Fixture f;
    fixture_init(&f, &qos_policy_tbf, 1);
    qos_sched_set_adapt(f.sched, &config, f.now);
    for (guint i = 0; i < G_N_ELEMENTS(requests); i++)
        requests[i] = request_new(&f, "job", QOS_OP_READ, 0);
    g_assert_cmpint(enter(&f, requests[0]), ==, QOS_GO);
    g_assert_cmpint(enter(&f, requests[1]), ==, QOS_WAIT);
    leave(&f, requests[0]);
    const gint64 finish = requests[1]->job->share.finish;
    g_assert_cmpint(enter(&f, requests[2]), ==, QOS_WAIT);
    g_assert_cmpint(requests[1]->state, ==, QOS_REQUEST_READY);
    g_assert_cmpint(requests[1]->job->share.finish, >, finish);
    qos_sched_cancel(f.sched, requests[1], f.now);
    g_assert_cmpint(requests[1]->job->share.finish, ==, finish);
    request_free(requests[1]);
    g_assert_true(next(&f) == requests[2]);
    leave(&f, requests[2]);
    fixture_clear(&f);
}

/* Each request that waits takes some, too; only a close is kept where none is left. */
static void test_requests_that_wait_are_bounded(void)
{
    enum { UNIT = 1 << 10, ALL = 64 * UNIT, FULL = 56 };
    Fixture f;
    QosSchedState state;
    GQueue waiting = G_QUEUE_INIT;
    QosParkPlace place;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    qos_sched_set_parked_max(f.sched, ALL);
    qos_sched_set_request_memory(f.sched, UNIT);
    QosRequest *running = request_new(&f, "hog", QOS_OP_READ, UNIT);
    g_assert_cmpint(enter(&f, running), ==, QOS_GO);
    for (guint i = 0; i < 2; i++) { /* it owes what it may */
        QosRequest *close = request_new(&f, "hog", QOS_OP_CLOSE, 0);
        g_assert_cmpint(enter_close(&f, close), ==, QOS_GO);
        leave(&f, close);
    }
    do {
        QosRequest *request = request_new(&f, "hog", QOS_OP_READ, UNIT);
        request->cannot_fail = waiting.length == FULL + 1;
        g_assert_cmpint(enter(&f, request), ==, QOS_WAIT);
        place = qos_sched_park_place(f.sched, request, TRUE);
        g_assert_true((place == QOS_PARK_NOWHERE) == (waiting.length == FULL));
        g_queue_push_tail(&waiting, request);
    } while (waiting.length < FULL + 2);
    qos_sched_state(f.sched, &state);
    g_assert_cmpuint(state.parked_bytes, ==, (FULL + 1) * UNIT);
    g_assert_cmpuint(running->job->sched.use.parked_bytes, ==, (FULL + 1) * UNIT);
    g_assert_cmpuint(state.refused, ==, 1);

    /* Data goes to the store at once where half is used up; its answer takes what a request takes.
     */
    QosRequest *other = request_new(&f, "other", QOS_OP_WRITE, UNIT);
    other->data = UNIT;
    g_assert_cmpint(qos_sched_park_place(f.sched, other, TRUE), ==, QOS_PARK_IN_STORE);
    g_assert_cmpuint(other->job->sched.use.parked_bytes, ==, UNIT);
    qos_sched_note_stored(f.sched, other);

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
    QosParkPlace place = qos_sched_park_place(f->sched, request, TRUE);
    if (place == QOS_PARK_IN_MEMORY) {
        g_queue_push_tail(waiting, request);
        return TRUE;
    }
    g_assert_cmpint(place, ==, QOS_PARK_TOO_MANY);
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
    qos_sched_set_background_room(f.sched, 0);
    g_assert_false(keeps(&f, &waiting, "hog", QOS_OP_READ));
    fixture_clear(&f);
}

/* The kernel reads ahead as far as its room for the background goes: no read-ahead evades a rule.
 */
static void test_reading_ahead_waits(void)
{
    enum { COUNT = 5000 };
    Fixture f;
    GQueue waiting = G_QUEUE_INIT;
    fixture_init(&f, &qos_policy_tbf, 4);
    fixture_rule(&f, "start r jobid={hog} rate=1 depth=1:1");
    for (guint i = 0; i <= COUNT; i++) {
        QosRequest *request = request_new(&f, "hog", QOS_OP_READ, 1);
        request->fills_cache = TRUE;
        g_assert_cmpint(enter(&f, request), ==, i == 0 ? QOS_GO : QOS_WAIT);
        if (i == 0)
            leave(&f, request);
        else
            g_queue_push_tail(&waiting, request);
    }
    for (QosRequest *request; (request = g_queue_pop_head(&waiting)) != NULL;) {
        qos_sched_cancel(f.sched, request, f.now);
        request_free(request);
    }
    fixture_clear(&f);
}

/* Another depth is news for jobs that have a slot alone: the others are not looked at, however many
 * they are. All are taken out of the order of turns before; a job that is looked at is back in it.
 */
static void test_a_change_of_depth_looks_at_few(void)
{
    enum { JOBS = 1000, EACH = 2 };
    const QosAdaptConfig config = {.mode = QOS_ADAPT_FAIR, .period = QOS_ADAPT_PERIOD};
    Fixture f;
    QosRequest *request[JOBS * EACH];
    guint inside = 0;
    guint looks = 0;

    fixture_init(&f, &qos_policy_fifo, 8);
    qos_sched_set_adapt(f.sched, &config, f.now);
    for (guint i = 0; i < JOBS * EACH; i++) {
        g_autofree char *job = g_strdup_printf("job%u", i % JOBS);
        request[i] = request_new(&f, job, QOS_OP_READ, 1);
        inside += enter(&f, request[i]) == QOS_GO;
    }
    for (guint i = 0; i < JOBS; i++)
        qos_adapt_set_ready(f.sched->adapt, request[i]->job, FALSE, f.now);
    f.sched->depth = 1;
    f.sched->quiet_until = 0;
    g_assert_null(next(&f));
    g_assert_cmpuint(f.sched->depth, ==, inside);
    for (guint i = 0; i < JOBS; i++)
        looks += qos_heap_contains(&request[i]->job->share.order);
    g_assert_cmpuint(looks, ==, inside);
    qos_sched_update_ready(f.sched, f.now);
    for (guint i = 0; i < inside; i++)
        leave(&f, request[i]);
    for (QosRequest *other; (other = next(&f)) != NULL;)
        leave(&f, other);
    fixture_clear(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sched/closes-are-bounded", test_closes_are_bounded);
    g_test_add_func("/sched/one-passes-for-each-that-leaves", test_one_passes_for_each_that_leaves);
    g_test_add_func("/sched/data-that-waits-is-bounded", test_data_that_waits_is_bounded);
    g_test_add_func("/sched/data-that-awaits-its-turn-is-bounded",
                    test_data_that_awaits_its_turn_is_bounded);
    g_test_add_data_func("/sched/what-was-written-early-is-paid-for/queued", GINT_TO_POINTER(FALSE),
                         test_what_was_written_early_is_paid_for);
    g_test_add_data_func("/sched/what-was-written-early-is-paid-for/held", GINT_TO_POINTER(TRUE),
                         test_what_was_written_early_is_paid_for);
    g_test_add_func("/sched/what-is-taken-back-costs-nothing",
                    test_what_is_taken_back_costs_nothing);
    g_test_add_func("/sched/requests-that-wait-are-bounded", test_requests_that_wait_are_bounded);
    g_test_add_func("/sched/a-change-of-depth-looks-at-few", test_a_change_of_depth_looks_at_few);
    g_test_add_func("/sched/the-background-is-bounded", test_the_background_is_bounded);
    g_test_add_func("/sched/reading-ahead-waits", test_reading_ahead_waits);
    return g_test_run();
}
