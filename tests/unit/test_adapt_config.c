/*
 * What adaptive sharing is given: its settings, what requests cost by them, and the records that
 * were saved.
 */
#include "base/error.h"
#include "sched_fixture.h"

#define PERIOD (100 * QOS_MILLISECOND)

static const QosAdaptConfig fair = {.mode = QOS_ADAPT_FAIR, .period = PERIOD, .capacity = 1000};

/* --- configuration --- */

static void assert_refused(QosAdaptConfig config, const char *words)
{
    g_autoptr(GError) error = NULL;
    g_assert_false(qos_adapt_config_check(&config, &error));
    g_assert_true(error->domain == QOS_ERROR);
    g_assert_nonnull(strstr(error->message, words));
}

static void test_config_check(void)
{
    QosAdaptConfig config = fair;
    g_assert_true(qos_adapt_config_check(&config, NULL));
    config.capacity = 0;
    g_assert_true(qos_adapt_config_check(&config, NULL));

    config = fair;
    config.capacity = -1;
    assert_refused(config, "from 1 to 100000000");
    config.capacity = QOS_ADAPT_CAPACITY_MAX + 1;
    assert_refused(config, "from 1 to 100000000");
    config = fair;
    config.period = 4999 * QOS_MICROSECOND;
    assert_refused(config, "5 ms to 10 s");
    config.period = 10 * QOS_SECOND + 1;
    assert_refused(config, "5 ms to 10 s");
    config = fair;
    config.data_cost = -QOS_COST_UNIT;
    assert_refused(config, "data operations");
    config = fair;
    config.metadata_cost = QOS_COST_UNIT * 1001;
    assert_refused(config, "metadata operations");
    config = fair;
    config.bytes_per_cost = -1;
    assert_refused(config, "at most 1T");
}

static void test_cost(void)
{
    QosAdaptConfig config = fair;
    g_assert_cmpint(qos_adapt_config_cost(&config, QOS_OP_READ, 1 << 20), ==, QOS_COST_UNIT);
    config.bytes_per_cost = 65536;
    g_assert_cmpint(qos_adapt_config_cost(&config, QOS_OP_READ, 1 << 20), ==, 17 * QOS_COST_UNIT);
    config.data_cost = 2 * QOS_COST_UNIT;
    config.metadata_cost = QOS_COST_UNIT / 2;
    g_assert_cmpint(qos_adapt_config_cost(&config, QOS_OP_WRITE, 65536), ==, 3 * QOS_COST_UNIT);
    g_assert_cmpint(qos_adapt_config_cost(&config, QOS_OP_GETATTR, 0), ==, QOS_COST_UNIT / 2);
    g_assert_cmpint(qos_adapt_config_cost(&config, QOS_OP_READ, G_MAXUINT64), >, 0);
    config.mode = QOS_ADAPT_PAPER;
    g_assert_cmpint(qos_adapt_config_cost(&config, QOS_OP_READ, 1 << 20), ==, QOS_COST_UNIT);
}

/* --- records --- */

static gint64 record_of(Fixture *fixture, const QosJob *job)
{
    QosShareState state;
    g_assert_true(qos_adapt_share_state(qos_sched_adapt(fixture->sched), job, &state));
    return state.record;
}

static QosJob *job_new(Fixture *fixture, const char *id)
{
    return qos_jobs_job(qos_sched_jobs(fixture->sched), id, fixture->now);
}

static void restore(Fixture *fixture, QosJob *job, gint64 record, gint64 lent)
{
    QosShareTotals totals = {.lent = lent, .returned = -5};
    qos_sched_restore_share(fixture->sched, job, record, &totals, fixture->now);
}

/* Damaged records lose what does not add up, and what cannot be. */
static void test_restore(void)
{
    Fixture fixture;
    fixture_init(&fixture, &qos_policy_fifo, 4);
    qos_sched_set_adapt(fixture.sched, &fair, fixture.now);
    g_autofree QosJob **jobs = g_new0(QosJob *, 4);
    for (guint i = 0; i < 4; i++) {
        g_autofree char *id = g_strdup_printf("job%u", i);
        jobs[i] = job_new(&fixture, id);
    }
    restore(&fixture, jobs[0], 900, 1000);
    restore(&fixture, jobs[1], -400, 0);
    restore(&fixture, jobs[2], -200, 0);
    restore(&fixture, jobs[3], G_MININT64, 7);
    QosShareState state;
    g_assert_false(qos_adapt_share_state(qos_sched_adapt(fixture.sched), jobs[3], &state));
    g_assert_cmpint(state.totals.lent, ==, 7);

    fixture.now += PERIOD;
    g_assert_null(next(&fixture));
    g_assert_cmpint(record_of(&fixture, jobs[0]) + record_of(&fixture, jobs[1]) +
                        record_of(&fixture, jobs[2]),
                    ==, 0);
    g_assert_cmpint(record_of(&fixture, jobs[0]), >=, 590); /* 600, less what decays */
    g_assert_true(qos_adapt_share_state(qos_sched_adapt(fixture.sched), jobs[0], &state));
    g_assert_cmpint(state.totals.lent, ==, 1000);
    g_assert_cmpint(state.totals.returned, ==, 0);

    /* idle for long: the record is written off, the totals stay */
    fixture.now += 11 * QOS_SECOND;
    g_assert_null(next(&fixture));
    g_assert_false(qos_adapt_share_state(qos_sched_adapt(fixture.sched), jobs[0], &state));
    g_assert_cmpint(state.totals.lent, ==, 1000);
    for (guint i = 0; i < 4; i++)
        qos_job_unref(jobs[i]);
    fixture_clear(&fixture);
}

/* As published, records are of whole tokens; what was lent before is part of the totals. What does
 * not add up is lost. */
static void test_restore_paper(void)
{
    QosAdaptConfig config = {.mode = QOS_ADAPT_PAPER, .period = PERIOD, .capacity = 1000};
    QosShareState state;
    Fixture fixture;
    fixture_init(&fixture, &qos_policy_fifo, 4);
    qos_sched_set_adapt(fixture.sched, &config, fixture.now);
    QosJob *lender = job_new(&fixture, "lender");
    QosJob *borrower = job_new(&fixture, "borrower");
    restore(&fixture, lender, 30 * QOS_COST_UNIT, 50 * QOS_COST_UNIT);
    restore(&fixture, borrower, -40 * QOS_COST_UNIT, 0);
    g_assert_cmpint(record_of(&fixture, lender), ==, 30 * QOS_COST_UNIT);
    g_assert_cmpint(record_of(&fixture, borrower), ==, -40 * QOS_COST_UNIT);
    g_assert_true(qos_adapt_share_state(qos_sched_adapt(fixture.sched), lender, &state));
    g_assert_cmpint(state.totals.lent, ==, 50 * QOS_COST_UNIT);
    fixture.now += PERIOD;
    g_assert_null(next(&fixture));
    g_assert_cmpint(record_of(&fixture, lender), ==, 30 * QOS_COST_UNIT);
    g_assert_cmpint(record_of(&fixture, borrower), ==, -30 * QOS_COST_UNIT);

    /* idle for long: the totals stay */
    fixture.now += 11 * QOS_SECOND;
    g_assert_null(next(&fixture));
    g_assert_false(qos_adapt_share_state(qos_sched_adapt(fixture.sched), lender, &state));
    g_assert_cmpint(state.totals.lent, ==, 50 * QOS_COST_UNIT);
    qos_job_unref(lender);
    qos_job_unref(borrower);
    fixture_clear(&fixture);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/adapt-config/config-check", test_config_check);
    g_test_add_func("/adapt-config/cost", test_cost);
    g_test_add_func("/adapt-config/restore", test_restore);
    g_test_add_func("/adapt-config/restore-paper", test_restore_paper);
    return g_test_run();
}
