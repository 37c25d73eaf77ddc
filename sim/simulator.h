/*
 * Runs a scenario in virtual time with the scheduler of the mount (fs/sched.h), unchanged.
 *
 * Events are ordered by time, and by order of creation where times are equal; randomness comes from
 * the scenario's seed alone: a run repeats to the byte.
 */
#pragma once

#include "sim/sharing.h"

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

/* That are under way at once: they take a gigabyte. */
#define QOS_SIMULATION_REQUESTS_MAX 2000000

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

/* At the end of a bin, in op/s: what the scheduler took the store for, and what it was, 0 in a
 * stall. */
typedef struct {
    double estimate;
    double actual;
} QosSimulatedCapacity;

typedef struct {
    const QosSharing *sharing;
    GPtrArray *jobs; /* of QosSimulatedJob, owned, in order of the scenario */
    QosBin *bins;    /* of all of them */
    guint64 served;
    guint64 requests;       /* issued */
    QosTime busy;           /* how long the store served, until the end */
    QosTime last;           /* reply */
    GArray *capacity;       /* of QosSimulatedCapacity, by bins */
    QosTime end;            /* of the run */
    gboolean is_overloaded; /* it ended there, as QOS_SIMULATION_REQUESTS_MAX had no reply */
} QosSimulation;

/* With `label`, of all jobs of that name in the scenario only one runs, and nothing else. The
 * scenario must outlive the result. */
QosSimulation *qos_simulate(const QosScenario *scenario, const QosSharing *sharing,
                            const char *label);
/* Of all jobs; ends before the scenario does after the first bin for which `is_enough` says so. */
typedef gboolean (*QosEnoughFunc)(const QosSimulation *so_far, guint bins, gpointer arg);
QosSimulation *qos_simulate_until(const QosScenario *scenario, const QosSharing *sharing,
                                  QosEnoughFunc is_enough, gpointer arg);
void qos_simulation_free(QosSimulation *simulation); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosSimulation, qos_simulation_free)
