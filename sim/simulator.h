/*
 * Runs a scenario in virtual time with the scheduler of the mount (fs/sched.h), unchanged.
 *
 * Events are ordered by time, and by order of creation where times are equal; randomness comes from
 * the scenario's seed alone: a run repeats to the byte.
 */
#pragma once

#include "sim/sharing.h"
#include "sim/simulated_job.h"

/* That are under way at once: they take a gigabyte. */
#define QOS_SIMULATION_REQUESTS_MAX 2000000

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
