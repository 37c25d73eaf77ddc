/*
 * What one budget for all mounts must reach (docs/design/budget.md), from 10 to 10,000 mounts.
 */
#pragma once

#include "sim/budget_runs.h"

typedef struct {
    guint mounts, fan;             /* as in QosBudgetWorldConfig */
    guint seconds;                 /* that are measured */
    double used[2];                /* at least; by QosBudgetShare */
    double over_p99;               /* at most, of QOS_BUDGET_FAIR; of HARD it is 0 */
    QosTime epoch, newcomer, lost; /* the latter two: at most */
} QosBudgetGoal;

typedef struct {
    QosBudgetFigures figures;
    QosTime newcomer, lost;
    char *missed; /* NULL: nothing; free with g_free() */
} QosBudgetResult;

/* `*ret_count` of them. */
const QosBudgetGoal *qos_budget_goals(guint *ret_count);
QosBudgetResult qos_budget_goal_run(const QosBudgetGoal *goal, QosBudgetShare share,
                                    QosTime latency);
/* Runs all, with both shares and latencies of 0.2 and 5 ms, beside equal division and dmClock, and
 * prints a table of them. Returns how many are missed. */
guint qos_budget_goals_print(FILE *out);
