/*
 * Epoch handlers: the local one, with exact values.
 */
#include <errno.h>

#include "core/epoch.h"

static void test_local(void)
{
    QosEpochHandler *handler = qos_epoch_local_new();
    g_autoptr(GArray) out = qos_epoch_actions_new();
    g_autoptr(GBytes) data = g_bytes_new_static("policy", 6);
    const QosEpochMessage start = {.type = QOS_EPOCH_START, .epoch = 7, .ticket = 1};

    g_assert_cmpint(qos_epoch_last(handler, 0, 0, out), ==, -EINVAL);
    for (gint64 epoch = 0; epoch < 3; epoch++) {
        g_assert_cmpint(qos_epoch_next(handler, epoch + 1, data, 0, out), ==, -EINVAL);
        g_assert_cmpint(qos_epoch_next(handler, epoch, data, 0, out), ==, 0);
        g_assert_cmpint(handler->state, ==, QOS_EPOCH_WAITING);
        g_assert_cmpuint(out->len, ==, 1);
        const QosEpochAction *action = &g_array_index(out, QosEpochAction, 0);
        g_assert_cmpuint(action->to, ==, QOS_EPOCH_HERE);
        g_assert_cmpint(action->message.type, ==, QOS_EPOCH_START);
        g_assert_cmpint(action->message.epoch, ==, epoch + 1);
        g_assert_true(g_bytes_equal(action->message.data, data));
        g_array_set_size(out, 0);
    }
    g_assert_cmpint(qos_epoch_tick(handler, 0, out), ==, QOS_NEVER);
    g_assert_false(qos_epoch_receive(handler, 5, &start, 0, out));
    g_assert_cmpint(qos_epoch_last(handler, 3, 0, out), ==, 0);
    g_assert_cmpint(handler->state, ==, QOS_EPOCH_IDLE);
    g_assert_cmpint(qos_epoch_last(handler, 3, 0, out), ==, -EINVAL);
    g_assert_cmpint(qos_epoch_next(handler, QOS_EPOCH_FIRST, NULL, 0, out), ==, 0);
    g_assert_cmpint(handler->epoch, ==, 4);
    qos_epoch_free(handler);
}

/* Policy data of more than may be sent is refused. */
static void test_data_too_long(void)
{
    QosEpochHandler *handler = qos_epoch_local_new();
    g_autoptr(GArray) out = qos_epoch_actions_new();
    g_autoptr(GBytes) data =
        g_bytes_new_take(g_malloc0(QOS_EPOCH_DATA_MAX + 1), QOS_EPOCH_DATA_MAX + 1);
    g_autoptr(GBytes) longest = g_bytes_new_from_bytes(data, 0, QOS_EPOCH_DATA_MAX);

    g_assert_cmpint(qos_epoch_next(handler, QOS_EPOCH_FIRST, data, 0, out), ==, -EMSGSIZE);
    g_assert_cmpuint(out->len, ==, 0);
    g_assert_cmpint(qos_epoch_next(handler, QOS_EPOCH_FIRST, longest, 0, out), ==, 0);
    qos_epoch_free(handler);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/epoch/local", test_local);
    g_test_add_func("/epoch/data-too-long", test_data_too_long);
    return g_test_run();
}
