/*
 * The fluid that sim/budget_load.h tells of: exact between two of its corners.
 */
#include "sim/budget_load.h"

#define QUEUE 0.1 /* s of the speed */

void qos_budget_load_turn(QosBudgetLoad *load, gboolean is_on)
{
    load->inflow = is_on ? load->speed : 0;
}

static void serve(QosBudgetLoad *load, double amount)
{
    load->served += MAX(amount, 0);
}

/* With something that waits: until `span` (s) is over, or nothing waits any more; what is left. */
static double drain(QosBudgetLoad *load, double rate, double span)
{
    const double shrinks = rate - load->inflow;

    if (shrinks > 0 && load->waiting < shrinks * span) {
        const double part = load->waiting / shrinks;
        serve(load, rate * part);
        load->waiting = 0;
        return span - part;
    }
    serve(load, rate * span);
    load->waiting = MIN(load->waiting - shrinks * span, MAX(load->inflow * QUEUE, load->waiting));
    return 0;
}

void qos_budget_load_advance(QosBudgetLoad *load, double rate, QosTime now)
{
    double span = (double)(now - load->at) / QOS_SECOND;

    load->at = now;
    load->offered += load->inflow * span;
    if (load->waiting > 0 || load->inflow > rate)
        span = drain(load, rate, span);
    serve(load, MIN(load->inflow, rate) * span);
}
