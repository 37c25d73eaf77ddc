/*
 * The server's report: its state as JSON, and its metrics as Prometheus text. The state is one JSON
 * object:
 *
 *     id, incarnation, store, uptime (s), grace, awaited, database (what is wrong with it; or null)
 *     pool: limit, hard_limit, granted, planned, grant_speed, cancel_speed, rate, clients, refused,
 *           advice (or null)
 *     credits, evictions, messages: {received: {TYPE: n}, sent: {TYPE: n}}
 *     waits, deadlocks: of processes that lock files
 *     connections: {now, strangers, accepted, welcomed, left, refused: {REASON: n}}
 *     cluster: {version, rules, epoch_ms, lease_ms, floor_parts, mounts_known, mounts_behind, jobs,
 *               passed_over, refused}: of the rules of the cluster
 *     tunables: {NAME: {value, next, set, help}}
 *     mounts: [{id, name, principal, connected (s; or null), credits, bytes, received, sent,
 *           called_back}], the one with the most bytes first
 *
 * The metrics have series for at most MOUNTS_MAX mounts, those with the most bytes. The other
 * mounts are summed up as mount="other". So it is with budgets: BUDGETS_MAX of each unit, the
 * largest, and class="other".
 */
#include "server/report.h"

#include "base/prometheus.h"
#include "fs/policy.h"
#include "net/report_json.h"

#define MOUNTS_MAX  50
#define BUDGETS_MAX 50

static const char *const message_names[] = {
    [QOS_MESSAGE_HELLO] = "hello",     [QOS_MESSAGE_WELCOME] = "welcome",
    [QOS_MESSAGE_RESET] = "reset",     [QOS_MESSAGE_RENEW] = "renew",
    [QOS_MESSAGE_ENQUEUE] = "enqueue", [QOS_MESSAGE_WITHDRAW] = "withdraw",
    [QOS_MESSAGE_CANCEL] = "cancel",   [QOS_MESSAGE_RECLAIM] = "reclaim",
    [QOS_MESSAGE_GRANT] = "grant",     [QOS_MESSAGE_DENIED] = "denied",
    [QOS_MESSAGE_REVOKE] = "revoke",   [QOS_MESSAGE_RESTORE] = "restore",
};

static double seconds(QosTime time)
{
    return (double)time / (double)QOS_SECOND;
}

static gint by_bytes(gconstpointer one, gconstpointer other)
{
    const QosClient *a = *(QosClient *const *)one, *b = *(QosClient *const *)other;

    if (a->pool.granted != b->pool.granted)
        return a->pool.granted > b->pool.granted ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* The clients that are not idle, sorted; free with g_ptr_array_unref. */
static GPtrArray *sorted_clients(const QosClients *clients)
{
    GPtrArray *sorted = g_ptr_array_new();
    GHashTableIter iter;
    gpointer data;

    g_hash_table_iter_init(&iter, clients->by_id);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        const QosClient *client = data;
        if (client->link.data == NULL)
            g_ptr_array_add(sorted, data);
    }
    g_ptr_array_sort(sorted, by_bytes);
    return sorted;
}

/* --- JSON --- */

static void add_id(JsonBuilder *json, QosOwnerId id)
{
    char text[17];

    g_snprintf(text, sizeof(text), "%" G_GINT64_MODIFIER "x", id);
    qos_json_add_text(json, "id", text); /* more bits than JSON's numbers have */
}

static void add_pool(JsonBuilder *json, const QosPool *pool)
{
    g_autofree char *advice = qos_pool_advice(pool);

    qos_json_begin_object(json, "pool");
    qos_json_add_count(json, "limit", (guint64)pool->config.limit);
    qos_json_add_count(json, "hard_limit", (guint64)pool->config.hard_limit);
    qos_json_add_count(json, "granted", (guint64)pool->granted);
    qos_json_add_number(json, "planned", pool->planned);
    qos_json_add_count(json, "grant_speed", (guint64)pool->grant_speed);
    qos_json_add_count(json, "cancel_speed", (guint64)pool->cancel_speed);
    qos_json_add_number(json, "rate", pool->rate);
    qos_json_add_count(json, "clients", pool->clients);
    qos_json_add_count(json, "refused", pool->refused);
    qos_json_add_text(json, "advice", advice);
    json_builder_end_object(json);
}

static void add_messages(JsonBuilder *json, const char *name, const guint64 *counts)
{
    G_STATIC_ASSERT(G_N_ELEMENTS(message_names) == QOS_MESSAGE_TYPES);
    qos_json_begin_object(json, name);
    for (guint i = 0; i < QOS_MESSAGE_TYPES; i++)
        qos_json_add_count(json, message_names[i], counts[i]);
    json_builder_end_object(json);
}

static void add_tunables(JsonBuilder *json, const QosGrantsState *state)
{
    const char *name;

    qos_json_begin_object(json, "tunables");
    for (guint i = 0; (name = qos_server_tunable_name(i)) != NULL; i++) {
        g_autofree char *value = qos_server_tunable_text(state->settings, name);
        g_autofree char *next = qos_server_tunable_text(state->next, name);
        qos_json_begin_object(json, name);
        qos_json_add_text(json, "value", value);
        qos_json_add_text(json, "next", next);
        qos_json_add_boolean(json, "set", g_hash_table_contains(state->set, name));
        qos_json_add_text(json, "help", qos_server_tunable_help(name));
        json_builder_end_object(json);
    }
    json_builder_end_object(json);
}

static void add_connections(JsonBuilder *json, const QosListenerStatistics *sockets)
{
    qos_json_begin_object(json, "connections");
    qos_json_add_count(json, "now", sockets->connections);
    qos_json_add_count(json, "strangers", sockets->pending);
    qos_json_add_count(json, "accepted", sockets->accepted);
    qos_json_add_count(json, "welcomed", sockets->welcomed);
    qos_json_add_count(json, "left", sockets->ended[0]);
    qos_json_begin_object(json, "refused");
    for (guint i = 1; i < QOS_WIRE_REFUSALS; i++)
        qos_json_add_count(json, qos_wire_refusal_text(i), sockets->ended[i]);
    json_builder_end_object(json);
    json_builder_end_object(json);
}

static void add_cluster(JsonBuilder *json, const QosCluster *cluster)
{
    QosClusterState state;

    qos_cluster_state(cluster, &state);
    qos_json_begin_object(json, "cluster");
    qos_json_add_count(json, "version", state.version);
    qos_json_add_count(json, "rules", state.rules);
    qos_json_add_count(json, "epoch_ms", (guint64)(state.epoch / QOS_MILLISECOND));
    qos_json_add_count(json, "lease_ms", (guint64)(state.lease / QOS_MILLISECOND));
    qos_json_add_count(json, "floor_parts", state.parts);
    qos_json_add_count(json, "mounts_known", state.known);
    qos_json_add_count(json, "mounts_behind", state.behind);
    qos_json_add_count(json, "jobs", state.jobs);
    qos_json_add_count(json, "passed_over", state.passed_over);
    qos_json_add_count(json, "refused", state.refused);
    json_builder_end_object(json);
}

static void add_mount(JsonBuilder *json, const QosClient *client, QosTime now)
{
    json_builder_begin_object(json);
    add_id(json, client->id);
    qos_json_add_text(json, "name", client->name);
    qos_json_add_text(json, "principal", client->principal);
    if (client->is_connected)
        qos_json_add_number(json, "connected", seconds(now - client->connected));
    else
        qos_json_add_text(json, "connected", NULL);
    qos_json_add_count(json, "credits", client->credits);
    qos_json_add_count(json, "bytes", (guint64)client->pool.granted);
    qos_json_add_count(json, "received", client->received);
    qos_json_add_count(json, "sent", client->sent);
    qos_json_add_count(json, "called_back", client->called_back);
    json_builder_end_object(json);
}

static void add_state(JsonBuilder *json, const QosGrantsState *state, const QosCluster *cluster,
                      const QosListenerStatistics *sockets)
{
    g_autoptr(GPtrArray) clients = sorted_clients(state->clients);

    add_id(json, state->id);
    qos_json_add_count(json, "incarnation", state->incarnation);
    qos_json_add_text(json, "store", state->store);
    qos_json_add_number(json, "uptime", seconds(state->now - state->started));
    qos_json_add_boolean(json, "grace", state->in_grace);
    qos_json_add_count(json, "awaited", state->awaited);
    qos_json_add_text(json, "database", state->trouble);
    add_pool(json, state->pool);
    qos_json_add_count(json, "credits", state->lent);
    qos_json_add_count(json, "evictions", state->evictions);
    qos_json_add_count(json, "waits", state->waits);
    qos_json_add_count(json, "deadlocks", state->deadlocks);
    qos_json_begin_object(json, "messages");
    add_messages(json, "received", state->received);
    add_messages(json, "sent", state->sent);
    json_builder_end_object(json);
    add_connections(json, sockets);
    add_cluster(json, cluster);
    add_tunables(json, state);
    qos_json_begin_array(json, "mounts");
    for (guint i = 0; i < clients->len; i++)
        add_mount(json, clients->pdata[i], state->now);
    json_builder_end_array(json);
}

char *qos_server_report_state(const QosGrants *grants, const QosCluster *cluster,
                              const QosListenerStatistics *sockets)
{
    g_autoptr(JsonBuilder) json = json_builder_new();
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = NULL;
    QosGrantsState state;

    qos_grants_state(grants, &state);
    json_builder_begin_object(json);
    add_state(json, &state, cluster, sockets);
    json_builder_end_object(json);
    root = json_builder_get_root(json);
    json_generator_set_root(generator, root);
    g_autofree char *text = json_generator_to_data(generator, NULL);
    return g_strconcat(text, "\n", NULL);
}

/* --- metrics --- */

static void append_pool(GString *text, const QosPool *pool)
{
    qos_prometheus_one(text, "qosfs_server_limit_bytes", "gauge", "Memory for credits: L.",
                       (double)pool->config.limit);
    qos_prometheus_one(text, "qosfs_server_hard_limit_bytes", "gauge",
                       "Beyond it none is granted: HL.", (double)pool->config.hard_limit);
    qos_prometheus_one(text, "qosfs_server_granted_bytes", "gauge",
                       "Memory of the credits that are granted: G.", (double)pool->granted);
    qos_prometheus_one(text, "qosfs_server_planned_bytes", "gauge",
                       "G as planned for the next step: GP.", pool->planned);
    qos_prometheus_one(text, "qosfs_server_grant_speed_bytes", "gauge",
                       "Granted in the last second: GS.", (double)pool->grant_speed);
    qos_prometheus_one(text, "qosfs_server_cancel_speed_bytes", "gauge",
                       "Given back in the last second: CS.", (double)pool->cancel_speed);
    qos_prometheus_one(text, "qosfs_server_lock_rate", "gauge", "SLR, in byte-milliseconds.",
                       pool->rate);
    qos_prometheus_one(text, "qosfs_server_grants_refused_total", "counter",
                       "Grants beyond HL or a mount's cap.", (double)pool->refused);
}

static void append_connections(GString *text, const QosListenerStatistics *sockets)
{
    qos_prometheus_one(text, "qosfs_server_connections", "gauge", "Connections now.",
                       sockets->connections);
    qos_prometheus_one(text, "qosfs_server_strangers", "gauge",
                       "Of these, before their first message.", sockets->pending);
    qos_prometheus_one(text, "qosfs_server_accepted_total", "counter", "Connections.",
                       (double)sockets->accepted);
    qos_prometheus_one(text, "qosfs_server_welcomed_total", "counter",
                       "Of these, mounts that were let in.", (double)sockets->welcomed);
    qos_prometheus_head(text, "qosfs_server_refused_total", "counter",
                        "Connections that the server ended, and why.");
    for (guint i = 1; i < QOS_WIRE_REFUSALS; i++)
        qos_prometheus_value(text, "qosfs_server_refused_total", "reason", qos_wire_refusal_text(i),
                             (double)sockets->ended[i]);
}

static void append_messages(GString *text, const char *name, const char *help,
                            const guint64 *counts)
{
    qos_prometheus_head(text, name, "counter", help);
    for (guint i = 0; i < QOS_MESSAGE_TYPES; i++)
        qos_prometheus_value(text, name, "type", message_names[i], (double)counts[i]);
}

static void append_mounts(GString *text, const char *name, const char *type, const char *help,
                          const GPtrArray *clients, double (*value)(const QosClient *client))
{
    double other = 0;

    qos_prometheus_head(text, name, type, help);
    for (guint i = 0; i < clients->len; i++) {
        const QosClient *client = clients->pdata[i];
        if (i < MOUNTS_MAX) {
            g_autofree char *label =
                g_strdup_printf("%s#%" G_GINT64_MODIFIER "x", client->name, client->id);
            qos_prometheus_value(text, name, "mount", label, value(client));
        } else {
            other += value(client);
        }
    }
    if (clients->len > MOUNTS_MAX)
        qos_prometheus_value(text, name, "mount", "other", other);
}

static double credits_of(const QosClient *client)
{
    return (double)client->credits;
}

static double bytes_of(const QosClient *client)
{
    return (double)client->pool.granted;
}

static double called_back_of(const QosClient *client)
{
    return (double)client->called_back;
}

/* --- metrics of the cluster --- */

typedef struct {
    char *label; /* "RULE/CLASS" */
    guint unit;
    double in_force;
} Budget;

static void budget_free(gpointer data)
{
    g_free(((Budget *)data)->label);
    g_free(data);
}

static void take_budget(const QosServerBudgetsClass *class, gpointer arg)
{
    Budget *budget = g_new(Budget, 1);

    *budget = (Budget){.label = g_strconcat(class->rule_name, "/", class->class_name, NULL),
                       .unit = class->unit,
                       .in_force = (double)class->state.in_force / QOS_BUDGET_UNIT};
    g_ptr_array_add(arg, budget);
}

static gint by_rate(gconstpointer one, gconstpointer other)
{
    const Budget *a = *(Budget *const *)one, *b = *(Budget *const *)other;

    return a->in_force > b->in_force ? -1 : a->in_force < b->in_force;
}

static void append_budgets(GString *text, const char *name, const char *help, guint unit,
                           const GPtrArray *budgets)
{
    double other = 0;
    guint count = 0;

    qos_prometheus_head(text, name, "gauge", help);
    for (guint i = 0; i < budgets->len; i++) {
        const Budget *budget = budgets->pdata[i];
        if (budget->unit != unit)
            continue;
        if (count++ < BUDGETS_MAX)
            qos_prometheus_value(text, name, "class", budget->label, budget->in_force);
        else
            other += budget->in_force;
    }
    if (count > BUDGETS_MAX)
        qos_prometheus_value(text, name, "class", "other", other);
}

static void append_cluster(GString *text, const QosCluster *cluster)
{
    g_autoptr(GPtrArray) budgets = g_ptr_array_new_with_free_func(budget_free);
    QosClusterState state;

    qos_cluster_state(cluster, &state);
    qos_prometheus_one(text, "qosfs_server_rules_version", "gauge",
                       "Of the rules of the cluster: grows with each change.",
                       (double)state.version);
    qos_prometheus_one(text, "qosfs_server_rules", "gauge", "Rules of the cluster.", state.rules);
    qos_prometheus_one(text, "qosfs_server_mounts_behind", "gauge",
                       "Mounts that have not put the rules of the cluster in force yet.",
                       state.behind);
    qos_prometheus_one(text, "qosfs_server_mounts_with_floors", "gauge",
                       "Mounts that may use a part of floors, connected or not.", state.known);
    qos_prometheus_one(text, "qosfs_server_reports_passed_over_total", "counter",
                       "Reports of mounts that were late, or broke the law of budgets.",
                       (double)state.passed_over);
    qos_server_budgets_each(qos_cluster_budgets(cluster), take_budget, budgets,
                            g_get_monotonic_time() * QOS_MICROSECOND);
    g_ptr_array_sort(budgets, by_rate);
    append_budgets(text, "qosfs_server_budget_operations",
                   "What all mounts may use now of a class's budget, in operations a second.",
                   QOS_UNIT_OPERATIONS, budgets);
    append_budgets(text, "qosfs_server_budget_bytes",
                   "What all mounts may use now of a class's budget, in bytes a second.",
                   QOS_UNIT_BYTES, budgets);
}

char *qos_server_report_metrics(const QosGrants *grants, const QosCluster *cluster,
                                const QosListenerStatistics *sockets)
{
    GString *text = g_string_new(NULL);
    QosGrantsState state;

    qos_grants_state(grants, &state);
    g_autoptr(GPtrArray) clients = sorted_clients(state.clients);
    qos_prometheus_head(text, "qosfs_server_info", "gauge", "The version of qosfs-server.");
    qos_prometheus_value(text, "qosfs_server_info", "version", QOSFS_VERSION, 1);
    qos_prometheus_one(text, "qosfs_server_uptime_seconds", "gauge", "Since its start.",
                       seconds(state.now - state.started));
    qos_prometheus_one(text, "qosfs_server_incarnation", "gauge", "Starts over the same database.",
                       state.incarnation);
    qos_prometheus_one(text, "qosfs_server_grace", "gauge", "1: nothing new is granted yet.",
                       state.in_grace ? 1 : 0);
    qos_prometheus_one(text, "qosfs_server_database_failing", "gauge",
                       "1: the database cannot be written to.", state.trouble ? 1 : 0);
    qos_prometheus_one(text, "qosfs_server_mounts", "gauge", "Mounts that are known.",
                       clients->len);
    qos_prometheus_one(text, "qosfs_server_credits", "gauge", "Credits that are granted.",
                       (double)state.lent);
    qos_prometheus_one(text, "qosfs_server_evictions_total", "counter",
                       "Mounts that lost credits with their lease.", (double)state.evictions);
    qos_prometheus_one(text, "qosfs_server_lock_waits", "gauge",
                       "Processes that wait for a file lock, and have others.", state.waits);
    qos_prometheus_one(text, "qosfs_server_deadlocks_total", "counter",
                       "Of these, those told EDEADLK, because they would have waited for ever.",
                       (double)state.deadlocks);
    append_connections(text, sockets);
    append_cluster(text, cluster);
    append_pool(text, state.pool);
    append_messages(text, "qosfs_server_received_total", "Messages received.", state.received);
    append_messages(text, "qosfs_server_sent_total", "Messages sent.", state.sent);
    append_mounts(text, "qosfs_server_mount_credits", "gauge", "A mount's credits.", clients,
                  credits_of);
    append_mounts(text, "qosfs_server_mount_bytes", "gauge", "The memory of a mount's credits.",
                  clients, bytes_of);
    append_mounts(text, "qosfs_server_mount_called_back_total", "counter",
                  "A mount's credits called back.", clients, called_back_of);
    return g_string_free(text, FALSE);
}
