/*
 * The law of a budget, with exact values and time stepped by hand: levels, raises, leases, floors,
 * debt. That it holds whatever comes is test_budget_random.c's and the trial `budget`'s.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "core/budget.h"

#define R     (G_GUINT64_CONSTANT(1000) * QOS_BUDGET_UNIT)
#define E     QOS_BUDGET_EPOCH
#define LEASE QOS_SECOND

typedef struct {
    QosBudget *budget;
    QosBudgetMount mounts[8];
    guint count;
    GArray *answers;
    QosTime now;
} Fixture;

static const QosBudgetConfig usual = {
    .limit = R, .floor = 10, .epoch = E, .lease = LEASE, .registered = 4};

static void start(Fixture *f, const QosBudgetConfig *config, guint count)
{
    g_assert_true(qos_budget_config_check(config, NULL));
    *f = (Fixture){.budget = qos_budget_new(config, TRUE, 0),
                   .count = count,
                   .answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer))};
    for (guint i = 0; i < count; i++)
        qos_budget_mount_init(&f->mounts[i], config, 1, qos_budget_join(f->budget, i, 1, 0), 1);
}

static void finish(Fixture *f)
{
    qos_budget_free(f->budget);
    g_array_unref(f->answers);
}

/* FALSE: it was not taken. */
static gboolean report(Fixture *f, guint number, guint64 demand, guint64 served)
{
    QosBudgetReport bytes = {0};

    qos_budget_mount_report(&f->mounts[number], demand, served, f->now, &bytes);
    const gboolean is_taken = qos_budget_report(f->budget, number, &bytes, f->now);
    qos_budget_report_clear(&bytes);
    return is_taken;
}

/* Ends the epoch; all answers but those to `lost` arrive. */
static void end_epoch(Fixture *f, guint lost)
{
    f->now += E;
    qos_budget_close(f->budget, f->now, f->answers);
    for (guint i = 0; i < f->answers->len; i++) {
        const QosBudgetAnswer *answer = &g_array_index(f->answers, QosBudgetAnswer, i);
        if (answer->to != lost)
            g_assert_true(qos_budget_mount_grant(&f->mounts[answer->to], &answer->grant, f->now));
    }
    g_array_set_size(f->answers, 0);
}

#define NOBODY G_MAXUINT

static double rate(const Fixture *f, guint number)
{
    return (double)qos_budget_mount_rate(&f->mounts[number], f->now) / (double)R;
}

static void assert_rate(const Fixture *f, guint number, double expected)
{
    g_assert_cmpfloat_with_epsilon(rate(f, number), expected, 1e-4);
}

/* --- configuration --- */

static void test_configuration(void)
{
    static const struct {
        QosBudgetConfig config;
        int code;
        const char *reason;
    } bad[] = {
        {{.limit = 0, .epoch = E, .lease = LEASE, .registered = 1}, ERANGE, "limit"},
        {{.limit = QOS_BUDGET_RATE_MAX + 1, .epoch = E, .lease = LEASE, .registered = 1},
         ERANGE,
         "limit"},
        {{.limit = R, .floor = 51, .epoch = E, .lease = LEASE, .registered = 1}, ERANGE, "floor"},
        {{.limit = R, .epoch = 1, .lease = LEASE, .registered = 1}, ERANGE, "epoch"},
        {{.limit = R, .epoch = E, .lease = LEASE - 1, .registered = 1}, ERANGE, "lease"},
        {{.limit = R, .epoch = 5 * E, .lease = 2 * LEASE, .registered = 1}, ERANGE, "lease"},
        {{.limit = R, .epoch = E, .lease = LEASE}, ERANGE, "weight"},
        {{.limit = R,
          .epoch = E,
          .lease = LEASE,
          .registered = 1,
          .share = QOS_BUDGET_HARD,
          .away = QOS_BUDGET_AWAY_OPEN},
         EINVAL,
         "share=hard cannot be kept with away=open"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(qos_budget_config_check(&bad[i].config, &error));
        g_assert_error(error, QOS_ERROR, bad[i].code);
        g_assert_nonnull(strstr(error->message, bad[i].reason));
    }
    g_assert_true(qos_budget_config_check(&usual, NULL));
    g_assert_cmpint(qos_budget_epoch_for(2000), ==, E);
    g_assert_cmpint(qos_budget_epoch_for(2001), ==, 5 * E);
    g_assert_cmpint(qos_budget_lease_for(E), ==, QOS_SECOND);
    g_assert_cmpint(qos_budget_lease_for(5 * E), ==, 25 * E);
}

/* --- levels --- */

static void test_level(void)
{
    static const struct {
        guint64 demands[3];
        double budget, level;
    } cases[] = {
        {{100, 1000, 10000}, 2100, 1000}, /* 100 + 1000 + 1000 */
        {{100, 1000, 10000}, 300, 100},    {{100, 1000, 10000}, 30, 10},
        {{100, 1000, 10000}, 11099, 9999}, {{100, 1000, 10000}, 11100, G_MAXDOUBLE},
        {{100, 1000, 10000}, 0, 0},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        QosBudgetReport sum = {0}, one = {0};
        for (guint j = 0; j < 3; j++) {
            qos_budget_report_set(&one, cases[i].demands[j], 0, 1);
            qos_budget_report_add(&sum, &one);
        }
        const double level = qos_budget_level(&sum, cases[i].budget);
        g_assert_cmpfloat_with_epsilon(level / MAX(cases[i].level, 1),
                                       cases[i].level / MAX(cases[i].level, 1), 1e-9);
        qos_budget_report_clear(&sum);
        qos_budget_report_clear(&one);
    }
}

/* A leaf's allotment is what lies between what it holds and min(d, raise w). */
static void test_allotment(void)
{
    QosBudgetReport one = {0};

    qos_budget_report_set(&one, 900, 300, 2);
    g_assert_cmpuint(qos_budget_allotment(&one, 100, 0), ==, 0);
    g_assert_cmpuint(qos_budget_allotment(&one, 200, 0), ==, 99); /* 100, less the guard */
    g_assert_cmpuint(qos_budget_allotment(&one, 1e6, 0), ==, 599);
    g_assert_cmpuint(qos_budget_allotment(&one, G_MAXDOUBLE, 50), ==, 699);
    qos_budget_report_set(&one, 300, 900, 2);
    g_assert_cmpuint(qos_budget_allotment(&one, 1e6, 0), ==, 0);
    qos_budget_report_clear(&one);
}

static void test_steps(void)
{
    g_assert_cmpuint(qos_budget_step(0, 1), ==, 0);
    g_assert_cmpuint(qos_budget_step(1, 5), ==, 0);
    g_assert_cmpuint(qos_budget_step(1024, 1), ==, 80);
    g_assert_cmpuint(qos_budget_step(1024, 1024), ==, 0);
    g_assert_cmpuint(qos_budget_step(G_MAXUINT64, 1), ==, QOS_BUDGET_STEPS_MAX - 1);
}

/* --- fair --- */

static void test_fair(void)
{
    Fixture f;
    start(&f, &usual, 4);
    assert_rate(&f, 0, 0.025); /* the floor at once */
    report(&f, 0, R / 10, 0);
    report(&f, 1, R, 0);
    report(&f, 2, R, 0);
    end_epoch(&f, NOBODY);
    /* Nothing was served in the first epoch: a and the credit hand out more. */
    const double each = rate(&f, 1);
    assert_rate(&f, 0, 0.1);
    g_assert_cmpfloat(each, >, 0.45);
    assert_rate(&f, 2, each);
    assert_rate(&f, 3, 0.025);
    finish(&f);
}

static void test_rest_goes_by_weight(void)
{
    Fixture f;
    QosBudgetConfig config = usual;
    config.share = QOS_BUDGET_HARD;
    start(&f, &config, 4);
    report(&f, 0, R / 10, 0);
    report(&f, 1, R / 5, 0);
    end_epoch(&f, NOBODY);
    /* R less 1 %, two floors of mounts that are idle and the demand, by halves. */
    const double rest = (0.99 - 0.05 - 0.3) / 2;
    assert_rate(&f, 0, 0.1 + rest);
    assert_rate(&f, 1, 0.2 + rest);
    finish(&f);
}

/* An overshoot of a tenth of a second of R costs a fifth of B. */
static void test_debt(void)
{
    Fixture f;
    guint64 served[4] = {0};
    start(&f, &usual, 4);
    for (guint epoch = 0; epoch < 100; epoch++) {
        for (guint i = 0; i < 2; i++)
            report(&f, i, R, served[i] += R / 20); /* half of R E each */
        end_epoch(&f, NOBODY);
    }
    const QosBudgetState steady = qos_budget_state(f.budget, f.now);
    g_assert_cmpfloat_with_epsilon(rate(&f, 0) + rate(&f, 1), steady.factor - 2 * steady.debt / R,
                                   1e-5);
    report(&f, 0, R, served[0] += R / 20 + R / 10);
    report(&f, 1, R, served[1] += R / 20);
    end_epoch(&f, NOBODY);
    const QosBudgetState after = qos_budget_state(f.budget, f.now);
    g_assert_cmpfloat_with_epsilon(after.debt - steady.debt, R / 10.0, 1);
    g_assert_cmpfloat_with_epsilon(rate(&f, 0) + rate(&f, 1), after.factor - 2 * after.debt / R,
                                   1e-5);
    finish(&f);
}

/* a is moved while all report, and stands still while one that matters is silent. */
static void test_factor(void)
{
    Fixture f;
    guint64 served[2] = {0};
    start(&f, &usual, 4);
    for (guint epoch = 0; epoch < 20; epoch++) {
        for (guint i = 0; i < 2; i++)
            report(&f, i, R, served[i] += R / 25); /* four fifths of what there is */
        end_epoch(&f, NOBODY);
    }
    const double before = qos_budget_state(f.budget, f.now).factor;
    g_assert_cmpfloat(before, >, 1.5);
    report(&f, 0, R, served[0] += R / 25);
    end_epoch(&f, NOBODY);
    g_assert_cmpfloat(qos_budget_state(f.budget, f.now).factor, ==, before);
    finish(&f);
}

/* --- hard --- */

static void start_hard(Fixture *f, guint count)
{
    QosBudgetConfig config = usual;

    config.share = QOS_BUDGET_HARD;
    start(f, &config, count);
}

/* A newcomer has its floor, then what is free; the others come down, and then it goes up. */
static void test_raise_after_acknowledgement(void)
{
    Fixture f;
    start_hard(&f, 2);
    report(&f, 0, R, 0);
    end_epoch(&f, NOBODY);
    report(&f, 0, R, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 0, 0.99 - 0.075); /* but the floors of three others */
    report(&f, 0, R, 0);
    report(&f, 1, R, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 0, 0.495 - 0.025);
    assert_rate(&f, 1,
                0.035); /* its floor and the pool: the other has not said that it came down */
    g_assert_cmpuint(qos_budget_state(f.budget, f.now).in_force, <=, R);
    report(&f, 0, R, 0);
    report(&f, 1, R, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 1, 0.495 - 0.025);
    finish(&f);
}

/* What an answer that was lost has allotted counts until the next report. */
static void test_lost_answer(void)
{
    Fixture f;
    start_hard(&f, 2);
    report(&f, 0, R, 0);
    end_epoch(&f, 0);
    assert_rate(&f, 0, 0.025);
    report(&f, 1, R, 0);
    end_epoch(&f, NOBODY);
    g_assert_cmpfloat(rate(&f, 1), <=, 0.036); /* floor and pool */
    g_assert_true(report(&f, 0, R / 10, 0));
    report(&f, 1, R, 0);
    end_epoch(&f, NOBODY);
    g_assert_cmpfloat(rate(&f, 1), >, 0.8);
    finish(&f);
}

/* A report is answered when the lease of what it held has ended, and the coordinator has lent that
 * on: what the mount held then is no ground to stand on. */
static void test_answer_after_the_lease(void)
{
    const QosBudgetConfig config = {.limit = R,
                                    .share = QOS_BUDGET_HARD,
                                    .floor = 10,
                                    .epoch = E,
                                    .lease = LEASE,
                                    .registered = 4};
    QosBudgetGrant answer = {.level = R, .raise = R / 2, .lease = LEASE};
    QosBudgetReport made = {0};
    QosBudgetMount mount;

    qos_budget_mount_init(&mount, &config, 1, R / 40, 1);
    qos_budget_mount_report(&mount, R, 0, 0, &made);
    answer.ticket = mount.ticket;
    g_assert_true(qos_budget_mount_grant(&mount, &answer, 1));
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 1), >=, R / 2 - 1);
    qos_budget_mount_report(&mount, R, 0, mount.until - 1, &made);
    g_assert_cmpuint(made.held, >=, R / 2 - 1);
    answer.ticket = mount.ticket;
    g_assert_true(qos_budget_mount_grant(&mount, &answer, mount.until + 1));
    g_assert_cmpuint(qos_budget_mount_rate(&mount, mount.sent + 2), <=, R / 40 + 1);
    qos_budget_report_clear(&made);
}

static void test_lease(void)
{
    Fixture f;
    start_hard(&f, 2);
    for (guint i = 0; i < 2; i++) {
        report(&f, 0, R, 0);
        end_epoch(&f, NOBODY);
    }
    const QosTime sent = f.now - E;
    const QosTime until = f.mounts[0].until;
    g_assert_cmpint(until, ==, sent + LEASE - LEASE / 100);
    g_assert_cmpfloat((double)qos_budget_mount_rate(&f.mounts[0], until - 1) / R, >, 0.9);
    g_assert_cmpuint(qos_budget_mount_rate(&f.mounts[0], until), ==, R / 40);
    /* Its lender counts from its answer, and longer. */
    const QosTime answered = f.now;
    g_assert_cmpuint(qos_budget_state(f.budget, answered + LEASE + LEASE / 100 - 1).in_force, >,
                     R / 10 * 9);
    g_assert_cmpuint(qos_budget_state(f.budget, answered + LEASE + LEASE / 100).in_force, ==,
                     R / 10);
    finish(&f);
}

static void test_late_and_repeated(void)
{
    Fixture f;
    QosBudgetReport first = {0};
    start_hard(&f, 2);
    qos_budget_mount_report(&f.mounts[0], R, 0, f.now, &first);
    g_assert_true(qos_budget_report(f.budget, 0, &first, f.now));
    g_assert_false(qos_budget_report(f.budget, 0, &first, f.now)); /* once more */
    g_assert_true(report(&f, 0, R, 0));
    g_assert_false(qos_budget_report(f.budget, 0, &first, f.now)); /* late */
    g_assert_false(qos_budget_report(f.budget, 7, &first, f.now)); /* of a stranger */
    first.ticket += 100;
    first.steps[0].held_weight = 2;
    g_assert_false(qos_budget_report(f.budget, 0, &first, f.now)); /* more than its weight */
    qos_budget_report_set(&first, R, R, 1);
    g_assert_false(qos_budget_report(f.budget, 0, &first, f.now)); /* more than it was given */
    qos_budget_report_clear(&first);
    /* An answer to none but the latest report counts, and once. */
    const QosBudgetGrant grant = {
        .ticket = f.mounts[0].ticket - 1, .level = R, .raise = R, .lease = LEASE};
    g_assert_false(qos_budget_mount_grant(&f.mounts[0], &grant, f.now));
    end_epoch(&f, NOBODY);
    g_assert_false(qos_budget_mount_grant(&f.mounts[0], &grant, f.now));
    finish(&f);
}

/* A coordinator that was there before raises nothing until its former leases have ended. */
static void test_grace(void)
{
    Fixture f;
    start_hard(&f, 2);
    for (guint i = 0; i < 2; i++) {
        report(&f, 0, R, 0);
        end_epoch(&f, NOBODY);
    }
    qos_budget_free(f.budget);
    QosBudgetConfig config = usual;
    config.share = QOS_BUDGET_HARD;
    f.budget = qos_budget_new(&config, FALSE, f.now);
    for (guint i = 0; i < 2; i++)
        g_assert_cmpuint(qos_budget_join(f.budget, i, 1, f.now), ==, R / 40);
    const QosTime grace = f.now + LEASE + LEASE / 100;
    while (f.now + E < grace) {
        report(&f, 1, R, 0); /* the first is silent, and has its share */
        end_epoch(&f, NOBODY);
        assert_rate(&f, 1, 0.025);
    }
    report(&f, 1, R, 0);
    end_epoch(&f, NOBODY);
    g_assert_cmpfloat(rate(&f, 1), >, 0.9);
    g_assert_cmpuint(qos_budget_mount_rate(&f.mounts[0], f.now), ==, R / 40);
    finish(&f);
}

static void test_floors(void)
{
    QosBudgetConfig config = usual;
    config.share = QOS_BUDGET_HARD;
    config.registered = 10;
    QosBudget *budget = qos_budget_new(&config, TRUE, 0);

    g_assert_cmpuint(qos_budget_join(budget, 1, 1, 0), ==, R / 100);
    g_assert_cmpuint(qos_budget_join(budget, 2, 8, 0), ==, R / 100 * 8);
    g_assert_cmpuint(qos_budget_join(budget, 3, 5, 0), ==, R / 100); /* what is left */
    g_assert_cmpuint(qos_budget_join(budget, 1, 1, 0), ==, R / 100); /* as before */
    qos_budget_leave(budget, 2, 0);
    g_assert_cmpuint(qos_budget_join(budget, 4, 2, 0), ==, R / 100 * 2);
    qos_budget_leave(budget, 9, 0);
    qos_budget_free(budget);
}

/* The floors of mounts that never reported are lent to nobody, and theirs when they come. */
static void test_reserve(void)
{
    Fixture f;
    start_hard(&f, 1);
    g_assert_cmpuint(qos_budget_state(f.budget, 0).reserved, ==, R / 40 * 3);
    g_assert_cmpuint(qos_budget_state(f.budget, 0).in_force, ==, R / 10);
    for (guint i = 0; i < 3; i++) {
        report(&f, 0, R, 0);
        end_epoch(&f, NOBODY);
        assert_rate(&f, 0, 0.99 - 0.075);
    }
    /* Its first report says that it holds its floor. */
    const guint64 before = qos_budget_state(f.budget, f.now).in_force;
    g_assert_cmpuint(qos_budget_join(f.budget, 1, 1, f.now), ==, R / 40);
    g_assert_cmpuint(qos_budget_state(f.budget, f.now).in_force, ==, before);
    g_assert_cmpuint(qos_budget_state(f.budget, f.now).reserved, ==, R / 40 * 2);
    qos_budget_mount_init(&f.mounts[1], &usual, 1, R / 40, 1);
    f.mounts[1].share = QOS_BUDGET_HARD;
    g_assert_true(report(&f, 1, R, 0));
    report(&f, 0, R, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 1, 0.035);
    /* One that has left leaves its floor to be reserved. */
    qos_budget_leave(f.budget, 1, f.now);
    g_assert_cmpuint(qos_budget_state(f.budget, f.now).reserved, ==, R / 40 * 3);
    finish(&f);
}

/* FAIR reserves nothing. */
static void test_no_reserve(void)
{
    Fixture f;
    start(&f, &usual, 1);
    g_assert_cmpuint(qos_budget_state(f.budget, 0).reserved, ==, 0);
    g_assert_cmpuint(qos_budget_state(f.budget, 0).in_force, ==, 0);
    finish(&f);
}

/* Floors become half: what a mount gives up is free when it has said so, and no sooner. */
static void test_parts(void)
{
    Fixture f;
    QosBudgetConfig config = usual;
    config.share = QOS_BUDGET_HARD;
    start(&f, &config, 2);
    for (guint epoch = 0; epoch < 3; epoch++) {
        for (guint i = 0; i < 2; i++)
            report(&f, i, R, 0);
        end_epoch(&f, NOBODY);
        assert_rate(&f, 0, 0.47);
    }
    config.registered = 8;
    qos_budget_configure(f.budget, &config);
    QosBudgetState state = qos_budget_state(f.budget, f.now);
    g_assert_cmpuint(state.reserved, ==, R / 80 * 6);
    g_assert_cmpfloat_with_epsilon((double)state.in_force / R, 0.94 + 0.075, 1e-4);
    report(&f, 0, R, 0);
    for (guint i = 0; i < 2; i++)
        qos_budget_mount_configure(&f.mounts[i], &config, R / 80);
    assert_rate(&f, 0, 0.47 - 0.0125); /* of its rate it gives up what its floor has lost */
    f.now += E;
    qos_budget_close(f.budget, f.now, f.answers);
    const QosBudgetAnswer *answer = &g_array_index(f.answers, QosBudgetAnswer, 0);
    g_assert_false(qos_budget_mount_grant(&f.mounts[0], &answer->grant, f.now));
    g_array_set_size(f.answers, 0);
    for (guint i = 0; i < 2; i++)
        g_assert_true(report(&f, i, R, 0));
    end_epoch(&f, NOBODY);
    state = qos_budget_state(f.budget, f.now);
    g_assert_cmpuint(state.in_force, <=, R);
    assert_rate(&f, 0, (0.99 - 0.075) / 2);
    /* And twice as large again. */
    config.registered = 4;
    qos_budget_configure(f.budget, &config);
    g_assert_cmpuint(qos_budget_state(f.budget, f.now).reserved, ==, R / 20);
    g_assert_cmpuint(qos_budget_join(f.budget, 0, 1, f.now), ==, R / 40);
    finish(&f);
}

/* A member's floor grows as far as the others leave it anything. */
static void test_floor_of_member(void)
{
    QosBudgetConfig config = usual;
    config.share = QOS_BUDGET_HARD;
    QosBudget *budget = qos_budget_new(&config, TRUE, 0);

    g_assert_cmpuint(qos_budget_join(budget, 1, 1, 0), ==, R / 40);
    g_assert_cmpuint(qos_budget_join(budget, 2, 3, 0), ==, R / 40 * 3);
    g_assert_cmpuint(qos_budget_join(budget, 1, 2, 0), ==, R / 40); /* nothing is left */
    g_assert_cmpuint(qos_budget_join(budget, 2, 2, 0), ==, R / 20);
    g_assert_cmpuint(qos_budget_join(budget, 1, 2, 0), ==, R / 20);
    /* One that joins with the floor of fewer parts: out of what is reserved. */
    config.registered = 16;
    qos_budget_configure(budget, &config);
    g_assert_cmpuint(qos_budget_state(budget, 0).reserved, ==, R / 10 - R / 10 / 16 * 4);
    g_assert_cmpuint(qos_budget_join(budget, 3, 1, 0), ==, R / 160);
    QosBudgetReport report = {0};
    qos_budget_report_set(&report, R, R / 40, 1);
    report.ticket = 1;
    g_assert_true(qos_budget_report(budget, 3, &report, 0));
    qos_budget_report_set(&report, R, R / 10, 1); /* all floors are more than is left */
    report.ticket = 2;
    g_assert_false(qos_budget_report(budget, 3, &report, 0));
    qos_budget_report_clear(&report);
    qos_budget_free(budget);
}

/* Two that report by turns, since the way is long: the one that has all gives up half. */
static void test_turns(void)
{
    for (guint share = QOS_BUDGET_FAIR; share <= QOS_BUDGET_HARD; share++) {
        Fixture f;
        QosBudgetConfig config = usual;
        guint64 served[2] = {0};
        config.share = share;
        config.registered = 2;
        start(&f, &config, 2);
        for (guint epoch = 0; epoch < 3; epoch++) {
            report(&f, 0, R, served[0] += R / 10);
            end_epoch(&f, NOBODY);
        }
        g_assert_cmpfloat(rate(&f, 0), >, 0.9);
        for (guint epoch = 0; epoch < 60; epoch++) {
            const guint number = epoch % 2;
            served[number] +=
                qos_budget_mount_rate(&f.mounts[number], f.now) / 10 * 2; /* of two epochs */
            report(&f, number, R, served[number]);
            end_epoch(&f, NOBODY);
        }
        g_assert_cmpfloat(rate(&f, 0), >, 0.4);
        g_assert_cmpfloat(rate(&f, 1), >, 0.4);
        if (share == QOS_BUDGET_HARD)
            g_assert_cmpfloat(rate(&f, 0) + rate(&f, 1), <=, 1);
        finish(&f);
    }
}

/* What is left where those of this epoch have enough is not taken from them, but kept for others.
 */
static void test_turns_with_enough(void)
{
    Fixture f;
    QosBudgetConfig config = usual;
    config.share = QOS_BUDGET_HARD;
    config.registered = 2;
    start(&f, &config, 2);
    report(&f, 0, R / 10 * 3, 0);
    end_epoch(&f, NOBODY);
    report(&f, 1, R / 10 * 9, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 1, 0.05); /* the other has all that is left */
    report(&f, 0, R / 10 * 3, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 0, 0.3);
    report(&f, 1, R / 10 * 9, 0);
    end_epoch(&f, NOBODY);
    report(&f, 0, R / 10 * 3, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 0, 0.3);
    report(&f, 1, R / 10 * 9, 0);
    end_epoch(&f, NOBODY);
    assert_rate(&f, 1, 0.69);
    finish(&f);
}

/* --- a rule that changes, at the mount --- */

static void test_mount_configure(void)
{
    QosBudgetMount mount;
    QosBudgetConfig config = usual;
    QosBudgetReport report = {0};
    QosBudgetGrant grant = {.level = R / 2.0, .raise = R / 2.0, .lease = LEASE};

    qos_budget_mount_init(&mount, &config, 1, R / 40, 1);
    qos_budget_mount_report(&mount, R, 0, 0, &report);
    config.away = QOS_BUDGET_AWAY_STOP;
    config.lease = 2 * LEASE;
    qos_budget_mount_configure(&mount, &config, R / 80);
    grant.ticket = report.ticket;
    g_assert_true(qos_budget_mount_grant(&mount, &grant, 0)); /* FAIR: floors are no matter */
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 0), ==, R / 2);
    qos_budget_mount_configure(&mount, &config, R / 160);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 0), ==, R / 2);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, LEASE), ==, R / 160);
    config.limit = R / 4; /* the new limit at once */
    qos_budget_mount_configure(&mount, &config, R / 160);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 0), ==, R / 4);
    qos_budget_mount_report(&mount, R, 0, 0, &report);
    g_assert_false(qos_budget_mount_is_away(&mount, 2 * LEASE - 1)); /* the new lease */
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 2 * LEASE), ==, 0);
    /* HARD: an answer that was given before is void. A floor that grows takes nothing away. */
    config.share = QOS_BUDGET_HARD;
    qos_budget_mount_configure(&mount, &config, R / 160);
    grant.ticket = report.ticket;
    g_assert_false(qos_budget_mount_grant(&mount, &grant, 0));
    qos_budget_mount_configure(&mount, &config, R / 2);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 0), ==, R / 2);
    qos_budget_mount_configure(&mount, &config, 0);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 0), ==, 0);
    qos_budget_report_clear(&report);
}

/* FAIR becomes HARD: what its answers allowed is not known. So nothing is raised for a lease. */
static void test_becomes_hard(void)
{
    Fixture f;
    QosBudgetConfig config = usual;
    start(&f, &config, 3);
    report(&f, 0, R, 0);
    end_epoch(&f, NOBODY);
    g_assert_cmpfloat(rate(&f, 0), >, 0.9); /* and is silent from now on */
    config.share = QOS_BUDGET_HARD;
    qos_budget_configure(f.budget, &config);
    for (guint i = 0; i < 3; i++)
        qos_budget_mount_configure(&f.mounts[i], &config, R / 40);
    for (guint epoch = 0; epoch < 10; epoch++) {
        g_assert_true(report(&f, 1, R, 0));
        end_epoch(&f, NOBODY);
        assert_rate(&f, 1, 0.025);
    }
    for (guint epoch = 0; epoch < 3; epoch++) {
        report(&f, 1, R, 0);
        end_epoch(&f, NOBODY);
    }
    assert_rate(&f, 0, 0.025);
    assert_rate(&f, 1, 0.99 - 0.075);
    /* Back again: what was served meanwhile is no debt. */
    config.share = QOS_BUDGET_FAIR;
    qos_budget_configure(f.budget, &config);
    end_epoch(&f, NOBODY);
    g_assert_cmpfloat(qos_budget_state(f.budget, f.now).debt, <=, 0);
    finish(&f);
}

/* --- away --- */

static void test_away(void)
{
    static const struct {
        QosBudgetAway away;
        guint64 rate;
    } cases[] = {{QOS_BUDGET_AWAY_FLOOR, R / 40},
                 {QOS_BUDGET_AWAY_OPEN, QOS_BUDGET_NO_BOUND},
                 {QOS_BUDGET_AWAY_STOP, 0}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Fixture f;
        QosBudgetConfig config = usual;
        config.away = cases[i].away;
        start(&f, &config, 1);
        report(&f, 0, R, 0);
        f.now += LEASE - 1;
        g_assert_false(qos_budget_mount_is_away(&f.mounts[0], f.now));
        g_assert_cmpuint(qos_budget_mount_rate(&f.mounts[0], f.now), ==, R / 40);
        report(&f, 0, R, 0); /* asking again does not begin anew */
        f.now += 1;
        g_assert_true(qos_budget_mount_is_away(&f.mounts[0], f.now));
        g_assert_cmpuint(qos_budget_mount_rate(&f.mounts[0], f.now), ==, cases[i].rate);
        end_epoch(&f, NOBODY);
        g_assert_false(qos_budget_mount_is_away(&f.mounts[0], f.now));
        report(&f, 0, 0, 0); /* idle: it asks for nothing */
        f.now += 10 * LEASE;
        g_assert_cmpuint(qos_budget_mount_rate(&f.mounts[0], f.now), ==, R / 40);
        finish(&f);
    }
}

/* Without a way to the server nothing is reported, and the mount asks in vain all the same. */
static void test_asks_without_reports(void)
{
    QosBudgetConfig config = usual;
    QosBudgetMount mount;

    config.away = QOS_BUDGET_AWAY_STOP;
    qos_budget_mount_init(&mount, &config, 1, R / 40, 1);
    qos_budget_mount_ask(&mount, 5);
    qos_budget_mount_ask(&mount, 7); /* since 5 */
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5 + LEASE - 1), ==, R / 40);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5 + LEASE), ==, 0);
    qos_budget_mount_ask(&mount, QOS_NEVER);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5 + LEASE), ==, R / 40);
}

/* Other terms: what is leased stays up to the limit, and a mount at its floor has the new one. */
static void test_other_terms(void)
{
    QosBudgetConfig config = usual;
    QosBudgetMount mount;

    qos_budget_mount_init(&mount, &config, 1, R / 40, 1);
    mount.until = 10;
    qos_budget_mount_configure(&mount, &config, R / 80);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5), ==, R / 40); /* leased */
    qos_budget_mount_configure(&mount, &config, R / 20);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5), ==, R / 20);
    mount.rate = R / 2;
    qos_budget_mount_configure(&mount, &config, R / 40);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5), ==, R / 2);
    config.limit = R / 4;
    qos_budget_mount_configure(&mount, &config, R / 160);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 5), ==, R / 4);
    g_assert_cmpuint(qos_budget_mount_rate(&mount, 10), ==, R / 160);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/budget/configuration", test_configuration);
    g_test_add_func("/budget/steps", test_steps);
    g_test_add_func("/budget/level", test_level);
    g_test_add_func("/budget/allotment", test_allotment);
    g_test_add_func("/budget/fair", test_fair);
    g_test_add_func("/budget/rest-goes-by-weight", test_rest_goes_by_weight);
    g_test_add_func("/budget/debt", test_debt);
    g_test_add_func("/budget/factor", test_factor);
    g_test_add_func("/budget/raise-after-acknowledgement", test_raise_after_acknowledgement);
    g_test_add_func("/budget/lost-answer", test_lost_answer);
    g_test_add_func("/budget/answer-after-the-lease", test_answer_after_the_lease);
    g_test_add_func("/budget/lease", test_lease);
    g_test_add_func("/budget/late-and-repeated", test_late_and_repeated);
    g_test_add_func("/budget/grace", test_grace);
    g_test_add_func("/budget/floors", test_floors);
    g_test_add_func("/budget/reserve", test_reserve);
    g_test_add_func("/budget/no-reserve", test_no_reserve);
    g_test_add_func("/budget/parts", test_parts);
    g_test_add_func("/budget/floor-of-member", test_floor_of_member);
    g_test_add_func("/budget/mount-configure", test_mount_configure);
    g_test_add_func("/budget/becomes-hard", test_becomes_hard);
    g_test_add_func("/budget/turns", test_turns);
    g_test_add_func("/budget/turns-with-enough", test_turns_with_enough);
    g_test_add_func("/budget/away", test_away);
    g_test_add_func("/budget/asks-without-reports", test_asks_without_reports);
    g_test_add_func("/budget/other-terms", test_other_terms);
    return g_test_run();
}
