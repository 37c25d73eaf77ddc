/*
 * AdapTBF as published: the equations by hand, the repairs, and its sums over random sequences.
 */
#include "fs/adapt_paper.h"

static QosPaperJob job(gint64 nodes, gint64 demand, gint64 last, gint64 record)
{
    return (QosPaperJob){.nodes = nodes, .demand = demand, .allocation = last, .record = record};
}

/* Equations 1 and 2: all want more than they have, and nothing is left over. */
static void test_initial_allocation_by_nodes(void)
{
    QosPaperJob jobs[] = {job(1, 200, 10, 0), job(1, 200, 10, 0), job(3, 200, 30, 0),
                          job(5, 200, 50, 0)};
    qos_paper_allocate(jobs, 4, 100);
    g_assert_cmpint(jobs[0].allocation, ==, 10);
    g_assert_cmpint(jobs[1].allocation, ==, 10);
    g_assert_cmpint(jobs[2].allocation, ==, 30);
    g_assert_cmpint(jobs[3].allocation, ==, 50);
    for (guint i = 0; i < 4; i++)
        g_assert_cmpint(jobs[i].record, ==, 0);
}

/*
 * Equations 3 to 8 by hand: T = 100, nodes 1 to 1. Job x wants 10 of its 50, job y 100 of its 50.
 * The results: u = 0.2 and 2; T_s = 40; DF = 0.2 x 0.5 = 0.1 and 2 + 2 x 0.5 = 3.
 * Job x gets 40 x 0.1 / 3.1 = 1.29 of it, y 38.71: rounded 1 and 39 by the largest remainder.
 */
static void test_redistribution(void)
{
    QosPaperJob jobs[] = {job(1, 10, 50, 0), job(1, 100, 50, 0)};
    qos_paper_allocate(jobs, 2, 100);
    g_assert_cmpint(jobs[0].allocation, ==, 50 - 40 + 1);
    g_assert_cmpint(jobs[1].allocation, ==, 50 + 39);
    g_assert_cmpint(jobs[0].record, ==, 39);
    g_assert_cmpint(jobs[1].record, ==, -39);
    g_assert_cmpint(jobs[0].totals.lent, ==, 39);
    g_assert_cmpint(jobs[1].totals.borrowed, ==, 39);
}

/*
 * Equations 9 to 20 by hand: x lent 30 to y, and both want more than their 50.
 * u = 60/50 = 1.2 and 100/50 = 2; no surplus. C = 0.5 x (1.2 + max(0, 1 - 60/50)) / 2 = 0.3.
 * T_R = min(30, floor(0.3 x 50)) = 15 goes from y to x.
 */
static void test_recompensation(void)
{
    QosPaperJob jobs[] = {job(1, 60, 50, 30), job(1, 100, 50, -30)};
    qos_paper_allocate(jobs, 2, 100);
    g_assert_cmpint(jobs[0].allocation, ==, 65);
    g_assert_cmpint(jobs[1].allocation, ==, 35);
    g_assert_cmpint(jobs[0].record, ==, 15);
    g_assert_cmpint(jobs[1].record, ==, -15);
    g_assert_cmpint(jobs[0].totals.returned, ==, 15);
    g_assert_cmpint(jobs[1].totals.repaid, ==, 15);
}

/* The remainders make up for it: three jobs share ten tokens, and each gets its third in the end.
 */
static void test_remainders_are_carried(void)
{
    QosPaperJob jobs[] = {job(1, 100, 0, 0), job(1, 100, 0, 0), job(1, 100, 0, 0)};
    gint64 sums[3] = {0};
    for (guint period = 0; period < 300; period++) {
        qos_paper_allocate(jobs, 3, 10);
        for (guint i = 0; i < 3; i++) {
            g_assert_cmpint(jobs[i].allocation, >=, 3);
            g_assert_cmpint(jobs[i].allocation, <=, 4);
            sums[i] += jobs[i].allocation;
        }
    }
    for (guint i = 0; i < 3; i++)
        g_assert_cmpint(ABS(sums[i] - 1000), <=, 1);
}

/* R1: a job without a last allocation, beside one that has one. */
static void test_new_job(void)
{
    QosPaperJob jobs[] = {job(1, 100, 100, 0), job(1, 1000, 0, 0)};
    qos_paper_allocate(jobs, 2, 100);
    g_assert_cmpfloat(jobs[1].utilization, ==, 1000.0 / 50);
    g_assert_cmpint(jobs[0].allocation + jobs[1].allocation, ==, 100);
}

/* R2: a lender that wakes up with a thousand times its last allocation takes all, and no more. */
static void test_reclaim_is_bounded_by_the_allocation(void)
{
    QosPaperJob jobs[] = {job(1, 5000, 5, 4000), job(1, 5000, 95, -4000)};
    qos_paper_allocate(jobs, 2, 100);
    g_assert_cmpint(jobs[0].allocation, ==, 100);
    g_assert_cmpint(jobs[1].allocation, ==, 0);
}

/* R4: nobody asks for anything. */
static void test_no_demand(void)
{
    QosPaperJob jobs[] = {job(1, 0, 50, 20), job(1, 0, 50, -20)};
    qos_paper_allocate(jobs, 2, 100);
    g_assert_cmpint(jobs[0].allocation + jobs[1].allocation, ==, 100);
    g_assert_cmpint(jobs[0].record + jobs[1].record, ==, 0);
    qos_paper_allocate(jobs, 0, 100);
}

/* What nobody is there to pay, or to be paid, goes in proportion and to the token (R7). */
static void test_write_off(void)
{
    static const gint64 cases[][2][3] = {{{30, -20, -40}, {30, -10, -20}},
                                         {{7, 5, -4}, {3, 1, -4}},
                                         {{9, 0, 1}, {0, 0, 0}},
                                         {{0, -1, 0}, {0, 0, 0}},
                                         {{6, -2, -4}, {6, -2, -4}}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        QosPaperJob jobs[3];
        for (guint k = 0; k < 3; k++)
            jobs[k] = job(1, 0, 0, cases[i][0][k]);
        qos_paper_write_off(jobs, 3);
        for (guint k = 0; k < 3; k++)
            g_assert_cmpint(jobs[k].record, ==, cases[i][1][k]);
    }
    qos_paper_write_off(NULL, 0);
}

static void set_random_demands(QosPaperJob *jobs, guint count, GRand *random)
{
    for (guint i = 0; i < count; i++) {
        int kind = g_rand_int_range(random, 0, 4);
        jobs[i].demand = kind == 0 ? 0 : g_rand_int_range(random, 0, kind == 1 ? 10 : 30000);
    }
}

/* Of records that nothing was written off of, the totals tell the same. */
static void assert_sums(const QosPaperJob *jobs, guint count, gint64 tokens, gboolean is_fleeting)
{
    gint64 sum = 0;
    gint64 records = 0;

    for (guint i = 0; i < count; i++) {
        const QosShareTotals *totals = &jobs[i].totals;
        g_assert_cmpint(jobs[i].allocation, >=, 0);
        sum += jobs[i].allocation;
        records += jobs[i].record;
        if (is_fleeting)
            continue;
        g_assert_cmpint(totals->lent - totals->returned, ==, MAX(jobs[i].record, 0));
        g_assert_cmpint(totals->borrowed - totals->repaid, ==, MAX(-jobs[i].record, 0));
    }
    g_assert_cmpint(sum, ==, tokens);
    g_assert_cmpint(records, ==, 0);
}

/* Whatever the jobs ask for and weigh, and in every other seed come and go: no negative allocation,
 * sum = T x period, records add up to 0. */
static void test_sums_hold_over_random_sequences(void)
{
    for (guint seed = 1; seed <= 200; seed++) {
        GRand *random = g_rand_new_with_seed(seed);
        guint count = (guint)g_rand_int_range(random, 1, 40);
        gboolean is_fleeting = seed % 2 == 0;
        QosPaperJob jobs[40];
        g_test_message("seed %u", seed);
        for (guint i = 0; i < count; i++)
            jobs[i] = job(g_rand_int_range(random, 1, 10000), 0, 0, 0);
        for (guint period = 0; period < 200; period++) {
            if (is_fleeting && count > 1 && g_rand_int_range(random, 0, 6) == 0)
                qos_paper_write_off(jobs, --count);
            if (is_fleeting && count < 40 && g_rand_int_range(random, 0, 6) == 0)
                jobs[count++] = job(g_rand_int_range(random, 1, 10000), 0, 0, 0);
            jobs[g_rand_int_range(random, 0, (gint)count)].nodes =
                g_rand_int_range(random, 1, 10000);
            set_random_demands(jobs, count, random);
            gint64 tokens = g_rand_int_range(random, 0, 5) == 0
                                ? g_rand_int_range(random, 0, 5)
                                : g_rand_int_range(random, 0, 20000);
            qos_paper_allocate(jobs, count, tokens);
            assert_sums(jobs, count, tokens, is_fleeting);
        }
        g_rand_free(random);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adapt-paper/initial-allocation", test_initial_allocation_by_nodes);
    g_test_add_func("/adapt-paper/redistribution", test_redistribution);
    g_test_add_func("/adapt-paper/recompensation", test_recompensation);
    g_test_add_func("/adapt-paper/remainders", test_remainders_are_carried);
    g_test_add_func("/adapt-paper/new-job", test_new_job);
    g_test_add_func("/adapt-paper/reclaim-bounded", test_reclaim_is_bounded_by_the_allocation);
    g_test_add_func("/adapt-paper/no-demand", test_no_demand);
    g_test_add_func("/adapt-paper/write-off", test_write_off);
    g_test_add_func("/adapt-paper/random-sequences", test_sums_hold_over_random_sequences);
    return g_test_run();
}
