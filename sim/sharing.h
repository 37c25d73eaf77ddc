/*
 * The ways to share the store that a simulation compares.
 */
#pragma once

#include "fs/sched.h"
#include "sim/scenario.h"

typedef struct {
    const char *name;  /* "none", "static", ... : on the command line */
    const char *title; /* "No BW", ...: in tables and figures */
    const QosPolicyClass *policy;
    QosAdaptMode adapt;
    gboolean is_static; /* one rule a job: its weight's part of the capacity */
    gboolean has_rules; /* the scenario's hold */
    gboolean is_ideal;  /* the store is divided as a fluid (sim/gps.h), and not by the scheduler */
} QosSharing;

extern const QosSharing qos_sharings[]; /* ended by a NULL name */

/* That of the name, or NULL. */
const QosSharing *qos_sharing_named(const char *name);

/* Tells the scheduler, which has the sharing's policy, of adaptive sharing and rules. `jobs`: of
 * QosSimulatedJob, all that will come. */
void qos_sharing_apply(const QosSharing *sharing, const QosScenario *scenario,
                       const GPtrArray *jobs, QosSched *sched);
