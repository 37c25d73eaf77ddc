/*
 * The goals of one budget, and their table.
 */
#include "sim/budget_goals.h"

#include <math.h>

#define FLOOR        10    /* percent: the default of a rule */
#define MINUTE       0.005 /* of R, both ways */
#define MESSAGES     2.05  /* one up and one down, and the combiners' */
#define NEXT_TO_ONE  1e-9
#define TRIES        10
#define TRIES_OF_ALL 20000 /* mounts, in all tries together */
#define PLENTY       100   /* mounts: so many want more than R in every second */

#define E            QOS_BUDGET_EPOCH
#define E_LONG       QOS_BUDGET_EPOCH_LONG

static const QosBudgetGoal goals[] = {
    {10, 0, 60, {0.85, 0.80}, 0.08, E, 3 * E, 15 * E},
    {100, 0, 60, {0.99, 0.90}, 0.08, E, 3 * E, 15 * E},
    {1000, 0, 60, {0.99, 0.90}, 0.02, E, 3 * E, 15 * E},
    {10000, 100, 20, {0.99, 0.90}, 0.02, E, 3 * E, 15 * E},
    /* Above QOS_BUDGET_MANY at one coordinator: within 3 E; its lease and 2 E. */
    {4000, 0, 60, {0.99, 0.80}, 0.02, E_LONG, 3 * E_LONG, 7 * E_LONG},
};

static const QosTime latencies[] = {200 * QOS_MICROSECOND, 5 * QOS_MILLISECOND};
static const char *const share_names[] = {"fair", "hard"};

const QosBudgetGoal *qos_budget_goals(guint *ret_count)
{
    *ret_count = G_N_ELEMENTS(goals);
    return goals;
}

static QosBudgetWorldConfig config_of(const QosBudgetGoal *goal, QosBudgetLaw law,
                                      QosBudgetShare share, QosTime latency)
{
    return (QosBudgetWorldConfig){.law = law,
                                  .share = share,
                                  .mounts = goal->mounts,
                                  .fan = goal->fan,
                                  .epoch = goal->epoch,
                                  .latency = latency,
                                  .floor = FLOOR,
                                  .seed = 1};
}

static void miss(GString *missed, gboolean is_missed, const char *what)
{
    if (is_missed)
        g_string_append_printf(missed, "%s%s", missed->len > 0 ? ", " : "", what);
}

QosBudgetResult qos_budget_goal_run(const QosBudgetGoal *goal, QosBudgetShare share,
                                    QosTime latency)
{
    const QosBudgetWorldConfig config = config_of(goal, QOS_BUDGET_LAW_SHARED, share, latency);
    const guint tries = CLAMP(TRIES_OF_ALL / goal->mounts, 1, TRIES);
    const gboolean is_hard = share == QOS_BUDGET_HARD;
    QosBudgetResult result = {
        .figures = qos_budget_figures(&config, goal->seconds),
        .newcomer = qos_budget_newcomer(&config, tries),
        .lost = qos_budget_lost(&config, tries),
    };
    const QosBudgetFigures *figures = &result.figures;
    g_autoptr(GString) missed = g_string_new(NULL);

    miss(missed, figures->used < goal->used[share], "used");
    miss(missed, is_hard ? figures->over_worst > NEXT_TO_ONE : figures->over_p99 > goal->over_p99,
         "over");
    miss(missed, figures->minute > (is_hard ? NEXT_TO_ONE : MINUTE), "over all");
    miss(missed, !is_hard && goal->mounts >= PLENTY && figures->minute < -MINUTE, "below all");
    miss(missed, figures->messages > MESSAGES, "messages");
    miss(missed, result.newcomer > goal->newcomer, "newcomer");
    miss(missed, result.lost > goal->lost, "lost");
    if (missed->len > 0)
        result.missed = g_strdup(missed->str);
    return result;
}

static void print_figures(const QosBudgetGoal *goal, const char *name, double latency,
                          const QosBudgetFigures *figures, FILE *out)
{
    g_autofree char *mounts = goal->fan > 0 ? g_strdup_printf("%u, a tree", goal->mounts)
                                            : g_strdup_printf("%u", goal->mounts);

    fprintf(out, "| %s | %d ms | %s | %g ms | %.1f %% | %.2f %% | %.2f %% | %+.2f %% |", mounts,
            (int)(goal->epoch / QOS_MILLISECOND), name, latency, 100 * figures->used,
            100 * figures->over_p99, 100 * figures->over_worst, 100 * figures->minute);
}

static gboolean print_goal(const QosBudgetGoal *goal, QosBudgetShare share, QosTime latency,
                           FILE *out)
{
    const QosBudgetResult result = qos_budget_goal_run(goal, share, latency);
    g_autofree char *missed = result.missed;

    print_figures(goal, share_names[share], (double)latency / QOS_MILLISECOND, &result.figures,
                  out);
    fprintf(out, " %d ms | %d ms | %.2f |%s%s\n", (int)(result.newcomer / QOS_MILLISECOND),
            (int)(result.lost / QOS_MILLISECOND), result.figures.messages,
            missed != NULL ? " MISSED: " : "", missed != NULL ? missed : "");
    return missed == NULL;
}

static void print_baseline(const QosBudgetGoal *goal, QosBudgetLaw law, const char *name, FILE *out)
{
    const QosBudgetWorldConfig config = config_of(goal, law, QOS_BUDGET_FAIR, 0);
    const QosBudgetFigures figures = qos_budget_figures(&config, goal->seconds);

    print_figures(goal, name, 0, &figures, out);
    fputs(" | | |\n", out);
}

guint qos_budget_goals_print(FILE *out)
{
    guint missed = 0;

    fputs("| mounts | E | law | latency | used | over in 1 s: p99 | worst | over all | newcomer "
          "| lost share back | messages |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
          out);
    for (guint i = 0; i < G_N_ELEMENTS(goals); i++) {
        print_baseline(&goals[i], QOS_BUDGET_LAW_EQUAL, "equal division", out);
        print_baseline(&goals[i], QOS_BUDGET_LAW_DMCLOCK, "dmClock's rho and delta", out);
        for (guint j = 0; j < 2 * G_N_ELEMENTS(latencies); j++)
            missed += !print_goal(&goals[i], j / 2, latencies[j % 2], out);
    }
    fprintf(out, "missed: %u\n", missed);
    return missed;
}
