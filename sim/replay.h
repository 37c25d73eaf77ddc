/*
 * Replays what a real mount has recorded about its jobs, as a load: "what would this rule have done
 * yesterday?"
 *
 * Two of the mount's reports can be read (docs/reference/reports.md):
 *
 *     history    what each job did in each slice of time
 *     job_stats  what each job did in all, between start_time and snapshot_time
 *
 * In each slice the job makes as many requests as it did, at random times, each of the slice's mean
 * size. For job_stats this is done for each opcode. The history does not record opcodes, and
 * neither report records uid, gid and host: rules with such conditions are refused. Time 0 is where
 * the first slice begins.
 *
 * Limit: a program that waits for its replies would have sent later requests later if a rule had
 * made it wait. The reports do not say which requests depend on one another, so here no request
 * waits for another. Requests that a rule delays pile up.
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
