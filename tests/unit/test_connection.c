/*
 * A server's connection and the turns of the loop: what the tests of the whole server
 * (tests/server) cannot bring about at will.
 */
#include "server/connection.h"

#include <gio/gio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/wire_cluster.h"

#define TURN       256  /* messages that are worked on in one turn */
#define TURNS_MOST 1000 /* of the loop, until it comes to rest */

typedef struct {
    int peer;
    QosConnection *connection;
    gboolean closes; /* as soon as it has received */
    guint in_turn;   /* messages */
    guint received, ended, closed, gone;
} Fixture;

static gboolean hello(QosConnection *connection G_GNUC_UNUSED,
                      const QosWireHello *message G_GNUC_UNUSED, QosWireWelcome *ret_welcome,
                      QosWireRefused *ret_refused G_GNUC_UNUSED, gpointer arg G_GNUC_UNUSED)
{
    *ret_welcome = (QosWireWelcome){.version = QOS_WIRE_VERSION,
                                    .id = 1,
                                    .incarnation = 1,
                                    .lease = QOS_SECOND,
                                    .resend = QOS_SECOND,
                                    .group = 1};
    return TRUE;
}

static void received(QosConnection *connection, const QosCreditMessage *messages G_GNUC_UNUSED,
                     guint count, gpointer arg)
{
    Fixture *fixture = arg;

    fixture->received += count;
    fixture->in_turn += count;
    g_assert_cmpuint(fixture->in_turn, <=, TURN);
    if (fixture->closes)
        qos_connection_close(connection, QOS_WIRE_FULL, "it does not read what it is sent");
}

static gboolean waits(QosConnection *connection G_GNUC_UNUSED, QosWireWait *wait G_GNUC_UNUSED,
                      gpointer arg G_GNUC_UNUSED)
{
    return FALSE;
}

static void has_output(QosConnection *connection, gpointer arg G_GNUC_UNUSED)
{
    qos_connection_flush(connection);
}

static void has_turned(gpointer arg)
{
    ((Fixture *)arg)->in_turn = 0;
}

static void ended(QosConnection *connection G_GNUC_UNUSED, QosWireRefusal code G_GNUC_UNUSED,
                  const char *reason G_GNUC_UNUSED, gpointer arg)
{
    ((Fixture *)arg)->ended++;
}

static void closed(QosConnection *connection G_GNUC_UNUSED, gpointer arg)
{
    ((Fixture *)arg)->closed++;
}

static void gone(gpointer arg)
{
    ((Fixture *)arg)->gone++;
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosConnectionUser user = {.patience = 600 * QOS_SECOND,
                                    .arg = fixture,
                                    .hello = hello,
                                    .received = received,
                                    .waits = waits,
                                    .has_output = has_output,
                                    .has_turned = has_turned,
                                    .ended = ended,
                                    .closed = closed,
                                    .gone = gone};
    int ends[2];

    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), ==, 0);
    g_autoptr(GSocket) socket = g_socket_new_from_fd(ends[0], NULL);
    g_assert_nonnull(socket);
    g_socket_set_blocking(socket, FALSE);
    fixture->peer = ends[1];
    fixture->connection = qos_connection_new(socket, NULL, "uid 0", &user);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_connection_close(fixture->connection, 0, NULL);
    g_assert_cmpuint(fixture->ended, ==, 1);
    g_assert_cmpuint(fixture->closed, ==, 1);
    qos_connection_unref(fixture->connection);
    g_assert_cmpuint(fixture->gone, ==, 1);
    close(fixture->peer);
}

/* HELLO, and so many messages in one frame, at once. */
static void send_messages(const Fixture *fixture, guint count)
{
    const QosWireHello hello = {
        .version = QOS_WIRE_VERSION, .id = 7, .incarnation = 1, .store = "store", .name = "name"};
    const QosCreditMessage message = {.type = QOS_MESSAGE_RENEW};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;

    qos_wire_put_hello(bytes, &hello);
    for (guint i = 0; i < count; i++)
        g_assert_true(qos_wire_put_credits(bytes, &batch, &message));
    g_assert_cmpint(send(fixture->peer, bytes->data, bytes->len, 0), ==, bytes->len);
}

/* Until nothing is left to do, which does not take for ever. */
static void come_to_rest(void)
{
    guint turns = 0;

    while (g_main_context_iteration(NULL, FALSE))
        g_assert_cmpuint(++turns, <, TURNS_MOST);
}

static void test_more_than_a_turn(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    send_messages(fixture, 2 * TURN + 3);
    come_to_rest();
    g_assert_cmpuint(fixture->received, ==, 2 * TURN + 3);
    g_assert_cmpuint(fixture->closed, ==, 0);
}

/* An older mount is told both versions and what to do, in a frame that it can read. */
static void test_older_mount(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosWireHello hello = {
        .version = QOS_WIRE_VERSION - 1, .id = 7, .incarnation = 1, .store = "store"};
    g_autofree char *fault = qos_wire_version_fault(QOS_WIRE_VERSION - 1, QOS_WIRE_VERSION);
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    g_autoptr(GByteArray) expected = g_byte_array_new();
    guint8 answer[1024];

    qos_wire_put_hello(bytes, &hello);
    g_assert_cmpint(send(fixture->peer, bytes->data, bytes->len, 0), ==, bytes->len);
    come_to_rest();
    qos_wire_put_refused(expected, QOS_WIRE_BAD_VERSION, fault);
    gssize length = recv(fixture->peer, answer, sizeof(answer), 0);
    g_assert_cmpmem(answer, length, expected->data, expected->len);
    g_assert_cmpuint(fixture->ended, ==, 1);
}

/* Frames of budgets that nothing takes here end the connection, with the reason. */
static void test_unasked(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosWireBudget item = {.rule = 1, .bytes = (const guint8 *)"x", .length = 1};
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize batch = QOS_WIRE_NO_BATCH;

    send_messages(fixture, 1);
    qos_wire_put_budget(bytes, &batch, QOS_WIRE_BUDGET_REPORT, &item);
    g_assert_cmpint(send(fixture->peer, bytes->data, bytes->len, 0), ==, bytes->len);
    come_to_rest();
    g_assert_cmpuint(fixture->received, ==, 1);
    g_assert_cmpuint(fixture->ended, ==, 1);
}

/* By what ends the turn, which HELLO and the frame itself belong to, or just before or after. */
static void test_closed_as_a_turn_ends(Fixture *fixture, gconstpointer data)
{
    const guint count = GPOINTER_TO_UINT(data);

    fixture->closes = TRUE;
    send_messages(fixture, count);
    come_to_rest();
    g_assert_cmpuint(fixture->received, >=, MIN(count, TURN - 2));
    g_assert_cmpuint(fixture->closed, ==, 1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/connection/more-than-a-turn", Fixture, NULL, set_up, test_more_than_a_turn,
               tear_down);
    g_test_add("/connection/older-mount", Fixture, NULL, set_up, test_older_mount, tear_down);
    g_test_add("/connection/unasked", Fixture, NULL, set_up, test_unasked, tear_down);
    for (guint count = TURN - 3; count <= TURN + 1; count++) {
        g_autofree char *path = g_strdup_printf("/connection/closed-as-a-turn-ends/%u", count);
        g_test_add(path, Fixture, GUINT_TO_POINTER(count), set_up, test_closed_as_a_turn_ends,
                   tear_down);
    }
    return g_test_run();
}
