/*
 * The cache of callers: from a thread id (TID) to the identity and the job of the calling thread.
 *
 * Nearly each request needs its job, but reading /proc costs more than most requests. So an entry,
 * found by TID, answers for QOS_CALLER_FRESH before /proc is read again. Therefore another cgroup,
 * or a reused pid, is noticed within 1 s: the start time in /proc/TID/stat tells two processes
 * apart. Another uid or gid than the cached one is a miss at once.
 *
 * exec(2) is noticed at once (fs/caller/program.h), because the entry keeps the program open, as
 * long as there is a descriptor for it (fs/quota.h). Where it cannot be noticed, a request with a
 * lasting effect, such as an open, has its caller read anew each time.
 *
 * Callers that are gone, or that may not be read, are cached too. A request with pid 0 comes from
 * another pid namespace, or is the kernel's write-back. Nothing can be read for it, so it is not
 * cached, and its job is found by uid (docs/user/jobs.md).
 *
 * A process that exits loses its environment before its files are closed. If the start time shows
 * that the process is the same, it keeps the job of its last look-up. Programs may also write over
 * their environments, so the cache remembers the job with which each program was started
 * (fs/caller/origins.h).
 *
 * The cache has at most QOS_CALLER_CACHE_MAX entries; the one that was read longest ago is dropped
 * first. An entry that was not read again for QOS_CALLER_IDLE is dropped too, because it would keep
 * its job alive.
 *
 * Most requests come from the caller of the request before. So some recent callers stand in front
 * of the table, at places that follow from their TIDs, and are found there without the lock. A
 * thread takes the caller out by an atomic exchange and puts it back by another. If the place is
 * empty or holds another caller, the thread looks in the table.
 *
 * Reading the environment of a process may block for ever (fs/caller/proc.h). So the thread that
 * has the request never does it; the resolver do (fs/caller/resolver.h). If the environment does
 * not come, a known caller keeps its job, and a new one is named without the environment.
 *
 * Lock: `lock` of the cache, for everything but the front. It is not held while /proc is read or
 * while the gate is asked for the job.
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

/* The caller of a request, a new reference; NULL if a resolver thread must read its environment
 * first. If only the identity is needed, it is never NULL, but its job may be. If /proc was read,
 * the thread has the daemon's own identity afterwards; this holds for the next two functions too.
 */
QosCaller *qos_callers_find(QosCallers *callers, const struct fuse_ctx *context,
                            QosCallerNeed need);
/* The caller that `facts` describe, which must have all that `naming` wants; never NULL. Takes the
 * groups out of `facts`. */
QosCaller *qos_callers_name(QosCallers *callers, const struct fuse_ctx *context,
                            QosJobNaming *naming, QosProcFacts *facts);
/* The caller, if its environment does not come; never NULL. */
QosCaller *qos_callers_guess(QosCallers *callers, const struct fuse_ctx *context);

/* Replaces how jobs are named (takes a reference); what is cached is forgotten. */
void qos_callers_set_naming(QosCallers *callers, QosJobNaming *naming);
/* The naming in force; a new reference. */
QosJobNaming *qos_callers_naming(QosCallers *callers);
/* Forgets the callers that were not read for QOS_CALLER_IDLE. To be called now and then, because on
 * an idle mount no look-up does it. */
void qos_callers_expire(QosCallers *callers, QosTime now);
guint qos_callers_count(QosCallers *callers);
