/*
 * Measures what sim/budget_runs.h tells of.
 */
#include "sim/budget_runs.h"

#include <math.h>

#define WARM_UP      5 /* s */
#define STEADY       2 /* s: until a steady load has settled */
#define STEP         QOS_MILLISECOND
#define LONGEST      (10 * QOS_SECOND)
#define REACHED      0.95
#define SILENT_EVERY 10 /* s */
#define SILENT_FOR   5

static int compare(gconstpointer a, gconstpointer b)
{
    const double one = *(const double *)a, other = *(const double *)b;

    return (one > other) - (one < other);
}

static void silence(QosBudgetWorld *world, const QosBudgetWorldConfig *config, guint second,
                    double part)
{
    const guint count = (guint)(part * config->mounts);

    if (second % SILENT_EVERY != 0)
        return;
    for (guint i = 0; i < count; i++) /* others each time */
        qos_budget_world_silence(world, (i * 3 + second) % config->mounts,
                                 (QosTime)(WARM_UP + second + SILENT_FOR) * QOS_SECOND);
}

QosBudgetFigures qos_budget_figures_silent(const QosBudgetWorldConfig *config, guint seconds,
                                           double part)
{
    g_autoptr(QosBudgetWorld) world = qos_budget_world_new(config);
    g_autoptr(GArray) overs = g_array_new(FALSE, FALSE, sizeof(double));
    const double limit = (double)QOS_BUDGET_WORLD_LIMIT;
    QosBudgetFigures figures = {0};

    qos_budget_world_run(world, WARM_UP * QOS_SECOND);
    const QosBudgetWorldState first = qos_budget_world_state(world);
    QosBudgetWorldState before = first, after = first;
    for (guint i = 0; i < seconds; i++, before = after) {
        if (part > 0)
            silence(world, config, i, part);
        qos_budget_world_run(world, (QosTime)(WARM_UP + i + 1) * QOS_SECOND);
        after = qos_budget_world_state(world);
        const double served = after.served - before.served;
        const double wanted = MIN(after.offered - before.offered + before.waiting, limit);
        const double over = MAX(served / limit - 1, 0);
        figures.used += wanted > 0 ? MIN(served / wanted, 1) / seconds : 1.0 / seconds;
        g_array_append_val(overs, over);
    }
    g_array_sort(overs, compare);
    figures.over_worst = g_array_index(overs, double, seconds - 1);
    figures.over_p99 = g_array_index(overs, double, (guint)((seconds - 1) * 0.99));
    figures.minute = (after.served - first.served) / (limit * seconds) - 1;
    if (after.active > first.active)
        figures.messages =
            (double)(after.messages - first.messages) / (double)(after.active - first.active);
    return figures;
}

QosBudgetFigures qos_budget_figures(const QosBudgetWorldConfig *config, guint seconds)
{
    return qos_budget_figures_silent(config, seconds, 0);
}

/* The world of a try, whose load is steady, and when its change is to come: at another part of an
 * epoch in each try. */
static QosBudgetWorld *steady_world(const QosBudgetWorldConfig *config, guint number, guint tries,
                                    QosTime *ret_change)
{
    QosBudgetWorldConfig own = *config;

    own.is_steady = TRUE;
    own.seed += number;
    *ret_change = STEADY * QOS_SECOND + number * config->epoch / tries;
    return qos_budget_world_new(&own);
}

QosTime qos_budget_newcomer(const QosBudgetWorldConfig *config, guint tries)
{
    QosTime longest = 0;

    for (guint i = 0; i < tries; i++) {
        QosTime begins;
        g_autoptr(QosBudgetWorld) world = steady_world(config, i, tries, &begins);
        const double share = (double)QOS_BUDGET_WORLD_LIMIT / config->mounts;

        qos_budget_world_turn(world, 0, FALSE);
        qos_budget_world_run(world, begins);
        const double before = qos_budget_world_rate(world, 1); /* of all but one */
        const double target = REACHED * before * (config->mounts - 1) / config->mounts;
        qos_budget_world_turn(world, 0, TRUE);
        QosTime now = begins;
        while (qos_budget_world_rate(world, 0) < MIN(target, share * REACHED) &&
               now < begins + LONGEST) {
            now += STEP;
            qos_budget_world_run(world, now);
        }
        longest = MAX(longest, now - begins);
    }
    return longest;
}

/* Of all but the first mount. */
static double rest_of(const QosBudgetWorld *world, guint mounts)
{
    double sum = 0;

    for (guint i = 1; i < mounts; i++)
        sum += qos_budget_world_rate(world, i);
    return sum;
}

QosTime qos_budget_lost(const QosBudgetWorldConfig *config, guint tries)
{
    QosTime longest = 0;

    for (guint i = 0; i < tries; i++) {
        QosTime begins;
        g_autoptr(QosBudgetWorld) world = steady_world(config, i, tries, &begins);
        const double floor =
            config->share == QOS_BUDGET_HARD
                ? (double)QOS_BUDGET_WORLD_LIMIT / 100 * config->floor / config->mounts
                : 0;

        qos_budget_world_run(world, begins);
        const double share = qos_budget_world_rate(world, 0);
        const double before = rest_of(world, config->mounts);
        qos_budget_world_kill(world, 0);
        QosTime now = begins;
        while (rest_of(world, config->mounts) < before + REACHED * (share - floor) &&
               now < begins + LONGEST) {
            now += STEP * 5;
            qos_budget_world_run(world, now);
        }
        longest = MAX(longest, now - begins);
    }
    return longest;
}
