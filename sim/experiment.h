/*
 * An experiment: a scenario run with several ways of sharing, and the tables of the results.
 */
#pragma once

#include <stdio.h>

#include "sim/metrics.h"

typedef struct {
    const QosSharing *sharing;
    QosTime period; /* 0 where the way of sharing has none */
    QosSimulation *simulation;
    QosMetrics metrics;
    double cpu; /* seconds that the simulation took */
} QosRun;

typedef struct {
    QosScenario *scenario;
    GPtrArray *runs; /* of QosRun, owned */
} QosExperiment;

/* Runs it with each of `sharings` (of const QosSharing *), the adaptive ones with each period of
 * the scenario; until one is not done to its end. Takes the scenario. */
QosExperiment *qos_experiment_run(QosScenario *scenario, const GPtrArray *sharings);
/* FALSE where a run was not done to its end. Errors (QOS_ERROR): ENOMEM, which, and why. */
gboolean qos_experiment_check(const QosExperiment *experiment, GError **error);
void qos_experiment_free(QosExperiment *experiment); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosExperiment, qos_experiment_free)

/* "AdapTBF", with the period where the scenario has several; free with g_free. */
char *qos_experiment_run_title(const QosExperiment *experiment, const QosRun *run);
/* op/s of a job, from its first request to its last reply, or with requests left to the end of the
 * run; of a second at least. */
double qos_experiment_job_rate(const QosSimulatedJob *job);

/* For people: the metrics, and what the first jobs got. */
void qos_experiment_print(const QosExperiment *experiment, gboolean with_speed, FILE *out);
/* A line of metrics for each run, and one for each of its jobs. */
void qos_experiment_print_csv_header(FILE *out);
void qos_experiment_print_csv(const QosExperiment *experiment, FILE *out);
/* The metrics, as a section with a table. */
void qos_experiment_print_markdown(const QosExperiment *experiment, FILE *out);
