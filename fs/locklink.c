/*
 * The mount's socket. fs/locklink.h has the contract.
 *
 * Each connection has a cancellable of its own: an asynchronous call of GIO's that ends after its
 * connection was given up says so (G_IO_ERROR_CANCELLED), and changes nothing.
 */
#include "fs/locklink.h"

#include <errno.h>
#include <gio/gunixsocketaddress.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "net/munge.h"

#define ATTEMPT_TIME  10   /* s, until there is a WELCOME */
#define RETRY_FIRST   100  /* ms */
#define RETRY_LAST    5000 /* ms */
#define SILENCE_LEAST G_TIME_SPAN_SECOND
#define READ_SIZE     65536

typedef enum { IDLE, CONNECTING, GREETING, OPEN } State;
typedef enum { LOCAL, TLS, MUNGE } Kind;

struct QosLocklink {
    QosLocklinkConfig config;
    QosLocklinkUser user;
    GMainContext *context;
    GSocketConnectable *address;
    Kind kind;

    State state;
    guint retry;   /* ms, before the next attempt */
    guint pending; /* calls of GIO's that have not ended */
    GCancellable *cancellable;
    GSocketConnection *connection;
    GIOStream *stream;  /* the connection, or TLS on it; NULL: none */
    GSource *timer;     /* the next attempt; or the end of this one, or of silence */
    GSource *input;     /* waits for bytes */
    GSource *output;    /* waits for room; NULL: all is sent */
    GByteArray *unsent; /* NULL: none */
    gsize sent;         /* of these */
    gint64 silence;     /* us, that an open link may keep; */
    QosWireReader reader;
};

static void begin(QosLocklink *link);

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
static GSource *attach(QosLocklink *link, GSource *source, GSourceFunc function)
{
    g_source_set_callback(source, function, link, NULL);
    g_source_attach(source, link->context);
    return source;
}

static void set_timer(QosLocklink *link, guint milliseconds, GSourceFunc function)
{
    drop_source(&link->timer);
    link->timer = attach(link, g_timeout_source_new(milliseconds), function);
}

/* --- the end of a connection --- */

static void close_connection(QosLocklink *link)
{
    drop_source(&link->timer);
    drop_source(&link->input);
    drop_source(&link->output);
    if (link->cancellable != NULL)
        g_cancellable_cancel(link->cancellable);
    g_clear_object(&link->cancellable);
    /* First of all, so that TLS has nobody to say goodbye to. It is closed with its last reference:
     * a handshake's thread may still use it. */
    if (link->connection != NULL)
        g_socket_shutdown(g_socket_connection_get_socket(link->connection), TRUE, TRUE, NULL);
    g_clear_object(&link->stream);
    g_clear_object(&link->connection);
    g_clear_pointer(&link->unsent, g_byte_array_unref);
    qos_wire_reader_clear(&link->reader);
    link->state = IDLE;
}

static gboolean on_retry(gpointer data)
{
    begin(data);
    return G_SOURCE_REMOVE;
}

static void fail(QosLocklink *link, const char *reason, gboolean is_refused)
{
    guint wait = link->retry;

    close_connection(link);
    link->retry = MIN(2 * wait, RETRY_LAST);
    /* Not all mounts at once. */
    set_timer(link, wait / 2 + (guint)g_random_int_range(0, (gint32)(wait / 2 + 1)), on_retry);
    link->user.failed(reason, is_refused, link->user.arg);
}

static gboolean on_late(gpointer data)
{
    fail(data, "it did not answer in time", FALSE);
    return G_SOURCE_REMOVE;
}

/* --- reading --- */

/* Something came: the time for the next begins anew. */
static void listen_on(QosLocklink *link)
{
    g_source_set_ready_time(link->timer, g_get_monotonic_time() + link->silence);
}

static gboolean take_welcome(QosLocklink *link, const guint8 *payload, gsize length)
{
    g_autoptr(GError) error = NULL;
    QosWireWelcome welcome;

    if (link->state != GREETING || !qos_wire_get_welcome(payload, length, &welcome)) {
        fail(link, "what it says is no welcome of this version", FALSE);
        return FALSE;
    }
    if (welcome.version != QOS_WIRE_VERSION) {
        fail(link, "it speaks another version", FALSE);
        return FALSE;
    }
    link->silence = MAX(welcome.lease / 2 / QOS_MICROSECOND, SILENCE_LEAST);
    listen_on(link);
    if (!link->user.welcomed(&welcome, link->user.arg, &error)) {
        fail(link, error->message, FALSE);
        return FALSE;
    }
    link->state = OPEN;
    link->retry = RETRY_FIRST;
    qos_locklink_send(link);
    return link->state == OPEN;
}

static gboolean take_frame(QosLocklink *link, QosWireType type, const guint8 *payload, gsize length)
{
    QosWireRefused refused;

    if (type == QOS_WIRE_WELCOME)
        return take_welcome(link, payload, length);
    if (type == QOS_WIRE_REFUSED && qos_wire_get_refused(payload, length, &refused)) {
        fail(link, refused.reason, TRUE);
        return FALSE;
    }
    if (type == QOS_WIRE_CREDITS && link->state == OPEN &&
        link->user.received(payload, length, link->user.arg))
        return TRUE;
    fail(link, "what it says makes no sense", FALSE);
    return FALSE;
}

/* FALSE: there is no connection any more. */
static gboolean take_frames(QosLocklink *link)
{
    for (;;) {
        QosWireType type;
        const guint8 *payload;
        gsize length;
        switch (qos_wire_reader_next(&link->reader, &type, &payload, &length)) {
        case QOS_WIRE_MORE:
            return TRUE;
        case QOS_WIRE_BROKEN:
            fail(link, "what it says makes no sense", FALSE);
            return FALSE;
        case QOS_WIRE_FRAME:
            break;
        }
        if (!take_frame(link, type, payload, length))
            return FALSE;
    }
}

static gboolean on_input(GObject *stream, gpointer data)
{
    QosLocklink *link = data;
    g_autoptr(GError) error = NULL;
    guint8 bytes[READ_SIZE];

    gssize length = g_pollable_input_stream_read_nonblocking(G_POLLABLE_INPUT_STREAM(stream), bytes,
                                                             sizeof(bytes), NULL, &error);
    if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
        return G_SOURCE_CONTINUE;
    if (length <= 0) {
        fail(link, error != NULL ? error->message : "it closed the connection", FALSE);
        return G_SOURCE_REMOVE;
    }
    qos_wire_reader_feed(&link->reader, bytes, (gsize)length);
    if (!take_frames(link))
        return G_SOURCE_REMOVE;
    if (link->state == OPEN)
        listen_on(link);
    return G_SOURCE_CONTINUE;
}

/* --- writing --- */

static gboolean on_output(GObject *stream, gpointer data);

/* TRUE: all is sent. */
static gboolean write_some(QosLocklink *link, GError **error)
{
    GPollableOutputStream *stream =
        G_POLLABLE_OUTPUT_STREAM(g_io_stream_get_output_stream(link->stream));

    for (;;) {
        if (link->unsent == NULL && link->state == OPEN) {
            link->unsent = link->user.more(link->user.arg);
            link->sent = 0;
        }
        if (link->unsent == NULL)
            return TRUE;
        gssize length = g_pollable_output_stream_write_nonblocking(
            stream, link->unsent->data + link->sent, link->unsent->len - link->sent, NULL, error);
        if (length < 0)
            return FALSE;
        link->sent += (gsize)length;
        if (link->sent == link->unsent->len)
            g_clear_pointer(&link->unsent, g_byte_array_unref);
    }
}

/* FALSE: what there is waits for nothing. */
static gboolean keep_sending(QosLocklink *link)
{
    g_autoptr(GError) error = NULL;

    if (write_some(link, &error))
        return FALSE;
    if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
        return TRUE;
    fail(link, error->message, FALSE);
    return FALSE;
}

static gboolean on_output(GObject *stream G_GNUC_UNUSED, gpointer data)
{
    QosLocklink *link = data;

    if (keep_sending(link))
        return G_SOURCE_CONTINUE;
    drop_source(&link->output);
    return G_SOURCE_REMOVE;
}

void qos_locklink_send(QosLocklink *link)
{
    if (link->stream == NULL || link->output != NULL || !keep_sending(link))
        return;
    link->output =
        attach(link,
               g_pollable_output_stream_create_source(
                   G_POLLABLE_OUTPUT_STREAM(g_io_stream_get_output_stream(link->stream)), NULL),
               G_SOURCE_FUNC(on_output));
}

/* --- the beginning of a connection --- */

/* Takes `stream`. */
static void greet(QosLocklink *link, GIOStream *stream)
{
    QosWireHello hello = {0};

    link->state = GREETING;
    link->stream = stream;
    link->user.hello(&hello, link->user.arg);
    link->unsent = g_byte_array_new();
    link->sent = 0;
    qos_wire_put_hello(link->unsent, &hello);
    qos_wire_reader_init(&link->reader);
    link->input = attach(link,
                         g_pollable_input_stream_create_source(
                             G_POLLABLE_INPUT_STREAM(g_io_stream_get_input_stream(stream)), NULL),
                         G_SOURCE_FUNC(on_input));
    qos_locklink_send(link);
}

static gboolean is_cancelled(const GError *error)
{
    return g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

static void on_handshake(GObject *tls, GAsyncResult *result, gpointer data)
{
    QosLocklink *link = data;
    g_autoptr(GError) error = NULL;

    link->pending--;
    if (g_tls_connection_handshake_finish(G_TLS_CONNECTION(tls), result, &error))
        greet(link, G_IO_STREAM(g_object_ref(tls)));
    else if (!is_cancelled(error))
        fail(link, error->message, FALSE);
}

/* Our certificate, or NULL with an error. */
static GTlsCertificate *read_certificate(const QosLocklinkConfig *config, GError **error)
{
    g_autoptr(GError) reason = NULL;
    GTlsCertificate *certificate =
        g_tls_certificate_new_from_files(config->certificate, config->key, &reason);

    if (certificate == NULL)
        qos_set_error(error, EINVAL, "server_cert=%s, server_key=%s: %s", config->certificate,
                      config->key, reason->message);
    return certificate;
}

/* Whom to believe, or NULL with an error. */
static GTlsDatabase *read_authorities(const QosLocklinkConfig *config, GError **error)
{
    g_autofree char *path = g_canonicalize_filename(config->ca, NULL);
    g_autoptr(GError) reason = NULL;
    GTlsDatabase *database = g_tls_file_database_new(path, &reason);

    if (database == NULL)
        qos_set_error(error, EINVAL, "server_ca=%s: %s", config->ca, reason->message);
    return database;
}

static void secure(QosLocklink *link)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GTlsCertificate) certificate = read_certificate(&link->config, &error);
    g_autoptr(GTlsDatabase) database = NULL;
    g_autoptr(GObject) tls = NULL;

    if (error == NULL)
        database = read_authorities(&link->config, &error);
    if (error == NULL)
        /* With its database at once: else it begins by reading all authorities of the system. */
        tls = g_initable_new(g_tls_backend_get_client_connection_type(g_tls_backend_get_default()),
                             NULL, &error, "base-io-stream", link->connection, "server-identity",
                             link->address, "certificate", certificate, "database", database, NULL);
    if (tls == NULL) {
        fail(link, error->message, FALSE);
        return;
    }
    link->pending++;
    g_tls_connection_handshake_async(G_TLS_CONNECTION(tls), G_PRIORITY_DEFAULT, link->cancellable,
                                     on_handshake, link);
}

/* The server's: root's or, where somebody tries it out, the mount's own. */
static gboolean is_believed(uid_t uid, gconstpointer arg G_GNUC_UNUSED)
{
    return uid == 0 || uid == geteuid();
}

static void shake_hands(GTask *task, gpointer connection, gpointer data, GCancellable *cancellable)
{
    const QosLocklink *link = data;
    GError *error = NULL;
    uid_t uid;

    if (qos_munge_shake_hands(QOS_MUNGE_MOUNT, g_socket_connection_get_socket(connection),
                              link->config.munged, is_believed, NULL, &uid, cancellable, &error))
        g_task_return_boolean(task, TRUE);
    else
        g_task_return_error(task, error);
}

static void on_shaken(GObject *connection, GAsyncResult *result, gpointer data)
{
    QosLocklink *link = data;
    g_autoptr(GError) error = NULL;

    link->pending--;
    if (g_task_propagate_boolean(G_TASK(result), &error))
        greet(link, G_IO_STREAM(g_object_ref(connection)));
    else if (!is_cancelled(error))
        fail(link, error->message, FALSE);
}

static void show_credential(QosLocklink *link)
{
    g_autoptr(GTask) task = g_task_new(link->connection, link->cancellable, on_shaken, link);

    g_task_set_task_data(task, link, NULL);
    link->pending++;
    g_task_run_in_thread(task, shake_hands);
}

static void on_connected(GObject *client, GAsyncResult *result, gpointer data)
{
    QosLocklink *link = data;
    g_autoptr(GError) error = NULL;
    GSocketConnection *connection =
        g_socket_client_connect_finish(G_SOCKET_CLIENT(client), result, &error);

    link->pending--;
    if (connection == NULL) {
        if (!is_cancelled(error))
            fail(link, error->message, FALSE);
        return;
    }
    link->connection = connection;
    g_socket_set_timeout(g_socket_connection_get_socket(connection), 0);
    if (G_IS_TCP_CONNECTION(connection))
        g_socket_set_option(g_socket_connection_get_socket(connection), IPPROTO_TCP, TCP_NODELAY, 1,
                            NULL);
    switch (link->kind) {
    case LOCAL:
        greet(link, G_IO_STREAM(g_object_ref(connection)));
        break;
    case TLS:
        secure(link);
        break;
    case MUNGE:
        show_credential(link);
        break;
    }
}

static void begin(QosLocklink *link)
{
    g_autoptr(GSocketClient) client = g_socket_client_new();

    link->state = CONNECTING;
    link->cancellable = g_cancellable_new();
    set_timer(link, ATTEMPT_TIME * 1000, on_late);
    g_socket_client_set_enable_proxy(client, FALSE);
    link->pending++;
    g_socket_client_connect_async(client, link->address, link->cancellable, on_connected, link);
}

/* --- the link --- */

static gboolean set_address(QosLocklink *link, const char *server, GError **error)
{
    g_autoptr(GError) reason = NULL;

    if (g_str_has_prefix(server, "unix:")) {
        const char *path = server + strlen("unix:");
        struct sockaddr_un *limit = NULL;
        if (*path == '/' && strlen(path) < sizeof(limit->sun_path)) {
            link->address = G_SOCKET_CONNECTABLE(g_unix_socket_address_new(path));
            return TRUE;
        }
        qos_set_error(error, EINVAL,
                      "option server=%s: the path of a Unix socket begins with / and has at most "
                      "%zu characters",
                      server, sizeof(limit->sun_path) - 1);
        return FALSE;
    }
    gboolean is_munge = g_str_has_prefix(server, "munge:");
    const char *host = is_munge ? server + strlen("munge:") : server;
    const char *colon = strrchr(host, ':');
    const char *bracket = strrchr(host, ']');
    if (colon != NULL && colon != host && colon > bracket)
        link->address = g_network_address_parse(host, 0, &reason);
    if (link->address == NULL) {
        qos_set_error(error, EINVAL,
                      "option server=%s: expected unix:PATH, HOST:PORT or munge:HOST:PORT", server);
        return FALSE;
    }
    link->kind = is_munge ? MUNGE : TLS;
    return TRUE;
}

/* Reads the files once, so that a mistake shows where it was made. They are read again for each
 * connection: certificates are renewed. */
static gboolean check_tls(const QosLocklinkConfig *config, GError **error)
{
    g_autoptr(GTlsCertificate) certificate = NULL;
    g_autoptr(GTlsDatabase) database = NULL;

    if (config->ca == NULL || config->certificate == NULL || config->key == NULL) {
        qos_set_error(
            error, EINVAL,
            "option server=%s: TCP needs TLS, and that the options server_ca, server_cert "
            "and server_key",
            config->server);
        return FALSE;
    }
    if (!g_tls_backend_supports_tls(g_tls_backend_get_default())) {
        qos_set_error(error, ENOTSUP,
                      "option server=%s: GIO has no TLS here: install "
                      "glib-networking",
                      config->server);
        return FALSE;
    }
    certificate = read_certificate(config, error);
    if (certificate != NULL)
        database = read_authorities(config, error);
    return database != NULL;
}

QosLocklink *qos_locklink_new(const QosLocklinkConfig *config, const QosLocklinkUser *user,
                              GMainContext *context, GError **error)
{
    QosLocklink *link = g_new0(QosLocklink, 1);

    link->config = *config;
    link->user = *user;
    link->context = g_main_context_ref(context);
    link->retry = RETRY_FIRST;
    if (set_address(link, config->server, error) &&
        (link->kind != TLS || check_tls(config, error)) &&
        (link->kind != MUNGE || qos_munge_is_built(error)))
        return link;
    qos_locklink_free(link);
    return NULL;
}

void qos_locklink_start(QosLocklink *link)
{
    begin(link);
}

/* What there is, if it goes soon. */
static void send_last(QosLocklink *link)
{
    GOutputStream *stream = g_io_stream_get_output_stream(link->stream);

    drop_source(&link->output);
    g_socket_set_timeout(g_socket_connection_get_socket(link->connection), QOS_LOCKLINK_PATIENCE);
    if (link->unsent == NULL)
        link->unsent = link->user.more(link->user.arg);
    while (link->unsent != NULL &&
           g_output_stream_write_all(stream, link->unsent->data + link->sent,
                                     link->unsent->len - link->sent, NULL, NULL, NULL)) {
        g_byte_array_unref(link->unsent);
        link->unsent = link->user.more(link->user.arg);
        link->sent = 0;
    }
}

void qos_locklink_stop(QosLocklink *link)
{
    if (link->state == OPEN)
        send_last(link);
    close_connection(link);
    while (link->pending > 0)
        g_main_context_iteration(link->context, TRUE);
}

void qos_locklink_free(QosLocklink *link)
{
    if (link == NULL)
        return;
    g_clear_object(&link->address);
    g_main_context_unref(link->context);
    g_free(link);
}
