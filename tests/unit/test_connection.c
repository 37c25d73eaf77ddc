/*
 * A server's connection and the turns of the loop: what the tests of the whole server
 * (tests/server) cannot bring about at will.
 */
#include "server/connection.h"

#include <gio/gio.h>
#include <string.h>
#include <sys/ioctl.h>
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
    guint received, opened, ended, closed, gone;
    guint frames; /* of the cluster */
    QosWireType frame_type;
    const char *fault; /* what is wrong with them */
    guint *flood;      /* what the other connection had received when the first one came: */
    guint flood_then;
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

static void opened(QosConnection *connection G_GNUC_UNUSED, gpointer arg)
{
    ((Fixture *)arg)->opened++;
}

/* Answers with an urgent frame. */
static const char *frame(QosConnection *connection, QosWireType type,
                         const guint8 *payload G_GNUC_UNUSED, gsize length G_GNUC_UNUSED,
                         gpointer arg)
{
    Fixture *fixture = arg;
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    fixture->frames++;
    fixture->frame_type = type;
    if (fixture->flood != NULL && fixture->frames == 1)
        fixture->flood_then = *fixture->flood;
    if (fixture->fault != NULL)
        return fixture->fault;
    qos_wire_put_admin_result(bytes, &(QosWireAdminResult){.id = 1, .text = (char *)"done"});
    qos_connection_send_urgent(connection, bytes->data, bytes->len);
    return NULL;
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

/* The poller of all connections. */
static QosPoller *poller;

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosConnectionUser user = {.patience = 600 * QOS_SECOND,
                                    .poller = poller,
                                    .arg = fixture,
                                    .hello = hello,
                                    .opened = opened,
                                    .frame = frame,
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

/* Frames of the cluster go to the user; one that it does not take ends the connection. */
static void test_cluster_frames(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosWireSeen seen = {.version = 1};
    g_autoptr(GByteArray) bytes = g_byte_array_new();

    send_messages(fixture, 1);
    qos_wire_put_seen(bytes, &seen);
    g_assert_cmpint(send(fixture->peer, bytes->data, bytes->len, 0), ==, bytes->len);
    come_to_rest();
    g_assert_cmpuint(fixture->opened, ==, 1);
    g_assert_cmpuint(fixture->frames, ==, 1);
    g_assert_cmpuint(fixture->frame_type, ==, QOS_WIRE_RULES_SEEN);
    g_assert_cmpuint(fixture->ended, ==, 0);
    fixture->fault = "it is not taken";
    g_assert_cmpint(send(fixture->peer, bytes->data, bytes->len, 0), ==, bytes->len);
    come_to_rest();
    g_assert_cmpuint(fixture->ended, ==, 1);
}

/* --- the classes of output --- */

#define RULE_BYTES 32000
#define RULES      131 /* some 4 MiB */

/* The frames of a list of that version. */
static GBytes *make_list(guint64 version)
{
    QosWireRules list = {.version = version, .epoch = QOS_SECOND, .lease = QOS_SECOND};
    GByteArray *bytes = g_byte_array_new();
    guint next = 0;

    list.rules = g_array_new(FALSE, FALSE, sizeof(QosWireRule));
    for (guint i = 0; i < RULES; i++) {
        QosWireRule rule = {.id = i + 1, .left = QOS_NEVER, .command = g_strnfill(RULE_BYTES, 'x')};
        list.size += RULE_BYTES;
        g_array_append_val(list.rules, rule);
    }
    list.total = RULES;
    do
        next = qos_wire_put_rules(bytes, &list, next);
    while (next < RULES);
    qos_wire_rules_clear(&list);
    return g_byte_array_free_to_bytes(bytes);
}

/* A frame that the peer has read. */
typedef struct {
    QosWireType type;
    gsize end;       /* bytes up to its end, of all that was read */
    guint64 version; /* of RULES */
    guint first;
} Frame;

/* Reads all that comes, while the loop runs; returns the Frames. */
static GArray *read_frames(const Fixture *fixture)
{
    GArray *frames = g_array_new(FALSE, TRUE, sizeof(Frame));
    g_autofree guint8 *buffer = g_malloc(65536);
    QosWireReader reader;
    gsize end = 0;
    gssize length;

    qos_wire_reader_init(&reader);
    reader.limit = QOS_WIRE_FRAME_MAX;
    while ((length = recv(fixture->peer, buffer, 65536, MSG_DONTWAIT)) > 0) {
        const guint8 *payload;
        gsize size;
        QosWireType type;

        qos_wire_reader_feed(&reader, buffer, (gsize)length);
        while (qos_wire_reader_next(&reader, &type, &payload, &size) == QOS_WIRE_FRAME) {
            QosWireRules page = {0};
            if (type == QOS_WIRE_RULES)
                g_assert_true(qos_wire_get_rules(payload, size, &page));
            end += size + 5;
            g_array_append_val(frames, ((Frame){type, end, page.version, page.first}));
            qos_wire_rules_clear(&page);
        }
        come_to_rest();
    }
    g_assert_cmpuint(qos_wire_reader_waiting(&reader), ==, 0);
    qos_wire_reader_clear(&reader);
    return frames;
}

/* Bytes that the kernel has for the peer. */
static gsize in_kernel(const Fixture *fixture)
{
    int count = 0;

    g_assert_cmpint(ioctl(fixture->peer, FIONREAD, &count), ==, 0);
    return (gsize)count;
}

static const Frame *first_of(const GArray *frames, QosWireType type)
{
    for (guint i = 0; i < frames->len; i++) {
        const Frame *found = &g_array_index(frames, Frame, i);
        if (found->type == type)
            return found;
    }
    g_assert_not_reached();
}

/* A long list, to a peer that does not read, delays neither a revocation nor a grant by more than
 * one page behind what the kernel has taken. */
static void test_bulk_waits(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosCreditMessage revocation = {.type = QOS_MESSAGE_RENEW};
    const QosWireSeen seen = {.version = 1};
    g_autoptr(GByteArray) report = g_byte_array_new();
    g_autoptr(GBytes) list = make_list(1);

    send_messages(fixture, 1);
    come_to_rest();
    qos_connection_send_bulk(fixture->connection, list);
    come_to_rest();
    gsize taken = in_kernel(fixture);
    g_assert_cmpuint(taken, <, g_bytes_get_size(list) / 4);
    qos_connection_send(fixture->connection, &revocation);
    qos_wire_put_seen(report, &seen);
    g_assert_cmpint(send(fixture->peer, report->data, report->len, 0), ==, report->len);
    come_to_rest();

    g_autoptr(GArray) frames = read_frames(fixture);
    const Frame *urgent = first_of(frames, QOS_WIRE_ADMIN_RESULT);
    const Frame *credits = first_of(frames, QOS_WIRE_CREDITS);
    g_assert_cmpuint(urgent->end, <, taken + QOS_WIRE_PAGE_MAX + 100);
    g_assert_cmpuint(credits->end, <, taken + QOS_WIRE_PAGE_MAX + 200);
    g_assert_true(urgent + 1 == credits); /* though it was later */
    const Frame *last = &g_array_index(frames, Frame, frames->len - 1);
    g_assert_cmpuint(last->type, ==, QOS_WIRE_RULES);
    g_assert_cmpuint(frames->len, >=, RULES / 2);
}

/* A newer list takes the place of one that a slow peer has not read: not both are sent. */
static void test_bulk_is_replaced(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autoptr(GBytes) old = make_list(1);
    g_autoptr(GBytes) new = make_list(2);
    gsize sum = 0;

    send_messages(fixture, 1);
    come_to_rest();
    qos_connection_send_bulk(fixture->connection, old);
    come_to_rest();
    gsize taken = in_kernel(fixture);
    qos_connection_send_bulk(fixture->connection, new);
    come_to_rest();

    g_autoptr(GArray) frames = read_frames(fixture);
    for (guint i = 0; i < frames->len; i++) {
        const Frame *page = &g_array_index(frames, Frame, i);
        if (page->type == QOS_WIRE_RULES && page->version == 1)
            sum = page->end;
    }
    g_assert_cmpuint(sum, <, taken + QOS_WIRE_PAGE_MAX + 100);
    const Frame *last = &g_array_index(frames, Frame, frames->len - 1);
    g_assert_cmpuint(last->version, ==, 2);
    g_assert_cmpuint(last->end, >=, sum + g_bytes_get_size(new));
}

/* Credits that wait in great number come out complete, in order, and grants come before them. */
static void test_urgent_before_credits(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosWireSeen seen = {.version = 1};
    g_autoptr(GByteArray) report = g_byte_array_new();
    guint count = 0;

    send_messages(fixture, 1);
    come_to_rest();
    for (guint64 i = 1; i <= 20000; i++)
        qos_connection_send(fixture->connection,
                            &(QosCreditMessage){.type = QOS_MESSAGE_RENEW, .sequence = i});
    come_to_rest();
    gsize taken = in_kernel(fixture);
    qos_wire_put_seen(report, &seen);
    g_assert_cmpint(send(fixture->peer, report->data, report->len, 0), ==, report->len);
    come_to_rest();
    g_autoptr(GArray) frames = read_frames(fixture);
    g_assert_cmpuint(first_of(frames, QOS_WIRE_ADMIN_RESULT)->end, <,
                     taken + 2 * QOS_WIRE_PAGE_MAX);
    for (guint i = 0; i < frames->len; i++)
        count += g_array_index(frames, Frame, i).type == QOS_WIRE_CREDITS;
    g_assert_cmpuint(count, >, 1);
    g_assert_cmpuint(fixture->ended, ==, 0);
}

/* A peer that floods the server with messages delays the report of another one by two turns of its
 * own, at most. */
static void test_flood(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const QosWireSeen seen = {.version = 1};
    g_autoptr(GByteArray) report = g_byte_array_new();
    Fixture other = {.flood = &fixture->received};
    guint sent = 1;

    set_up(&other, NULL);
    send_messages(&other, 1);
    come_to_rest();
    send_messages(fixture, 1);
    come_to_rest();
    qos_wire_put_seen(report, &seen);
    while (sent < 100000) {
        const QosCreditMessage message = {.type = QOS_MESSAGE_RENEW};
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        gsize batch = QOS_WIRE_NO_BATCH, at = 0;

        for (guint i = 0; i < 10000 && sent < 100000; i++, sent++)
            g_assert_true(qos_wire_put_credits(bytes, &batch, &message));
        while (at < bytes->len) {
            gssize length = send(fixture->peer, bytes->data + at, bytes->len - at, MSG_DONTWAIT);
            if (length > 0) {
                at += (gsize)length;
            } else {
                guint before = fixture->received;
                if (other.frames == 0 && before > 1000)
                    g_assert_cmpint(send(other.peer, report->data, report->len, 0), ==,
                                    report->len);
                g_main_context_iteration(NULL, FALSE);
                g_assert_cmpuint(fixture->received, <=, before + 2 * TURN);
                if (before > 1000) {
                    g_assert_cmpuint(other.frames, >, 0); /* within one turn of the loop */
                    g_assert_cmpuint(other.flood_then, <=, before + 2 * TURN);
                }
            }
        }
    }
    while (fixture->received < sent)
        g_main_context_iteration(NULL, FALSE);
    g_assert_cmpuint(other.frames, ==, 1);
    tear_down(&other, NULL);
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
    int status;

    g_test_init(&argc, &argv, NULL);
    poller = qos_poller_new(NULL, NULL);
    g_assert_nonnull(poller);
    g_test_add("/connection/more-than-a-turn", Fixture, NULL, set_up, test_more_than_a_turn,
               tear_down);
    g_test_add("/connection/older-mount", Fixture, NULL, set_up, test_older_mount, tear_down);
    g_test_add("/connection/cluster-frames", Fixture, NULL, set_up, test_cluster_frames, tear_down);
    g_test_add("/connection/bulk-waits", Fixture, NULL, set_up, test_bulk_waits, tear_down);
    g_test_add("/connection/bulk-is-replaced", Fixture, NULL, set_up, test_bulk_is_replaced,
               tear_down);
    g_test_add("/connection/urgent-before-credits", Fixture, NULL, set_up,
               test_urgent_before_credits, tear_down);
    g_test_add("/connection/flood", Fixture, NULL, set_up, test_flood, tear_down);
    for (guint count = TURN - 3; count <= TURN + 1; count++) {
        g_autofree char *path = g_strdup_printf("/connection/closed-as-a-turn-ends/%u", count);
        g_test_add(path, Fixture, GUINT_TO_POINTER(count), set_up, test_closed_as_a_turn_ends,
                   tear_down);
    }
    status = g_test_run();
    qos_poller_free(poller);
    return status;
}
