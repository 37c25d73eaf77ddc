/*
 * The mount's socket. fs/lockclient/link.h has the contract.
 *
 * Each connection has a cancellable of its own. An asynchronous call of GIO that ends after its
 * connection was given up returns G_IO_ERROR_CANCELLED, and changes nothing.
 */
#include "fs/lockclient/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/units.h"
#include "core/wire_frame.h"
#include "fs/lockclient/receive.h"
#include "net/certificate.h"
#include "net/tls.h"
#include "sys/mutex.h"

#define ATTEMPT_TIME  10     /* s, until there is a WELCOME; ... */
#define ATTEMPT_TEXT  "10 s" /* ... for people */
#define RETRY_FIRST   100    /* ms */
#define RETRY_LAST    5000   /* ms */
#define SILENCE_LEAST QOS_SECOND
#define PIECE_MAX     65536u /* bytes that are written before urgent frames are asked for again */

typedef enum { IDLE, CONNECTING, GREETING, OPEN } State;

/* Frames that the user has handed over. They are written in pieces: so many whole frames, or the
 * part of one that is longer. What was begun goes on first, because TLS wants a write that had no
 * room repeated with the same bytes. */
typedef struct {
    GByteArray *frames; /* NULL: none */
    gsize sent;         /* bytes of these that are written */
    gsize end;          /* of the piece that is being written */
} Queue;

enum { URGENT, USUAL, QUEUES };

struct QosLink {
    QosLinkUser user;
    QosLockaddress address;
    GMainContext *context;

    /* The context's thread alone: */
    State state;
    guint retry;   /* ms, before the next attempt */
    guint pending; /* calls of GIO's that have not ended */
    GCancellable *cancellable;
    GSocketConnection *connection;
    GSource *timer;  /* the next attempt; or the end of this one, or of silence */
    GSource *output; /* waits for room; NULL: all is sent */
    QosTime silence; /* that an open link may keep, a duration; ... */
    QosReceiver receiver;

    QosMutex sending;  /* the rest; held across a write that does not wait */
    GIOStream *stream; /* the connection, or TLS on it; NULL: none */
    gboolean is_open;  /* what the user has is sent */
    gboolean is_full;  /* it is left to `output` */
    Queue queues[QUEUES];
    Queue *begun; /* a piece of it is being written; NULL: none is */
};

static void begin(QosLink *link);

/* --- sources --- */

static void drop_source(GSource **source)
{
    if (*source == NULL)
        return;
    g_source_destroy(*source);
    g_source_unref(*source);
    *source = NULL;
}

/* Takes `source`. */
static GSource *attach(QosLink *link, GSource *source, GSourceFunc function)
{
    g_source_set_callback(source, function, link, NULL);
    g_source_attach(source, link->context);
    return source;
}

static void set_timer(QosLink *link, guint milliseconds, GSourceFunc function)
{
    drop_source(&link->timer); /* which may be the one that calls */
    link->timer = attach(link, g_timeout_source_new(milliseconds), function);
}

static void lock(QosLink *link)
{
    qos_mutex_lock(&link->sending);
}

static void unlock(QosLink *link)
{
    qos_mutex_unlock(&link->sending);
}

/* --- the end of a connection --- */

static void close_connection(QosLink *link)
{
    drop_source(&link->timer);
    drop_source(&link->output);
    if (link->cancellable != NULL)
        g_cancellable_cancel(link->cancellable);
    g_clear_object(&link->cancellable);
    /* Shut down first of all, so that TLS cannot send its goodbye. The socket is closed with its
     * last reference, because a handshake's thread may still use it. */
    if (link->connection != NULL)
        g_socket_shutdown(g_socket_connection_get_socket(link->connection), TRUE, TRUE, NULL);
    qos_receive_close(&link->receiver);
    lock(link);
    GIOStream *stream = g_steal_pointer(&link->stream);
    for (guint i = 0; i < QUEUES; i++)
        g_clear_pointer(&link->queues[i].frames, g_byte_array_unref);
    link->begun = NULL;
    link->is_open = link->is_full = FALSE;
    unlock(link);
    g_clear_object(&stream);
    g_clear_object(&link->connection);
    link->state = IDLE;
}

static gboolean on_retry(gpointer data)
{
    begin(data);
    return G_SOURCE_REMOVE;
}

static void fail(QosLink *link, const char *reason, gboolean is_refused)
{
    guint wait = link->retry;

    close_connection(link);
    link->retry = MIN(2 * wait, RETRY_LAST);
    /* Not all mounts at once. */
    set_timer(link, wait / 2 + (guint)g_random_int_range(0, (gint32)(wait / 2 + 1)), on_retry);
    link->user.failed(reason, is_refused, link->user.arg);
}

/* The connection ended. A server that does not accept the mount's certificate or MUNGE credential
 * gives no reason. */
static void lose(QosLink *link, const char *reason)
{
    g_autofree char *unwelcome =
        g_strdup_printf("it did not welcome the mount (%s): its log tells why", reason);

    gboolean may_be_shut_out =
        link->state == GREETING && !g_str_equal(reason, QOS_RECEIVE_NONSENSE);

    fail(link, may_be_shut_out ? unwelcome : reason, FALSE);
}

static gboolean on_late(gpointer data)
{
    QosLink *link = data;

    fail(link,
         link->connection == NULL
             ? "no connection came about within " ATTEMPT_TEXT ": see whether it runs, and "
               "whether the way there is open (routes, firewalls)"
             : "it was reached, and has not welcomed the mount within " ATTEMPT_TEXT ": see "
               "whether it is stopped or overloaded",
         FALSE);
    return G_SOURCE_REMOVE;
}

/* --- silence --- */

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

static gboolean on_silence(gpointer data);

static void wait_for_silence(QosLink *link, QosTime rest)
{
    set_timer(link, (guint)(rest / QOS_MILLISECOND) + 1, on_silence);
}

/* It is due as if nothing had come since it was set: to move it with all that comes would wake the
 * loop each time. */
static gboolean on_silence(gpointer data)
{
    QosLink *link = data;
    const QosTime rest = qos_receive_heard(&link->receiver) + link->silence - now_of();

    if (rest > 0) {
        wait_for_silence(link, rest);
        return G_SOURCE_REMOVE;
    }
    g_autofree char *silence = qos_format_duration(link->silence);
    g_autofree char *reason =
        g_strdup_printf("it fell silent, for %s: see whether it is stopped or overloaded, whether "
                        "its log complains of its database, and whether the network is cut",
                        silence);
    fail(link, reason, FALSE);
    return G_SOURCE_REMOVE;
}

/* --- reading --- */

static gboolean take_welcome(QosLink *link, const guint8 *payload, gsize length)
{
    g_autoptr(GError) error = NULL;
    QosWireWelcome welcome;

    if (link->state != GREETING || !qos_wire_get_welcome(payload, length, &welcome)) {
        fail(link, "what it says is no welcome of this version", FALSE);
        return FALSE;
    }
    if (welcome.version != QOS_WIRE_VERSION) {
        g_autofree char *fault = qos_wire_version_fault(QOS_WIRE_VERSION, welcome.version);
        fail(link, fault, FALSE);
        return FALSE;
    }
    link->silence = MAX(welcome.lease / 2, SILENCE_LEAST);
    wait_for_silence(link, link->silence);
    if (!link->user.welcomed(&welcome, link->user.arg, &error)) {
        fail(link, error->message, FALSE);
        return FALSE;
    }
    link->state = OPEN;
    link->retry = RETRY_FIRST;
    qos_receive_share(&link->receiver);
    lock(link);
    link->is_open = TRUE;
    unlock(link);
    qos_link_send(link);
    return link->state == OPEN;
}

/* Called by the thread that reads. A page of rules takes long to read, so it is left to the
 * context's thread: a leader has a request of its own. */
static gboolean take(QosWireType type, const guint8 *payload, gsize length, gpointer arg)
{
    const QosLink *link = arg;

    if (link->state != OPEN)
        return FALSE;
    switch (type) {
    case QOS_WIRE_CREDITS:
        return link->user.received(payload, length, link->user.arg);
    case QOS_WIRE_DEADLOCK:
        return link->user.deadlocked(payload, length, link->user.arg);
    case QOS_WIRE_BUDGET_GRANT:
    case QOS_WIRE_ADMIN_RESULT:
    case QOS_WIRE_EPOCH:
        return link->user.frame(type, payload, length, link->user.arg);
    default:
        return FALSE;
    }
}

/* FALSE: there is no connection any more. */
static gboolean take_rest(QosWireType type, const guint8 *payload, gsize length, gpointer arg)
{
    QosLink *link = arg;
    QosWireRefused refused;

    if (type == QOS_WIRE_WELCOME)
        return take_welcome(link, payload, length);
    if (type == QOS_WIRE_RULES && link->state == OPEN &&
        link->user.frame(type, payload, length, link->user.arg))
        return TRUE;
    if (type == QOS_WIRE_REFUSED && qos_wire_get_refused(payload, length, &refused))
        fail(link, refused.reason, TRUE);
    else
        fail(link, QOS_RECEIVE_NONSENSE, FALSE);
    return FALSE;
}

static void ended(const char *reason, gpointer arg)
{
    lose(arg, reason);
}

/* --- writing --- */

/* Where the next piece ends: it has whole frames, or one that is longer alone. */
static gsize end_of_piece(const Queue *queue)
{
    const GByteArray *frames = queue->frames;
    gsize end = queue->sent;

    while (frames->len - end > QOS_WIRE_LENGTH_SIZE) {
        guint32 length;

        memcpy(&length, frames->data + end, sizeof(length));
        const gsize next = end + QOS_WIRE_LENGTH_SIZE + GUINT32_FROM_LE(length);
        if (next > frames->len || (next - queue->sent > PIECE_MAX && end > queue->sent))
            break;
        end = next;
    }
    return end > queue->sent ? end : frames->len;
}

/* Takes what the user has, where all that was taken before is written. */
static void fill(QosLink *link, guint which)
{
    Queue *queue = &link->queues[which];

    if (queue->frames == NULL)
        *queue = (Queue){.frames = which == URGENT ? link->user.urgent(link->user.arg)
                                                   : link->user.more(link->user.arg)};
}

/* The next piece to be written: of urgent frames, where there are any. FALSE: there is nothing. */
static gboolean begin_piece(QosLink *link, gboolean fills)
{
    for (guint i = 0; i < QUEUES; i++) {
        Queue *queue = &link->queues[i];

        if (fills)
            fill(link, i);
        if (queue->frames == NULL)
            continue;
        queue->end = end_of_piece(queue);
        link->begun = queue;
        return TRUE;
    }
    return FALSE;
}

static void note_sent(QosLink *link, gsize length)
{
    Queue *queue = link->begun;

    queue->sent += length;
    if (queue->sent < queue->end)
        return;
    link->begun = NULL;
    if (queue->sent == queue->frames->len)
        g_clear_pointer(&queue->frames, g_byte_array_unref);
}

/* FALSE, with *error: not all is sent. What was begun goes before all else, whichever thread goes
 * on. */
static gboolean write_locked(QosLink *link, GError **error)
{
    GPollableOutputStream *stream =
        G_POLLABLE_OUTPUT_STREAM(g_io_stream_get_output_stream(link->stream));

    while (link->begun != NULL || begin_piece(link, link->is_open)) {
        const Queue *queue = link->begun;

        qos_mutex_assert_call(QOS_MUTEX_CALL_SOCKET);
        gssize length = g_pollable_output_stream_write_nonblocking(
            stream, queue->frames->data + queue->sent, queue->end - queue->sent, NULL, error);
        if (length < 0)
            return FALSE;
        note_sent(link, (gsize)length);
    }
    return TRUE;
}

gboolean qos_link_try_send(QosLink *link)
{
    lock(link);
    gboolean is_done = !link->is_open || link->is_full || write_locked(link, NULL);
    unlock(link);
    return is_done;
}

/* FALSE: what there is waits for nothing. */
static gboolean keep_sending(QosLink *link)
{
    g_autoptr(GError) error = NULL;

    lock(link);
    gboolean is_done = write_locked(link, &error);
    link->is_full = g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK);
    unlock(link);
    if (is_done || link->is_full)
        return !is_done;
    lose(link, error->message);
    return FALSE;
}

static gboolean on_output(GObject *stream G_GNUC_UNUSED, gpointer data)
{
    QosLink *link = data;

    if (keep_sending(link))
        return G_SOURCE_CONTINUE;
    drop_source(&link->output);
    return G_SOURCE_REMOVE;
}

gboolean qos_link_send(QosLink *link)
{
    if (link->output != NULL)
        return FALSE;
    if (link->stream == NULL || !keep_sending(link))
        return TRUE;
    link->output =
        attach(link,
               g_pollable_output_stream_create_source(
                   G_POLLABLE_OUTPUT_STREAM(g_io_stream_get_output_stream(link->stream)), NULL),
               G_SOURCE_FUNC(on_output));
    return FALSE;
}

/* --- the beginning of a connection --- */

/* Takes `stream`. */
static void greet(QosLink *link, GIOStream *stream)
{
    QosWireHello hello = {0};

    link->state = GREETING;
    link->user.hello(&hello, link->user.arg);
    lock(link);
    link->stream = stream;
    link->queues[USUAL] = (Queue){.frames = g_byte_array_new()};
    qos_wire_put_hello(link->queues[USUAL].frames, &hello);
    unlock(link);
    qos_receive_open(&link->receiver, stream, g_socket_connection_get_socket(link->connection),
                     link->context);
    qos_link_send(link);
}

static gboolean is_cancelled(const GError *error)
{
    return g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static void on_handshake(GObject *tls, GAsyncResult *result, gpointer data)
{
    QosLink *link = data;
    g_autoptr(GError) error = NULL;

    link->pending--;
    if (g_tls_connection_handshake_finish(G_TLS_CONNECTION(tls), result, &error)) {
        const char *fault = qos_tls_version_fault(G_TLS_CONNECTION(tls));
        if (fault == NULL)
            greet(link, G_IO_STREAM(g_object_ref(tls)));
        else
            fail(link, fault, FALSE);
    } else if (!is_cancelled(error)) {
        g_autofree char *reason = qos_tls_handshake_fault(error);
        GTlsCertificateFlags faults =
            g_tls_connection_get_peer_certificate_errors(G_TLS_CONNECTION(tls));
        fail(link, faults != 0 ? qos_certificate_fault(faults) : reason, FALSE);
    }
}

static void secure(QosLink *link)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GTlsConnection) tls =
        qos_lockaddress_secure(&link->address, link->connection, &error);

    if (tls == NULL) {
        fail(link, error->message, FALSE);
        return;
    }
    link->pending++;
    g_tls_connection_handshake_async(tls, G_PRIORITY_DEFAULT, link->cancellable, on_handshake,
                                     link);
}

static void shake_hands(GTask *task, gpointer connection, gpointer data, GCancellable *cancellable)
{
    const QosLink *link = data;
    GError *error = NULL;

    if (qos_lockaddress_shake_hands(&link->address, connection, cancellable, &error))
        g_task_return_boolean(task, TRUE);
    else
        g_task_return_error(task, error);
}

static void on_shaken(GObject *connection, GAsyncResult *result, gpointer data)
{
    QosLink *link = data;
    g_autoptr(GError) error = NULL;

    link->pending--;
    if (g_task_propagate_boolean(G_TASK(result), &error))
        greet(link, G_IO_STREAM(g_object_ref(connection)));
    else if (!is_cancelled(error))
        fail(link, error->message, FALSE);
}

static void show_credential(QosLink *link)
{
    g_autoptr(GTask) task = g_task_new(link->connection, link->cancellable, on_shaken, link);

    g_task_set_task_data(task, link, NULL);
    link->pending++;
    g_task_run_in_thread(task, shake_hands);
}

/* Why no connection came about, for people. */
static const char *connect_fault(const GError *error)
{
    return g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CONNECTION_REFUSED) ||
                   g_error_matches(error, G_IO_ERROR, G_IO_ERROR_NOT_FOUND)
               ? "no qosfs-server listens there"
               : error->message;
}

static void on_connected(GObject *client, GAsyncResult *result, gpointer data)
{
    QosLink *link = data;
    g_autoptr(GError) error = NULL;
    GSocketConnection *connection =
        g_socket_client_connect_finish(G_SOCKET_CLIENT(client), result, &error);

    link->pending--;
    if (connection == NULL) {
        if (!is_cancelled(error))
            fail(link, connect_fault(error), FALSE);
        return;
    }
    link->connection = connection;
    g_socket_set_timeout(g_socket_connection_get_socket(connection), 0);
    if (G_IS_TCP_CONNECTION(connection))
        g_socket_set_option(g_socket_connection_get_socket(connection), IPPROTO_TCP, TCP_NODELAY, 1,
                            NULL);
    switch (link->address.kind) {
    case QOS_LOCKADDRESS_LOCAL:
        greet(link, G_IO_STREAM(g_object_ref(connection)));
        break;
    case QOS_LOCKADDRESS_TLS:
        secure(link);
        break;
    case QOS_LOCKADDRESS_MUNGE:
        show_credential(link);
        break;
    }
}

static void begin(QosLink *link)
{
    g_autoptr(GSocketClient) client = g_socket_client_new();
    g_autoptr(GSocketConnectable) place = qos_lockaddress_place(&link->address);

    link->state = CONNECTING;
    link->cancellable = g_cancellable_new();
    set_timer(link, ATTEMPT_TIME * 1000, on_late);
    g_socket_client_set_enable_proxy(client, FALSE);
    link->pending++;
    g_socket_client_connect_async(client, place, link->cancellable, on_connected, link);
}

/* --- the link --- */

QosLink *qos_link_new(const QosLinkConfig *config, const QosLinkUser *user, GMainContext *context,
                      GError **error)
{
    QosLink *link = g_new0(QosLink, 1);
    const QosReceiveUser reader = {
        .arg = link, .take = take, .take_rest = take_rest, .ended = ended};

    link->user = *user;
    qos_receive_init(&link->receiver, &reader);
    link->context = g_main_context_ref(context);
    link->retry = RETRY_FIRST;
    qos_mutex_init(&link->sending, QOS_MUTEX_LINK);
    if (qos_lockaddress_init(&link->address, config, error))
        return link;
    qos_link_free(link);
    return NULL;
}

void qos_link_start(QosLink *link)
{
    begin(link);
}

QosReceiver *qos_link_receive(QosLink *link)
{
    return &link->receiver;
}

/* Sends what there is, if it can be sent soon. */
static void send_last(QosLink *link)
{
    GOutputStream *stream = g_io_stream_get_output_stream(link->stream);

    drop_source(&link->output);
    g_socket_set_timeout(g_socket_connection_get_socket(link->connection), QOS_LINK_PATIENCE);
    lock(link);
    link->is_open = FALSE; /* this thread alone sends */
    unlock(link);
    while (link->begun != NULL || begin_piece(link, TRUE)) {
        const Queue *queue = link->begun;
        const gsize length = queue->end - queue->sent;

        if (!g_output_stream_write_all(stream, queue->frames->data + queue->sent, length, NULL,
                                       NULL, NULL))
            break;
        note_sent(link, length);
    }
}

void qos_link_stop(QosLink *link)
{
    if (link->state == OPEN)
        send_last(link);
    close_connection(link);
    while (link->pending > 0)
        g_main_context_iteration(link->context, TRUE);
}

void qos_link_free(QosLink *link)
{
    if (link == NULL)
        return;
    qos_lockaddress_clear(&link->address);
    qos_receive_clear(&link->receiver);
    g_main_context_unref(link->context);
    qos_mutex_destroy(&link->sending);
    g_free(link);
}
