/*
 * The metrics of a simulation, by which ways of sharing are compared.
 *
 * Shares are shares of the store's time, so that request sizes count. They are measured in windows
 * of one second at every bin; the windows are longer if the smallest share is less than ten
 * requests a second. In a window a job counts as backlogged if it has requests waiting in the
 * scheduler all the time. Its requests in the store do not count, because the scheduler can no
 * longer decide on them. The job's share is its weight's part among all jobs that are served or
 * wait in the window. One request more or less is tolerated, because a request cannot be divided. A
 * job's first period is start-up, and is left out.
 */
#pragma once

#include "sim/simulator.h"

/* What the same scenario is like without sharing, and for each bursting job alone. */
typedef struct QosReference QosReference;

QosReference *qos_reference_new(const QosScenario *scenario); /* borrows the scenario */
void qos_reference_free(QosReference *reference);             /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosReference, qos_reference_free)

/* A figure that a scenario has no occasion for is NaN. Times are in seconds. */
typedef struct {
    double rate;        /* op/s until the last reply */
    double utilization; /* part of that time in which the store served, against No BW */
    double share_error; /* the largest of |got - due| / share, in windows in which every job that
                           was there was backlogged; due: the share, and what is paid back in the
                           window by the law (QosShareState.repayment) */
    double raw_error;   /* the largest of |got / share - 1| in these */
    double jain;        /* of got / weight among the backlogged; the mean of the windows */
    double least;       /* the least of got / share of a backlogged job */
    double settle;      /* longest time from a job's first request, others being backlogged, to the
                           begin of the first window in which it gets 95 % of its share */
    double waking;      /* longest time from the first request after a pause until the store begins
                           with it */
    double repayment;   /* longest time from when a lender has requests outstanding all the time to
                           when nine tenths of its record are paid back */
    double burst_median;
    double burst_p99;
    double burst_longest;
    double capacity_error; /* where the capacity is found out: the largest of |found / actual - 1|,
                              five seconds after the start and after each change */
    double burst_factor;   /* 99th percentile of what a burst took against its median alone */
    double burst_ideal;    /* the same with the store divided as a fluid (sim/fluid.h) */
} QosMetrics;

void qos_metrics(const QosReference *reference, const QosSimulation *simulation,
                 QosMetrics *ret_metrics);
