/*
 * A mount's part in the epochs that all mounts run together: the scheduler's policies ask for
 * epochs (fs/grr.c), and the lock server coordinates them.
 *
 *     policy: qos_epoch_next() -> handler -- step: READY --> server
 *     policy: start_epoch()    <- handler <- receive: START -- server
 *
 * Without a server each policy has a handler of its own, so that its epochs begin at once. So it
 * is again when the connection ends: nobody waits for a server that is away.
 *
 * Pure: time is an argument. The caller has the lock of the scheduler.
 */
#pragma once

#include "core/wire_cluster.h"
#include "fs/sched.h"

typedef struct QosEpochs QosEpochs;

QosEpochs *qos_epochs_new(void);
/* Without a server: qos_epochs_leave(). NULL is allowed. */
void qos_epochs_free(QosEpochs *epochs);

/* `waker` is called when `step` is to be called at once: a policy has something for the server. It
 * is called within functions of the scheduler, under its lock: as that of fs/budgets.h. */
void qos_epochs_set_waker(QosEpochs *epochs, void (*waker)(void *arg), void *arg);

/* The server coordinates from now on. `incarnation` > 0 is the mount's, and grows with each start.
 */
void qos_epochs_join(QosEpochs *epochs, QosSched *sched, QosOwnerId server, guint32 incarnation,
                     QosTime now);
/* There is no server any more. */
void qos_epochs_leave(QosEpochs *epochs, QosSched *sched, QosTime now);
/* The payload of an EPOCH from it. FALSE: it is broken. */
gboolean qos_epochs_receive(QosEpochs *epochs, QosSched *sched, const guint8 *payload, gsize length,
                            QosTime now);
/* TRUE: a policy has something for the server; `step` is to be called. */
gboolean qos_epochs_have_messages(const QosEpochs *epochs);
/* Does what is due, and appends frames of EPOCH. Returns when to call it again; QOS_NEVER: when
 * there are messages. qos_sched_next() is to be asked afterwards. */
QosTime qos_epochs_step(QosEpochs *epochs, QosSched *sched, QosTime now, GByteArray *frames);
