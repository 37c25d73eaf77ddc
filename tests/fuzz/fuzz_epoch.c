/*
 * Epoch messages, hostile ones too. The input is a list of steps for a combiner that takes part
 * itself: two bytes of length and sender, then as many bytes, which are a message; a sender of 0 is
 * the scheduler here, or time that passes. What is decoded is encoded to the same bytes again, what
 * goes out can be decoded, and each call-back was waited for.
 */
#include <glib.h>
#include <string.h>

#include "base/bytes.h"
#include "core/epoch.h"

#define PARENT 1

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

typedef struct {
    QosEpochHandler *handler;
    QosTime now;
    GArray *out;
    gboolean is_waited_for;
} Node;

static void combine(void *combined, const void *a, gsize a_length, const void *b, gsize b_length)
{
    for (gsize i = 0; i < MIN(a_length, b_length); i++)
        ((guint8 *)combined)[i] = ((const guint8 *)a)[i] | ((const guint8 *)b)[i];
}

static void swab_nothing(void *data G_GNUC_UNUSED, gsize length G_GNUC_UNUSED)
{
}

static void check_repeats(const QosEpochMessage *message, const guint8 *bytes, gsize length)
{
    g_autoptr(GByteArray) again = g_byte_array_new();

    qos_epoch_encode(message, again);
    g_assert_cmpmem(again->data, again->len, bytes, length);
}

static void check_out(Node *node)
{
    for (guint i = 0; i < node->out->len; i++) {
        const QosEpochAction *action = &g_array_index(node->out, QosEpochAction, i);
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        QosEpochMessage message;

        qos_epoch_encode(&action->message, bytes);
        g_assert_true(qos_epoch_decode(bytes->data, bytes->len, &message));
        qos_epoch_message_clear(&message);
        if (action->to == QOS_EPOCH_HERE) {
            g_assert_true(node->is_waited_for);
            node->is_waited_for = FALSE;
        }
    }
    g_array_set_size(node->out, 0);
}

/* The scheduler here: ready, leaving, or waiting for what the bytes say. */
static void step_here(Node *node, const guint8 *bytes, gsize length)
{
    g_autoptr(GBytes) data = g_bytes_new(bytes, length);

    if (length % 3 == 0) {
        if (qos_epoch_next(node->handler, node->handler->epoch, data, node->now, node->out) == 0)
            node->is_waited_for = TRUE;
    } else if (length % 3 == 1) {
        if (qos_epoch_last(node->handler, QOS_EPOCH_FIRST, node->now, node->out) == 0)
            node->is_waited_for = FALSE;
    } else {
        node->now += bytes[0] * QOS_SECOND;
        qos_epoch_tick(node->handler, node->now, node->out);
    }
}

static void step(Node *node, guint8 from, const guint8 *bytes, gsize length)
{
    QosEpochMessage message;

    if (from == QOS_EPOCH_HERE) {
        step_here(node, bytes, length);
    } else if (qos_epoch_decode(bytes, length, &message)) {
        check_repeats(&message, bytes, length);
        qos_epoch_receive(node->handler, from, &message, node->now, node->out);
        qos_epoch_message_clear(&message);
    }
    check_out(node);
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    const QosEpochConfig config = {.parent = PARENT,
                                   .incarnation = 1,
                                   .timeout = 10 * QOS_SECOND,
                                   .retry = QOS_SECOND,
                                   .patience = 30 * QOS_SECOND,
                                   .reduction = {combine, swab_nothing}};
    Node node = {.handler = qos_epoch_tree_new(&config), .out = qos_epoch_actions_new()};
    guint8 length, from;

    while (qos_bytes_take_u8(&data, &size, &length) && qos_bytes_take_u8(&data, &size, &from)) {
        gsize taken = MIN(length, size);

        step(&node, from, data, taken);
        data += taken;
        size -= taken;
    }
    qos_epoch_free(node.handler);
    g_array_unref(node.out);
    return 0;
}
