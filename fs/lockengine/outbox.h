/*
 * The messages of a mount to its server, collected as frames until they are sent, and the counts of
 * messages in both directions.
 *
 * A message that is repeated because no answer came counts once. Pure; the caller locks.
 */
#pragma once

#include "core/wire.h"

/* Embedded; zeroed at first. */
typedef struct {
    gboolean is_open;        /* there is a connection */
    GByteArray *bytes;       /* NULL: none */
    gsize batch;             /* the frame that takes messages, see qos_wire_put_credits() */
    guint64 session;         /* of the messages counted last, ... */
    guint64 sent, heard;     /* ... up to these numbers */
    guint64 enqueues;        /* messages */
    guint64 cancels;         /* credits given back, in whatever message */
    guint64 cancel_messages; /* messages for nothing but cancels */
    guint64 revocations;     /* messages of the server */
} QosOutbox;

/* There is a connection from now on. */
void qos_outbox_open(QosOutbox *outbox);
/* There is none: the frames are dropped, and so are those that are added. Messages are repeated on
 * the next connection. */
void qos_outbox_close(QosOutbox *outbox);
/* `heard` is the last signal of a server, which one that restarts goes on from: claims tell it. */
void qos_outbox_add(QosOutbox *outbox, const QosCreditMessage *message, QosPoolSignal heard);
/* Frames, or NULL; free with g_byte_array_unref(). */
GByteArray *qos_outbox_take(QosOutbox *outbox);
/* The server has said this. */
void qos_outbox_note_heard(QosOutbox *outbox, const QosCreditMessage *message);
