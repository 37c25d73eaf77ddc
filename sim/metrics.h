/*
 * What a simulation shows: the figures that policies are compared by.
 */
#pragma once

#include "sim/simulator.h"

/* A figure that a scenario has no occasion for is NaN. */
typedef struct {
    double rate;        /* op/s over the whole run */
    double utilization; /* against `base`'s */
    double share_error; /* the largest, over all seconds and all jobs, while all jobs wanted more:
                           |served / all served - weight / all weights|, as a part of the latter */
    double jain;        /* weighted, over the seconds in which at least two jobs wanted more; the
                           median */
    double least;       /* the smallest part of its entitlement that a job which wanted more all
                           second long was served in any second; the entitlement is by weight among
                           all jobs that were there */
    QosTime settle;     /* the longest time from a job's first request to 95 % of its share; -1 */
    QosTime burst_median;
    QosTime burst_p99;
    QosTime burst_longest;
} QosMetrics;

/* `base`: the same scenario without control; may be `simulation` itself. */
void qos_metrics(const QosScenario *scenario, const QosSimulation *simulation,
                 const QosSimulation *base, QosMetrics *ret_metrics);
