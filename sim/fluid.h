/*
 * The best time that bursts can take: the store divided among the jobs like a fluid.
 *
 * At every instant each job has its weight's part of the store, and what it does not use goes to
 * the others (weighted max-min). Processes share within a job in the same way. A process that waits
 * for its replies uses no more than work / (work + latency + think) of the store.
 *
 * A burst takes longer here than alone because it overlaps with others. What it takes in a
 * simulation beyond the time here is due to the scheduler. Limit: this holds only to some per cent,
 * because bursts that end at other times also begin at other times.
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
