/*
 * A combiner's faults, with exact values and time stepped by hand: it is cut off, pauses, or starts
 * again. Two mounts are behind it, and one is beside it.
 */
#include "core/budget.h"

#define R     (G_GUINT64_CONSTANT(1000) * QOS_BUDGET_UNIT)
#define E     QOS_BUDGET_EPOCH
#define LEASE QOS_SECOND
#define FLOOR (R / 40) /* of a mount: 10 % of R in 4 parts; a part is nobody's */

enum { LEFT, RIGHT, BESIDE, MOUNTS, COMBINER = MOUNTS };

typedef struct {
    QosBudget *root, *combiner;
    QosBudgetMount mounts[MOUNTS];
    GArray *down, *answers; /* of the root, of the combiner */
    QosTime now;
} Fixture;

static const QosBudgetConfig hard = {
    .limit = R, .share = QOS_BUDGET_HARD, .floor = 10, .epoch = E, .lease = LEASE, .registered = 4};

static void start_combiner(Fixture *f, guint32 incarnation)
{
    QosBudgetConfig config = hard;

    config.registered = 2;
    qos_budget_free(f->combiner);
    f->combiner = qos_budget_combiner_new(&config, 2 * FLOOR, incarnation, f->now);
}

static void start(Fixture *f)
{
    *f = (Fixture){.root = qos_budget_new(&hard, TRUE, 0),
                   .down = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer)),
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer))};
    start_combiner(f, 1);
    g_assert_cmpuint(qos_budget_join(f->root, COMBINER, 2, 0), ==, 2 * FLOOR);
    g_assert_cmpuint(qos_budget_join(f->root, BESIDE, 1, 0), ==, FLOOR);
    for (guint i = 0; i < MOUNTS; i++)
        qos_budget_mount_init(&f->mounts[i], &hard, 1, FLOOR, 1);
}

static void finish(Fixture *f)
{
    qos_budget_free(f->root);
    qos_budget_free(f->combiner);
    g_array_unref(f->down);
    g_array_unref(f->answers);
}

static void report(Fixture *f, guint number, guint64 demand)
{
    QosBudgetReport report = {0};
    QosBudget *to = number == BESIDE ? f->root : f->combiner;

    qos_budget_join(to, number, 1, f->now);
    qos_budget_mount_report(&f->mounts[number], demand, 0, f->now, &report);
    g_assert_true(qos_budget_report(to, number, &report, f->now));
    qos_budget_report_clear(&report);
}

/* Returns what the combiner says that it holds. */
static guint64 pass_up(Fixture *f)
{
    QosBudgetReport report = {0};

    g_assert_true(qos_budget_pass_up(f->combiner, f->now, &report));
    g_assert_true(qos_budget_report(f->root, COMBINER, &report, f->now));
    const guint64 held = report.held;
    qos_budget_report_clear(&report);
    return held;
}

static void hear(Fixture *f, const QosBudgetAnswer *answer)
{
    g_assert_true(qos_budget_mount_grant(&f->mounts[answer->to], &answer->grant, f->now));
}

/* The combiner's answer comes to it now. */
static void pass_down(Fixture *f, const QosBudgetGrant *grant)
{
    g_assert_true(qos_budget_pass_down(f->combiner, grant, f->now, f->answers));
    for (guint i = 0; i < f->answers->len; i++)
        hear(f, &g_array_index(f->answers, QosBudgetAnswer, i));
    g_array_set_size(f->answers, 0);
}

/* Ends the epoch; returns the combiner's answer, which has not come to it yet. */
static QosBudgetGrant end_epoch(Fixture *f)
{
    QosBudgetGrant combiners = {0};

    f->now += E;
    qos_budget_close(f->root, f->now, f->down);
    for (guint i = 0; i < f->down->len; i++) {
        const QosBudgetAnswer *answer = &g_array_index(f->down, QosBudgetAnswer, i);
        if (answer->to == COMBINER)
            combiners = answer->grant;
        else
            hear(f, answer);
    }
    g_array_set_size(f->down, 0);
    return combiners;
}

/* All that is behind the combiner wants R, and the combiner works. */
static void run_epoch(Fixture *f, gboolean is_beside_too)
{
    report(f, LEFT, R);
    report(f, RIGHT, R);
    if (is_beside_too)
        report(f, BESIDE, R);
    pass_up(f);
    const QosBudgetGrant grant = end_epoch(f);
    pass_down(f, &grant);
}

static double rate(const Fixture *f, guint number)
{
    return (double)qos_budget_mount_rate(&f->mounts[number], f->now) / (double)R;
}

static void assert_rate(const Fixture *f, guint number, double expected)
{
    g_assert_cmpfloat_with_epsilon(rate(f, number), expected, 1e-4);
}

static double in_force(const Fixture *f)
{
    return (double)qos_budget_state(f->root, f->now).in_force / (double)R;
}

/* R less 1 %, and the floors of the one that is nobody's and the one beside. */
#define HALF ((0.99 - 0.05) / 2)

/* What mounts may use that have not reported to the combiner is in what it says that it holds. */
static void test_reserve(void)
{
    Fixture f;
    start(&f);
    report(&f, LEFT, R);
    g_assert_cmpuint(qos_budget_state(f.combiner, 0).reserved, ==, FLOOR);
    g_assert_cmpuint(pass_up(&f), ==, 2 * FLOOR);
    const QosBudgetGrant grant = end_epoch(&f);
    pass_down(&f, &grant);
    assert_rate(&f, LEFT, 0.99 - 0.075);
    assert_rate(&f, RIGHT, 0.025);
    finish(&f);
}

/* Cut off: its mounts are at their floors before their share is lent on. */
static void test_cut(void)
{
    Fixture f;
    start(&f);
    for (guint i = 0; i < 3; i++)
        run_epoch(&f, FALSE);
    assert_rate(&f, LEFT, HALF);
    const QosTime answered = f.now, until = f.mounts[LEFT].until;
    g_assert_cmpint(until, <, answered + LEASE);
    while (f.now + E < answered + LEASE + LEASE / 100) {
        report(&f, BESIDE, R);
        end_epoch(&f);
        assert_rate(&f, BESIDE, 0.025); /* its floor: the 1 % is for those that come back */
        assert_rate(&f, LEFT, f.now < until ? HALF : 0.025);
    }
    assert_rate(&f, LEFT, 0.025);
    report(&f, BESIDE, R);
    end_epoch(&f);
    assert_rate(&f, BESIDE, 0.99 - 0.075);
    /* Back again: what they hold is their floors, and they have their share after two epochs. */
    for (guint i = 0; i < 3; i++)
        run_epoch(&f, TRUE);
    assert_rate(&f, LEFT, (0.99 - 0.025) / 3);
    assert_rate(&f, BESIDE, (0.99 - 0.025) / 3);
    finish(&f);
}

/* Its mounts report by turns, since the way is long: none has all for good. */
static void test_turns(void)
{
    Fixture f;
    start(&f);
    for (guint epoch = 0; epoch < 3; epoch++) {
        report(&f, LEFT, R);
        pass_up(&f);
        const QosBudgetGrant grant = end_epoch(&f);
        pass_down(&f, &grant);
    }
    assert_rate(&f, LEFT, 0.99 - 0.075);
    for (guint epoch = 0; epoch < 12; epoch++) {
        report(&f, epoch % 2 == 0 ? LEFT : RIGHT, R);
        pass_up(&f);
        const QosBudgetGrant grant = end_epoch(&f);
        pass_down(&f, &grant);
        g_assert_cmpfloat(rate(&f, LEFT) + rate(&f, RIGHT) + rate(&f, BESIDE), <=, 1);
    }
    g_assert_cmpfloat(rate(&f, LEFT), >, 0.4);
    g_assert_cmpfloat(rate(&f, RIGHT), >, 0.4);
    finish(&f);
}

/* It stood still between its report and the answer: what it lends ends before its own does. */
static void test_pause(void)
{
    Fixture f;
    start(&f);
    report(&f, LEFT, R);
    report(&f, RIGHT, R);
    pass_up(&f);
    const QosTime sent = f.now, end = sent + LEASE - LEASE / 100;
    QosBudgetGrant grant = end_epoch(&f);
    f.now = sent + LEASE / 2;
    g_assert_true(qos_budget_pass_down(f.combiner, &grant, f.now, f.answers));
    g_assert_cmpuint(f.answers->len, ==, 2);
    const QosTime lent = g_array_index(f.answers, QosBudgetAnswer, 0).grant.lease;
    g_assert_cmpint(lent, ==, end - f.now - (end - f.now) / 100);
    g_array_set_size(f.answers, 0);
    /* For longer than its lease: the answer is taken, and lends nothing. */
    report(&f, LEFT, R);
    pass_up(&f);
    grant = end_epoch(&f);
    f.now += LEASE;
    g_assert_true(qos_budget_pass_down(f.combiner, &grant, f.now, f.answers));
    g_assert_cmpuint(f.answers->len, ==, 0);
    assert_rate(&f, LEFT, 0.025);
    finish(&f);
}

/* It starts again: what its mounts have of its former life is lent to nobody, and counted once. */
static void test_restart(void)
{
    Fixture f;
    start(&f);
    for (guint i = 0; i < 3; i++)
        run_epoch(&f, FALSE);
    const QosTime until = f.now + LEASE + LEASE / 100;
    start_combiner(&f, 2);
    /* One of its mounts reports first: the other's share is in no report. */
    report(&f, LEFT, R);
    g_assert_cmpuint(pass_up(&f), >, (guint64)((HALF + 0.024) * (double)R));
    g_assert_cmpfloat_with_epsilon(in_force(&f), 0.99, 1e-3);
    report(&f, BESIDE, R);
    QosBudgetGrant grant = end_epoch(&f);
    pass_down(&f, &grant);
    g_assert_cmpfloat(rate(&f, BESIDE), <=, 0.036);
    g_assert_cmpfloat(rate(&f, LEFT) + rate(&f, RIGHT) + rate(&f, BESIDE), <=, 1);
    g_assert_cmpfloat(in_force(&f), <=, 1);
    /* Then the other: no more than before. */
    const double before = in_force(&f);
    report(&f, RIGHT, R);
    pass_up(&f);
    g_assert_cmpfloat(in_force(&f), <=, before + 1e-4);
    /* What no mount has claimed by then is free. */
    f.now = until;
    for (guint i = 0; i < 3; i++)
        run_epoch(&f, TRUE);
    assert_rate(&f, BESIDE, (0.99 - 0.025) / 3);
    finish(&f);
}

/* A report of its former life that comes late is not taken, nor an answer to one. */
static void test_former_life(void)
{
    Fixture f;
    QosBudgetReport late = {0};
    start(&f);
    report(&f, LEFT, R);
    g_assert_true(qos_budget_pass_up(f.combiner, f.now, &late));
    g_assert_true(qos_budget_report(f.root, COMBINER, &late, f.now));
    const QosBudgetGrant old = end_epoch(&f);
    start_combiner(&f, 2);
    report(&f, LEFT, R);
    pass_up(&f);
    g_assert_false(qos_budget_report(f.root, COMBINER, &late, f.now));
    g_assert_false(qos_budget_pass_down(f.combiner, &old, f.now, f.answers));
    assert_rate(&f, LEFT, 0.025);
    qos_budget_report_clear(&late);
    finish(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget-tree/reserve", test_reserve);
    g_test_add_func("/budget-tree/cut", test_cut);
    g_test_add_func("/budget-tree/turns", test_turns);
    g_test_add_func("/budget-tree/pause", test_pause);
    g_test_add_func("/budget-tree/restart", test_restart);
    g_test_add_func("/budget-tree/former-life", test_former_life);
    return g_test_run();
}
