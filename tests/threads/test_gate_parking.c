/*
 * Lines of parked requests: a job that wants a lock boosts what holds it, looks at each once, and
 * leaves the gate to others meanwhile.
 */
#include "gate_fixture.h"

static TestEntry *park_with_lock(Shared *shared, guint64 lock)
{
    TestEntry *entry = new_entry(shared, "slow");
    entry->entry.request.lock = lock;
    g_assert_false(qos_gate_enter(shared->gate, &entry->entry));
    g_assert_false(qos_gate_park(shared->gate, &entry->entry));
    return entry;
}

/* What waits with a lock goes when others want that lock, and nothing else does. */
static void test_a_lock_is_released(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND), .bytes = DAYS};
    TestEntry *with_other_lock, *without, *cancelled;

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} bps=1 depth=1:1");
    submit(&shared, "slow");
    submit(&shared, "slow");
    cancelled = park_with_lock(&shared, 7);
    for (guint i = 0; i < 3; i++)
        park_with_lock(&shared, 7);
    with_other_lock = park_with_lock(&shared, 8); /* behind them: locks go in order */
    without = park_with_lock(&shared, 0);
    g_assert_true(qos_gate_cancel(shared.gate, &cancelled->entry));
    free_entry(cancelled);
    gint before = g_atomic_int_get(&shared.runs);
    const QosJob *job = with_other_lock->entry.request.job;
    g_assert_cmpint(qos_gate_holder(shared.gate, 9, job), ==, QOS_GATE_NOBODY);
    g_assert_cmpint(qos_gate_holder(shared.gate, 7, job), ==, QOS_GATE_THE_JOB);
    g_assert_cmpint(qos_gate_holder(shared.gate, 7, NULL), ==, QOS_GATE_ANOTHER);
    qos_gate_boost(shared.gate, 9, NULL);
    qos_gate_boost(shared.gate, 7, job); /* their own */
    g_assert_cmpint(g_atomic_int_get(&shared.runs), ==, before);
    qos_gate_boost(shared.gate, 7, NULL);
    wait_for_runs(&shared, before + 3);
    qos_gate_boost(shared.gate, 7, NULL);
    g_assert_true(qos_gate_cancel(shared.gate, &with_other_lock->entry));
    g_assert_true(qos_gate_cancel(shared.gate, &without->entry));
    free_entry(with_other_lock);
    free_entry(without);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs + shared.cancelled, ==, 5);
    qos_gate_free(shared.gate);
}

static gint looks; /* atomic: how often a request was looked at that others want */

static gboolean count_look(void *self, QosRequest *request, QosTime now)
{
    g_atomic_int_inc(&looks);
    return qos_policy_tbf.boost(self, request, now);
}

/* A gate in which nothing runs, and `count` requests with the lock 7 wait for hours. */
static void begin_waiting(Shared *shared, const QosPolicyClass *policy, guint count)
{
    *shared = (Shared){.gate = qos_gate_new(policy, 8, 600 * QOS_SECOND)};
    TestEntry *first = new_entry(shared, "slow");

    set_rule(shared->gate, "start slow jobid={slow} rate=1 depth=1");
    g_assert_true(qos_gate_enter(shared->gate, &first->entry));
    run_entry(&first->entry);
    for (guint i = 0; i < count; i++)
        park_with_lock(shared, 7);
}

static void end_waiting(Shared *shared, gint count)
{
    qos_gate_stop(shared->gate);
    g_assert_cmpint(shared->cancelled, ==, count);
    qos_gate_free(shared->gate);
}

/* A job that wants a lock again and again does not look again at what was boosted, and takes the
 * gate's lock no more for it. */
static void test_what_is_wanted_is_looked_at_once(void)
{
    enum { COUNT = 2000 };
    QosPolicyClass counting = qos_policy_tbf;
    counting.boost = count_look;
    Shared shared;

    begin_waiting(&shared, &counting, COUNT);
    g_atomic_int_set(&looks, 0);
    for (guint i = 0; i < 3; i++)
        qos_gate_boost(shared.gate, 7, NULL);
    g_assert_cmpint(looks, ==, COUNT);
    g_assert_cmpint(qos_gate_holder(shared.gate, 7, NULL), ==, QOS_GATE_NOBODY);
    qos_mutex_lock(&shared.gate->lock);
    qos_gate_boost(shared.gate, 7, NULL);
    qos_mutex_unlock(&shared.gate->lock);
    end_waiting(&shared, COUNT);
}

/* What the job itself asks for lets nothing of it go, and what waits keeps its order. */
static void test_what_only_its_job_wants_waits(void)
{
    enum { COUNT = 1000 };
    Shared shared;

    begin_waiting(&shared, &qos_policy_tbf, COUNT);
    const QosParkedQueue *queue = g_queue_peek_head(&shared.gate->queues);
    const QosEntry *first = queue->entries.head->data, *last = queue->entries.tail->data;

    qos_gate_boost(shared.gate, 7, first->request.job);
    g_assert_cmpuint(queue->entries.length, ==, COUNT);
    g_assert_true(queue->entries.head->data == first && queue->entries.tail->data == last);
    end_waiting(&shared, COUNT);
}

typedef struct {
    QosGate *gate;
    guint count;
    gint has_met; /* atomic: it had the gate while some of `count` were released */
    gint has_ended;
} Visitor;

static gpointer visit(gpointer arg)
{
    Visitor *visitor = arg;

    while (!g_atomic_int_get(&visitor->has_ended)) {
        qos_mutex_lock(&visitor->gate->lock);
        const QosParkedQueue *queue = g_queue_peek_head(&visitor->gate->queues);
        if (queue != NULL && queue->lock != 0 && queue->entries.length < visitor->count)
            g_atomic_int_set(&visitor->has_met, TRUE);
        qos_mutex_unlock(&visitor->gate->lock);
    }
    return NULL;
}

/* A long line is released bit by bit, and others have the gate in between: tried until one of them
 * has. */
static void test_a_long_line_leaves_the_gate_to_others(void)
{
    enum { COUNT = 1000 };
    gboolean has_met = FALSE;

    while (!has_met) {
        Shared shared;
        begin_waiting(&shared, &qos_policy_tbf, COUNT);
        Visitor visitor = {.gate = shared.gate, .count = COUNT};
        GThread *thread = g_thread_new("visitor", visit, &visitor);
        qos_gate_boost(shared.gate, 7, NULL);
        g_atomic_int_set(&visitor.has_ended, TRUE);
        g_thread_join(thread);
        has_met = visitor.has_met;
        end_waiting(&shared, COUNT);
    }
}

/* --- a line that changes while it is released --- */

#define OWNERS       3
#define OWNERS_BATCH 300
#define OWNERS_TURNS 20

static void count_run(QosEntry *base)
{
    TestEntry *entry = (TestEntry *)base;

    g_atomic_int_inc(entry->runs);
    qos_gate_leave(entry->gate, base, 1, 0);
}

static void count_cancelled(QosEntry *base, int error G_GNUC_UNUSED)
{
    g_atomic_int_inc(((TestEntry *)base)->cancelled);
}

/* Sends requests with one lock, and takes back each second one. */
static gpointer send_and_cancel(gpointer arg)
{
    Shared *shared = arg;
    GPtrArray *entries = g_ptr_array_new_with_free_func((GDestroyNotify)free_entry);

    for (guint i = 0; i < OWNERS_TURNS * OWNERS_BATCH; i++) {
        TestEntry *entry = new_entry(shared, "slow");
        entry->entry.run = count_run;
        entry->entry.cancelled = count_cancelled;
        entry->entry.request.lock = 7;
        g_ptr_array_add(entries, entry);
        if (qos_gate_enter(shared->gate, &entry->entry) ||
            qos_gate_park(shared->gate, &entry->entry))
            count_run(&entry->entry);
        if (i % OWNERS_BATCH != OWNERS_BATCH - 1)
            continue;
        for (guint back = i + 1 - OWNERS_BATCH; back <= i; back += 2) {
            TestEntry *taken = entries->pdata[back];
            if (qos_gate_cancel(shared->gate, &taken->entry))
                g_atomic_int_inc(&shared->cancelled);
        }
    }
    return entries;
}

static gpointer want_all_the_time(gpointer arg)
{
    Shared *shared = arg;
    TestEntry *other = new_entry(shared, "other");

    for (guint i = 0; g_atomic_int_get(&shared->inside) == 0; i++) {
        qos_gate_boost(shared->gate, 7, i % 4 == 0 ? NULL : other->entry.request.job);
        qos_gate_holder(shared->gate, 7, NULL);
    }
    free_entry(other);
    return NULL;
}

/* All are boosted. */
static void check_queues(QosGate *gate)
{
    gint lock_queues = 0;

    qos_mutex_lock(&gate->lock);
    for (GList *link = gate->queues.head; link != NULL; link = link->next) {
        const QosParkedQueue *queue = link->data;
        g_assert_true(queue->lock == 0);
        g_assert_cmpuint(queue->entries.length, >, 0);
        lock_queues += queue->lock != 0;
    }
    g_assert_cmpint(gate->lock_queues, ==, lock_queues);
    qos_mutex_unlock(&gate->lock);
}

static void test_a_line_changes_while_it_is_released(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND)};
    GThread *owners[OWNERS], *wanters[2];
    GPtrArray *entries[OWNERS];

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} rate=1 depth=1");
    for (guint i = 0; i < OWNERS; i++)
        owners[i] = g_thread_new("owner", send_and_cancel, &shared);
    for (guint i = 0; i < G_N_ELEMENTS(wanters); i++)
        wanters[i] = g_thread_new("wanter", want_all_the_time, &shared);
    for (guint i = 0; i < OWNERS; i++)
        entries[i] = g_thread_join(owners[i]);
    g_atomic_int_set(&shared.inside, 1); /* their end */
    for (guint i = 0; i < G_N_ELEMENTS(wanters); i++)
        g_thread_join(wanters[i]);
    qos_gate_boost(shared.gate, 7, NULL);
    check_queues(shared.gate);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs + shared.cancelled, ==, OWNERS * OWNERS_TURNS * OWNERS_BATCH);
    for (guint i = 0; i < OWNERS; i++)
        g_ptr_array_unref(entries[i]);
    qos_gate_free(shared.gate);
}

/* A READ into the page cache by `thread`, of a file that other jobs want or do not want. */
static TestEntry *park_numbered_read(Shared *shared, guint thread, guint64 number,
                                     gboolean is_wanted)
{
    TestEntry *entry = new_entry(shared, "slow");
    entry->entry.number = number;
    entry->entry.request.lock = 7;
    entry->entry.request.holds_lock = is_wanted;
    entry->entry.request.thread = thread;
    g_assert_false(qos_gate_enter(shared->gate, &entry->entry));
    g_assert_false(qos_gate_park(shared->gate, &entry->entry));
    return entry;
}

static TestEntry *park_read(Shared *shared, guint thread, gboolean is_wanted)
{
    return park_numbered_read(shared, thread, 0, is_wanted);
}

/* A gate in which nothing runs, and in which the class owes what it may. */
static void begin_in_debt(Shared *shared)
{
    *shared = (Shared){.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND), .bytes = DAYS};
    set_rule(shared->gate, "start slow jobid={slow} bps=1 depth=1:1");
    for (gboolean waits = FALSE; !waits;) {
        TestEntry *entry = new_entry(shared, "slow");
        entry->entry.request.lock = 7;
        entry->entry.request.holds_lock = TRUE;
        waits = !qos_gate_enter(shared->gate, &entry->entry);
        if (!waits) {
            run_entry(&entry->entry);
            continue;
        }
        g_assert_false(qos_gate_park(shared->gate, &entry->entry));
        g_assert_true(qos_gate_cancel(shared->gate, &entry->entry));
        free_entry(entry);
    }
}

/* Of what a thread has read ahead its last two stay, as it may wait for these. */
static void test_read_ahead_is_given_up(void)
{
    Shared shared;

    begin_in_debt(&shared);
    for (guint i = 0; i < 5; i++)
        park_read(&shared, 11, FALSE);
    park_read(&shared, 12, FALSE);
    for (guint i = 0; i < 5; i++)
        park_read(&shared, 0, FALSE); /* of a thread that is not known */
    g_assert_cmpint(shared.given_up, ==, 0);
    qos_gate_boost(shared.gate, 7, NULL);
    g_assert_cmpint(shared.given_up, ==, 3);
    qos_gate_boost(shared.gate, 7, NULL);
    g_assert_cmpint(shared.given_up, ==, 3);
    end_waiting(&shared, 2 + 1 + 5);
}

/* Its own threads want the file only. */
static void test_read_ahead_of_its_own_stays(void)
{
    Shared shared;
    TestEntry *last = NULL;

    begin_in_debt(&shared);
    for (guint i = 0; i < 5; i++)
        last = park_read(&shared, 11, FALSE);
    qos_gate_boost(shared.gate, 7, last->entry.request.job);
    g_assert_cmpint(shared.given_up, ==, 0);
    end_waiting(&shared, 5);
}

/* Where other jobs have the file open, it is given up as more comes; one that was taken back by
 * then is not. */
static void test_read_ahead_of_a_shared_file(void)
{
    Shared shared;

    begin_in_debt(&shared);
    park_read(&shared, 11, TRUE);
    TestEntry *cancelled = park_read(&shared, 11, TRUE);
    g_assert_cmpint(shared.given_up, ==, 0);
    park_read(&shared, 11, TRUE);
    g_assert_cmpint(shared.given_up, ==, 1);
    g_assert_true(qos_gate_cancel(shared.gate, &cancelled->entry));
    free_entry(cancelled);
    park_read(&shared, 11, TRUE);
    g_assert_cmpint(shared.given_up, ==, 1);
    park_read(&shared, 11, TRUE);
    g_assert_cmpint(shared.given_up, ==, 2);
    end_waiting(&shared, 2);
}

/* The READ that the kernel sent last, which its program may wait for, comes before two older ones.
 */
static void test_read_ahead_out_of_order(void)
{
    static const guint64 numbers[] = {2, 4, 10, 6, 8};
    Shared shared;

    begin_in_debt(&shared);
    for (guint i = 0; i < G_N_ELEMENTS(numbers); i++)
        park_numbered_read(&shared, 11, numbers[i], FALSE);
    qos_gate_boost(shared.gate, 7, NULL);
    g_assert_cmpint(shared.given_up, ==, 2);
    end_waiting(&shared, 3);

    begin_in_debt(&shared);
    park_numbered_read(&shared, 11, 2, TRUE);
    park_numbered_read(&shared, 11, 10, TRUE);
    park_numbered_read(&shared, 11, 4, TRUE);
    g_assert_cmpint(shared.given_up, ==, 1);
    park_numbered_read(&shared, 11, 6, TRUE); /* the last one is the third to go by its place */
    g_assert_cmpint(shared.given_up, ==, 1);
    park_numbered_read(&shared, 11, 8, TRUE);
    g_assert_cmpint(shared.given_up, ==, 2);
    end_waiting(&shared, 3);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/gate-parking/a-lock-is-released", test_a_lock_is_released);
    g_test_add_func("/gate-parking/what-is-wanted-is-looked-at-once",
                    test_what_is_wanted_is_looked_at_once);
    g_test_add_func("/gate-parking/what-only-its-job-wants-waits",
                    test_what_only_its_job_wants_waits);
    g_test_add_func("/gate-parking/a-long-line-leaves-the-gate-to-others",
                    test_a_long_line_leaves_the_gate_to_others);
    g_test_add_func("/gate-parking/a-line-changes-while-it-is-released",
                    test_a_line_changes_while_it_is_released);
    g_test_add_func("/gate-parking/read-ahead-is-given-up", test_read_ahead_is_given_up);
    g_test_add_func("/gate-parking/read-ahead-of-its-own-stays", test_read_ahead_of_its_own_stays);
    g_test_add_func("/gate-parking/read-ahead-of-a-shared-file", test_read_ahead_of_a_shared_file);
    g_test_add_func("/gate-parking/read-ahead-out-of-order", test_read_ahead_out_of_order);
    return g_test_run();
}
