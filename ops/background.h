/*
 * Parked requests that the kernel may have sent in the background (O_DIRECT), by process.
 *
 * It passes on no signal for these: a killed program waits for them in its last exit, as long as
 * its rule says. So their processes are looked at (fs/turns.h), however many requests each has. A
 * request's thread may end long before its process, so that the process is found at the first look,
 * and known by its start time from then on: until then the requests of a thread are a group of
 * their own. A request of a thread that has gone by then is served when it is due.
 *
 * What a program has under way when it ends by itself is served: it may mean its writes.
 *
 * Locks: none; the owner's (ops/interrupt.c).
 */
#pragma once

#include "fs/turns.h"
#include "ops/op.h"
#include "ops/signals.h"

typedef struct QosBackground QosBackground;

/* As long as it has requests. It takes turns as the first of these. */
struct QosBackgroundGroup {
    QosTurn turn;    /* first */
    QosProcessId id; /* of the process; before it is found, of the thread, with a `start` of 0 */
    gboolean is_killed;
    GQueue ops;
};

/* The turns are borrowed; those of groups are of this kind. */
QosBackground *qos_background_new(QosTurns *turns, guint kind);
void qos_background_free(QosBackground *background); /* empty; NULL is allowed */

/* The group that the request is in now. If that is new, its turn is to be said. */
QosBackgroundGroup *qos_background_add(QosBackground *background, QosOp *op);
/* Does nothing to what is not in it. */
void qos_background_remove(QosBackground *background, QosOp *op);
/* Gives a thread's requests to its process, and returns that group: if it is new, its turn is to be
 * said. NULL: the thread has gone (start 0), and its requests are removed. */
QosBackgroundGroup *qos_background_found(QosBackground *background, QosBackgroundGroup *thread,
                                         const QosProcessId *process);
