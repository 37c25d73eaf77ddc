/*
 * The namers: threads that read the environments of callers, which may block for ever
 * (fs/caller/proc.h).
 *
 * If the caller of a request must be named first, the request is handed to a namer, which reads the
 * environment and then goes on with the request. If that takes longer than QOS_NAMING_TIME, another
 * namer takes the request away from the blocked thread and goes on without the environment.
 *
 * At most QOS_NAMING_USER namers read for the same user, and QOS_NAMING_ALL in all. Further
 * requests wait for these, at most for the same time. They do not wait at all while all of these
 * are late (fs/caller/resolver_queue.h). Threads are made on demand. A thread that does not read
 * has a request in the store, so the gate bounds their number.
 *
 * The kernel releases a blocked thread when the process that it reads ends. So at the end of the
 * mount nobody waits for the late ones.
 *
 * Lock: `lock` of the namers; not held while /proc is read or a request goes on.
 */
#pragma once

#include "fs/caller/caller.h"
#include "fs/caller/resolver_queue.h"

typedef struct QosNamers QosNamers;
typedef struct QosNameless QosNameless;

/* What waits for its caller; the request embeds it. */
struct QosNameless {
    QosNameWait wait;               /* first; the namers' own, under their lock */
    const struct fuse_ctx *context; /* lives as long as this */
    /* Called by a namer; `caller` is a new reference, or NULL where the mount ends. */
    void (*named)(QosNameless *nameless, QosCaller *caller);
};

/* `callers` is borrowed. Starts without threads. */
QosNamers *qos_namers_new(QosCallers *callers);
/* Hands back all that waits; no qos_namers_ask() may follow. Returns when no namer works on a
 * request any more. */
void qos_namers_stop(QosNamers *namers);
void qos_namers_free(QosNamers *namers); /* stopped; NULL is allowed */

/* `nameless` is no longer the caller's. */
void qos_namers_ask(QosNamers *namers, QosNameless *nameless);
