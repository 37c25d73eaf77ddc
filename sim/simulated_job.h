/*
 * A job of a simulation: its name and weight, its timeline, and what it got.
 */
#pragma once

#include "base/time.h"

/* A piece of a job's timeline, as long as the scenario says. */
typedef struct {
    guint32 issued; /* requests */
    guint32 served;
    QosTime work;            /* of the store's time, for those served; noise left out */
    double repayment;        /* due to it (> 0) or by it, at its end: part of its entitlement */
    gint64 record;           /* at its end: lent (> 0) or borrowed, in QOS_COST_UNIT */
    guint is_busy : 1;       /* a request was outstanding, */
    guint is_backlogged : 1; /* or waiting in the scheduler, from its begin to its end */
} QosBin;

/* The bins of a job. Those of all jobs at one time stand side by side, as they are written. */
typedef struct {
    QosBin *first;
    guint step; /* from one to the next */
    guint count;
} QosTimeline;

static inline QosBin *qos_timeline_bin(const QosTimeline *timeline, guint index)
{
    return &timeline->first[(gsize)index * timeline->step];
}

/* What one job got. */
typedef struct {
    char *name;
    const char *label; /* the name as written in the scenario: the scenario's */
    gint64 weight;
    QosTimeline bins;      /* of the whole scenario */
    GArray *bursts;        /* of QosTime: how long each burst of each process took */
    QosTime waking;        /* from the issue of a request after a pause until the store begins with
                              it, the longest; -1 = there was none */
    guint64 served;        /* requests */
    guint64 bytes;         /* sums */
    QosTime largest;       /* work of one request, the largest */
    double delay;          /* sum of what requests took beyond their work and the latency, ns; */
    QosTime longest_delay; /* and the longest */
    QosTime first;         /* issue, */
    QosTime last;          /* and reply */
    guint left;            /* requests without a reply at the end */
    QosTime until;         /* the last reply, or with requests left the end of the run */
} QosSimulatedJob;
