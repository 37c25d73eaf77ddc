/*
 * How much each job gets under adaptive sharing.
 */
#include <math.h>

#include "adapt_fixture.h"

#define PERIOD    (100 * QOS_MILLISECOND)
#define PROCESSES 16

static void set_rule(World *world, const char *command)
{
    GError *error = NULL;
    QosRules *rules = qos_rules_apply(qos_sched_rules(world->sched), command, world->now, &error);
    g_assert_no_error(error);
    qos_sched_set_rules(world->sched, rules, world->now);
    qos_rules_unref(rules);
}

static void assert_served(const World *world, guint job, double expected, double tolerance)
{
    double got = (double)world->served[job];
    if (fabs(got - expected) > tolerance)
        g_error("job %u: served %.0f, not %.0f", job, got, expected);
}

static QosShareState state_of(const World *world, guint job)
{
    QosShareState state;
    qos_adapt_share_state(qos_sched_adapt(world->sched), world->jobs[job], &state);
    return state;
}

/* In proportion to the weights, to a request or two in any second. */
static void test_weights(void)
{
    World world;
    world_init(&world, &qos_policy_tbf, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    set_rule(&world, "start c jobid={c} weight=30");
    world_job(&world, "a", 10, PROCESSES);
    world_job(&world, "b", 10, PROCESSES);
    world_job(&world, "c", 1, PROCESSES);
    world_job(&world, "d", 50, PROCESSES);
    run(&world, 3 * QOS_SECOND);
    for (guint second = 0; second < 20; second++) {
        run_anew(&world, QOS_SECOND);
        assert_served(&world, 0, 100, 2);
        assert_served(&world, 1, 100, 2);
        assert_served(&world, 2, 300, 3);
        assert_served(&world, 3, 500, 4);
    }
    g_assert_cmpint(state_of(&world, 2).weight, ==, 30);
    g_assert_cmpint(state_of(&world, 3).record, ==, 0);
    world_clear(&world);
}

/* Whatever node count a job says it has, it is served as a rule may let it be at the most; and
 * `default` may say that all are alike. */
static void test_claimed_nodes(void)
{
    for (QosAdaptMode mode = QOS_ADAPT_PAPER; mode <= QOS_ADAPT_FAIR; mode++) {
        World world;

        world_init(&world, &qos_policy_tbf, 16, 1000);
        set_adapt(&world, mode, 0, PERIOD);
        set_rule(&world, "start b jobid={b} weight=10000");
        world_job(&world, "a", 10000000, PROCESSES);
        world_job(&world, "b", 1, PROCESSES);
        run(&world, 3 * QOS_SECOND);
        run_anew(&world, QOS_SECOND);
        assert_served(&world, 0, 500, 10);
        assert_served(&world, 1, 500, 10);
        set_rule(&world, "change default weight=1");
        run_anew(&world, QOS_SECOND);
        g_assert_cmpint(state_of(&world, 0).weight, ==, 1);
        world_clear(&world);
    }
}

/* Of few processes, on a store that would queue all that it is given. */
static void test_few_processes(void)
{
    World world;
    world_init(&world, &qos_policy_tbf, 64, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    world_job(&world, "few", 3, 2);
    world_job(&world, "many", 7, 64);
    run(&world, 20 * QOS_SECOND);
    g_assert_cmpuint(qos_adapt_depth(qos_sched_adapt(world.sched)), <=, 4);
    run_anew(&world, 5 * QOS_SECOND);
    assert_served(&world, 0, 1500, 15);
    assert_served(&world, 1, 3500, 15);
    world_clear(&world);
}

/* What one leaves is lent at once, whatever the period; it comes back with the first request, and
 * is repaid. */
static void test_waking_lender(QosTime period)
{
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, period);
    guint lender = world_job(&world, "lender", 1, 1);
    guint borrower = world_job(&world, "borrower", 1, PROCESSES);
    run(&world, MAX(5 * QOS_SECOND, 3 * period));
    set_processes(&world, lender, 0);
    run_anew(&world, 5 * QOS_SECOND);
    assert_served(&world, borrower, 5000, 75); /* less the trials of the depth */

    set_processes(&world, lender, PROCESSES);
    run_anew(&world, 10 * QOS_MILLISECOND);
    g_assert_cmpuint(world.served[lender], >=, 3);
    gint64 owed = state_of(&world, lender).record;
    run_anew(&world, MAX(QOS_SECOND, 2 * period));
    double all = (double)(world.served[0] + world.served[1]);
    g_assert_cmpfloat((double)world.served[borrower], >=, 0.43 * all);
    run(&world, 30 * QOS_SECOND + 20 * period);
    if (period <= QOS_SECOND) { /* a longer one sees little of it */
        g_assert_cmpint(owed, >, 1000 * QOS_COST_UNIT);
        QosShareState state = state_of(&world, lender);
        g_assert_cmpint(state.record, <, owed / 10);
        g_assert_cmpint(state.totals.returned, >, owed / 2);
        g_assert_cmpint(state_of(&world, borrower).totals.repaid, ==, state.totals.returned);
        run_anew(&world, 2 * QOS_SECOND);
        assert_served(&world, lender, 1000, 40); /* even again */
    }
    world_clear(&world);
}

/* A job that waits for longer than jobs are remembered is not forgotten. */
static void test_a_slow_store(void)
{
    World world;
    world_init(&world, &qos_policy_fifo, 2, 0.05);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    world_job(&world, "many", 1, PROCESSES);
    guint one = world_job(&world, "one", 1, 1);
    run(&world, 400 * QOS_SECOND);
    g_assert_cmpuint(world.served[one], >=, 3);
    world_clear(&world);
}

/* A saved record comes back as it was, and goes when no job is left that owes it. */
static void test_restored(void)
{
    static const QosAdaptMode modes[] = {QOS_ADAPT_FAIR, QOS_ADAPT_PAPER};
    const gint64 record = 5 * QOS_COST_UNIT;

    for (guint i = 0; i < G_N_ELEMENTS(modes); i++) {
        World world;
        world_init(&world, &qos_policy_fifo, 16, 1000);
        set_adapt(&world, modes[i], 0, PERIOD);
        guint job = world_job(&world, "lender", 1, 1);
        qos_sched_restore_share(world.sched, world.jobs[job], record,
                                &(QosShareTotals){.lent = record}, world.now);
        g_assert_cmpint(state_of(&world, job).record, ==, record);
        run(&world, QOS_SECOND);
        if (modes[i] == QOS_ADAPT_FAIR)
            g_assert_cmpint(state_of(&world, job).record, ==, 0);
        world_clear(&world);
    }
}

/* What was lent and borrowed is told also when neither takes part any more. */
static void test_totals_stay(void)
{
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    guint lender = world_job(&world, "lender", 1, 1);
    guint borrower = world_job(&world, "borrower", 1, PROCESSES);
    run(&world, 2 * QOS_SECOND);
    set_processes(&world, lender, 0);
    run(&world, 2 * QOS_SECOND);
    g_assert_true(state_of(&world, lender).partner == world.jobs[borrower]);
    g_assert_true(state_of(&world, borrower).partner == world.jobs[lender]);
    set_processes(&world, borrower, 0);
    run(&world, QOS_SECOND);
    gint64 lent = state_of(&world, lender).totals.lent;
    g_assert_cmpint(lent, >, 100 * QOS_COST_UNIT);
    run(&world, 20 * QOS_SECOND);
    g_assert_cmpuint(qos_adapt_count(qos_sched_adapt(world.sched)), ==, 0);
    g_assert_cmpint(state_of(&world, lender).totals.lent, ==, lent);
    g_assert_cmpint(state_of(&world, borrower).totals.borrowed, ==, lent);
    world_clear(&world);
}

static void test_waking_lenders(void)
{
    test_waking_lender(QOS_ADAPT_PERIOD_MIN);
    test_waking_lender(PERIOD);
    test_waking_lender(QOS_ADAPT_PERIOD_MAX);
}

/* A job that comes has its share from the first period on. */
static void test_newcomer(void)
{
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    world_job(&world, "old", 60, PROCESSES);
    run(&world, 5 * QOS_SECOND);
    guint new = world_job(&world, "new", 40, PROCESSES);
    run_anew(&world, PERIOD);
    assert_served(&world, new, 40, 2);
    run_anew(&world, QOS_SECOND);
    assert_served(&world, new, 400, 4);
    world_clear(&world);
}

/* A reservation comes before the shares; a ceiling holds whatever is free. */
static void test_minimum_and_ceiling(void)
{
    World world;
    world_init(&world, &qos_policy_tbf, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 1000, PERIOD);
    set_rule(&world, "start min jobid={a} min=400");
    set_rule(&world, "start max jobid={b} rate=50");
    world_job(&world, "a", 1, PROCESSES);
    world_job(&world, "b", 9, PROCESSES);
    world_job(&world, "c", 9, PROCESSES);
    run(&world, 5 * QOS_SECOND);
    run_anew(&world, 10 * QOS_SECOND);
    assert_served(&world, 1, 500, 10);
    g_assert_cmpuint(world.served[0], >=, 3950);
    g_assert_cmpuint(world.served[0] + world.served[1] + world.served[2], >=, 9900);
    world_clear(&world);
}

/* A capacity that is told holds nobody back: told a tenth, the store is used, and by the shares.
 * Entitlements are made of what the store is found to serve, as soon as that is known: more than
 * told, or less. */
static void test_told_capacity(void)
{
    static const gint64 told[] = {500, 5000, 20000};

    for (guint i = 0; i < G_N_ELEMENTS(told); i++) {
        World world;
        world_init(&world, &qos_policy_fifo, 16, 5000);
        set_adapt(&world, QOS_ADAPT_FAIR, told[i], PERIOD);
        g_assert_cmpfloat(qos_adapt_capacity(qos_sched_adapt(world.sched)), ==, (double)told[i]);
        world_job(&world, "a", 1, PROCESSES);
        world_job(&world, "b", 3, PROCESSES);
        run(&world, QOS_SECOND);
        run_anew(&world, 10 * QOS_SECOND);
        assert_served(&world, 0, 12500, 150);
        assert_served(&world, 1, 37500, 450);
        g_assert_cmpfloat_with_epsilon(qos_adapt_capacity(qos_sched_adapt(world.sched)), 5000, 100);
        world_clear(&world);
    }
}

/* Twenty jobs share ten operations a second. */
static void test_tiny_capacity(void)
{
    for (guint i = 0; i < 2; i++) {
        World world;
        world_init(&world, &qos_policy_fifo, 16, 10);
        set_adapt(&world, QOS_ADAPT_FAIR, i == 0 ? 0 : 10, PERIOD);
        for (guint job = 0; job < 20; job++) {
            g_autofree char *id = g_strdup_printf("job%u", job);
            world_job(&world, id, 1, 2);
        }
        run(&world, 60 * QOS_SECOND);
        run_anew(&world, 400 * QOS_SECOND);
        for (guint job = 0; job < 20; job++)
            assert_served(&world, job, 200, 3);
        world_clear(&world);
    }
}

/* Under load, from one mode to another: nothing is lost, and the new law is in force. */
static void test_modes_switched_live(void)
{
    static const QosAdaptMode modes[] = {QOS_ADAPT_FAIR,  QOS_ADAPT_PAPER, QOS_ADAPT_OFF,
                                         QOS_ADAPT_PAPER, QOS_ADAPT_FAIR,  QOS_ADAPT_OFF,
                                         QOS_ADAPT_FAIR};
    World world;
    world_init(&world, &qos_policy_tbf, 8, 1000);
    world_job(&world, "a", 1, PROCESSES);
    world_job(&world, "b", 4, PROCESSES);
    for (guint i = 0; i < G_N_ELEMENTS(modes); i++) {
        set_adapt(&world, modes[i], 1000, PERIOD);
        run(&world, 3 * QOS_SECOND);
        run_anew(&world, 2 * QOS_SECOND);
        g_assert_cmpuint(world.served[0] + world.served[1], >=, 1850);
        if (modes[i] != QOS_ADAPT_OFF)
            g_assert_cmpuint(world.served[1], >, world.served[0] * 3 / 2);
        if (modes[i] == QOS_ADAPT_FAIR)
            assert_served(&world, 0, 400, 10);
        g_assert_cmpuint(world.running[0] + world.running[1], ==, 2 * PROCESSES);
    }
    world_clear(&world);
}

/* Paper throttles by the estimate: it rises until it does not hold the store back, and no further,
 * whether the slots are ever all taken or not. */
static void test_paper_finds_capacity(void)
{
    for (guint slots = 8; slots <= 64; slots *= 8) {
        World world;
        world_init(&world, &qos_policy_tbf, slots, 2000);
        set_adapt(&world, QOS_ADAPT_PAPER, 0, PERIOD);
        world_job(&world, "a", 1, PROCESSES);
        world_job(&world, "b", 1, PROCESSES);
        world_job(&world, "c", 3, PROCESSES);
        world_job(&world, "d", 5, PROCESSES);
        run(&world, 20 * QOS_SECOND);
        double capacity = qos_adapt_capacity(qos_sched_adapt(world.sched));
        g_assert_cmpfloat(capacity, >, 1800);
        g_assert_cmpfloat(capacity, <, 2600);
        run_anew(&world, 5 * QOS_SECOND);
        g_assert_cmpuint(world.served[3], >, world.served[0] * 9 / 5);
        world_clear(&world);
    }
}

/* As many tokens as T x period is, although that is no whole number in a short period, and so few a
 * job in a long one that they are no whole rate. */
static void test_paper_gives_out_all(void)
{
    static const struct {
        gint64 capacity;
        QosTime period;
    } cases[] = {{363, 30 * QOS_MILLISECOND}, {47, 2 * QOS_SECOND}, {3, QOS_ADAPT_PERIOD_MAX}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        World world;
        world_init(&world, &qos_policy_tbf, 8, 100000);
        set_adapt(&world, QOS_ADAPT_PAPER, cases[i].capacity, cases[i].period);
        for (guint job = 0; job < 5; job++) {
            g_autofree char *id = g_strdup_printf("job%u", job);
            world_job(&world, id, 1, PROCESSES);
        }
        run(&world, 50 * QOS_SECOND);
        run_anew(&world, 200 * QOS_SECOND);
        double expected = (double)cases[i].capacity * 200;
        double all = 0;
        for (guint job = 0; job < world.count; job++)
            all += (double)world.served[job];
        g_test_message("%.0f of %.0f", all, expected);
        g_assert_cmpfloat_with_epsilon(all, expected, expected / 100);
        world_clear(&world);
    }
}

/* Of those that have tokens the job of the highest priority goes first: where more tokens are given
 * out than the store can serve, it has what it is given. */
static void test_paper_serves_by_priority(void)
{
    World world;
    world_init(&world, &qos_policy_tbf, 8, 1000);
    set_adapt(&world, QOS_ADAPT_PAPER, 1300, PERIOD);
    world_job(&world, "a", 1, PROCESSES);
    world_job(&world, "b", 1, PROCESSES);
    world_job(&world, "c", 3, PROCESSES);
    run(&world, 5 * QOS_SECOND);
    run_anew(&world, 10 * QOS_SECOND);
    g_test_message("%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT,
                   world.served[0], world.served[1], world.served[2]);
    g_assert_cmpuint(world.served[2], >, 7000);
    g_assert_cmpuint(world.served[0] + world.served[1], >, 2000);
    world_clear(&world);
}

/* A job that issued nothing in a period has no rule. The job that has one does not starve it. */
static void test_paper_starves_nobody(void)
{
    enum { JOBS = 6 };
    World world;
    world_init(&world, &qos_policy_tbf, 4, 10);
    set_adapt(&world, QOS_ADAPT_PAPER, 10, PERIOD); /* a token for each period */
    for (guint job = 0; job < JOBS; job++) {
        g_autofree char *id = g_strdup_printf("job%u", job);
        world_job(&world, id, 1, PROCESSES);
    }
    run(&world, 20 * QOS_SECOND);
    run_anew(&world, 60 * QOS_SECOND);
    for (guint job = 0; job < JOBS; job++) {
        g_test_message("%" G_GUINT64_FORMAT, world.served[job]);
        g_assert_cmpuint(world.served[job], >=, 90);
    }
    world_clear(&world);
}

/* The period changes live: the shares stay. */
static void test_period_changed_live(void)
{
    static const QosTime periods[] = {PERIOD, QOS_ADAPT_PERIOD_MIN, QOS_ADAPT_PERIOD_MAX,
                                      QOS_SECOND, PERIOD};
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    world_job(&world, "a", 1, PROCESSES);
    world_job(&world, "b", 4, PROCESSES);
    for (guint i = 0; i < G_N_ELEMENTS(periods); i++) {
        set_adapt(&world, QOS_ADAPT_FAIR, 0, periods[i]);
        run(&world, i == 0 ? 3 * QOS_SECOND : QOS_SECOND);
        run_anew(&world, 2 * QOS_SECOND);
        assert_served(&world, 0, 400, 6);
    }
    world_clear(&world);
}

/* Nobody asked for a while: what was served before is no debt of all that time, and the idle are
 * gone. */
static void test_late_tick(void)
{
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    guint a = world_job(&world, "a", 1, PROCESSES);
    guint b = world_job(&world, "b", 1, 0);
    set_processes(&world, b, PROCESSES);
    run(&world, 3 * QOS_SECOND);
    set_processes(&world, a, 0);
    set_processes(&world, b, 0);
    run(&world, 50 * QOS_MILLISECOND);
    world.now += 5 * QOS_SECOND; /* no tick in between */
    set_processes(&world, a, 1);
    run(&world, QOS_MILLISECOND);
    /* of 5 s, each was entitled to half, and nobody took it */
    g_assert_cmpint(ABS(state_of(&world, a).record), <=, 20 * QOS_COST_UNIT);
    world.now += 60 * QOS_SECOND;
    run(&world, QOS_MILLISECOND);
    g_assert_cmpint(state_of(&world, b).weight, ==, 0);
    world_clear(&world);
}

/* There is nothing to save while nobody lends nor owes; afterwards there is, once a period. */
static void test_changes(void)
{
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    const QosAdapt *adapt = qos_sched_adapt(world.sched);
    world_job(&world, "a", 1, PROCESSES);
    run(&world, 3 * QOS_SECOND);
    g_assert_cmpuint(qos_adapt_changes(adapt).members, ==, 0);
    guint b = world_job(&world, "b", 1, PROCESSES);
    run(&world, QOS_SECOND);
    guint64 before = qos_adapt_changes(adapt).members;
    set_processes(&world, b, 0);
    run(&world, 3 * QOS_SECOND);
    g_assert_cmpint(state_of(&world, b).record, >, 0);
    g_assert_cmpuint(qos_adapt_changes(adapt).members, >=, before + 25);
    world_clear(&world);
}

/* All of a job's requests hang: the others go on. */
static void test_a_job_hangs(void)
{
    World world;
    world_init(&world, &qos_policy_fifo, 16, 1000);
    set_adapt(&world, QOS_ADAPT_FAIR, 0, PERIOD);
    guint hung = world_job(&world, "hung", 1, PROCESSES);
    world_job(&world, "b", 1, PROCESSES);
    run(&world, 3 * QOS_SECOND);
    GQueue stuck = G_QUEUE_INIT;
    for (guint i = 0; i < 2000; i++) { /* what enters of that job does not come back */
        for (GList *link = world.inside.head, *next; link != NULL; link = next) {
            next = link->next;
            if (((Access *)link->data)->job == hung) {
                g_queue_unlink(&world.inside, link);
                g_queue_push_tail_link(&stuck, link);
            }
        }
        run(&world, QOS_MILLISECOND);
    }
    run_anew(&world, 2 * QOS_SECOND);
    g_assert_cmpuint(world.served[1], >=, 900);
    while (stuck.length > 0)
        g_queue_push_head_link(&world.inside, g_queue_pop_head_link(&stuck));
    world_clear(&world);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adapt/weights", test_weights);
    g_test_add_func("/adapt/claimed-nodes", test_claimed_nodes);
    g_test_add_func("/adapt/few-processes", test_few_processes);
    g_test_add_func("/adapt/waking-lender", test_waking_lenders);
    g_test_add_func("/adapt/totals-stay", test_totals_stay);
    g_test_add_func("/adapt/restored", test_restored);
    g_test_add_func("/adapt/slow-store", test_a_slow_store);
    g_test_add_func("/adapt/newcomer", test_newcomer);
    g_test_add_func("/adapt/minimum-and-ceiling", test_minimum_and_ceiling);
    g_test_add_func("/adapt/told-capacity", test_told_capacity);
    g_test_add_func("/adapt/tiny-capacity", test_tiny_capacity);
    g_test_add_func("/adapt/modes-live", test_modes_switched_live);
    g_test_add_func("/adapt/paper-finds-capacity", test_paper_finds_capacity);
    g_test_add_func("/adapt/paper-gives-out-all", test_paper_gives_out_all);
    g_test_add_func("/adapt/paper-serves-by-priority", test_paper_serves_by_priority);
    g_test_add_func("/adapt/paper-starves-nobody", test_paper_starves_nobody);
    g_test_add_func("/adapt/period-live", test_period_changed_live);
    g_test_add_func("/adapt/late-tick", test_late_tick);
    g_test_add_func("/adapt/changes", test_changes);
    g_test_add_func("/adapt/a-job-hangs", test_a_job_hangs);
    return g_test_run();
}
