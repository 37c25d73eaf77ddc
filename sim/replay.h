/*
 * What a real mount has written down of its jobs, as load: "what would this rule have done
 * yesterday?"
 *
 * Two of its reports are understood (docs/reference/reports.md):
 *
 *     history    what each job did in each slice of time
 *     job_stats  what each job did in all, between start_time and snapshot_time
 *
 * In each slice the job makes as many requests as it did, at random times, each of the slice's mean
 * size; of job_stats, each opcode's apart. A history does not tell opcodes apart, nor does either
 * tell uid, gid and host: rules that ask for these are refused. Time 0 is where the first slice
 * begins.
 *
 * Limit: a program that waits for its replies would have asked later where a rule makes it wait.
 * That is not known of a request in these files, so that here none waits for another: what a rule
 * makes wait piles up.
 */
#pragma once

#include "sim/scenario.h"

/* Adds a client for each slice. The scenario lasts until the last slice ends, a second at least,
 * unless it was told how long. Errors (QOS_ERROR): what is wrong, in which line. */
gboolean qos_replay_load(const char *path, QosScenario *scenario, GError **error);

/* The job's id, of how a report and [client] write it: with \xHH for the bytes that are neither
 * letters, digits nor one of .@-_:/, and \uHHHH or \UHHHHHHHH for characters. Free with g_free;
 * NULL where it is none. */
char *qos_replay_job_id(const char *name);
