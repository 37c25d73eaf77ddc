/*
 * Runs a scenario in virtual time with the scheduler of the mount (fs/sched.h), unchanged.
 *
 * Events are ordered by time, and by order of creation where times are equal; randomness comes from
 * the scenario's seed alone: a run repeats to the byte.
 */
#pragma once

#include "base/histogram.h"
#include "fs/sched.h"
#include "sim/scenario.h"

/* A way to share the store. */
typedef struct {
    const char *name;  /* "none", "static", ... : on the command line */
    const char *title; /* "No BW", ...: in tables and figures */
    const QosPolicyClass *policy;
    QosAdaptMode adapt;
    gboolean is_static; /* one rule a job: its weight's part of the capacity */
} QosSharing;

extern const QosSharing qos_sharings[]; /* ended by a NULL name */

/* What one job got. */
typedef struct {
    char *name;
    gint64 weight;
    guint64 served;       /* requests */
    guint64 bytes;        /* sums */
    GArray *bins;         /* of guint32: requests served in each bin of the scenario */
    GArray *wanted;       /* of guint8: 1 where it had a request outstanding all the bin long */
    QosHistogram latency; /* ns, from issue to reply */
    QosTime longest;      /* the largest of them */
    GArray *bursts;       /* of QosTime: how long each burst took */
    QosTime first;        /* issue, */
    QosTime last;         /* and reply */
} QosSimulatedJob;

typedef struct {
    const QosSharing *sharing;
    GPtrArray *jobs; /* of QosSimulatedJob, owned, in order of the scenario */
    guint64 served;
    guint64 requests; /* issued */
    QosTime busy;     /* how long the store served */
} QosSimulation;

QosSimulation *qos_simulate(const QosScenario *scenario, const QosSharing *sharing);
void qos_simulation_free(QosSimulation *simulation); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosSimulation, qos_simulation_free)
