/*
 * The queue of connections before their HELLO; server/pending_connections.h has the rules.
 */
#include "server/pending_connections.h"

typedef struct {
    guint pending, shaking;
} Host;

void qos_pending_connections_init(QosPendingConnections *pending)
{
    *pending = (QosPendingConnections){0};
    pending->hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

void qos_pending_connections_clear(QosPendingConnections *pending)
{
    g_hash_table_unref(pending->hosts);
}

/* --- hosts --- */

static Host *host_of(const QosPendingConnections *pending, QosConnection *connection)
{
    return g_hash_table_lookup(pending->hosts, qos_connection_host(connection));
}

static guint count_pending(const Host *host)
{
    return host->pending;
}

static guint count_shaking(const Host *host)
{
    return host->shaking;
}

/* The oldest connection in the queue of the host that has most, if it has more than `most`. */
static QosConnection *oldest_of_most(const QosPendingConnections *pending, const GQueue *queue,
                                     guint (*count)(const Host *), guint most)
{
    QosConnection *found = NULL;

    for (const GList *each = queue->head; each != NULL; each = each->next) {
        const guint has = count(host_of(pending, each->data));
        if (has > most) {
            most = has;
            found = each->data;
        }
    }
    return found;
}

/* --- the next handshake --- */

static QosConnection *find_next(const QosPendingConnections *pending)
{
    QosConnection *next = NULL;
    guint fewest = G_MAXUINT;

    for (const GList *each = pending->waiting.head; each != NULL; each = each->next) {
        const guint shaking = host_of(pending, each->data)->shaking;
        if (shaking < fewest) {
            fewest = shaking;
            next = each->data;
        }
    }
    return next;
}

static void start(QosPendingConnections *pending, QosConnection *connection)
{
    Host *host = host_of(pending, connection);

    g_queue_remove(&pending->waiting, connection);
    g_queue_push_tail(&pending->shaking, connection);
    host->shaking++;
    qos_connection_shake(connection, host->shaking);
}

/* Starts handshakes as long as there is room. A handshake may end at once, which calls this
 * again. */
static void serve(QosPendingConnections *pending)
{
    if (pending->is_serving)
        return;
    pending->is_serving = TRUE;
    while (pending->waiting.length > 0 && pending->shaking.length < QOS_PENDING_CONNECTIONS_SHAKING)
        start(pending, find_next(pending));
    pending->is_serving = FALSE;
}

void qos_pending_connections_knock(QosPendingConnections *pending, QosConnection *connection)
{
    g_queue_push_tail(&pending->waiting, connection);
    if (pending->shaking.length >= QOS_PENDING_CONNECTIONS_SHAKING) {
        const guint fewer = host_of(pending, connection)->shaking;
        QosConnection *old = oldest_of_most(pending, &pending->shaking, count_shaking, fewer + 1);
        if (old != NULL)
            qos_connection_close(old, QOS_WIRE_FULL, QOS_PENDING_CONNECTIONS_TOO_MANY);
    }
    serve(pending);
}

void qos_pending_connections_shaken(QosPendingConnections *pending, QosConnection *connection)
{
    if (g_queue_remove(&pending->shaking, connection))
        host_of(pending, connection)->shaking--;
    serve(pending);
}

/* --- pending --- */

void qos_pending_connections_add(QosPendingConnections *pending, QosConnection *connection)
{
    Host *host = host_of(pending, connection);

    if (host == NULL) {
        host = g_new0(Host, 1);
        g_hash_table_insert(pending->hosts, g_strdup(qos_connection_host(connection)), host);
    }
    host->pending++;
    g_queue_push_tail(&pending->all, connection);
}

void qos_pending_connections_remove(QosPendingConnections *pending, QosConnection *connection)
{
    Host *host = host_of(pending, connection);

    if (!g_queue_remove(&pending->all, connection))
        return;
    g_queue_remove(&pending->waiting, connection);
    host->shaking -= g_queue_remove(&pending->shaking, connection);
    if (--host->pending == 0)
        g_hash_table_remove(pending->hosts, qos_connection_host(connection));
}

QosConnection *qos_pending_connections_to_go(const QosPendingConnections *pending)
{
    return oldest_of_most(pending, &pending->all, count_pending, 1);
}

guint qos_pending_connections_count(const QosPendingConnections *pending)
{
    return pending->all.length;
}
