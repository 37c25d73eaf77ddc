/*
 * The coordinator of the epochs that all mounts run together (core/epoch.h; policy grr): which
 * group of jobs has its turn on all of them.
 *
 *     EPOCH (READY, LEAVE) of a mount -> receive -> coordinator -- step: EPOCH (START, REFUSE) -->
 *
 * A mount takes part while requests wait in it. One that is not ready in time is evicted, so that
 * no mount keeps the others from their next turn; it joins anew with its next request.
 *
 * Pure: time is an argument. One thread, the main loop's.
 */
#pragma once

#include "core/wire_cluster.h"

typedef struct QosServerEpochs QosServerEpochs;

/* `incarnation` > 0 is the server's, and grows with each start. */
QosServerEpochs *qos_server_epochs_new(guint32 incarnation);
/* NULL is allowed. */
void qos_server_epochs_free(QosServerEpochs *epochs);

/* The payload of an EPOCH. FALSE: it is broken. `step` is to be called afterwards. */
gboolean qos_server_epochs_receive(QosServerEpochs *epochs, QosOwnerId client,
                                   const guint8 *payload, gsize length, QosTime now);
/* The client has no connection any more. `step` is to be called afterwards. */
void qos_server_epochs_leave(QosServerEpochs *epochs, QosOwnerId client, QosTime now);

/* A whole frame of EPOCH for a client, which may have gone. */
typedef void (*QosServerEpochsSend)(QosOwnerId client, const GByteArray *frame, gpointer arg);
/* Does what is due, and sends. Returns when to call it again; QOS_NEVER: after the next message. */
QosTime qos_server_epochs_step(QosServerEpochs *epochs, QosTime now, QosServerEpochsSend send,
                               gpointer arg);

/* The number of the latest epoch; 0: none began since the server's start. */
gint64 qos_server_epochs_latest(const QosServerEpochs *epochs);
