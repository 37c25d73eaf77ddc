/*
 * Who is calling: TID -> identity and JobID, cached.
 *
 * Key: (TID, start time in /proc/TID/stat). An entry answers for 1 s, then /proc is read again: so
 * exec, a changed environment and a reused pid show within 1 s. Misses (a process that is gone, or
 * that may not be read) are cached too. Bounded: QOS_CALLER_CACHE_MAX entries, the least recently
 * used go first. Another uid or gid than the cached one is a miss at once. pid 0 (a caller in
 * another pid namespace, or the kernel's write-back) has no environment: its job is by uid
 * (docs/jobid.md).
 *
 * Lock: `lock` in the cache; never held while /proc is read or the gate is asked for the job.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/gate.h"
#include "ops/cred.h"
#include "ops/job.h"

#define QOS_CALLER_CACHE_MAX 65536
#define QOS_CALLER_FRESH     QOS_SECOND

typedef struct QosCallers QosCallers;

/* `gate` is borrowed. Starts with jobid_var=auto. */
QosCallers *qos_callers_new(QosGate *gate);
void qos_callers_free(QosCallers *callers); /* NULL is allowed */

/* The caller of a request: never NULL, a new reference. */
QosCaller *qos_callers_get(QosCallers *callers, const struct fuse_ctx *context);

/* Replaces how jobs are named; what is cached is forgotten. */
void qos_callers_set_naming(QosCallers *callers, QosJobNaming *naming);
/* The naming in force; a new reference. */
QosJobNaming *qos_callers_naming(QosCallers *callers);
guint qos_callers_count(QosCallers *callers);
