/*
 * Fair adaptive sharing: AdapTBF's goals (seed 004) with changed equations
 * (docs/design/adaptbf.md).
 *
 * Once a period, qos_fair_step() books what was lent in the period that ends. For the next period
 * it gives each job three values: its entitlement, its allocation (how much of the capacity it is
 * expected to use), and its rate. The dispatcher (fs/adapt.c) serves each job at its rate while
 * other jobs wait too. What a job leaves idle goes to the others at once, and comes back with the
 * job's next request.
 *
 * Reservations (min=) get at most 99 % of the capacity, so that the jobs without one always have
 * the rest, by weight.
 *
 * Quantities are in cost units of the caller's choice, per period; the finer the unit, the smaller
 * the rounding. Pure.
 */
#pragma once

#include "base/time.h"
#include "fs/share_totals.h"

#define QOS_FAIR_UNITS_MAX (G_GINT64_CONSTANT(1) << 50) /* of any quantity: doubles hold these */

/* One job with weight: it has sent requests lately. The caller keeps it from period to period. */
typedef struct {
    gint64 weight;  /* 1 to QOS_WEIGHT_MAX */
    gint64 minimum; /* reserved, >= 0 */
    gint64 served;  /* in the period that ends */
    gint64 waiting; /* at its end */
    gint64 rate;    /* > 0: its speed in the dispatcher, relative to the others' */
    /* The outcome of the last step, as the rate, read by the next. For a new job, what it is taken
     * to have been entitled to since it came, and zeros. */
    gint64 entitlement; /* its part of the capacity when all want theirs */
    gint64 demand;      /* served + waiting */
    gint64 filling;     /* expected for the next period by demand, */
    gint64 allocation;  /* and with repayments */
    gint64 record;      /* lent (> 0) or borrowed (< 0), and not yet paid back */
    gint64 flow;        /* what the last step added to it */
    QosShareTotals totals;
    /* Of the computation only. */
    gint64 low;
    gint64 high;
    gint64 part;
} QosFairJob;

/*
 * One step over the `count` jobs. `capacity` is what the next `period` can serve, 1 to
 * QOS_FAIR_UNITS_MAX; `elapsed` is how long the period was that ends. Afterwards, to the unit,
 *
 *     sum of entitlements = sum of allocations = capacity        no allocation is negative
 *     sum of records = 0
 */
void qos_fair_step(QosFairJob *jobs, guint count, gint64 capacity, QosTime period, QosTime elapsed);

/* Makes the records add up to 0 again where some of the jobs have gone: the others' claims on them,
 * or debts to them, are written off, each in proportion. */
void qos_fair_write_off(QosFairJob *jobs, guint count);
