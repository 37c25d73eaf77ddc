/*
 * Accepts connections and keeps them within their bound (server/listener.h).
 */
#include "server/listener.h"

#include <errno.h>
#include <gio/gunixsocketaddress.h>
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/error.h"
#include "net/complaint.h"
#include "server/handshake.h"
#include "server/pending_connections.h"
#include "server/socket_path.h"

#define BACKLOG      4096 /* all mounts of a site, when they come back at once */
#define ACCEPT_TURN  16   /* connections taken in one turn of the loop */
#define ACCEPT_PAUSE 1000 /* milliseconds, where no descriptor is left */

/* A peer that has vanished, as when its machine lost power, is noticed within a minute. */
#define KEEPALIVE_IDLE     30 /* seconds */
#define KEEPALIVE_INTERVAL 10
#define KEEPALIVE_COUNT    3

/* A socket that listens. */
typedef struct {
    QosListener *listener;
    GSocket *socket;
    GSource *source;               /* accepts, or waits until it may again */
    const QosHandshake *handshake; /* the listener's; NULL: a Unix socket */
    char *path;                    /* of a Unix socket, else NULL */
} Door;

struct QosListener {
    const QosServerOptions *options;
    QosGrants *grants;
    QosCluster *cluster;
    GPtrArray *doors;
    QosHandshake *tls, *munge; /* NULL where no address asks for them */
    GHashTable *connections;   /* a set, each with a reference */
    GHashTable *clients;       /* QosOwnerId (the connection's) -> its connection, which is OPEN */
    QosPendingConnections pending;
    GPtrArray *due; /* those with output; references */
    GSource *flusher;
    QosPoller *poller; /* of the connections */
    guint living;      /* connections that use memory, in `connections` or not */
    QosListenerStatistics statistics;
    QosComplaints complaints;
};

static void start_accepting(Door *door);

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* --- output --- */

/* So the messages of a turn to each other peer are one write. */
static void flush(QosListener *listener)
{
    while (listener->due->len > 0) {
        g_autoptr(GPtrArray) due = g_steal_pointer(&listener->due);
        listener->due = g_ptr_array_new_with_free_func((GDestroyNotify)qos_connection_unref);
        for (guint i = 0; i < due->len; i++)
            qos_connection_flush(due->pdata[i]);
    }
}

/* After a peer's turn. */
static void has_turned(gpointer arg)
{
    QosListener *listener = arg;

    qos_cluster_turned(listener->cluster);
    flush(listener);
}

static void has_output(QosConnection *connection, gpointer arg)
{
    QosListener *listener = arg;

    g_ptr_array_add(listener->due, qos_connection_ref(connection));
}

typedef struct {
    GSource source;
    QosListener *listener;
} Flusher;

static gboolean has_due(GSource *source, gint *timeout)
{
    *timeout = -1;
    return ((Flusher *)source)->listener->due->len > 0;
}

static gboolean flush_rest(GSource *source, GSourceFunc function G_GNUC_UNUSED,
                           gpointer data G_GNUC_UNUSED)
{
    flush(((Flusher *)source)->listener);
    return G_SOURCE_CONTINUE;
}

/* Flushes what comes out by itself (of the owner's timer, the database, the administrator) before
 * the loop waits or reads anything else. It is a source that looks whether there is something: one
 * that has to be told would wake the loop each time. */
static void start_flusher(QosListener *listener)
{
    static GSourceFuncs functions = {.prepare = has_due, .dispatch = flush_rest};

    listener->flusher = g_source_new(&functions, sizeof(Flusher));
    ((Flusher *)listener->flusher)->listener = listener;
    g_source_set_priority(listener->flusher, G_PRIORITY_HIGH);
    g_source_attach(listener->flusher, NULL);
}

void qos_listener_send(QosOwnerId id, const QosCreditMessage *message, gpointer arg)
{
    QosListener *listener = arg;
    QosConnection *connection = g_hash_table_lookup(listener->clients, &id);

    if (connection != NULL)
        qos_connection_send(connection, message);
}

void qos_listener_send_urgent(QosOwnerId id, const guint8 *frames, gsize length, gpointer arg)
{
    QosListener *listener = arg;
    QosConnection *connection = g_hash_table_lookup(listener->clients, &id);

    if (connection != NULL)
        qos_connection_send_urgent(connection, frames, length);
}

void qos_listener_send_bulk(QosOwnerId id, GBytes *frames, gpointer arg)
{
    QosListener *listener = arg;
    QosConnection *connection = g_hash_table_lookup(listener->clients, &id);

    if (connection != NULL)
        qos_connection_send_bulk(connection, frames);
}

/* --- what connections tell --- */

/* The connection is not the client's any more; TRUE if it was. */
static gboolean take_off(QosListener *listener, QosConnection *connection)
{
    QosOwnerId id = qos_connection_id(connection);

    return g_hash_table_lookup(listener->clients, &id) == connection &&
           g_hash_table_remove(listener->clients, &id);
}

static gboolean hello(QosConnection *connection, const QosWireHello *message,
                      QosWireWelcome *ret_welcome, QosWireRefused *ret_refused, gpointer arg)
{
    QosListener *listener = arg;
    g_autofree char *label = qos_connection_label(connection);
    QosOwnerId *id = g_memdup2(&message->id, sizeof(message->id));
    QosConnection *old;

    if (!qos_grants_connected(listener->grants, message, qos_connection_principal(connection),
                              ret_welcome, ret_refused)) {
        g_free(id);
        return FALSE;
    }
    old = g_hash_table_lookup(listener->clients, id);
    g_hash_table_replace(listener->clients, id, connection);
    if (old != NULL)
        qos_connection_refuse(old, QOS_WIRE_IDENTITY_TAKEN,
                              "it has connected anew, or another mount of its name has a copy of "
                              "its database");
    qos_pending_connections_remove(&listener->pending, connection);
    listener->statistics.welcomed++;
    g_info("%s is welcome", label);
    return TRUE;
}

/* The peer behind a connection, as its door has identified it. */
static QosAsker peer_of(const QosListener *listener, const QosConnection *connection)
{
    const QosHandshake *handshake = qos_connection_handshake(connection);
    const char *principal = qos_connection_principal(connection);
    const char *uid = strrchr(principal, ' '); /* "uid 7", "munge uid 7" */

    if (handshake != NULL && handshake == listener->tls)
        return (QosAsker){.door = QOS_DOOR_TLS, .subject = principal};
    return (QosAsker){.door = handshake != NULL ? QOS_DOOR_MUNGE : QOS_DOOR_LOCAL,
                      .uid = (uid_t)strtoul(uid != NULL ? uid : "", NULL, 10)};
}

static void opened(QosConnection *connection, gpointer arg)
{
    QosListener *listener = arg;
    const QosAsker peer = peer_of(listener, connection);

    qos_cluster_connected(listener->cluster, qos_connection_id(connection),
                          qos_connection_name(connection), &peer);
}

static const char *frame(QosConnection *connection, QosWireType type, const guint8 *payload,
                         gsize length, gpointer arg)
{
    QosListener *listener = arg;

    return qos_cluster_frame(listener->cluster, qos_connection_id(connection), type, payload,
                             length);
}

static void received(QosConnection *connection, const QosCreditMessage *messages, guint count,
                     gpointer arg)
{
    QosListener *listener = arg;

    qos_grants_received(listener->grants, qos_connection_id(connection), messages, count);
}

static gboolean waits(QosConnection *connection, QosWireWait *wait, gpointer arg)
{
    QosListener *listener = arg;

    return qos_grants_waits(listener->grants, qos_connection_id(connection), wait);
}

static void ended(QosConnection *connection, QosWireRefusal code, const char *reason, gpointer arg)
{
    QosListener *listener = arg;
    g_autofree char *label = qos_connection_label(connection);

    listener->statistics.ended[code]++;
    if (reason != NULL)
        qos_complain(&listener->complaints, G_LOG_LEVEL_WARNING, now_of(), "%s: %s: %s", label,
                     qos_wire_refusal_text(code), reason);
    else
        g_info("%s has gone", label);
    qos_pending_connections_remove(&listener->pending, connection);
    if (take_off(listener, connection)) {
        qos_grants_disconnected(listener->grants, qos_connection_id(connection));
        qos_cluster_disconnected(listener->cluster, qos_connection_id(connection));
    }
}

static void knocks(QosConnection *connection, gpointer arg)
{
    qos_pending_connections_knock(&((QosListener *)arg)->pending, connection);
}

static void shaken(QosConnection *connection, gpointer arg)
{
    qos_pending_connections_shaken(&((QosListener *)arg)->pending, connection);
}

static void closed(QosConnection *connection, gpointer arg)
{
    QosListener *listener = arg;

    g_hash_table_remove(listener->connections, connection);
}

static void gone(gpointer arg)
{
    QosListener *listener = arg;

    listener->living--;
}

void qos_listener_drop(QosOwnerId id, QosWireRefusal code, const char *reason, gpointer arg)
{
    QosListener *listener = arg;
    QosConnection *connection = g_hash_table_lookup(listener->clients, &id);

    if (connection == NULL)
        return;
    g_hash_table_remove(listener->clients, &id);
    qos_cluster_disconnected(listener->cluster, id);
    qos_connection_refuse(connection, code, reason);
}

/* --- new connections --- */

/* Makes room for one more connection if need be, and returns whether there is room. A connection
 * that was closed during its handshake keeps its descriptor until the handshake has ended. */
static gboolean make_room(QosListener *listener)
{
    const guint most = listener->options->connections;

    if (g_hash_table_size(listener->connections) >= most) {
        QosConnection *old = qos_pending_connections_to_go(&listener->pending);
        if (old != NULL)
            qos_connection_close(old, QOS_WIRE_FULL, QOS_PENDING_CONNECTIONS_TOO_MANY);
    }
    return g_hash_table_size(listener->connections) < most &&
           listener->living < most + QOS_PENDING_CONNECTIONS_SHAKING;
}

static void add_connection(QosListener *listener, GSocket *socket, const QosHandshake *handshake,
                           const char *principal)
{
    const QosConnectionUser user = {.patience = listener->options->patience,
                                    .poller = listener->poller,
                                    .arg = listener,
                                    .knocks = knocks,
                                    .shaken = shaken,
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

    const gboolean has_room = make_room(listener);
    QosConnection *connection = qos_connection_new(socket, handshake, principal, &user);
    listener->living++;
    g_hash_table_add(listener->connections, connection);
    qos_pending_connections_add(&listener->pending, connection);
    if (!has_room)
        qos_connection_refuse(connection, QOS_WIRE_FULL, "as many as may be are connected");
}

static void let_in_local(QosListener *listener, GSocket *socket)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GCredentials) credentials = g_socket_get_credentials(socket, &error);
    uid_t uid = credentials != NULL ? g_credentials_get_unix_user(credentials, &error) : (uid_t)-1;
    g_autofree char *principal = g_strdup_printf("uid %u", uid);

    if (uid != (uid_t)-1 && qos_server_options_allow(listener->options, uid)) {
        add_connection(listener, socket, NULL, principal);
        return;
    }
    listener->statistics.ended[QOS_WIRE_NOT_PERMITTED]++;
    qos_complain(&listener->complaints, G_LOG_LEVEL_WARNING, now_of(), "local (%s): %s", principal,
                 error != NULL ? error->message : "not permitted: see allow-uid");
}

static void let_in_remote(QosListener *listener, GSocket *socket, const QosHandshake *handshake)
{
    g_socket_set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, NULL);
    /* What the kernel has taken nothing can overtake. */
    g_socket_set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, QOS_WIRE_PAGE_MAX, NULL);
    g_socket_set_keepalive(socket, TRUE);
    g_socket_set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE, NULL);
    g_socket_set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL, NULL);
    g_socket_set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT, NULL);
    add_connection(listener, socket, handshake, NULL);
}

/* --- doors --- */

static gboolean accept_again(gpointer data)
{
    start_accepting(data);
    return G_SOURCE_REMOVE;
}

static void pause_accepting(Door *door)
{
    g_source_destroy(door->source);
    g_source_unref(door->source);
    door->source = g_timeout_source_new(ACCEPT_PAUSE);
    g_source_set_callback(door->source, accept_again, door, NULL);
    g_source_attach(door->source, NULL);
}

static gboolean accept_some(GSocket *socket, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    Door *door = data;

    for (guint i = 0; i < ACCEPT_TURN; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(GSocket) peer = g_socket_accept(socket, NULL, &error);

        if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK))
            break;
        if (peer == NULL) {
            qos_complain(&door->listener->complaints, G_LOG_LEVEL_WARNING, now_of(),
                         "cannot accept a connection: %s", error->message);
            pause_accepting(door);
            break;
        }
        g_socket_set_blocking(peer, FALSE);
        door->listener->statistics.accepted++;
        if (door->handshake == NULL)
            let_in_local(door->listener, peer);
        else
            let_in_remote(door->listener, peer, door->handshake);
    }
    return G_SOURCE_CONTINUE;
}

static void start_accepting(Door *door)
{
    g_clear_pointer(&door->source, g_source_unref);
    door->source = g_socket_create_source(door->socket, G_IO_IN, NULL);
    g_source_set_callback(door->source, G_SOURCE_FUNC(accept_some), door, NULL);
    g_source_attach(door->source, NULL);
}

static void door_free(gpointer data)
{
    Door *door = data;

    if (door->source != NULL) {
        g_source_destroy(door->source);
        g_source_unref(door->source);
    }
    g_socket_close(door->socket, NULL);
    g_object_unref(door->socket);
    if (door->path != NULL)
        g_unlink(door->path);
    g_free(door->path);
    g_free(door);
}

/* Listens at the address, which is `path` where it is a Unix socket's, and says so. */
static GSocket *open_socket(const QosListener *listener, GSocketAddress *address, const char *path,
                            GError **error)
{
    const int mode = listener->options->allowed_uids->len > 0 ? 0666 : 0600;
    g_autofree char *text = g_socket_connectable_to_string(G_SOCKET_CONNECTABLE(address));
    g_autoptr(GSocketAddress) bound = NULL;
    g_autoptr(GError) reason = NULL;
    g_autoptr(GSocket) socket =
        g_socket_new(g_socket_address_get_family(address), G_SOCKET_TYPE_STREAM, 0, &reason);

    if (socket != NULL) {
        g_socket_set_blocking(socket, FALSE);
        g_socket_set_listen_backlog(socket, BACKLOG);
    }
    if (socket == NULL || !g_socket_bind(socket, address, TRUE, &reason) ||
        (path != NULL && g_chmod(path, mode) != 0) || !g_socket_listen(socket, &reason) ||
        (bound = g_socket_get_local_address(socket, &reason)) == NULL) {
        qos_set_error(error, EADDRNOTAVAIL, "cannot listen on %s: %s", text,
                      reason != NULL ? reason->message : g_strerror(errno));
        return NULL;
    }
    g_free(text);
    /* With the port, where any would do. */
    text = g_socket_connectable_to_string(G_SOCKET_CONNECTABLE(bound));
    g_message("listens on %s", text);
    return g_steal_pointer(&socket);
}

static const QosHandshake *handshake_at(const QosListener *listener, QosDoorKind kind)
{
    switch (kind) {
    case QOS_DOOR_LOCAL:
        break;
    case QOS_DOOR_TLS:
        return listener->tls;
    case QOS_DOOR_MUNGE:
        return listener->munge;
    }
    return NULL;
}

static gboolean listen_at(QosListener *listener, const QosServerAddress *where, GError **error)
{
    g_autofree char *path = NULL;
    GSocket *socket;
    Door *door;

    if (where->kind == QOS_DOOR_LOCAL)
        path = g_strdup(g_unix_socket_address_get_path(G_UNIX_SOCKET_ADDRESS(where->address)));
    if (path != NULL && !qos_socket_path_clear(path, error))
        return FALSE;
    socket = open_socket(listener, where->address, path, error);
    if (socket == NULL)
        return FALSE;
    door = g_new0(Door, 1);
    *door = (Door){.listener = listener,
                   .socket = socket,
                   .handshake = handshake_at(listener, where->kind),
                   .path = g_steal_pointer(&path)};
    g_ptr_array_add(listener->doors, door);
    start_accepting(door);
    return TRUE;
}

/* --- start and end --- */

static gboolean make_handshakes(QosListener *listener, GError **error)
{
    const QosServerOptions *options = listener->options;
    gboolean is_made = TRUE;

    for (guint i = 0; is_made && i < options->listen->len; i++) {
        QosDoorKind kind = ((const QosServerAddress *)options->listen->pdata[i])->kind;

        if (kind == QOS_DOOR_TLS && listener->tls == NULL)
            is_made = (listener->tls = qos_handshake_new_tls(options, error)) != NULL;
        else if (kind == QOS_DOOR_MUNGE && listener->munge == NULL)
            is_made = (listener->munge = qos_handshake_new_munge(options, error)) != NULL;
    }
    return is_made;
}

QosListener *qos_listener_new(const QosServerOptions *options, GError **error)
{
    QosListener *listener = g_new0(QosListener, 1);
    gboolean is_up;

    listener->options = options;
    listener->doors = g_ptr_array_new_with_free_func(door_free);
    listener->connections = g_hash_table_new_full(g_direct_hash, g_direct_equal,
                                                  (GDestroyNotify)qos_connection_unref, NULL);
    listener->clients = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    listener->due = g_ptr_array_new_with_free_func((GDestroyNotify)qos_connection_unref);
    qos_pending_connections_init(&listener->pending);
    start_flusher(listener);
    listener->poller = qos_poller_new(NULL, error);
    is_up = listener->poller != NULL && make_handshakes(listener, error);
    for (guint i = 0; is_up && i < options->listen->len; i++)
        is_up = listen_at(listener, options->listen->pdata[i], error);
    if (is_up)
        return listener;
    qos_listener_free(listener);
    return NULL;
}

void qos_listener_set_grants(QosListener *listener, QosGrants *grants)
{
    listener->grants = grants;
}

void qos_listener_set_cluster(QosListener *listener, QosCluster *cluster)
{
    listener->cluster = cluster;
}

void qos_listener_free(QosListener *listener)
{
    GHashTableIter iter;
    gpointer connection;

    if (listener == NULL)
        return;
    g_ptr_array_unref(listener->doors);
    while (g_hash_table_iter_init(&iter, listener->connections),
           g_hash_table_iter_next(&iter, &connection, NULL))
        qos_connection_close(connection, 0, NULL);
    g_source_destroy(listener->flusher);
    g_source_unref(listener->flusher);
    g_ptr_array_unref(listener->due);
    while (listener->living > 0) /* a handshake, in a thread, that hears of its end */
        g_main_context_iteration(NULL, TRUE);
    g_hash_table_unref(listener->connections);
    g_hash_table_unref(listener->clients);
    qos_pending_connections_clear(&listener->pending);
    qos_handshake_free(listener->tls);
    qos_handshake_free(listener->munge);
    qos_poller_free(listener->poller);
    g_free(listener);
}

QosListenerStatistics qos_listener_statistics(const QosListener *listener)
{
    QosListenerStatistics statistics = listener->statistics;

    statistics.connections = g_hash_table_size(listener->connections);
    statistics.pending = qos_pending_connections_count(&listener->pending);
    return statistics;
}
