/*
 * The table of mounts by owner id; server/clients.h says how long an id belongs to a principal.
 */
#include "server/clients.h"

static void client_free(QosClient *client)
{
    g_free(client->principal);
    g_free(client->name);
    g_free(client);
}

void qos_clients_init(QosClients *clients)
{
    g_queue_init(&clients->idle);
    clients->by_id =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, (GDestroyNotify)client_free);
}

void qos_clients_clear(QosClients *clients)
{
    g_clear_pointer(&clients->by_id, g_hash_table_unref);
}

QosClient *qos_clients_find(const QosClients *clients, QosOwnerId id)
{
    return g_hash_table_lookup(clients->by_id, &id);
}

QosClient *qos_clients_add(QosClients *clients, QosOwnerId id, const char *principal,
                           const char *name)
{
    QosClient *client;

    if (g_hash_table_size(clients->by_id) >= QOS_CLIENTS_MAX) {
        GList *oldest = g_queue_pop_head_link(&clients->idle);
        if (!oldest)
            return NULL;
        g_hash_table_remove(clients->by_id, &((QosClient *)oldest->data)->id);
    }
    client = g_new0(QosClient, 1);
    client->id = id;
    client->principal = g_strdup(principal);
    client->name = g_strdup(name);
    g_hash_table_insert(clients->by_id, &client->id, client);
    qos_clients_note(clients, client);
    return client;
}

void qos_client_rename(QosClient *client, const char *name)
{
    g_free(client->name);
    client->name = g_strdup(name);
}

void qos_client_hand_over(QosClient *client, const char *principal)
{
    g_free(client->principal);
    client->principal = g_strdup(principal);
}

gboolean qos_client_is_idle(const QosClient *client)
{
    return !client->is_connected && !client->is_durable && client->credits == 0;
}

void qos_clients_note(QosClients *clients, QosClient *client)
{
    gboolean is_idle = qos_client_is_idle(client);

    if (is_idle == (client->link.data != NULL))
        return;
    if (is_idle) {
        client->link.data = client;
        g_queue_push_tail_link(&clients->idle, &client->link);
    } else {
        g_queue_unlink(&clients->idle, &client->link);
        client->link.data = NULL;
    }
}

guint qos_clients_count(const QosClients *clients)
{
    return g_hash_table_size(clients->by_id) - clients->idle.length;
}
