/*
 * The queue of connections before their HELLO; server/strangers.h has the rules.
 */
#include "server/strangers.h"

typedef struct {
    guint strangers, shaking;
} Host;

void qos_strangers_init(QosStrangers *strangers)
{
    *strangers = (QosStrangers){0};
    strangers->hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

void qos_strangers_clear(QosStrangers *strangers)
{
    g_hash_table_unref(strangers->hosts);
}

/* --- hosts --- */

static Host *host_of(const QosStrangers *strangers, QosConnection *connection)
{
    return g_hash_table_lookup(strangers->hosts, qos_connection_host(connection));
}

static guint count_strangers(const Host *host)
{
    return host->strangers;
}

static guint count_shaking(const Host *host)
{
    return host->shaking;
}

/* The oldest connection in the queue of the host that has most, if it has more than `most`. */
static QosConnection *oldest_of_most(const QosStrangers *strangers, const GQueue *queue,
                                     guint (*count)(const Host *), guint most)
{
    QosConnection *found = NULL;

    for (const GList *each = queue->head; each != NULL; each = each->next) {
        const guint has = count(host_of(strangers, each->data));
        if (has > most) {
            most = has;
            found = each->data;
        }
    }
    return found;
}

/* --- the next handshake --- */

static QosConnection *find_next(const QosStrangers *strangers)
{
    QosConnection *next = NULL;
    guint fewest = G_MAXUINT;

    for (const GList *each = strangers->waiting.head; each != NULL; each = each->next) {
        const guint shaking = host_of(strangers, each->data)->shaking;
        if (shaking < fewest) {
            fewest = shaking;
            next = each->data;
        }
    }
    return next;
}

static void start(QosStrangers *strangers, QosConnection *connection)
{
    Host *host = host_of(strangers, connection);

    g_queue_remove(&strangers->waiting, connection);
    g_queue_push_tail(&strangers->shaking, connection);
    host->shaking++;
    qos_connection_shake(connection, host->shaking);
}

/* Starts handshakes as long as there is room. A handshake may end at once, which calls this
 * again. */
static void serve(QosStrangers *strangers)
{
    if (strangers->is_serving)
        return;
    strangers->is_serving = TRUE;
    while (strangers->waiting.length > 0 && strangers->shaking.length < QOS_STRANGERS_SHAKING)
        start(strangers, find_next(strangers));
    strangers->is_serving = FALSE;
}

void qos_strangers_knock(QosStrangers *strangers, QosConnection *connection)
{
    g_queue_push_tail(&strangers->waiting, connection);
    if (strangers->shaking.length >= QOS_STRANGERS_SHAKING) {
        const guint fewer = host_of(strangers, connection)->shaking;
        QosConnection *old =
            oldest_of_most(strangers, &strangers->shaking, count_shaking, fewer + 1);
        if (old != NULL)
            qos_connection_close(old, QOS_WIRE_FULL, QOS_STRANGERS_TOO_MANY);
    }
    serve(strangers);
}

void qos_strangers_shaken(QosStrangers *strangers, QosConnection *connection)
{
    if (g_queue_remove(&strangers->shaking, connection))
        host_of(strangers, connection)->shaking--;
    serve(strangers);
}

/* --- strangers --- */

void qos_strangers_add(QosStrangers *strangers, QosConnection *connection)
{
    Host *host = host_of(strangers, connection);

    if (host == NULL) {
        host = g_new0(Host, 1);
        g_hash_table_insert(strangers->hosts, g_strdup(qos_connection_host(connection)), host);
    }
    host->strangers++;
    g_queue_push_tail(&strangers->all, connection);
}

void qos_strangers_remove(QosStrangers *strangers, QosConnection *connection)
{
    Host *host = host_of(strangers, connection);

    if (!g_queue_remove(&strangers->all, connection))
        return;
    g_queue_remove(&strangers->waiting, connection);
    host->shaking -= g_queue_remove(&strangers->shaking, connection);
    if (--host->strangers == 0)
        g_hash_table_remove(strangers->hosts, qos_connection_host(connection));
}

QosConnection *qos_strangers_to_go(const QosStrangers *strangers)
{
    return oldest_of_most(strangers, &strangers->all, count_strangers, 1);
}

guint qos_strangers_count(const QosStrangers *strangers)
{
    return strangers->all.length;
}
