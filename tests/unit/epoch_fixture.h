/*
 * An epoch handler stepped by hand. What it hands out is compared as text, one action after the
 * other: "TO TYPE ticket epoch data;".
 */
#pragma once

#include <string.h>

#include "core/epoch.h"

#define PARENT   9
#define FIRST(n) (((gint64)(n) << QOS_EPOCH_COUNT_BITS) + 1) /* of the incarnation */
#define TIMEOUT  (10 * QOS_SECOND)
#define RETRY    (3 * QOS_SECOND)
#define PATIENCE (30 * QOS_SECOND)

typedef struct {
    QosEpochHandler *handler;
    QosTime now;
    GArray *out;
} Node;

/* Policy data in these tests is a set of letters: the greater of two at each place. */
static void combine(void *combined, const void *a, gsize a_length, const void *b, gsize b_length)
{
    for (gsize i = 0; i < MIN(a_length, b_length); i++)
        ((char *)combined)[i] = MAX(((const char *)a)[i], ((const char *)b)[i]);
}

static void swab_letters(void *data, gsize length)
{
    for (gsize i = 0; i < length / 2; i++) {
        char byte = ((char *)data)[i];
        ((char *)data)[i] = ((char *)data)[length - 1 - i];
        ((char *)data)[length - 1 - i] = byte;
    }
}

static const QosEpochConfig config_template = {
    .incarnation = 1,
    .timeout = TIMEOUT,
    .retry = RETRY,
    .patience = PATIENCE,
    .reduction = {combine, swab_letters},
};

static Node node_new(guint64 parent)
{
    QosEpochConfig config = config_template;

    config.parent = parent;
    return (Node){.handler = qos_epoch_tree_new(&config), .out = qos_epoch_actions_new()};
}

static void node_clear(Node *node)
{
    qos_epoch_free(node->handler);
    g_array_unref(node->out);
}

static char *number(gint64 value)
{
    if (value < FIRST(1))
        return g_strdup_printf("%" G_GINT64_FORMAT, value);
    return g_strdup_printf("%d.%d", (int)(value >> QOS_EPOCH_COUNT_BITS), (int)value);
}

/* What was handed out since the last call. */
static char *take(Node *node)
{
    static const char *const names[] = {"", "READY", "LEAVE", "START", "REFUSE"};
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < node->out->len; i++) {
        const QosEpochAction *action = &g_array_index(node->out, QosEpochAction, i);
        const QosEpochMessage *message = &action->message;
        g_autofree char *ticket = number((gint64)message->ticket);
        g_autofree char *epoch = number(message->epoch);
        gsize length = 0;
        const char *data = message->data ? g_bytes_get_data(message->data, &length) : NULL;

        g_string_append_printf(text, "%s%d %s %s %s %.*s;", i > 0 ? " " : "", (int)action->to,
                               names[message->type], ticket, epoch, (int)length, data ? data : "");
    }
    g_array_set_size(node->out, 0);
    return g_string_free(text, FALSE);
}

#define assert_out(node, expected)                                                                 \
    do {                                                                                           \
        g_autofree char *out_text = take(node);                                                    \
        g_assert_cmpstr(out_text, ==, expected);                                                   \
    } while (0)

static gboolean receive(Node *node, guint64 from, QosEpochMessageType type, guint64 ticket,
                        gint64 epoch, const char *data)
{
    g_autoptr(GBytes) bytes = data != NULL ? g_bytes_new_static(data, strlen(data)) : NULL;
    const QosEpochMessage message = {.type = type, .ticket = ticket, .epoch = epoch, .data = bytes};

    return qos_epoch_receive(node->handler, from, &message, node->now, node->out);
}

static inline int next(Node *node, gint64 epoch, const char *data)
{
    g_autoptr(GBytes) bytes = data != NULL ? g_bytes_new_static(data, strlen(data)) : NULL;

    return qos_epoch_next(node->handler, epoch, bytes, node->now, node->out);
}

static inline QosTime tick(Node *node)
{
    return qos_epoch_tick(node->handler, node->now, node->out);
}

/* A combiner of the children 5 and 6 in each state; its ticket is 1.1, its epoch 1.1 once it has
 * one. */
static Node node_in(QosEpochState state)
{
    Node node = node_new(PARENT);

    if (state == QOS_EPOCH_IDLE)
        return node;
    receive(&node, 5, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "a");
    if (state != QOS_EPOCH_PASSED)
        receive(&node, PARENT, QOS_EPOCH_START, FIRST(1), FIRST(1), "a");
    if (state == QOS_EPOCH_CLOSING)
        receive(&node, 6, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "b");
    g_array_set_size(node.out, 0);
    g_assert_cmpint(node.handler->state, ==, state);
    return node;
}
