/*
 * Parked requests that the kernel may have sent in the background (O_DIRECT), by process.
 *
 * It passes on no signal for these: a killed program waits for them in its last exit, as long as
 * its rule says. So their processes are looked at: each once a look, however many requests it has.
 * A request's thread may end long before its process, so that the process is found at the first
 * look, and known by its start time from then on. A request of a thread that has gone by then is
 * served when it is due.
 *
 * What a program has under way when it ends by itself is served: it may mean its writes.
 *
 * Locks: none; the owner's (ops/interrupt.c), but for looking, which reads /proc.
 */
#pragma once

#include "ops/op.h"
#include "ops/signals.h"

typedef struct QosBackground QosBackground;

/* One look. The processes in it live until it is freed. */
typedef struct {
    GHashTable *threads;  /* threads of new requests -> their QosProcessId, owned; start 0: gone */
    GPtrArray *processes; /* of QosBackgroundProcess, borrowed */
} QosBackgroundLook;

typedef struct {
    QosProcessId process;
    gboolean is_killed; /* the look's */
    GQueue ops;
} QosBackgroundProcess;

QosBackground *qos_background_new(void);
void qos_background_free(QosBackground *background); /* empty; NULL is allowed */

gboolean qos_background_is_empty(const QosBackground *background);
void qos_background_add(QosBackground *background, QosOp *op);
/* Does nothing to what is not in it. */
void qos_background_remove(QosBackground *background, QosOp *op);

/* Lists whom to look at. One look at a time. */
void qos_background_begin(QosBackground *background, QosBackgroundLook *ret_look);
/* Reads /proc: the only step that is made without the lock. */
void qos_background_look(QosBackgroundLook *look);
/* Gives the new requests to the processes that were found. From then on `is_killed` of each in
 * look->processes says whether its requests are to be taken back. */
void qos_background_sort(QosBackground *background, const QosBackgroundLook *look);
/* Also forgets the processes that have no request any more. */
void qos_background_end(QosBackground *background, QosBackgroundLook *look);
