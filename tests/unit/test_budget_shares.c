/*
 * How C is divided among jobs (core/budget_shares.h): exact values with time stepped by hand, and
 * the laws of the division by random values. A failure prints its seed: QOSFS_SEED=n runs that one
 * alone.
 */
#include <math.h>

#include "core/budget_shares.h"

#define C       (G_GUINT64_CONSTANT(1000) * QOS_BUDGET_UNIT)
#define E       QOS_BUDGET_EPOCH
#define LEASE   QOS_SECOND
#define SEEDS   2000
#define JOBS    8
#define CLASSES 40

/* Of one job on one mount. */
typedef struct {
    guint64 job;
    QosBudgetMount mount;
    guint64 served;
} Class;

typedef struct {
    QosBudgetShares *shares;
    Class classes[CLASSES];
    guint count;
    GArray *answers;
    QosTime now;
} Fixture;

static const QosBudgetConfig usual = {.limit = C, .epoch = E, .lease = LEASE, .registered = 8};

static void start(Fixture *f)
{
    *f = (Fixture){.shares = qos_budget_shares_new(&usual, TRUE, 0),
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetSharesAnswer))};
}

static void finish(Fixture *f)
{
    qos_budget_shares_free(f->shares);
    g_array_unref(f->answers);
}

/* The job works on one more mount, whose number there is the class's. */
static guint add(Fixture *f, guint64 job, guint64 weight)
{
    Class *class = &f->classes[f->count];
    QosBudget *budget = qos_budget_shares_job(f->shares, job, weight, f->now);

    class->job = job;
    qos_budget_mount_init(&class->mount, &usual, 1, qos_budget_join(budget, f->count, 1, f->now),
                          1);
    return f->count++;
}

/* It has used in this epoch what it might, or `demand`; and wants `demand`. */
static void report(Fixture *f, guint number, guint64 weight, guint64 demand)
{
    Class *class = &f->classes[number];
    QosBudget *budget = qos_budget_shares_job(f->shares, class->job, weight, f->now);
    QosBudgetReport report = {0};

    class->served += MIN(qos_budget_mount_rate(&class->mount, f->now), demand) / 10;
    qos_budget_mount_report(&class->mount, demand, class->served, f->now, &report);
    g_assert_true(qos_budget_report(budget, number, &report, f->now));
    qos_budget_report_clear(&report);
}

static void end_epoch(Fixture *f)
{
    f->now += E;
    qos_budget_shares_close(f->shares, f->now, f->answers);
    for (guint i = 0; i < f->answers->len; i++) {
        const QosBudgetSharesAnswer *answer = &g_array_index(f->answers, QosBudgetSharesAnswer, i);
        Class *class = &f->classes[answer->answer.to];
        g_assert_cmpuint(class->job, ==, answer->job);
        g_assert_true(qos_budget_mount_grant(&class->mount, &answer->answer.grant, f->now));
    }
    g_array_set_size(f->answers, 0);
}

static QosBudgetSharesJob job(const Fixture *f, guint64 id)
{
    QosBudgetSharesJob job;

    g_assert_true(qos_budget_shares_find(f->shares, id, f->now, &job));
    return job;
}

static void assert_part(guint64 rate, double expected)
{
    g_assert_cmpfloat_with_epsilon((double)rate / (double)C, expected, 1e-5);
}

/* B of the latest close: core/budget.c has the constants. */
static double handed_out(const Fixture *f)
{
    const QosBudgetState state = qos_budget_shares_state(f->shares, f->now);

    return MAX((double)C * state.factor - state.debt / 0.5, (double)C * 0.1);
}

/* --- exact values --- */

/* A job on three mounts has what a job on one has. */
static void test_one_share(void)
{
    Fixture f;
    start(&f);
    add(&f, 1, 1);
    for (guint i = 0; i < 3; i++)
        add(&f, 2, 1);
    for (guint epoch = 0; epoch < 40; epoch++) {
        for (guint i = 0; i < 4; i++)
            report(&f, i, 1, C);
        end_epoch(&f);
    }
    assert_part(job(&f, 1).entitlement, 0.5);
    assert_part(job(&f, 2).entitlement, 0.5);
    g_assert_cmpuint(job(&f, 1).limit, ==, job(&f, 2).limit);
    g_assert_cmpfloat_with_epsilon((double)job(&f, 2).limit / C, 0.5, 0.01);
    g_assert_cmpuint(job(&f, 2).demand, ==, 3 * C);
    const double one = (double)qos_budget_mount_rate(&f.classes[0].mount, f.now);
    const double third = (double)qos_budget_mount_rate(&f.classes[1].mount, f.now);
    g_assert_cmpfloat_with_epsilon(one / third, 3, 0.02);
    g_assert_cmpfloat_with_epsilon(qos_budget_shares_state(f.shares, f.now).served / C, 1, 0.01);
    finish(&f);
}

/* By weight; the job that wants less has what it wants; a silent job has no part. */
static void test_weights(void)
{
    Fixture f;
    start(&f);
    for (guint i = 0; i < 4; i++)
        add(&f, i, i + 1);
    report(&f, 0, 1, C);
    report(&f, 1, 2, C / 10);
    report(&f, 2, 3, C);
    end_epoch(&f);
    const double b = handed_out(&f) / (double)C;
    assert_part(job(&f, 0).entitlement, 1 / 6.0);
    assert_part(job(&f, 2).entitlement, 3 / 6.0);
    assert_part(job(&f, 0).limit, (b - 0.1) / 4);
    assert_part(job(&f, 1).limit, 0.1);
    assert_part(job(&f, 2).limit, (b - 0.1) / 4 * 3);
    g_assert_cmpuint(job(&f, 3).limit, ==, 0);
    g_assert_cmpuint(job(&f, 3).entitlement, ==, 0);
    finish(&f);
}

/* All have enough: what is left goes by weight. */
static void test_rest(void)
{
    Fixture f;
    start(&f);
    add(&f, 1, 1);
    add(&f, 2, 3);
    report(&f, 0, 1, C / 10);
    report(&f, 1, 3, C / 5);
    end_epoch(&f);
    const double rest = handed_out(&f) / (double)C - 0.3;
    g_assert_cmpfloat(rest, >, 0.6);
    assert_part(job(&f, 1).limit, 0.1 + rest / 4);
    assert_part(job(&f, 2).limit, 0.2 + rest / 4 * 3);
    finish(&f);
}

/* A job's debt is counted against the limit that it had, not against the one that follows. */
static void test_limit_that_falls(void)
{
    Fixture f;
    start(&f);
    add(&f, 1, 1);
    add(&f, 2, 1);
    for (guint epoch = 0; epoch < 60; epoch++) {
        report(&f, 0, 1, 3 * C);
        end_epoch(&f);
    }
    g_assert_cmpfloat((double)job(&f, 1).limit, >, 0.95 * (double)C);
    const double before = job(&f, 1).budget.debt;
    g_assert_cmpfloat(fabs(before), <=, 0.005 * (double)C);
    report(&f, 0, 1, 3 * C);
    report(&f, 1, 1, 3 * C);
    end_epoch(&f);
    assert_part(job(&f, 1).limit, handed_out(&f) / (double)C / 2);
    g_assert_cmpfloat(job(&f, 1).budget.debt, <=, 0.005 * (double)C);
    finish(&f);
}

/* A mount that falls silent counts with its demand until its lease has ended; so does its job. */
static void test_silence_and_end(void)
{
    Fixture f;
    start(&f);
    add(&f, 1, 1);
    add(&f, 2, 1);
    report(&f, 0, 1, C);
    report(&f, 1, 1, C);
    end_epoch(&f);
    while (f.now + E < LEASE) {
        report(&f, 0, 1, C);
        end_epoch(&f);
        g_assert_cmpuint(job(&f, 2).demand, ==, C);
    }
    for (guint epoch = 0; epoch < 3; epoch++) {
        report(&f, 0, 1, C);
        end_epoch(&f);
    }
    g_assert_cmpuint(job(&f, 2).demand, ==, 0);
    assert_part(job(&f, 1).entitlement, 1);
    qos_budget_shares_end(f.shares, 2);
    qos_budget_shares_end(f.shares, 2);
    QosBudgetSharesJob gone;
    g_assert_false(qos_budget_shares_find(f.shares, 2, f.now, &gone));
    g_assert_cmpuint(qos_budget_shares_state(f.shares, f.now).members, ==, 1);
    finish(&f);
}

/* Another C from the next close on. */
static void test_configure(void)
{
    Fixture f;
    QosBudgetConfig config = usual;
    start(&f);
    add(&f, 1, 1);
    for (guint epoch = 0; epoch < 40; epoch++) {
        if (epoch == 20) {
            config.limit = C / 4;
            qos_budget_shares_configure(f.shares, &config);
        }
        report(&f, 0, 1, C);
        end_epoch(&f);
    }
    assert_part(job(&f, 1).entitlement, 0.25);
    g_assert_cmpfloat_with_epsilon(job(&f, 1).budget.served / C, 0.25, 0.01);
    finish(&f);
}

/* --- laws --- */

/* Of one close, whatever was before. `left` is 0, or what a limit may lose by whole numbers. */
static void assert_laws(const Fixture *f, const guint64 *weights, const guint64 *demands)
{
    const double b = handed_out(f);
    double limits = 0, entitlements = 0, wanted = 0, level = 0;

    for (guint i = 0; i < JOBS; i++)
        wanted += (double)demands[i];
    for (guint i = 0; i < JOBS; i++) {
        const QosBudgetSharesJob one = job(f, i);
        g_assert_cmpuint(one.demand, ==, demands[i]);
        if (one.limit + 1 < demands[i]) /* all that want more: the same for a unit of weight */
            level = MAX(level, (double)one.limit / (double)weights[i]);
        limits += (double)one.limit;
        entitlements += (double)one.entitlement;
    }
    /* No more than there is, and no less as long as anybody wants anything. */
    g_assert_cmpfloat(entitlements, <=, (double)C);
    g_assert_cmpfloat(limits, <=, b * (1 + 1e-9));
    if (wanted > 0)
        g_assert_cmpfloat(limits + JOBS + 1, >=, b);
    for (guint i = 0; i < JOBS; i++) {
        const QosBudgetSharesJob one = job(f, i);
        const double fair = (double)one.limit / (double)weights[i];
        if (one.limit + 1 < demands[i])
            g_assert_cmpfloat(fair + 1, >=, level);
        else if (wanted > b && demands[i] > 0) /* has enough, and no more than those */
            g_assert_cmpfloat(fair, <=, level + 1);
        /* One that wants less than its part has what it wants. */
        if ((double)demands[i] <= b / (double)C * (double)one.entitlement)
            g_assert_cmpuint(one.limit + 1, >=, demands[i]);
    }
}

static void division_is_fair(GRand *random)
{
    Fixture f;
    guint64 weights[JOBS];
    start(&f);
    for (guint i = 0; i < CLASSES; i++) {
        const guint id = i < JOBS ? i : (guint)g_rand_int_range(random, 0, JOBS);
        add(&f, id, 1);
    }
    for (guint epoch = 0; epoch < 8; epoch++) {
        guint64 demands[JOBS] = {0};
        for (guint i = 0; i < JOBS; i++)
            weights[i] = (guint64)g_rand_int_range(random, 1, 100);
        for (guint i = 0; i < CLASSES; i++) {
            const guint64 demand =
                g_rand_boolean(random) ? (guint64)exp2(g_rand_double_range(random, 0, 22)) - 1 : 0;
            report(&f, i, weights[f.classes[i].job], demand);
            demands[f.classes[i].job] += demand;
        }
        end_epoch(&f);
        assert_laws(&f, weights, demands);
    }
    finish(&f);
}

static void test_laws(void)
{
    const char *given = g_getenv("QOSFS_SEED");
    const guint64 first = given != NULL ? g_ascii_strtoull(given, NULL, 10) : 1;

    for (guint64 seed = first; seed < first + (given != NULL ? 1 : SEEDS); seed++) {
        g_autoptr(GRand) random = g_rand_new_with_seed((guint32)seed);
        g_test_message("QOSFS_SEED=%" G_GUINT64_FORMAT, seed);
        division_is_fair(random);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget-shares/one-share", test_one_share);
    g_test_add_func("/budget-shares/weights", test_weights);
    g_test_add_func("/budget-shares/rest", test_rest);
    g_test_add_func("/budget-shares/limit-that-falls", test_limit_that_falls);
    g_test_add_func("/budget-shares/silence-and-end", test_silence_and_end);
    g_test_add_func("/budget-shares/configure", test_configure);
    g_test_add_func("/budget-shares/laws", test_laws);
    return g_test_run();
}
