/*
 * The fair law: entitlements, filling, records and repayment by hand, and its sums over random
 * sequences of jobs, demands, weights and periods.
 */
#include "fs/adapt_fair.h"

#define PERIOD (100 * QOS_MILLISECOND)

static QosFairJob job(gint64 weight, gint64 served, gint64 waiting)
{
    return (QosFairJob){.weight = weight, .served = served, .waiting = waiting};
}

static void wants(QosFairJob *job, gint64 served, gint64 waiting)
{
    job->served = served;
    job->waiting = waiting;
}

/* All want more than there is: by weight, to the unit. */
static void test_all_backlogged(void)
{
    QosFairJob jobs[] = {job(10, 0, 5000), job(10, 0, 5000), job(30, 0, 5000), job(50, 0, 5000)};
    qos_fair_step(jobs, 4, 1000, PERIOD, PERIOD);
    static const gint64 expected[] = {100, 100, 300, 500};
    for (guint i = 0; i < 4; i++) {
        g_assert_cmpint(jobs[i].entitlement, ==, expected[i]);
        g_assert_cmpint(jobs[i].allocation, ==, expected[i]);
        g_assert_cmpint(jobs[i].rate, ==, expected[i]);
        g_assert_cmpint(jobs[i].record, ==, 0);
    }
}

/* The steady trickle: three jobs of 30 % use a fifth of it beside a hungry one of 10 %. */
static void test_steady_trickle(void)
{
    QosFairJob jobs[] = {job(30, 0, 60), job(30, 0, 60), job(30, 0, 60), job(10, 0, 9000)};
    for (guint period = 0; period < 100; period++) {
        qos_fair_step(jobs, 4, 1000, PERIOD, PERIOD);
        for (guint i = 0; i < 3; i++)
            wants(&jobs[i], 60, 0);
        wants(&jobs[3], 820, 9000);
    }
    for (guint i = 0; i < 3; i++)
        g_assert_cmpint(jobs[i].allocation, ==, 60 + 60 / 8);
    g_assert_cmpint(jobs[3].allocation, ==, 1000 - 3 * 67);
}

/* A reservation comes before the shares. It is not held for a job that does not want it. */
static void test_reservation(void)
{
    QosFairJob jobs[] = {job(1, 0, 5000), job(9, 0, 5000)};
    jobs[0].minimum = 400;
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].allocation, ==, 400);
    g_assert_cmpint(jobs[1].allocation, ==, 600);
    wants(&jobs[0], 80, 0);
    wants(&jobs[1], 920, 5000);
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].allocation, ==, 90);
    g_assert_cmpint(jobs[1].allocation, ==, 910);
}

/* Reservations of more than there is shrink in proportion. */
static void test_too_many_reservations(void)
{
    QosFairJob jobs[] = {job(1, 0, 5000), job(1, 0, 5000)};
    jobs[0].minimum = 3000;
    jobs[1].minimum = 1000;
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].allocation, ==, 750);
    g_assert_cmpint(jobs[1].allocation, ==, 250);
}

/* Also where their sum is beyond any quantity. */
static void test_endless_reservations(void)
{
    enum { JOBS = 20000 };
    g_autofree QosFairJob *jobs = g_new(QosFairJob, JOBS);

    for (guint i = 0; i < JOBS; i++) {
        jobs[i] = job(1, 0, 5000);
        jobs[i].minimum = QOS_FAIR_UNITS_MAX;
    }
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].allocation, ==, 500);
    g_assert_cmpint(jobs[1].allocation, ==, 500);
    qos_fair_step(jobs, JOBS, JOBS, PERIOD, PERIOD);
    for (guint i = 0; i < JOBS; i++)
        g_assert_cmpint(jobs[i].allocation, ==, 1);
}

/* What x leaves, y consumes: that, and no more, is lent; and x is repaid when it wants more. */
static void test_lent_and_repaid(void)
{
    QosFairJob jobs[] = {job(1, 0, 0), job(1, 0, 5000)};
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    wants(&jobs[0], 100, 0);
    wants(&jobs[1], 700, 5000); /* 200 of the 400 that x left was used by nobody */
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].totals.lent, ==, 200);
    g_assert_cmpint(jobs[1].totals.borrowed, ==, 200);
    g_assert_cmpint(jobs[0].record, ==, -jobs[1].record);
    g_assert_cmpint(jobs[0].record, ==, 199); /* 100 ms of the decay */

    wants(&jobs[0], 400, 5000); /* it is hungry now: what it did not get, it did not lend */
    wants(&jobs[1], 600, 5000);
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].record, ==, 198);
    g_assert_cmpint(jobs[0].allocation, ==, 550); /* y pays a tenth of its entitlement */
    g_assert_cmpint(jobs[1].allocation, ==, 450);
    g_assert_cmpint(jobs[0].rate, ==, 550);
    g_assert_cmpint(jobs[1].rate, ==, 450);

    for (guint period = 1; period <= 3; period++) {
        wants(&jobs[0], 550, 5000);
        wants(&jobs[1], 450, 5000);
        qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
        g_assert_cmpint(jobs[0].totals.returned, ==, 50 * period);
        g_assert_cmpint(jobs[1].totals.repaid, ==, 50 * period);
    }
    g_assert_cmpint(jobs[0].record, <, 50);
    g_assert_cmpint(jobs[0].allocation, ==, 500 + jobs[0].record); /* the rest */
}

/* Also by more jobs than their parts can be added up in 64 bits. A job that has just come may be
 * taken to have been entitled to any quantity. */
static void test_lent_by_many(void)
{
    enum { JOBS = 20000 };
    g_autofree QosFairJob *jobs = g_new(QosFairJob, JOBS);
    gint64 records = 0;

    for (guint i = 0; i < JOBS; i++) {
        jobs[i] = job(1, 0, 0);
        jobs[i].entitlement = QOS_FAIR_UNITS_MAX;
    }
    jobs[0].entitlement = 0;
    jobs[0].served = JOBS - 1;
    qos_fair_step(jobs, JOBS, JOBS, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].totals.borrowed, ==, JOBS - 1);
    for (guint i = 0; i < JOBS; i++) {
        g_assert_cmpint(jobs[i].totals.lent, ==, i == 0 ? 0 : 1);
        records += jobs[i].record;
    }
    g_assert_cmpint(records, ==, 0);
}

/* The instalment is a tenth of the smaller entitlement, so that both stay near theirs. */
static void test_unequal_repayment(void)
{
    QosFairJob jobs[] = {job(1, 0, 5000), job(9, 0, 5000)};
    for (guint lender = 0; lender < 2; lender++) {
        jobs[lender].record = 3000;
        jobs[1 - lender].record = -3000;
        qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
        g_assert_cmpint(jobs[lender].allocation, ==, (lender == 0 ? 100 : 900) + 10);
        jobs[0].served = 100;
        jobs[1].served = 900;
    }
}

/* An idle lender's record ends at three seconds of its entitlement. */
static void test_records_are_bounded(void)
{
    QosFairJob jobs[] = {job(1, 0, 0), job(1, 0, 5000)};
    for (guint period = 0; period < 1000; period++) {
        qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
        wants(&jobs[1], 1000, 5000);
    }
    g_assert_cmpint(jobs[0].record, <=, 30 * 500);
    g_assert_cmpint(jobs[0].record, >=, 29 * 500);
    g_assert_cmpint(jobs[0].record, ==, -jobs[1].record);
}

/* Damaged ones, or those of ages. */
static void test_totals_end(void)
{
    QosFairJob jobs[] = {job(1, 0, 0), job(1, 0, 5000)};
    jobs[0].totals.lent = jobs[1].totals.borrowed = G_MAXINT64 - 1;
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    wants(&jobs[1], 1000, 5000);
    qos_fair_step(jobs, 2, 1000, PERIOD, PERIOD);
    g_assert_cmpint(jobs[0].flow, ==, 500);
    g_assert_cmpint(jobs[0].totals.lent, ==, G_MAXINT64);
    g_assert_cmpint(jobs[1].totals.borrowed, ==, G_MAXINT64);
}

/* One of the borrowers goes: the lender's claim on it goes too. */
static void test_write_off(void)
{
    QosFairJob jobs[] = {job(1, 0, 0), job(1, 0, 0), job(1, 0, 0)};
    jobs[0].record = 900;
    jobs[1].record = -600;
    jobs[2].record = -300;
    qos_fair_write_off(jobs, 2);
    g_assert_cmpint(jobs[0].record, ==, 600);
    g_assert_cmpint(jobs[1].record, ==, -600);
    qos_fair_write_off(jobs, 1);
    g_assert_cmpint(jobs[0].record, ==, 0);
}

static gint64 random_quantity(GRand *random)
{
    switch (g_rand_int_range(random, 0, 5)) {
    case 0:
        return 0;
    case 1:
        return g_rand_int_range(random, 0, 10);
    case 2:
        return g_rand_int_range(random, 0, G_MAXINT32);
    case 3:
        return QOS_FAIR_UNITS_MAX;
    default:
        return (gint64)g_rand_double_range(random, 0, (double)QOS_FAIR_UNITS_MAX);
    }
}

static void assert_sums(const QosFairJob *jobs, guint count, gint64 capacity)
{
    gint64 entitlements = 0;
    gint64 allocations = 0;
    gint64 records = 0;

    for (guint i = 0; i < count; i++) {
        g_assert_cmpint(jobs[i].entitlement, >=, 0);
        g_assert_cmpint(jobs[i].allocation, >=, 0);
        g_assert_cmpint(jobs[i].rate, >, 0);
        entitlements += jobs[i].entitlement;
        allocations += jobs[i].allocation;
        records += jobs[i].record;
        /* no job that wants it gets less than half */
        if (jobs[i].demand >= jobs[i].entitlement)
            g_assert_cmpint(jobs[i].allocation, >=, jobs[i].entitlement / 2 - 2);
    }
    g_assert_cmpint(entitlements, ==, capacity);
    g_assert_cmpint(allocations, ==, capacity);
    g_assert_cmpint(records, ==, 0);
}

static void test_sums_hold_over_random_sequences(void)
{
    for (guint seed = 1; seed <= 300; seed++) {
        GRand *random = g_rand_new_with_seed(seed);
        QosFairJob jobs[40] = {0};
        guint count = 0;
        g_test_message("seed %u", seed);
        for (guint period = 0; period < 200; period++) {
            if (count < 40 && g_rand_int_range(random, 0, 3) == 0)
                jobs[count++] = job(g_rand_int_range(random, 1, 1000000), 0, 0);
            if (count > 1 && g_rand_int_range(random, 0, 6) == 0)
                qos_fair_write_off(jobs, --count);
            const gint64 quantity = random_quantity(random);
            const gint64 capacity = MAX(quantity, 1);
            for (guint i = 0; i < count; i++) {
                jobs[i].served = random_quantity(random);
                jobs[i].waiting = random_quantity(random);
                jobs[i].minimum = g_rand_int_range(random, 0, 4) == 0 ? random_quantity(random) : 0;
            }
            QosTime length = g_rand_int_range(random, 5000000, 2000000000);
            qos_fair_step(jobs, count, capacity, length, length * g_rand_int_range(random, 1, 100));
            if (count > 0)
                assert_sums(jobs, count, capacity);
        }
        g_rand_free(random);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adapt-fair/all-backlogged", test_all_backlogged);
    g_test_add_func("/adapt-fair/steady-trickle", test_steady_trickle);
    g_test_add_func("/adapt-fair/reservation", test_reservation);
    g_test_add_func("/adapt-fair/too-many-reservations", test_too_many_reservations);
    g_test_add_func("/adapt-fair/endless-reservations", test_endless_reservations);
    g_test_add_func("/adapt-fair/lent-and-repaid", test_lent_and_repaid);
    g_test_add_func("/adapt-fair/lent-by-many", test_lent_by_many);
    g_test_add_func("/adapt-fair/unequal-repayment", test_unequal_repayment);
    g_test_add_func("/adapt-fair/records-bounded", test_records_are_bounded);
    g_test_add_func("/adapt-fair/totals-end", test_totals_end);
    g_test_add_func("/adapt-fair/write-off", test_write_off);
    g_test_add_func("/adapt-fair/random-sequences", test_sums_hold_over_random_sequences);
    return g_test_run();
}
