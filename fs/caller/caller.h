/*
 * Who is calling: TID -> identity and JobID, cached.
 *
 * Key: the TID, with the start time in /proc/TID/stat. An entry answers for QOS_CALLER_FRESH, then
 * /proc is read again: so another cgroup and a reused pid show within 1 s. That the thread runs
 * another program since (exec) shows at once (fs/caller/program.h): the entry keeps the program
 * open, where there is a descriptor for it (fs/quota.h). Where that cannot be told, what lasts
 * (what is opened) has its caller read anew each time. Misses (a process that is gone, or that may
 * not be read) are cached too. Another uid or gid than the cached one is a miss at once. pid 0 (a
 * caller in another pid namespace, or the kernel's write-back) is not cached, as nothing is read
 * for it: its job is by uid (docs/user/jobs.md).
 *
 * An exiting process has lost its environment before its files are closed: it keeps the job of its
 * last look-up, if the start time says that it is the same process.
 *
 * What job a program was started with is remembered beside that (fs/caller/origins.h), as programs
 * may write over their environments.
 *
 * Bounded: QOS_CALLER_CACHE_MAX entries, those that were read longest ago go first, and so do those
 * that were not read again for QOS_CALLER_IDLE, which would keep their jobs from being dropped.
 *
 * Most requests are made by who made one just before. So a few of the last callers stand in front
 * of the table, each in a place told by his TID: who looks takes him out and puts him back, both by
 * an atomic exchange, and needs no lock. Who finds the place empty or taken looks into the table.
 *
 * To read the environment of a process may take for ever (fs/caller/proc.h), so it is never done by
 * the thread that has the request, but by the namers (fs/caller/resolver.h). Where it does not
 * come, the caller keeps the job that he had, or if he is new is named without it.
 *
 * Lock: `lock` in the cache, for all but the front; never held while /proc is read or the gate is
 * asked for the job.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/caller/cred.h"
#include "fs/caller/job_name.h"
#include "fs/caller/proc.h"
#include "fs/gate/gate.h"

#define QOS_CALLER_CACHE_MAX 65536
#define QOS_CALLER_FRESH     QOS_SECOND
#define QOS_CALLER_IDLE      (10 * QOS_SECOND)

typedef struct QosCallers QosCallers;

/* `gate` is borrowed. Starts with the default naming. */
QosCallers *qos_callers_new(QosGate *gate);
void qos_callers_free(QosCallers *callers); /* NULL is allowed */

/* What a request needs of its caller. */
typedef enum {
    QOS_CALLER_IDENTITY,
    QOS_CALLER_JOB,
    QOS_CALLER_LASTING_JOB, /* for what it opens: that of the program that runs now */
} QosCallerNeed;

/* The caller of a request, a new reference; NULL where a namer has to read of it first. For its
 * identity it is never NULL, but its job may be. Where /proc was read, the thread has the daemon's
 * own identity afterwards; so with the next two. */
QosCaller *qos_callers_find(QosCallers *callers, const struct fuse_ctx *context,
                            QosCallerNeed need);
/* The caller of whom `facts` were read, with all that `naming` wants; never NULL. Takes his groups
 * out of them. */
QosCaller *qos_callers_name(QosCallers *callers, const struct fuse_ctx *context,
                            QosJobNaming *naming, QosProcessFacts *facts);
/* The caller whose environment does not come; never NULL. */
QosCaller *qos_callers_guess(QosCallers *callers, const struct fuse_ctx *context);

/* Replaces how jobs are named (takes a reference); what is cached is forgotten. */
void qos_callers_set_naming(QosCallers *callers, QosJobNaming *naming);
/* The naming in force; a new reference. */
QosJobNaming *qos_callers_naming(QosCallers *callers);
/* Forgets who was not read for QOS_CALLER_IDLE; to be called now and then, as on an idle mount
 * nobody comes whose look-up would do it. */
void qos_callers_expire(QosCallers *callers, QosTime now);
guint qos_callers_count(QosCallers *callers);
