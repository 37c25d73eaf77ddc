/*
 * One budget over 10 to 10,000 mounts reaches its goals in virtual time (docs/design/budget.md);
 * what is lost or silent costs use, and never takes HARD above R.
 */
#include "sim/budget_goals.h"

/* A sanitizer makes each run ten times as long: the build says so by few seeds. */
static gboolean is_slow(void)
{
    const char *seeds = g_getenv("QOSFS_SEEDS");

    return seeds != NULL && g_ascii_strtoull(seeds, NULL, 10) < 1000;
}

static void test_goals(void)
{
    guint count;
    const QosBudgetGoal *goals = qos_budget_goals(&count);

    for (guint i = 0; i < count * 4; i++) {
        const QosBudgetGoal *goal = &goals[i / 4];
        if (is_slow() && goal->mounts > 1000)
            continue;
        const QosBudgetShare share = i / 2 % 2;
        const QosTime latency = i % 2 > 0 ? 5 * QOS_MILLISECOND : 200 * QOS_MICROSECOND;
        const QosBudgetResult result = qos_budget_goal_run(goal, share, latency);
        g_test_message("%u mounts, %s, %g ms: used %.4f, over %.4f, all %.4f, newcomer %g s, lost "
                       "share back %g s, %.2f messages",
                       goal->mounts, share == QOS_BUDGET_HARD ? "hard" : "fair",
                       (double)latency / 1e6, result.figures.used, result.figures.over_p99,
                       result.figures.minute, (double)result.newcomer / 1e9,
                       (double)result.lost / 1e9, result.figures.messages);
        g_assert_cmpstr(result.missed, ==, NULL);
    }
}

static const QosBudgetWorldConfig rough = {.mounts = 1000,
                                           .epoch = 200 * QOS_MILLISECOND,
                                           .latency = 200 * QOS_MICROSECOND,
                                           .floor = 10,
                                           .seed = 1};

/* A tenth of the messages is lost. */
static void test_loss(void)
{
    QosBudgetWorldConfig config = rough;

    config.loss = 100;
    const QosBudgetFigures fair = qos_budget_figures(&config, 60);
    config.share = QOS_BUDGET_HARD;
    const QosBudgetFigures hard = qos_budget_figures(&config, 60);
    g_test_message("fair: used %.3f, worst %.3f; hard: used %.3f, worst %.3f", fair.used,
                   fair.over_worst, hard.used, hard.over_worst);
    g_assert_cmpfloat(fair.used, >=, 0.98);
    g_assert_cmpfloat(fair.over_worst, <=, 0.08);
    g_assert_cmpfloat(ABS(fair.minute), <=, 0.005);
    g_assert_cmpfloat(hard.used, >=, 0.75);
    g_assert_cmpfloat(hard.over_worst, <=, 1e-9);
}

/* Three of ten mounts are silent for 5 s of 10, for more than a lease. */
static void test_silence(void)
{
    QosBudgetWorldConfig config = rough;
    const QosBudgetFigures fair = qos_budget_figures_silent(&config, 60, 0.3);

    config.share = QOS_BUDGET_HARD;
    const QosBudgetFigures hard = qos_budget_figures_silent(&config, 60, 0.3);
    g_test_message("fair: used %.3f, worst %.3f; hard: used %.3f, worst %.3f", fair.used,
                   fair.over_worst, hard.used, hard.over_worst);
    g_assert_cmpfloat(fair.used, >=, 0.97);
    g_assert_cmpfloat(fair.over_worst, <=, 0.08);
    g_assert_cmpfloat(hard.used, >=, 0.85);
    g_assert_cmpfloat(hard.over_worst, <=, 1e-9);
}

/* The same seed gives the same run, another one another. */
static void test_repeats(void)
{
    QosBudgetWorldConfig config = {
        .mounts = 50, .fan = 10, .epoch = QOS_BUDGET_EPOCH, .latency = 1000, .loss = 50, .seed = 7};
    const QosBudgetFigures first = qos_budget_figures(&config, 10);
    const QosBudgetFigures second = qos_budget_figures(&config, 10);

    g_assert_cmpfloat(first.used, ==, second.used);
    g_assert_cmpfloat(first.minute, ==, second.minute);
    config.seed = 8;
    g_assert_cmpfloat(first.minute, !=, qos_budget_figures(&config, 10).minute);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-budget/goals", test_goals);
    g_test_add_func("/sim-budget/loss", test_loss);
    g_test_add_func("/sim-budget/silence", test_silence);
    g_test_add_func("/sim-budget/repeats", test_repeats);
    return g_test_run();
}
