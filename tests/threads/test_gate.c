/*
 * The gate under many threads: nothing is lost, nothing runs twice, parked requests hold no thread,
 * stopping answers all. Built with TSan and ASan by the top-level `check`.
 */
#include "gate_fixture.h"

#define READERS  4
#define REQUESTS 5000

static void *reader(void *arg)
{
    static const char *const jobs[] = {"free", "limited", "slow", "other"};
    for (guint i = 0; i < REQUESTS; i++)
        submit(arg, jobs[i % G_N_ELEMENTS(jobs)]);
    return NULL;
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
        QosSched *sched = qos_gate_lock(shared->gate);
        qos_sched_set_policy(sched, qos_policies[i % 3], qos_clock_now());
        qos_gate_unlock_and_wake(shared->gate);
        set_rule(shared->gate, i % 2 ? "change limited rate=30000" : "change limited rate=10000");
        sched = qos_gate_lock(shared->gate);
        qos_sched_set_slots(sched, 2 + i % 7, qos_clock_now());
        qos_gate_unlock_and_wake(shared->gate);
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
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND), .bytes = DAYS};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} bps=1 depth=1:1");
    for (guint i = 0; i < 1000; i++)
        submit(&shared, "slow");
    g_assert_cmpint(g_atomic_int_get(&shared.runs), ==, 1);
    qos_gate_stop(shared.gate);
    g_assert_cmpint(shared.runs, ==, 1);
    g_assert_cmpint(shared.cancelled, ==, 999);
    qos_gate_free(shared.gate);
}

static void test_cancel_frees_the_place(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_tbf, 8, 600 * QOS_SECOND), .bytes = DAYS};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    set_rule(shared.gate, "start slow jobid={slow} bps=1 depth=1:1");
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
    QosRules *rules = copy_rules(shared.gate);
    g_assert_null(qos_rules_by_name(rules, "brief"));
    qos_rules_unref(rules);
    qos_gate_stop(shared.gate);
    qos_gate_free(shared.gate);
}

static void restore_share(QosGate *gate, const char *id, gint64 record,
                          const QosShareTotals *totals)
{
    QosSched *sched = qos_gate_lock(gate);
    QosJob *job = qos_jobs_job(qos_sched_jobs(sched), id, qos_clock_now());

    qos_sched_restore_share(sched, job, record, totals, qos_clock_now());
    qos_job_unref(job);
    qos_gate_unlock(gate);
}

static guint clear_jobs(QosGate *gate)
{
    QosSched *sched = qos_gate_lock(gate);
    const guint count = qos_sched_clear_jobs(sched, NULL, qos_clock_now());

    qos_gate_unlock_and_wake(gate);
    return count;
}

static void set_adapt(QosGate *gate, const QosAdaptConfig *config)
{
    QosSched *sched = qos_gate_lock(gate);

    qos_sched_set_adapt(sched, config, qos_clock_now());
    qos_gate_unlock_and_wake(gate);
}

static GPtrArray *changed_shares(QosGate *gate, QosShareChanges *seen, gboolean *ret_is_all)
{
    GPtrArray *jobs = qos_sched_changed_shares(qos_gate_lock(gate), seen, ret_is_all);

    qos_gate_unlock(gate);
    return jobs;
}

static void look(QosGate *gate, QosSchedState *ret_state)
{
    qos_sched_state(qos_gate_lock(gate), ret_state);
    qos_gate_unlock(gate);
}

/* What changed before somebody was to be told, and what is changed from outside while all sleep. */
static void test_changed_shares_are_told_of(void)
{
    Shared shared = {.gate = qos_gate_new(&qos_policy_fifo, 8, 600 * QOS_SECOND)};
    Told told = {0};

    g_assert_cmpint(qos_gate_start(shared.gate), ==, 0);
    restore_share(shared.gate, "a", 0, &(QosShareTotals){.lent = 1});
    qos_gate_on_change(shared.gate, count_changes, &told);
    while (g_atomic_int_get(&told.shares) < 1)
        g_thread_yield();
    g_assert_cmpuint(clear_jobs(shared.gate), ==, 1);
    while (g_atomic_int_get(&told.shares) < 2)
        g_thread_yield();
    qos_gate_stop(shared.gate);
    g_assert_cmpint(told.rules, ==, 0);
    qos_gate_free(shared.gate);
}

static gboolean copy_job(QosGate *gate, const char *id, QosJob *copy, QosSchedShare *share)
{
    QosJob *job = qos_gate_job(gate, NULL, id, 0);
    const QosSched *sched = qos_gate_lock(gate);
    const gboolean has_share = qos_sched_copy_job(sched, job, copy, share, qos_clock_now());

    qos_gate_unlock(gate);
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
    QosSchedShare share;
    QosSchedAdapt adapt;
    QosJob copy;

    restore_share(gate, "once", 0, &(QosShareTotals){.lent = 2});
    g_assert_true(copy_job(gate, "once", &copy, &share));
    g_assert_false(share.takes_part);
    g_assert_cmpint(copy.share.totals.lent, ==, 2);
    set_adapt(gate, &config);
    restore_share(gate, "lender", 5, &(QosShareTotals){.lent = 7});
    g_assert_true(copy_job(gate, "lender", &copy, &share));
    g_assert_true(share.takes_part);
    g_assert_cmpint(share.state.record, ==, 5);
    g_assert_cmpint(copy.share.totals.lent, ==, 7);
    g_assert_cmpint(share.period, ==, QOS_SECOND);
    g_assert_null(share.state.partner);
    g_assert_cmpstr(share.partner, ==, "");
    g_assert_false(copy_job(gate, "never", &copy, &share));
    qos_sched_adapt_state(qos_gate_lock(gate), &adapt);
    qos_gate_unlock(gate);
    g_assert_cmpuint(adapt.members, ==, 1);
    g_assert_cmpint(adapt.config.mode, ==, QOS_ADAPT_FAIR);
    qos_gate_free(gate);
}

static gint64 record_of(QosGate *gate, const char *id)
{
    QosJob *job = qos_gate_job(gate, NULL, id, 0);
    QosSchedShare share;

    g_assert_true(qos_sched_share_state(qos_gate_lock(gate), job, &share));
    qos_gate_unlock(gate);
    g_assert_cmpint(share.state.totals.lent, ==, 2);
    qos_job_unref(job);
    return share.state.record;
}

/* All jobs where others than those that take part have changed; these alone once a period ends. */
static void test_changed_shares(void)
{
    const QosAdaptConfig config = {.mode = QOS_ADAPT_FAIR, .period = QOS_ADAPT_PERIOD_MIN};
    const QosShareTotals totals = {.lent = 2};
    QosGate *gate = qos_gate_new(&qos_policy_fifo, 8, 600 * QOS_SECOND);
    QosShareChanges seen = {0};
    GPtrArray *jobs;
    gboolean is_all;

    g_assert_null(changed_shares(gate, &seen, &is_all));
    set_adapt(gate, &config);
    restore_share(gate, "once", 0, &totals);
    restore_share(gate, "lender", 1000, &totals);
    restore_share(gate, "debtor", -1000, &totals);
    jobs = changed_shares(gate, &seen, &is_all);
    g_assert_true(is_all);
    g_assert_cmpuint(jobs->len, ==, 3);
    g_ptr_array_unref(jobs);
    g_assert_null(changed_shares(gate, &seen, &is_all));
    g_assert_cmpint(record_of(gate, "once"), ==, 0);
    g_assert_cmpint(record_of(gate, "lender"), ==, 1000);
    g_assert_cmpint(record_of(gate, "debtor"), ==, -1000);
    g_assert_cmpint(qos_gate_start(gate), ==, 0);
    while ((jobs = changed_shares(gate, &seen, &is_all)) == NULL)
        g_thread_yield();
    g_assert_false(is_all);
    g_assert_cmpuint(jobs->len, ==, 2);
    g_ptr_array_unref(jobs);
    qos_gate_stop(gate);
    qos_gate_free(gate);
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
        look(shared.gate, &state);
        g_assert_cmpint((gint)state.running, ==, 0); /* it has given its slot back */
        qos_gate_resume(shared.gate, &entry->entry);
        wait_for_runs(&shared, i);
        do
            look(shared.gate, &state);
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
    g_test_add_func("/gate/what-is-resumed-runs", test_what_is_resumed_runs);
    g_test_add_func("/gate/rules-expire-by-themselves", test_rules_expire_by_themselves);
    g_test_add_func("/gate/changed-shares-are-told-of", test_changed_shares_are_told_of);
    g_test_add_func("/gate/changed-shares", test_changed_shares);
    g_test_add_func("/gate/a-copy-with-its-share", test_a_copy_with_its_share);
    return g_test_run();
}
