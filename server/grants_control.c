/*
 * The administrator's side of the grants: the state, the tunables, and expelling a client
 * (server/grants.h).
 */
#include <errno.h>

#include "base/error.h"
#include "server/grants_private.h"

static guint count_awaited(const QosGrants *grants)
{
    GHashTableIter iter;
    gpointer client;
    guint count = 0;

    g_hash_table_iter_init(&iter, grants->clients.by_id);
    while (g_hash_table_iter_next(&iter, NULL, &client))
        count += ((QosClient *)client)->is_durable && ((QosClient *)client)->incarnation == 0;
    return count;
}

void qos_grants_state(const QosGrants *grants, QosGrantsState *ret_state)
{
    const QosServerRecord *record = qos_server_db_record(grants->db);
    gboolean in_grace = qos_owner_in_grace(grants->owner);

    *ret_state = (QosGrantsState){.id = record->id,
                                  .incarnation = record->incarnation,
                                  .store = grants->store,
                                  .started = grants->started,
                                  .now = qos_grants_now(),
                                  .in_grace = in_grace,
                                  .awaited = in_grace ? count_awaited(grants) : 0,
                                  .lent = qos_owner_lent(grants->owner),
                                  .pool = &grants->pool,
                                  .clients = &grants->clients,
                                  .settings = &grants->settings,
                                  .next = &grants->next,
                                  .set = grants->set,
                                  .trouble = grants->trouble,
                                  .received = grants->received,
                                  .sent = grants->sent,
                                  .evictions = grants->evictions,
                                  .waits = qos_deadlocks_count(grants->waits),
                                  .deadlocks = grants->deadlocks};
}

static GHashTable *copy_set(GHashTable *set)
{
    GHashTable *copy = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    GHashTableIter iter;
    gpointer name, text;

    g_hash_table_iter_init(&iter, set);
    while (g_hash_table_iter_next(&iter, &name, &text))
        g_hash_table_replace(copy, g_strdup(name), g_strdup(text));
    return copy;
}

gboolean qos_grants_set(QosGrants *grants, const char *name, const char *text, GError **error)
{
    g_autoptr(GHashTable) set = copy_set(grants->set);
    QosServerSettings changed = grants->configured;
    gboolean is_default = g_str_equal(text, "default");

    if (!qos_server_tunable_help(name)) {
        qos_set_error(error, ENOENT, "there is no tunable \"%s\"", name);
        return FALSE;
    }
    if (is_default)
        g_hash_table_remove(set, name);
    else
        g_hash_table_replace(set, g_strdup(name), g_strdup(text));
    if (!qos_server_settings_apply(&changed, set, error))
        return FALSE;
    g_hash_table_unref(grants->set);
    grants->set = g_steal_pointer(&set);
    grants->next = changed;
    grants->settings.pool = changed.pool;
    grants->settings.shares = changed.shares;
    grants->settings.capacity = changed.capacity;
    qos_pool_configure(&grants->pool, &changed.pool);
    qos_grants_set_claimable(grants, changed.pool.hard_limit, FALSE);
    qos_grants_settle(grants);
    qos_server_db_save_tunable(grants->db, name, is_default ? NULL : text);
    return TRUE;
}

gboolean qos_grants_expel(QosGrants *grants, QosOwnerId id, GError **error)
{
    QosClient *client = qos_clients_find(&grants->clients, id);

    if (!client || !(client->is_connected || client->is_durable)) {
        qos_set_error(error, ENOENT, "there is no mount %" G_GINT64_MODIFIER "x", id);
        return FALSE;
    }
    if (client->is_connected) {
        qos_grants_disconnect(grants, client);
        grants->output.drop(id, QOS_WIRE_NOT_PERMITTED, "the administrator has evicted this mount",
                            grants->output.arg);
    }
    client->expelled_until = qos_time_add(
        qos_grants_now(), grants->settings.lease + QOS_LEASE_DRIFT(grants->settings.lease));
    qos_grants_keep_in_pool(grants, client);
    g_message("%s was evicted by the administrator", client->name);
    return TRUE;
}
