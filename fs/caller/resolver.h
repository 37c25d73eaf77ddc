/*
 * The resolver: threads that read the environments of callers, which may block for ever
 * (fs/caller/proc.h).
 *
 * If the caller of a request must be named first, the request is handed to a resolver thread, which
 * reads the environment and then goes on with the request. If that takes longer than
 * QOS_NAMING_TIME, another resolver thread takes the request away from the blocked thread and goes
 * on without the environment.
 *
 * At most QOS_NAMING_USER resolver threads read for the same user, and QOS_NAMING_ALL in all.
 * Further requests wait for these, at most for the same time. They do not wait at all while all of
 * these are late (fs/caller/resolver_queue.h). Threads are made on demand. A thread that does not
 * read has a request in the store, so the gate bounds their number.
 *
 * The kernel releases a blocked thread when the process that it reads ends. So at the end of the
 * mount nobody waits for the late ones.
 *
 * Lock: `lock` of the resolver; not held while /proc is read or a request goes on.
 */
#pragma once

#include "fs/caller/caller.h"
#include "fs/caller/resolver_queue.h"

typedef struct QosResolver QosResolver;
typedef struct QosUnresolved QosUnresolved;

/* What waits for its caller; the request embeds it. */
struct QosUnresolved {
    QosResolverWait wait;           /* first; the resolver's own, under its lock */
    const struct fuse_ctx *context; /* lives as long as this */
    /* Called by a resolver thread; `caller` is a new reference, or NULL where the mount ends. */
    void (*named)(QosUnresolved *unresolved, QosCaller *caller);
};

/* `callers` is borrowed. Starts without threads. */
QosResolver *qos_resolver_new(QosCallers *callers);
/* Hands back all that waits; no qos_resolver_ask() may follow. Returns when no resolver thread
 * works on a request any more. */
void qos_resolver_stop(QosResolver *resolver);
void qos_resolver_free(QosResolver *resolver); /* stopped; NULL is allowed */

/* `unresolved` is no longer the caller's. */
void qos_resolver_ask(QosResolver *resolver, QosUnresolved *unresolved);
