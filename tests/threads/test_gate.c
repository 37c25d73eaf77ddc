/*
 * The gate under many threads: nothing is lost, nothing runs twice, parked requests hold no thread,
 * stopping answers all. Built with TSan and ASan by the top-level `check`.
 */
#include "fs/gate_private.h"

#include <pthread.h>

typedef struct {
    QosEntry entry;
    QosGate *gate;
    gint *runs;      /* atomic, shared: entries that ran */
    gint *cancelled; /* atomic, shared */
    gint *inside;    /* atomic, shared: running now */
    gint *most;      /* atomic, shared: the most that ever ran at once */
} TestEntry;

typedef struct {
    QosGate *gate;
    gint runs;
    gint cancelled;
    gint inside;
    gint most;
} Shared;

static void free_entry(TestEntry *entry)
{
    qos_job_unref(entry->entry.request.job);
    g_free(entry);
}

/* Runs an entry and all that leaving hands over, as ops/op.c does. */
static void run_entry(QosEntry *base)
{
    while (base != NULL) {
        TestEntry *entry = (TestEntry *)base;
        gint inside = g_atomic_int_add(entry->inside, 1) + 1;
        gint most = g_atomic_int_get(entry->most);
        while (inside > most && !g_atomic_int_compare_and_exchange(entry->most, most, inside))
            most = g_atomic_int_get(entry->most);
        g_atomic_int_inc(entry->runs);
        g_atomic_int_add(entry->inside, -1);
        QosGate *gate = entry->gate;
        gboolean do_others_wait = qos_gate_leave(gate, base, 1, 0);
        free_entry(entry);
        base = do_others_wait ? qos_gate_next(gate) : NULL;
    }
}

static void cancel_entry(QosEntry *base, int error)
{
    TestEntry *entry = (TestEntry *)base;
    g_assert_cmpint(error, ==, ENOTCONN);
    g_atomic_int_inc(entry->cancelled);
    free_entry(entry);
}

static TestEntry *new_entry(Shared *shared, const char *job)
{
    TestEntry *entry = g_new0(TestEntry, 1);
    entry->entry.run = run_entry;
    entry->entry.cancelled = cancel_entry;
    entry->entry.request.job = qos_gate_job(shared->gate, NULL, job, 0);
    entry->entry.request.opcode = QOS_OP_READ;
    entry->entry.request.bytes = 1;
    entry->gate = shared->gate;
    entry->runs = &shared->runs;
    entry->cancelled = &shared->cancelled;
    entry->inside = &shared->inside;
    entry->most = &shared->most;
    return entry;
}

/* What a reader thread does with a request. */
static void submit(Shared *shared, const char *job)
{
    TestEntry *entry = new_entry(shared, job);
    if (qos_gate_enter(shared->gate, &entry->entry) || qos_gate_park(shared->gate, &entry->entry))
        run_entry(&entry->entry);
}

static void set_rule(QosGate *gate, const char *command)
{
    GError *error = NULL;
    QosRules *old = qos_gate_rules(gate);
    QosRules *rules = qos_rules_apply(old, command, qos_gate_now(), &error);
    g_assert_no_error(error);
    qos_gate_set_rules(gate, rules);
    qos_rules_unref(rules);
    qos_rules_unref(old);
}

#define READERS  4
#define REQUESTS 5000

static void *reader(void *arg)
{
    static const char *const jobs[] = {"free", "limited", "slow", "other"};
    for (guint i = 0; i < REQUESTS; i++)
        submit(arg, jobs[i % G_N_ELEMENTS(jobs)]);
    return NULL;
}

static void wait_for_runs(Shared *shared, gint count)
{
    while (g_atomic_int_get(&shared->runs) < count)
        g_thread_yield();
}

static void test_nothing_is_lost(gconstpointer policy)
{
    Shared shared = {.gate = qos_gate_new(policy, 3, 600 * QOS_SECOND)};
    pthread_t threads[READERS];

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start limited jobid={limited} rate=20000");
    set_rule(shared.gate, "start slow jobid={slow} bps=50K depth=1:1");
    for (guint i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, reader, &shared);
    for (guint i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    wait_for_runs(&shared, READERS * REQUESTS);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs, ==, READERS * REQUESTS);
    g_assert_cmpint(shared.cancelled, ==, 0);
    g_assert_cmpint(shared.most, <=, 3);
    qos_gate_free(shared.gate);
}

static void *change_policies(void *arg)
{
    Shared *shared = arg;
    for (guint i = 0; i < 300; i++) {
        qos_gate_set_policy(shared->gate, qos_policies[i % 3]);
        set_rule(shared->gate, i % 2 ? "change limited rate=30000" : "change limited rate=10000");
        qos_gate_set_slots(shared->gate, 2 + i % 7);
    }
    return NULL;
}

static void test_changes_under_load(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 3, 600 * QOS_SECOND)};
    pthread_t threads[READERS + 1];

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start limited jobid={limited} rate=20000");
    for (guint i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, reader, &shared);
    pthread_create(&threads[READERS], NULL, change_policies, &shared);
    for (guint i = 0; i <= READERS; i++)
        pthread_join(threads[i], NULL);
    wait_for_runs(&shared, READERS * REQUESTS);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs, ==, READERS * REQUESTS);
    qos_gate_free(shared.gate);
}

/* Requests that would wait for hours hold no thread, and stopping answers each. */
static void test_stop_answers_what_waits(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND)};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} bps=1 depth=1:1");
    for (guint i = 0; i < 1000; i++)
        submit(&shared, "slow");
    g_assert_cmpint(g_atomic_int_get(&shared.runs), >=, 1);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs + shared.cancelled, ==, 1000);
    g_assert_cmpint(shared.cancelled, >, 900);
    qos_gate_free(shared.gate);
}

static void test_cancel_frees_the_place(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND)};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} rate=1 depth=1");
    submit(&shared, "slow");
    TestEntry *parked = new_entry(&shared, "slow");
    g_assert_false(qos_gate_enter(shared.gate, &parked->entry));
    g_assert_false(qos_gate_cancel(shared.gate, &parked->entry)); /* its reader still has it */
    g_assert_false(qos_gate_park(shared.gate, &parked->entry));
    g_assert_true(qos_gate_cancel(shared.gate, &parked->entry));
    free_entry(parked);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs, ==, 1);
    qos_gate_free(shared.gate);
}

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
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND)};
    TestEntry *with_other_lock, *without, *cancelled;

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} bps=1 depth=1:1");
    submit(&shared, "slow");
    submit(&shared, "slow");
    cancelled = park_with_lock(&shared, 7);
    with_other_lock = park_with_lock(&shared, 8);
    without = park_with_lock(&shared, 0);
    for (guint i = 0; i < 3; i++)
        park_with_lock(&shared, 7);
    g_assert_true(qos_gate_cancel(shared.gate, &cancelled->entry));
    free_entry(cancelled);
    gint before = g_atomic_int_get(&shared.runs);
    const QosJob *job = with_other_lock->entry.request.job;
    g_assert_cmpint(qos_gate_holder(shared.gate, 9, job), ==, QOS_GATE_NOBODY);
    g_assert_cmpint(qos_gate_holder(shared.gate, 7, job), ==, QOS_GATE_THE_JOB);
    g_assert_cmpint(qos_gate_holder(shared.gate, 7, NULL), ==, QOS_GATE_ANOTHER);
    qos_gate_release(shared.gate, 9, NULL);
    qos_gate_release(shared.gate, 7, job); /* their own */
    g_assert_cmpint(g_atomic_int_get(&shared.runs), ==, before);
    qos_gate_release(shared.gate, 7, NULL);
    wait_for_runs(&shared, before + 3);
    qos_gate_release(shared.gate, 7, NULL);
    g_assert_true(qos_gate_cancel(shared.gate, &with_other_lock->entry));
    g_assert_true(qos_gate_cancel(shared.gate, &without->entry));
    free_entry(with_other_lock);
    free_entry(without);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs + shared.cancelled, ==, 5);
    qos_gate_free(shared.gate);
}

typedef struct {
    gint rules;  /* atomic: how often the gate told of them, */
    gint shares; /* and of shares */
} Told;

static void count_changes(QosGateChanges changes, void *arg)
{
    Told *told = arg;

    if (changes & QOS_GATE_RULES)
        g_atomic_int_inc(&told->rules);
    if (changes & QOS_GATE_SHARES)
        g_atomic_int_inc(&told->shares);
}

static void test_rules_expire_by_themselves(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND)};
    Told told = {0};

    qos_gate_on_change(shared.gate, count_changes, &told);
    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start brief jobid={slow} rate=1 depth=1 expire=1");
    submit(&shared, "slow");
    submit(&shared, "slow");
    submit(&shared, "slow");
    wait_for_runs(&shared, 3); /* the third would wait for two seconds */
    while (g_atomic_int_get(&told.rules) == 0)
        g_thread_yield();
    QosRules *rules = qos_gate_rules(shared.gate);
    g_assert_null(qos_rules_by_name(rules, "brief"));
    qos_rules_unref(rules);
    qos_gate_stop(shared.gate);
    qos_gate_free(shared.gate);
}

/* What changed before somebody was to be told, and what is changed from outside while all sleep. */
static void test_changed_shares_are_told_of(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_fifo, 8, 600 * QOS_SECOND)};
    Told told = {0};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    qos_gate_restore_share(shared.gate, "a", 0, &(QosShareTotals){.lent = 1});
    qos_gate_on_change(shared.gate, count_changes, &told);
    while (g_atomic_int_get(&told.shares) < 1)
        g_thread_yield();
    g_assert_cmpuint(qos_gate_clear_jobs(shared.gate, NULL), ==, 1);
    while (g_atomic_int_get(&told.shares) < 2)
        g_thread_yield();
    qos_gate_stop(shared.gate);
    g_assert_cmpint(told.rules, ==, 0);
    qos_gate_free(shared.gate);
}

static gboolean copy_job(QosGate *gate, const char *id, QosJob *copy, QosGateShare *share)
{
    QosJob *job = qos_gate_job(gate, NULL, id, 0);
    const gboolean has_share = qos_gate_copy_job(gate, job, copy, share);

    g_assert_cmpstr(copy->id, ==, id);
    g_assert_cmpstr(share->job, ==, id);
    g_assert_cmpint(copy->share.totals.lent, ==, share->state.totals.lent);
    qos_job_unref(job);
    return has_share;
}

/* A job is copied with its part of the sharing, which is that of the same moment. */
static void test_a_copy_with_its_share(void)
{
    const QosAdaptConfig config = {.mode = QOS_ADAPT_FAIR, .period = QOS_SECOND};
    QosGate *gate = qos_gate_new(&qos_policy_fifo, 8, 600 * QOS_SECOND);
    QosGateShare share;
    QosGateAdapt adapt;
    QosJob copy;

    qos_gate_restore_share(gate, "once", 0, &(QosShareTotals){.lent = 2});
    g_assert_true(copy_job(gate, "once", &copy, &share));
    g_assert_false(share.takes_part);
    g_assert_cmpint(copy.share.totals.lent, ==, 2);
    qos_gate_set_adapt(gate, &config);
    qos_gate_restore_share(gate, "lender", 5, &(QosShareTotals){.lent = 7});
    g_assert_true(copy_job(gate, "lender", &copy, &share));
    g_assert_true(share.takes_part);
    g_assert_cmpint(share.state.record, ==, 5);
    g_assert_cmpint(copy.share.totals.lent, ==, 7);
    g_assert_cmpint(share.period, ==, QOS_SECOND);
    g_assert_null(share.state.partner);
    g_assert_cmpstr(share.partner, ==, "");
    g_assert_false(copy_job(gate, "never", &copy, &share));
    qos_gate_adapt(gate, &adapt);
    g_assert_cmpuint(adapt.members, ==, 1);
    g_assert_cmpint(adapt.config.mode, ==, QOS_ADAPT_FAIR);
    qos_gate_free(gate);
}

static gpointer await_request(gpointer gate)
{
    return GINT_TO_POINTER(qos_gate_await_request(gate));
}

/* A thread that sleeps because nothing is in the store. */
static GThread *start_awaiting(QosGate *gate)
{
    GThread *thread = g_thread_new("awaits", await_request, gate);

    for (gboolean sleeps = FALSE; !sleeps;) {
        pthread_mutex_lock(&gate->lock);
        sleeps = gate->is_awaited;
        pthread_mutex_unlock(&gate->lock);
    }
    return thread;
}

static void test_a_request_is_awaited(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_fifo, 8, 600 * QOS_SECOND)};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    for (gint i = 1; i <= 3; i++) {
        GThread *thread = start_awaiting(shared.gate);
        TestEntry *entry = new_entry(&shared, "job");
        g_assert_true(i == 2 ? qos_gate_charge(shared.gate, &entry->entry)
                             : qos_gate_enter(shared.gate, &entry->entry));
        if (i == 3) {
            g_assert_true(GPOINTER_TO_INT(g_thread_join(thread)));
            qos_gate_pause(shared.gate, &entry->entry);
            thread = start_awaiting(shared.gate);
            qos_gate_go_on(shared.gate, &entry->entry);
        }
        g_assert_true(GPOINTER_TO_INT(g_thread_join(thread)));
        run_entry(&entry->entry);
    }
    GThread *thread = start_awaiting(shared.gate);
    qos_gate_stop(shared.gate);
    g_assert_false(GPOINTER_TO_INT(g_thread_join(thread)));
    qos_gate_free(shared.gate);
}

/* An entry that may go, and waits for something else without a thread. */
static TestEntry *enter_and_wait(Shared *shared)
{
    TestEntry *entry = new_entry(shared, "waits");
    g_assert_true(qos_gate_enter(shared->gate, &entry->entry));
    qos_gate_pause(shared->gate, &entry->entry);
    return entry;
}

static void test_what_is_resumed_runs(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_fifo, 4, QOS_NEVER)};
    QosSchedState state;

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    for (gint i = 1; i <= 100; i++) {
        TestEntry *entry = enter_and_wait(&shared);
        qos_gate_state(shared.gate, &state);
        g_assert_cmpint((gint)state.running, ==, 0); /* it has given its slot back */
        qos_gate_resume(shared.gate, &entry->entry);
        wait_for_runs(&shared, i);
        do
            qos_gate_state(shared.gate, &state);
        while (state.running > 0);
    }
    TestEntry *late = enter_and_wait(&shared);
    qos_gate_stop(shared.gate);
    qos_gate_resume(shared.gate, &late->entry); /* nobody is left to run it */
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.cancelled, ==, 1);
    qos_gate_free(shared.gate);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/gate/nothing-is-lost/fifo", &qos_policy_fifo, test_nothing_is_lost);
    g_test_add_data_func("/gate/nothing-is-lost/grr", &qos_policy_grr, test_nothing_is_lost);
    g_test_add_data_func("/gate/nothing-is-lost/jrr", &qos_policy_jrr, test_nothing_is_lost);
    g_test_add_data_func("/gate/nothing-is-lost/tbf", &qos_policy_tbf, test_nothing_is_lost);
    g_test_add_func("/gate/changes-under-load", test_changes_under_load);
    g_test_add_func("/gate/stop-answers-what-waits", test_stop_answers_what_waits);
    g_test_add_func("/gate/cancel-frees-the-place", test_cancel_frees_the_place);
    g_test_add_func("/gate/a-lock-is-released", test_a_lock_is_released);
    g_test_add_func("/gate/what-is-resumed-runs", test_what_is_resumed_runs);
    g_test_add_func("/gate/rules-expire-by-themselves", test_rules_expire_by_themselves);
    g_test_add_func("/gate/changed-shares-are-told-of", test_changed_shares_are_told_of);
    g_test_add_func("/gate/a-copy-with-its-share", test_a_copy_with_its_share);
    g_test_add_func("/gate/a-request-is-awaited", test_a_request_is_awaited);
    return g_test_run();
}
