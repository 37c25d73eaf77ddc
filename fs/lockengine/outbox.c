/*
 * The messages to be sent. fs/lockengine/outbox.h has the contract.
 */
#include "fs/lockengine/outbox.h"

#define UNSENT_MAX (8u << 20) /* bytes: beyond it messages are left out, and repeated later */
/* Bytes from which on a frame takes no more messages, because urgent frames are written between two
 * of them (fs/lockclient/link.h). */
#define FRAME_FULL 65536u

void qos_outbox_open(QosOutbox *outbox)
{
    outbox->is_open = TRUE;
}

void qos_outbox_close(QosOutbox *outbox)
{
    outbox->is_open = FALSE;
    g_clear_pointer(&outbox->bytes, g_byte_array_unref);
}

static gboolean is_new(QosOutbox *outbox, const QosCreditMessage *message, guint64 *last)
{
    if (message->session != outbox->session) {
        outbox->session = message->session;
        outbox->sent = outbox->heard = 0;
    }
    if (message->sequence <= *last)
        return FALSE;
    *last = message->sequence;
    return TRUE;
}

static void count_sent(QosOutbox *outbox, const QosCreditMessage *message)
{
    if (!is_new(outbox, message, &outbox->sent))
        return;
    if (message->type == QOS_MESSAGE_ENQUEUE)
        outbox->enqueues++;
    if (message->type == QOS_MESSAGE_CANCEL && message->request == 0) {
        outbox->cancels++;
        outbox->cancel_messages++;
    }
    if (message->more != NULL && message->type != QOS_MESSAGE_RECLAIM)
        outbox->cancels += message->more->len;
}

void qos_outbox_add(QosOutbox *outbox, const QosCreditMessage *message, QosPoolSignal heard)
{
    QosCreditMessage claims;

    if (!outbox->is_open)
        return;
    if (message->type == QOS_MESSAGE_RECLAIM) {
        claims = *message;
        claims.stamp = heard;
        message = &claims;
    }
    if (outbox->bytes == NULL) {
        outbox->bytes = g_byte_array_new();
        outbox->batch = QOS_WIRE_NO_BATCH;
    }
    if (outbox->batch != QOS_WIRE_NO_BATCH && outbox->bytes->len - outbox->batch >= FRAME_FULL)
        outbox->batch = QOS_WIRE_NO_BATCH;
    if (outbox->bytes->len < UNSENT_MAX &&
        qos_wire_put_credits(outbox->bytes, &outbox->batch, message))
        count_sent(outbox, message);
}

GByteArray *qos_outbox_take(QosOutbox *outbox)
{
    return g_steal_pointer(&outbox->bytes);
}

void qos_outbox_note_heard(QosOutbox *outbox, const QosCreditMessage *message)
{
    if (message->type == QOS_MESSAGE_REVOKE && is_new(outbox, message, &outbox->heard))
        outbox->revocations++;
}
