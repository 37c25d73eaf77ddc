/*
 * Epoch handlers with exact values: the local one, timeouts stepped by hand, eviction and return,
 * messages as bytes. test_epoch_states.c has each message in each state, test_epoch_tree.c whole
 * trees.
 */
#include <errno.h>

#include "epoch_fixture.h"

static void test_local(void)
{
    Node node = {.handler = qos_epoch_local_new(), .out = qos_epoch_actions_new()};

    g_assert_cmpint(qos_epoch_last(node.handler, 0, 0, node.out), ==, -EINVAL);
    g_assert_cmpint(next(&node, 1, "a"), ==, -EINVAL);
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, "a"), ==, 0);
    assert_out(&node, "0 START 0 1 a;");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_WAITING);
    g_assert_cmpint(next(&node, 1, NULL), ==, 0);
    assert_out(&node, "0 START 0 2 ;");
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    g_assert_false(receive(&node, 5, QOS_EPOCH_START, 0, 7, "x"));
    g_assert_cmpint(qos_epoch_last(node.handler, 3, 0, node.out), ==, -EINVAL);
    g_assert_cmpint(qos_epoch_last(node.handler, 2, 0, node.out), ==, 0);
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_IDLE);
    g_assert_cmpint(qos_epoch_last(node.handler, 2, 0, node.out), ==, -EINVAL);
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, "b"), ==, 0);
    assert_out(&node, "0 START 0 3 b;");
    node_clear(&node);
}

static void test_data_too_long(void)
{
    Node node = node_new(QOS_EPOCH_HERE);
    g_autofree char *data = g_strnfill(QOS_EPOCH_DATA_MAX + 1, 'x');

    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, data), ==, -EMSGSIZE);
    g_assert_false(receive(&node, 5, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, data));
    g_assert_cmpuint(node.out->len, ==, 0);
    data[QOS_EPOCH_DATA_MAX] = '\0';
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, data), ==, 0);
    g_assert_cmpuint(node.out->len, ==, 1);
    node_clear(&node);
}

static void test_config(void)
{
    QosEpochConfig config = config_template;

    config.incarnation = 0;
    g_assert_null(qos_epoch_tree_new(&config));
    config.incarnation = QOS_EPOCH_INCARNATION_MAX + 1;
    g_assert_null(qos_epoch_tree_new(&config));
    config.incarnation = QOS_EPOCH_INCARNATION_MAX;
    config.retry = 0;
    g_assert_null(qos_epoch_tree_new(&config));
    config.retry = 1;
    QosEpochHandler *handler = qos_epoch_tree_new(&config);
    g_assert_nonnull(handler);
    qos_epoch_free(handler);
    qos_epoch_free(NULL);
}

/* --- coordinator and combiner, step by step --- */

static void test_coordinator(void)
{
    Node node = node_new(QOS_EPOCH_HERE);

    /* The first is alone: the first epoch is its own. */
    receive(&node, 5, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "adz");
    assert_out(&node, "5 START 1 1.1 adz;");
    receive(&node, 6, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "cb");
    assert_out(&node, "");
    /* The shortest data says how much counts. */
    receive(&node, 5, QOS_EPOCH_READY, 2, FIRST(1), "bczx");
    g_autofree char *started = take(&node);
    g_assert_true(strstr(started, "5 START 2 1.2 cc;") && strstr(started, "6 START 1 1.2 cc;"));
    g_assert_cmpint(node.handler->epoch, ==, FIRST(1) + 1);
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    node_clear(&node);
}

/* The timeout counts from the first that is ready; at its last nanosecond nobody is evicted yet. */
static void test_eviction(void)
{
    Node node = node_new(QOS_EPOCH_HERE);

    for (guint64 child = 5; child <= 7; child++)
        receive(&node, child, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "a");
    receive(&node, 5, QOS_EPOCH_READY, 2, FIRST(1), "a");
    g_array_set_size(node.out, 0); /* all three are in 1.2 */

    node.now = QOS_SECOND;
    receive(&node, 6, QOS_EPOCH_READY, 2, FIRST(1) + 1, "b");
    g_assert_cmpint(tick(&node), ==, QOS_SECOND + TIMEOUT);
    node.now = 5 * QOS_SECOND;
    receive(&node, 7, QOS_EPOCH_READY, 2, FIRST(1) + 1, "c");
    node.now = QOS_SECOND + TIMEOUT - 1;
    g_assert_cmpint(tick(&node), ==, QOS_SECOND + TIMEOUT);
    assert_out(&node, "");
    node.now++;
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    g_autofree char *started = take(&node);
    g_assert_true(strstr(started, "6 START 2 1.3 c;") && strstr(started, "7 START 2 1.3 c;"));
    g_assert_null(strstr(started, "5 "));

    /* The evicted one does not know it: it is told, and comes back as one that knows no epoch. */
    receive(&node, 5, QOS_EPOCH_READY, 3, FIRST(1) + 1, "d");
    assert_out(&node, "5 REFUSE 3 -116 ;");
    receive(&node, 5, QOS_EPOCH_READY, 3, FIRST(1) + 1, "d");
    assert_out(&node, "5 REFUSE 3 -116 ;");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_WAITING);
    receive(&node, 5, QOS_EPOCH_READY, 4, QOS_EPOCH_FIRST, "e");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_CLOSING);
    receive(&node, 6, QOS_EPOCH_READY, 3, FIRST(1) + 2, "e");
    receive(&node, 7, QOS_EPOCH_LEAVE, 3, 0, NULL);
    g_autofree char *returned = take(&node);
    g_assert_true(strstr(returned, "5 START 4 1.4 e;") && strstr(returned, "6 START 3 1.4 e;"));
    node_clear(&node);
}

/* A child that lost its START and gave up is in none of its peers' epochs any more. */
static void test_child_behind(void)
{
    Node node = node_new(QOS_EPOCH_HERE);

    receive(&node, 5, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "a");
    receive(&node, 5, QOS_EPOCH_READY, 2, FIRST(1), "a");
    g_array_set_size(node.out, 0);
    receive(&node, 5, QOS_EPOCH_READY, 3, FIRST(1), "a");
    assert_out(&node, "5 REFUSE 3 -116 ;");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_IDLE);
    node_clear(&node);
}

/* What was handed in before a child restarted is replaced as long as it was not passed on. */
static void test_child_restarts(void)
{
    Node node = node_in(QOS_EPOCH_CLOSING);

    receive(&node, 6, QOS_EPOCH_READY, 8, QOS_EPOCH_FIRST, "x");
    receive(&node, 5, QOS_EPOCH_READY, 2, FIRST(1), "c");
    assert_out(&node, "9 READY 1.2 1.1 x;");
    receive(&node, 6, QOS_EPOCH_READY, 9, QOS_EPOCH_FIRST, "y");
    receive(&node, PARENT, QOS_EPOCH_START, FIRST(1) + 1, FIRST(1) + 1, "z");
    assert_out(&node, "5 START 2 1.2 z;");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_CLOSING);
    receive(&node, 5, QOS_EPOCH_LEAVE, 3, 0, NULL);
    assert_out(&node, "9 READY 1.3 0 y;");
    node_clear(&node);
}

/* A member that waits in an epoch that the others have left is told so. */
static void test_waits_behind(void)
{
    Node node = node_in(QOS_EPOCH_PASSED);

    receive(&node, PARENT, QOS_EPOCH_START, FIRST(1), FIRST(1), "a");
    receive(&node, 5, QOS_EPOCH_READY, 2, FIRST(1), "a");
    receive(&node, 6, QOS_EPOCH_READY, 1, FIRST(1), "a");
    g_array_set_size(node.out, 0);
    receive(&node, PARENT, QOS_EPOCH_START, FIRST(1) + 1, FIRST(1) + 1, "b");
    g_autofree char *started = take(&node);
    g_assert_true(strstr(started, "5 START 2 1.2 b;") && strstr(started, "6 REFUSE 1 -116 ;"));
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_WAITING);
    node_clear(&node);
}

/* A combiner that restarted passes on the oldest epoch of its members, of the latest life of the
 * coordinator that one of them knows. So it brings no member past an epoch that the member missed.
 */
static void test_oldest_member(void)
{
    static const struct {
        gint64 one, other;
        const char *out;
    } cases[] = {{FIRST(1) + 1, FIRST(1), "5 REFUSE 1 -116 ; 9 READY 1.2 1.1 c;"},
                 {FIRST(1) + 1, FIRST(2), "5 REFUSE 1 -116 ; 9 READY 1.2 2.1 c;"},
                 {FIRST(1) + 1, QOS_EPOCH_FIRST, "5 REFUSE 1 -116 ; 9 READY 1.2 1.2 c;"}};

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        Node node = node_in(QOS_EPOCH_PASSED);
        receive(&node, 6, QOS_EPOCH_READY, 1, cases[i].one, "b");
        receive(&node, 7, QOS_EPOCH_READY, 1, cases[i].other, "c");
        receive(&node, PARENT, QOS_EPOCH_REFUSE, FIRST(1), -ESTALE, NULL);
        assert_out(&node, cases[i].out);
        node_clear(&node);
    }
}

/* A coordinator that restarted goes on above all numbers of its former life. */
static void test_coordinator_restarts(void)
{
    QosEpochConfig config = config_template;
    config.incarnation = 2;
    Node node = {.handler = qos_epoch_tree_new(&config), .out = qos_epoch_actions_new()};

    receive(&node, 5, QOS_EPOCH_READY, 4, FIRST(1) + 6, "a");
    assert_out(&node, "5 START 4 2.1 a;");
    receive(&node, 6, QOS_EPOCH_READY, 9, FIRST(1) + 5, "b");
    receive(&node, 5, QOS_EPOCH_LEAVE, 5, 0, NULL);
    assert_out(&node, "6 START 9 2.2 b;");
    node_clear(&node);
}

static void test_numbers_end(void)
{
    Node node = node_new(QOS_EPOCH_HERE);

    node.handler->epoch = FIRST(2) - 2;
    receive(&node, 5, QOS_EPOCH_READY, 1, QOS_EPOCH_FIRST, "a");
    assert_out(&node, "5 REFUSE 1 -75 ;");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_IDLE);
    node_clear(&node);
}

/* --- a participant's own node --- */

static void test_participant(void)
{
    Node node = node_new(PARENT);

    g_assert_cmpint(qos_epoch_last(node.handler, 0, 0, node.out), ==, -EINVAL);
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, "a"), ==, 0);
    assert_out(&node, "9 READY 1.1 0 a;");
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, "a"), ==, -EBUSY);
    g_assert_cmpint(tick(&node), ==, RETRY);
    g_assert_true(receive(&node, PARENT, QOS_EPOCH_START, FIRST(1), FIRST(1), "b"));
    assert_out(&node, "0 START 0 1.1 b;");
    g_assert_false(receive(&node, PARENT, QOS_EPOCH_START, FIRST(1), FIRST(1), "b"));
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    g_assert_cmpint(next(&node, FIRST(1) + 1, "a"), ==, -EINVAL);
    g_assert_cmpint(next(&node, FIRST(1), "c"), ==, 0);
    assert_out(&node, "9 READY 1.2 1.1 c;");
    /* An epoch that has begun here does not begin again. */
    g_assert_false(receive(&node, PARENT, QOS_EPOCH_START, FIRST(1) + 1, FIRST(1), "b"));
    g_assert_true(receive(&node, PARENT, QOS_EPOCH_REFUSE, FIRST(1) + 1, -ESTALE, NULL));
    assert_out(&node, "0 REFUSE 0 -116 ; 9 LEAVE 1.3 0 ;");
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, "d"), ==, 0);
    assert_out(&node, "9 READY 1.4 0 d;");
    /* It leaves while it waits: no call-back. */
    g_assert_cmpint(qos_epoch_last(node.handler, FIRST(1), 0, node.out), ==, 0);
    assert_out(&node, "9 LEAVE 1.5 0 ;");
    g_assert_false(receive(&node, PARENT, QOS_EPOCH_START, FIRST(1) + 3, FIRST(1) + 1, "b"));
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    node_clear(&node);
}

/* Cut off: repeated every RETRY, given up after PATIENCE, to the nanosecond. */
static void test_cut_off(void)
{
    Node node = node_new(PARENT);

    node.now = QOS_SECOND;
    next(&node, QOS_EPOCH_FIRST, "a");
    for (guint i = 1; i < 10; i++) {
        assert_out(&node, "9 READY 1.1 0 a;");
        node.now = QOS_SECOND + i * RETRY - 1;
        g_assert_cmpint(tick(&node), ==, node.now + 1);
        assert_out(&node, "");
        node.now++;
        g_assert_cmpint(tick(&node), ==, node.now + RETRY);
    }
    assert_out(&node, "9 READY 1.1 0 a;");
    node.now = QOS_SECOND + PATIENCE - 1;
    g_assert_cmpint(tick(&node), ==, QOS_SECOND + PATIENCE);
    node.now++;
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    assert_out(&node, "9 READY 1.1 0 a; 0 REFUSE 0 -110 ; 9 LEAVE 1.2 0 ;");
    g_assert_cmpint(node.handler->state, ==, QOS_EPOCH_IDLE);
    node_clear(&node);
}

/* The scheduler of a node that has children as well is a member like them. */
static void test_combiner_takes_part(void)
{
    Node node = node_in(QOS_EPOCH_WAITING);

    next(&node, QOS_EPOCH_FIRST, "b");
    receive(&node, 5, QOS_EPOCH_READY, 2, FIRST(1), "a");
    assert_out(&node, "9 READY 1.2 1.1 b;");
    receive(&node, PARENT, QOS_EPOCH_START, FIRST(1) + 1, FIRST(1) + 1, "z");
    g_autofree char *started = take(&node);
    g_assert_true(strstr(started, "0 START 0 1.2 z;") && strstr(started, "5 START 2 1.2 z;"));
    /* Evicted, it is told as a child is. */
    receive(&node, 5, QOS_EPOCH_READY, 3, FIRST(1) + 1, "a");
    node.now = TIMEOUT;
    tick(&node);
    receive(&node, PARENT, QOS_EPOCH_START, FIRST(1) + 2, FIRST(1) + 2, "z");
    assert_out(&node, "9 READY 1.3 1.2 a; 5 START 3 1.3 z;");
    g_assert_cmpint(next(&node, FIRST(1) + 1, "b"), ==, 0);
    assert_out(&node, "0 REFUSE 0 -116 ;");
    g_assert_cmpint(tick(&node), ==, QOS_NEVER);
    g_assert_cmpint(next(&node, QOS_EPOCH_FIRST, "b"), ==, 0);
    node_clear(&node);
}

/* --- messages as bytes --- */

static void test_swapped(void)
{
    Node node = node_new(PARENT);
    g_autoptr(GBytes) data = g_bytes_new_static("abc", 3);
    QosEpochMessage ready = {
        .type = QOS_EPOCH_READY, .ticket = 1, .data = data, .is_swapped = TRUE};

    qos_epoch_receive(node.handler, 5, &ready, 0, node.out);
    assert_out(&node, "9 READY 1.1 0 cba;");
    node_clear(&node);
}

static void test_bytes(void)
{
    static const guint8 expected[] = {1,   1,  G_BYTE_ORDER == G_BIG_ENDIAN,
                                      0,   2,  0,
                                      0,   0,  8,
                                      7,   6,  5,
                                      4,   3,  2,
                                      1,   2,  0,
                                      0,   0,  0,
                                      1,   0,  0,
                                      'h', 'i'};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GBytes) data = g_bytes_new_static("hi", 2);
    const QosEpochMessage ready = {.type = QOS_EPOCH_READY,
                                   .ticket = G_GUINT64_CONSTANT(0x0102030405060708),
                                   .epoch = FIRST(1) + 1,
                                   .data = data};
    QosEpochMessage decoded;

    qos_epoch_encode(&ready, bytes);
    g_assert_cmpmem(bytes->data, bytes->len, expected, sizeof(expected));
    for (guint length = 0; length < bytes->len; length++)
        g_assert_false(qos_epoch_decode(bytes->data, length, &decoded));
    g_assert_true(qos_epoch_decode(bytes->data, bytes->len, &decoded));
    g_assert_cmpuint(decoded.ticket, ==, ready.ticket);
    g_assert_cmpint(decoded.epoch, ==, ready.epoch);
    g_assert_false(decoded.is_swapped);
    g_assert_true(g_bytes_equal(decoded.data, data));
    qos_epoch_message_clear(&decoded);

    bytes->data[2] ^= 1;
    g_assert_true(qos_epoch_decode(bytes->data, bytes->len, &decoded));
    g_assert_true(decoded.is_swapped);
    qos_epoch_message_clear(&decoded);
    /* Each byte of the header but those of the order and the ticket is looked at. */
    for (guint at = 0; at < 24; at++) {
        if (at == 2 || (at >= 8 && at < 16) || (at >= 16 && at < 23))
            continue;
        guint8 before = bytes->data[at];
        bytes->data[at] = 0xff;
        g_assert_false(qos_epoch_decode(bytes->data, bytes->len, &decoded));
        bytes->data[at] = before;
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/epoch/local", test_local);
    g_test_add_func("/epoch/data-too-long", test_data_too_long);
    g_test_add_func("/epoch/config", test_config);
    g_test_add_func("/epoch/coordinator", test_coordinator);
    g_test_add_func("/epoch/eviction", test_eviction);
    g_test_add_func("/epoch/child-behind", test_child_behind);
    g_test_add_func("/epoch/child-restarts", test_child_restarts);
    g_test_add_func("/epoch/waits-behind", test_waits_behind);
    g_test_add_func("/epoch/oldest-member", test_oldest_member);
    g_test_add_func("/epoch/coordinator-restarts", test_coordinator_restarts);
    g_test_add_func("/epoch/numbers-end", test_numbers_end);
    g_test_add_func("/epoch/participant", test_participant);
    g_test_add_func("/epoch/cut-off", test_cut_off);
    g_test_add_func("/epoch/combiner-takes-part", test_combiner_takes_part);
    g_test_add_func("/epoch/swapped", test_swapped);
    g_test_add_func("/epoch/bytes", test_bytes);
    return g_test_run();
}
