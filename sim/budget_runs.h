/*
 * The runs that docs/design/budget.md shows, and what they must reach.
 */
#pragma once

#include <stdio.h>

#include "sim/budget_world.h"

typedef struct {
    double used;       /* of min(R, what was wanted), over windows of 1 s, on average */
    double over_p99;   /* of R, of windows of 1 s; 0: none was over */
    double over_worst; /* likewise */
    double minute;     /* of R: (served - R) over the whole run; with what was wanted above R */
    double messages;   /* up and down, per active mount and epoch */
} QosBudgetFigures;

/* `seconds` are measured, after 5 s that are not. */
QosBudgetFigures qos_budget_figures(const QosBudgetWorldConfig *config, guint seconds);
/* `part` of the mounts are silent for 5 s in the middle, again and again. */
QosBudgetFigures qos_budget_figures_silent(const QosBudgetWorldConfig *config, guint seconds,
                                           double part);
/* The longest of `tries`: until a mount that begins to work has 95 % of its share. */
QosTime qos_budget_newcomer(const QosBudgetWorldConfig *config, guint tries);
/* Likewise, until the others have all but 5 % of a lost mount's share, less its floor. */
QosTime qos_budget_lost(const QosBudgetWorldConfig *config, guint tries);
