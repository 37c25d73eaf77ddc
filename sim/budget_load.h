/*
 * What the programs behind one mount want, as a fluid: a closed loop that is on and off by turns.
 *
 * While it is on, work comes in at a speed of its own, as long as less than 100 ms of it waits; the
 * mount serves what waits at the rate in force. Amounts and rates are as in core/budget.h.
 */
#pragma once

#include "base/time.h"

typedef struct {
    double speed;   /* while on; a rate */
    double inflow;  /* now: speed or 0 */
    double waiting; /* an amount */
    double served;  /* an amount, all in all */
    double offered; /* an amount: what would have been served without a bound, all in all */
    QosTime at;     /* all of this is of that time */
} QosBudgetLoad;

/* On or off from `load->at` on. */
void qos_budget_load_turn(QosBudgetLoad *load, gboolean is_on);
/* Goes on to `now`, with `rate` in force. */
void qos_budget_load_advance(QosBudgetLoad *load, double rate, QosTime now);
