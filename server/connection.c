/*
 * One peer's stream and its states; server/connection.h has the diagram.
 */
#include "server/connection.h"

#include <string.h>
#include <sys/socket.h>

#include "base/units.h"
#include "net/input.h"

#define READ_SIZE   65536      /* bytes in one turn */
#define SLICE       256        /* messages in one turn */
#define CHUNK       65536      /* bytes that are begun at a time, and whole frames */
#define COMPACT     (1u << 20) /* bytes taken before what is left is moved to the front */
#define REPORT_SIZE 256        /* bytes of reports that count as a message */
#define HEAD        4          /* bytes of a frame's length */

typedef enum {
    SECURING,
    GREETING,
    OPEN,
    REFUSED,
    CLOSED,
} State;

struct QosConnection {
    QosConnectionUser user;
    State state;
    gboolean has_ended;  /* ended() has been called */
    gboolean is_shaking; /* a handshake is using the socket */
    GSocket *socket;
    const QosHandshake *handshake;
    GIOStream *stream;           /* upon the socket, plain or TLS; NULL while SECURING */
    GPollableInputStream *input; /* the stream's */
    GPollableOutputStream *output;
    GCancellable *cancellable; /* of the handshake */
    char *host;
    char *origin; /* the host and its port, or "local" */
    char *principal;
    QosWireHello hello;

    QosWireReader reader;
    const guint8 *payload; /* of the CREDITS that are being worked on, the reader's */
    gsize payload_length;
    GByteArray *out;     /* what is being written: whole frames */
    gsize sent;          /* of `out` */
    GByteArray *urgent;  /* frames that wait for that, */
    GByteArray *credits; /* then these, */
    gsize taken;         /* of `credits`: moved to `out` */
    gsize batch;         /* the frame of `credits` that takes messages, qos_wire_put_credits() */
    GBytes *bulk;        /* and then these; NULL: none */
    gsize bulk_taken;    /* of `bulk` */
    gboolean is_due;     /* has_output() has been called */

    QosPollerWatch watch; /* of a plain stream */
    gboolean is_watched;  /* not while there is work, or nothing is to be read */
    GSource *readable;    /* likewise; of TLS, or where the poller has no room; else NULL */
    GSource *work;        /* what was read is more than one turn's */
    GSource *writable;    /* NULL unless the peer is slow */
    GSource *deadline;    /* NULL when OPEN */
};

static void go_on(QosConnection *connection);

/* --- sources --- */

static void source_clear(GSource **source)
{
    if (*source == NULL)
        return;
    g_source_destroy(*source);
    g_clear_pointer(source, g_source_unref);
}

static GSource *source_start(GSource *source, GSourceFunc function, QosConnection *connection)
{
    g_source_set_callback(source, function, connection, NULL);
    g_source_attach(source, NULL);
    return source;
}

static void stop_reading(QosConnection *connection)
{
    source_clear(&connection->readable);
    if (connection->is_watched)
        qos_poller_remove(connection->user.poller, &connection->watch);
    connection->is_watched = FALSE;
}

static gboolean be_late(gpointer data)
{
    QosConnection *connection = data;

    g_autofree char *patience = qos_format_duration(connection->user.patience);
    g_autofree char *reason =
        g_strdup_printf(connection->state == SECURING ? "its handshake did not end within %s"
                                                      : "it said no HELLO within %s",
                        patience);

    qos_connection_close(connection, QOS_WIRE_BROKEN_PROTOCOL, reason);
    return G_SOURCE_REMOVE;
}

static void start_deadline(QosConnection *connection)
{
    source_clear(&connection->deadline);
    connection->deadline =
        source_start(g_timeout_source_new((guint)(connection->user.patience / QOS_MILLISECOND)),
                     be_late, connection);
}

/* --- the end --- */

QosConnection *qos_connection_ref(QosConnection *connection)
{
    return g_rc_box_acquire(connection);
}

static void connection_clear(gpointer data)
{
    QosConnection *connection = data;

    qos_wire_reader_clear(&connection->reader);
    g_byte_array_unref(connection->out);
    g_byte_array_unref(connection->urgent);
    g_byte_array_unref(connection->credits);
    g_clear_pointer(&connection->bulk, g_bytes_unref);
    g_clear_object(&connection->stream);
    g_object_unref(connection->socket);
    g_object_unref(connection->cancellable);
    g_free(connection->host);
    g_free(connection->origin);
    g_free(connection->principal);
    connection->user.gone(connection->user.arg);
}

void qos_connection_unref(QosConnection *connection)
{
    g_rc_box_release_full(connection, connection_clear);
}

static void end(QosConnection *connection, QosWireRefusal code, const char *reason)
{
    if (connection->has_ended)
        return;
    connection->has_ended = TRUE;
    connection->user.ended(connection, code, reason, connection->user.arg);
}

/* The socket is closed below TLS, because TLS's own goodbye would wait for the peer. During the
 * handshake another thread may be using the descriptor, which then stays until that has ended. */
void qos_connection_close(QosConnection *connection, QosWireRefusal code, const char *reason)
{
    if (connection->state == CLOSED)
        return;
    connection->state = CLOSED;
    stop_reading(connection);
    source_clear(&connection->work);
    source_clear(&connection->writable);
    source_clear(&connection->deadline);
    g_cancellable_cancel(connection->cancellable);
    g_socket_shutdown(connection->socket, TRUE, TRUE, NULL);
    if (!connection->is_shaking)
        g_socket_close(connection->socket, NULL);
    end(connection, code, reason);
    connection->user.closed(connection, connection->user.arg);
}

/* --- output --- */

static void announce_output(QosConnection *connection)
{
    if (connection->is_due)
        return;
    connection->is_due = TRUE;
    connection->user.has_output(connection, connection->user.arg);
}

static gboolean be_writable(GObject *stream G_GNUC_UNUSED, gpointer data)
{
    QosConnection *connection = qos_connection_ref(data);

    source_clear(&connection->writable);
    qos_connection_flush(connection);
    qos_connection_unref(connection);
    return G_SOURCE_REMOVE;
}

/* The length of the frame at `at`, with its head. */
static gsize frame_length(const guint8 *bytes, gsize at)
{
    guint32 length;

    memcpy(&length, bytes + at, sizeof(length));
    return HEAD + GUINT32_FROM_LE(length);
}

/* Begins with a chunk of the credits that wait. */
static void begin_credits(QosConnection *connection)
{
    GByteArray *credits = connection->credits;
    gsize end = connection->taken;

    if (connection->taken == credits->len)
        return;
    connection->batch = QOS_WIRE_NO_BATCH;
    if (connection->out->len == 0 && connection->taken == 0 && credits->len <= CHUNK) {
        connection->credits = connection->out;
        connection->out = credits;
        return;
    }
    while (end < credits->len && end - connection->taken < CHUNK)
        end += frame_length(credits->data, end);
    g_byte_array_append(connection->out, credits->data + connection->taken,
                        (guint)(end - connection->taken));
    connection->taken = end;
    if (end == credits->len || end >= COMPACT) {
        g_byte_array_remove_range(credits, 0, (guint)end);
        connection->taken = 0;
    }
}

/* Begins with a page of the bulk. */
static void begin_bulk(QosConnection *connection)
{
    gsize length;
    const guint8 *bytes = g_bytes_get_data(connection->bulk, &length);
    gsize page = frame_length(bytes, connection->bulk_taken);

    g_byte_array_append(connection->out, bytes + connection->bulk_taken, (guint)page);
    connection->bulk_taken += page;
    if (connection->bulk_taken == length)
        g_clear_pointer(&connection->bulk, g_bytes_unref);
}

/* Chooses what is written next, when all that was begun is. FALSE: nothing is left. */
static gboolean begin_output(QosConnection *connection)
{
    g_byte_array_set_size(connection->out, 0);
    connection->sent = 0;
    if (connection->urgent->len > 0) {
        GByteArray *urgent = connection->urgent;
        connection->urgent = connection->out;
        connection->out = urgent;
    }
    if (connection->out->len < CHUNK)
        begin_credits(connection);
    if (connection->out->len == 0 && connection->bulk != NULL)
        begin_bulk(connection);
    return connection->out->len > 0;
}

/* Writes until nothing is left, or the peer is slow. */
static void write_output(QosConnection *connection, GError **error)
{
    GError *reason = NULL;

    while (reason == NULL &&
           (connection->sent < connection->out->len || begin_output(connection))) {
        gssize written = g_pollable_output_stream_write_nonblocking(
            connection->output, connection->out->data + connection->sent,
            connection->out->len - connection->sent, NULL, &reason);
        connection->sent += (gsize)MAX(written, 0);
    }
    if (reason != NULL)
        g_propagate_error(error, reason);
}

void qos_connection_flush(QosConnection *connection)
{
    g_autoptr(GError) error = NULL;

    connection->is_due = FALSE;
    if (connection->state < GREETING || connection->state == CLOSED || connection->writable != NULL)
        return;
    write_output(connection, &error);
    if (error == NULL) {
        /* Closes only the sending side. If the peer is still sending, a full close would cause a
         * reset, which could overtake the reason that the peer was sent. */
        if (connection->state == REFUSED)
            g_socket_shutdown(connection->socket, FALSE, TRUE, NULL);
    } else if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
        connection->writable =
            source_start(g_pollable_output_stream_create_source(connection->output, NULL),
                         G_SOURCE_FUNC(be_writable), connection);
    } else {
        qos_connection_close(connection, 0, NULL);
    }
}

/* Something was appended: announces it, unless the peer has left too much unread. */
static void bound_output(QosConnection *connection)
{
    gsize waiting = connection->out->len - connection->sent + connection->urgent->len +
                    connection->credits->len - connection->taken;

    if (waiting > QOS_CONNECTION_QUEUE_MAX)
        qos_connection_close(connection, QOS_WIRE_FULL, "it does not read what it is sent");
    else
        announce_output(connection);
}

void qos_connection_send(QosConnection *connection, const QosCreditMessage *message)
{
    if (connection->state != OPEN)
        return;
    if (connection->batch != QOS_WIRE_NO_BATCH &&
        connection->credits->len - connection->batch >= CHUNK)
        connection->batch = QOS_WIRE_NO_BATCH; /* a frame is not interrupted */
    if (!qos_wire_put_credits(connection->credits, &connection->batch, message)) {
        qos_connection_close(connection, QOS_WIRE_BROKEN_PROTOCOL, "no frame holds its answer");
        return;
    }
    bound_output(connection);
}

void qos_connection_send_urgent(QosConnection *connection, const guint8 *frames, gsize length)
{
    if (connection->state != OPEN || length == 0)
        return;
    g_byte_array_append(connection->urgent, frames, (guint)length);
    bound_output(connection);
}

void qos_connection_send_bulk(QosConnection *connection, GBytes *frames)
{
    if (connection->state != OPEN || g_bytes_get_size(frames) == 0)
        return;
    g_clear_pointer(&connection->bulk, g_bytes_unref);
    connection->bulk = g_bytes_ref(frames);
    connection->bulk_taken = 0;
    announce_output(connection);
}

void qos_connection_refuse(QosConnection *connection, QosWireRefusal code, const char *reason)
{
    if (connection->state == SECURING) {
        qos_connection_close(connection, code, reason);
        return;
    }
    if (connection->state != GREETING && connection->state != OPEN)
        return;
    source_clear(&connection->work);
    connection->payload_length = 0;
    connection->state = REFUSED;
    g_clear_pointer(&connection->bulk, g_bytes_unref);
    qos_wire_put_refused(connection->credits, code, reason);
    connection->batch = QOS_WIRE_NO_BATCH;
    start_deadline(connection);
    go_on(connection);
    announce_output(connection);
    end(connection, code, reason);
}

/* --- input --- */

static void be_broken(QosConnection *connection, const char *reason)
{
    qos_connection_refuse(connection, QOS_WIRE_BROKEN_PROTOCOL, reason);
}

static void take_hello(QosConnection *connection, const guint8 *payload, gsize length)
{
    QosWireRefused refused = {0};
    QosWireWelcome welcome = {0};
    QosWireHello hello;

    if (!qos_wire_get_hello(payload, length, &hello)) {
        be_broken(connection, "a HELLO that cannot be read");
        return;
    }
    if (hello.version != QOS_WIRE_VERSION) {
        g_autofree char *reason = qos_wire_version_fault(hello.version, QOS_WIRE_VERSION);
        qos_connection_refuse(connection, QOS_WIRE_BAD_VERSION, reason);
        return;
    }
    connection->hello = hello;
    if (!connection->user.hello(connection, &hello, &welcome, &refused, connection->user.arg)) {
        qos_connection_refuse(connection, refused.code, refused.reason);
        return;
    }
    connection->state = OPEN;
    connection->reader.limit = QOS_WIRE_FRAME_MAX;
    source_clear(&connection->deadline);
    qos_wire_put_welcome(connection->credits, &welcome);
    announce_output(connection);
    connection->user.opened(connection, connection->user.arg);
}

/* The next message of the payload at hand; or what is wrong with it, and then there is none. */
static const char *take_message(QosConnection *connection, QosCreditMessage *ret_message)
{
    if (!qos_wire_get_credits(&connection->payload, &connection->payload_length, ret_message))
        return "CREDITS that cannot be read";
    if (!qos_credit_message_is_lenders(ret_message))
        return NULL;
    qos_credit_message_clear(ret_message);
    return "a message that only servers send";
}

/* At most `most` messages of the payload at hand; returns how many. */
static guint take_credits(QosConnection *connection, guint most)
{
    QosCreditMessage messages[SLICE];
    const char *fault = NULL;
    guint count = 0;

    while (connection->payload_length > 0 && count < most && fault == NULL) {
        fault = take_message(connection, &messages[count]);
        count += fault == NULL;
    }
    if (count > 0)
        connection->user.received(connection, messages, count, connection->user.arg);
    for (guint i = 0; i < count; i++)
        qos_credit_message_clear(&messages[i]);
    if (fault != NULL)
        be_broken(connection, fault);
    return count;
}

static void take_wait(QosConnection *connection, const guint8 *payload, gsize length)
{
    QosWireWait wait;

    if (!qos_wire_get_wait(payload, length, &wait)) {
        be_broken(connection, "a WAIT that cannot be read");
        return;
    }
    if (connection->user.waits(connection, &wait, connection->user.arg)) {
        qos_wire_put_deadlock(connection->credits, wait.id);
        connection->batch = QOS_WIRE_NO_BATCH;
        bound_output(connection);
    }
    qos_wire_wait_clear(&wait);
}

/* Why a frame of that type cannot come now. */
static const char *misplaced(QosWireType type)
{
    switch (type) {
    case QOS_WIRE_HELLO:
        return "a second HELLO";
    case QOS_WIRE_CREDITS:
        return "CREDITS before HELLO";
    case QOS_WIRE_WAIT:
        return "WAIT before HELLO";
    case QOS_WIRE_BUDGET_REPORT:
        return "BUDGET_REPORT before HELLO";
    case QOS_WIRE_RULES_SEEN:
        return "RULES_SEEN before HELLO";
    case QOS_WIRE_EPOCH:
        return "EPOCH before HELLO";
    case QOS_WIRE_ADMIN:
        return "ADMIN before HELLO";
    case QOS_WIRE_WELCOME:
    case QOS_WIRE_REFUSED:
    case QOS_WIRE_DEADLOCK:
    case QOS_WIRE_RULES:
    case QOS_WIRE_BUDGET_GRANT:
    case QOS_WIRE_ADMIN_RESULT:
    case QOS_WIRE_TYPES:
        break;
    }
    return "a frame that only servers send";
}

static gboolean is_of_cluster(QosWireType type)
{
    return type == QOS_WIRE_RULES_SEEN || type == QOS_WIRE_BUDGET_REPORT ||
           type == QOS_WIRE_ADMIN || type == QOS_WIRE_EPOCH;
}

/* Returns what the frame costs of a turn. A question of an administrator may need a long answer, so
 * it ends the turn; reports cost by their length. */
static guint take_cluster_frame(QosConnection *connection, QosWireType type, const guint8 *payload,
                                gsize length)
{
    const char *fault =
        connection->user.frame(connection, type, payload, length, connection->user.arg);

    if (fault != NULL)
        be_broken(connection, fault);
    return type == QOS_WIRE_ADMIN ? SLICE : 1 + (guint)(length / REPORT_SIZE);
}

/* Returns what it costs of a turn; 0: there is none that is whole. */
static guint take_frame(QosConnection *connection)
{
    gboolean is_open = connection->state == OPEN;
    const guint8 *payload;
    QosWireType type;
    QosWireVerdict verdict;
    gsize length;

    verdict = qos_wire_reader_next(&connection->reader, &type, &payload, &length);
    if (verdict == QOS_WIRE_MORE)
        return 0;
    if (verdict == QOS_WIRE_BROKEN) {
        be_broken(connection, "no frame");
        return 0;
    }
    if (is_open && is_of_cluster(type))
        return take_cluster_frame(connection, type, payload, length);
    if (type == QOS_WIRE_HELLO && !is_open) {
        take_hello(connection, payload, length);
    } else if (type == QOS_WIRE_CREDITS && is_open) {
        connection->payload = payload;
        connection->payload_length = length;
    } else if (type == QOS_WIRE_WAIT && is_open) {
        take_wait(connection, payload, length);
    } else {
        be_broken(connection, misplaced(type));
    }
    return 1;
}

static gboolean takes_frames(const QosConnection *connection)
{
    return connection->state == GREETING || connection->state == OPEN;
}

/* Handles one turn's part of what has been read. TRUE: there may be more for the next turn. FALSE
 * also if the connection has ended meanwhile: then nothing may be started that would outlive it. */
static gboolean take_turn(QosConnection *connection)
{
    guint budget = SLICE;

    while (takes_frames(connection)) {
        if (budget == 0)
            return TRUE;
        guint taken = connection->payload_length > 0 ? take_credits(connection, budget)
                                                     : take_frame(connection);
        if (taken == 0)
            return FALSE;
        budget -= MIN(taken, budget);
    }
    return FALSE;
}

static gboolean do_work(gpointer data)
{
    QosConnection *connection = qos_connection_ref(data);

    if (!take_turn(connection) && connection->state != CLOSED) {
        source_clear(&connection->work);
        go_on(connection);
    }
    connection->user.has_turned(connection->user.arg);
    qos_connection_unref(connection);
    return G_SOURCE_CONTINUE;
}

static void read_input(gpointer data)
{
    QosConnection *connection = qos_connection_ref(data);
    g_autoptr(GError) error = NULL;
    guint8 bytes[READ_SIZE];
    gssize length;

    length = g_pollable_input_stream_read_nonblocking(connection->input, bytes, sizeof(bytes), NULL,
                                                      &error);
    if (length > 0 && connection->state != REFUSED) {
        qos_wire_reader_feed(&connection->reader, bytes, (gsize)length);
        if (take_turn(connection)) {
            stop_reading(connection);
            connection->work = source_start(g_idle_source_new(), do_work, connection);
            g_source_set_priority(connection->work, G_PRIORITY_DEFAULT);
        }
        connection->user.has_turned(connection->user.arg);
    } else if (length == 0 ||
               (length < 0 && !g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))) {
        qos_connection_close(connection, 0, NULL);
    }
    qos_connection_unref(connection);
}

static gboolean be_readable(GObject *stream G_GNUC_UNUSED, gpointer data)
{
    read_input(data);
    return G_SOURCE_CONTINUE;
}

/* Reads on. TLS may have read more than it has handed out, so its own source must say when. */
static void go_on(QosConnection *connection)
{
    if (connection->readable != NULL || connection->is_watched)
        return;
    connection->watch.fd = g_socket_get_fd(connection->socket);
    connection->watch.ready = read_input;
    connection->watch.arg = connection;
    connection->is_watched = !G_IS_TLS_CONNECTION(connection->stream) &&
                             qos_poller_add(connection->user.poller, &connection->watch);
    if (!connection->is_watched)
        connection->readable = source_start(
            qos_input_source_new(connection->stream, g_socket_get_fd(connection->socket)),
            G_SOURCE_FUNC(be_readable), connection);
}

/* --- the beginning --- */

/* Waits for HELLO on that stream. */
static void be_greeted(QosConnection *connection, GIOStream *stream, const char *principal)
{
    connection->stream = g_object_ref(stream);
    connection->input = G_POLLABLE_INPUT_STREAM(g_io_stream_get_input_stream(stream));
    connection->output = G_POLLABLE_OUTPUT_STREAM(g_io_stream_get_output_stream(stream));
    connection->principal = g_strdup(principal);
    connection->state = GREETING;
    go_on(connection);
}

static void be_secure(GIOStream *stream, const char *principal, const char *fault, gpointer data)
{
    QosConnection *connection = data;

    connection->is_shaking = FALSE;
    connection->user.shaken(connection, connection->user.arg);
    if (connection->state == SECURING && stream != NULL) {
        be_greeted(connection, stream, principal);
    } else {
        qos_connection_close(connection, QOS_WIRE_NOT_PERMITTED, fault);
        g_socket_close(connection->socket, NULL);
    }
    qos_connection_unref(connection);
}

void qos_connection_shake(QosConnection *connection, guint crowd)
{
    connection->is_shaking = TRUE;
    qos_handshake_start(connection->handshake, connection->socket, crowd, connection->cancellable,
                        be_secure, qos_connection_ref(connection));
}

/* It has said something, or gone without. */
static gboolean be_knocked_at(GSocket *socket, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    QosConnection *connection = data;
    char first;

    source_clear(&connection->readable);
    if (recv(g_socket_get_fd(socket), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        qos_connection_close(connection, 0, NULL);
    else
        connection->user.knocks(connection, connection->user.arg);
    return G_SOURCE_REMOVE;
}

static void find_origin(QosConnection *connection, const char *principal)
{
    g_autoptr(GSocketAddress) address = g_socket_get_remote_address(connection->socket, NULL);

    if (G_IS_INET_SOCKET_ADDRESS(address)) {
        connection->origin = g_socket_connectable_to_string(G_SOCKET_CONNECTABLE(address));
        connection->host = g_inet_address_to_string(
            g_inet_socket_address_get_address(G_INET_SOCKET_ADDRESS(address)));
    } else { /* a Unix socket, or a peer that has gone already */
        connection->origin = g_strdup(principal != NULL ? "local" : "nowhere");
        connection->host = g_strdup(principal != NULL ? principal : connection->origin);
    }
}

QosConnection *qos_connection_new(GSocket *socket, const QosHandshake *handshake,
                                  const char *principal, const QosConnectionUser *user)
{
    QosConnection *connection = g_rc_box_new0(QosConnection);

    connection->user = *user;
    connection->socket = g_object_ref(socket);
    connection->handshake = handshake;
    connection->cancellable = g_cancellable_new();
    find_origin(connection, principal);
    qos_wire_reader_init(&connection->reader);
    connection->reader.limit = QOS_WIRE_HELLO_MAX;
    connection->out = g_byte_array_new();
    connection->urgent = g_byte_array_new();
    connection->credits = g_byte_array_new();
    connection->batch = QOS_WIRE_NO_BATCH;
    start_deadline(connection);
    if (handshake == NULL) {
        g_autoptr(GSocketConnection) plain = g_socket_connection_factory_create_connection(socket);
        be_greeted(connection, G_IO_STREAM(plain), principal);
    } else {
        connection->readable = source_start(g_socket_create_source(socket, G_IO_IN, NULL),
                                            G_SOURCE_FUNC(be_knocked_at), connection);
    }
    return connection;
}

/* --- what it is --- */

const char *qos_connection_principal(const QosConnection *connection)
{
    return connection->principal;
}

const char *qos_connection_host(const QosConnection *connection)
{
    return connection->host;
}

QosOwnerId qos_connection_id(const QosConnection *connection)
{
    return connection->hello.id;
}

const char *qos_connection_name(const QosConnection *connection)
{
    return connection->hello.name;
}

const QosHandshake *qos_connection_handshake(const QosConnection *connection)
{
    return connection->handshake;
}

char *qos_connection_label(const QosConnection *connection)
{
    g_autofree char *name = connection->hello.name[0] != '\0'
                                ? g_strdup_printf(", %s", connection->hello.name)
                                : g_strdup("");
    g_autofree char *principal =
        connection->principal != NULL ? g_strescape(connection->principal, NULL) : NULL;

    return g_strdup_printf("%s (%s%s)", connection->origin,
                           principal != NULL ? principal : "unknown", name);
}
