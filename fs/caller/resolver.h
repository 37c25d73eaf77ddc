/*
 * Threads that read the environments of callers, which may take for ever (fs/caller/proc.h).
 *
 * A request whose caller must be named first is left to them, and goes on in one of them. If the
 * name does not come within QOS_NAMING_TIME, another one takes the request away from the thread
 * that reads, and goes on with what is known of the caller without his environment.
 *
 * At most QOS_NAMING_USER of them read for the same user, and QOS_NAMING_ALL in all; further
 * requests wait for these, no longer than the same time, and not at all while they all are late
 * (fs/caller/resolver_queue.h). The threads are made on demand: of those that do not read each has
 * a request in the store, which the gate bounds.
 *
 * The kernel lets a thread that reads go when its process ends: so the late ones are not waited for
 * at the end.
 *
 * Lock: `lock` of the namers; never held while /proc is read or a request goes on.
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
