/*
 * What bursts take at best: the store divided among the jobs as a fluid.
 *
 * At every instant each job has its weight's part of the store, and what one does not use goes to
 * the others (weighted max-min); within a job, so do its processes. A process that waits for its
 * replies uses no more than work / (work + latency + think) of the store. A burst takes longer here
 * than alone because it overlaps with others; what it takes beyond this is the scheduler's doing,
 * to some per cent, as bursts that end at other times also begin at other times.
 */
#pragma once

#include "sim/scenario.h"

typedef struct {
    const char *label; /* of its job: the scenario's */
    double took;       /* seconds */
} QosFluidBurst;

/* FALSE where the store's speed changes (noise, steps, stalls), or processes end: no such measure.
 */
gboolean qos_fluid_is_defined(const QosScenario *scenario);
/* Of QosFluidBurst: all bursts that end within the scenario. */
GArray *qos_fluid_bursts(const QosScenario *scenario);
