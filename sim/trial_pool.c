/*
 * The pool at a server and the lock caches of its clients (core/pool.h, fs/lockcache.h), under a
 * protocol of one request at a time.
 *
 * A client names each request by a number that grows, and repeats it until it is answered. The
 * server carries the request out once, and repeats the answer. The server does not know a client
 * after a restart of either, or if the client was silent for too long. It tells such a client to
 * claim what it has.
 */
#include <string.h>

#include "fs/lockcache.h"
#include "sim/trial.h"

#define CLIENTS    5
#define LIMIT      20000 /* L, bytes */
#define HARD_LIMIT 30000 /* HL */
#define RESEND     (100 * QOS_MILLISECOND)
#define SILENCE    (2 * QOS_SECOND) /* after which a client is forgotten */
#define BATCH      4

typedef enum { ENQUEUE, CANCEL, CLAIM, GRANTED, REFUSED, DONE, UNKNOWN } MessageType;

typedef struct {
    guint64 type;
    guint64 server; /* its incarnation, as far as the sender knows */
    guint64 request;
    gint64 bytes;
    gint64 delay;
    QosPoolSignal signal; /* of the server */
} Message;

typedef struct {
    QosPoolClient pool;
    gboolean is_known;
    Message answer; /* the last */
    QosTime heard;
} Session;

typedef struct {
    QosPool pool;
    Session sessions[CLIENTS];
} Server;

typedef struct {
    QosLockcache cache;
    GPtrArray *entries; /* of QosLockcacheEntry: what the server has granted */
    gint64 held;        /* bytes of them */
    guint64 server;     /* the greatest incarnation heard of */
    Message request;    /* under way */
    gboolean is_waiting;
    QosTime due;          /* to repeat it, or to make the next */
    QosPoolSignal newest; /* that has come, whatever the cache makes of it */
    QosTime answered;     /* the last request, by the cluster's clock */
    guint64 heard;        /* signals */
} Client;

typedef struct {
    QosNode *server;
    gboolean late_slr, hard_limit; /* what is broken */
} World;

static const char *const message_names[] = {"ENQUEUE", "CANCEL", "CLAIM",  "GRANTED",
                                            "REFUSED", "DONE",   "UNKNOWN"};

static void post(QosNode *node, QosNode *to, const Message *message)
{
    qos_node_send(node, to, g_bytes_new(message, sizeof(*message)));
}

static Message message_of(GBytes *bytes)
{
    Message message;

    memcpy(&message, g_bytes_get_data(bytes, NULL), sizeof(message));
    return message;
}

static char *describe(GBytes *bytes)
{
    const Message message = message_of(bytes);

    return g_strdup_printf("%s %" G_GINT64_MODIFIER "x, %d bytes, SLR %d of %" G_GINT64_MODIFIER
                           "x",
                           message_names[message.type], message.request, (int)message.bytes,
                           (int)message.signal.rate, message.signal.sequence);
}

/* --- the server --- */

static void server_start(QosNode *node)
{
    Server *server = g_new0(Server, 1);
    const QosPoolConfig config = {
        .limit = LIMIT, .hard_limit = HARD_LIMIT, .floor = 500, .cap = 12000};
    const QosTime now = qos_node_now(node);

    qos_pool_init(&server->pool, &config, (guint64)node->incarnation << 32, now);
    node->state = server;
    qos_node_wake_at(node, qos_pool_step(&server->pool, now));
}

static void server_stop(QosNode *node)
{
    g_free(node->state);
}

static void forget(Server *server, Session *session)
{
    if (session->is_known)
        qos_pool_leave(&server->pool, &session->pool);
    session->is_known = FALSE;
}

static void server_wake(QosNode *node)
{
    Server *server = node->state;
    const QosTime now = qos_node_now(node);

    for (guint i = 0; i < CLIENTS; i++)
        if (server->sessions[i].is_known && now - server->sessions[i].heard > SILENCE) {
            qos_cluster_trace(node->cluster, node, "forgets client%u", i);
            forget(server, &server->sessions[i]);
        }
    qos_node_wake_at(node, qos_pool_step(&server->pool, now));
}

static MessageType carry_out(QosNode *node, Session *session, const Message *request,
                             QosTime *ret_delay)
{
    Server *server = node->state;
    const World *world = node->cluster->arg;

    if (request->type == CANCEL) {
        qos_pool_cancel(&server->pool, &session->pool, request->bytes);
        return DONE;
    }
    if (request->type == CLAIM) {
        qos_pool_adopt(&server->pool, &session->pool, request->bytes);
        return DONE;
    }
    if (world->hard_limit)
        qos_pool_adopt(&server->pool, &session->pool, request->bytes);
    else if (qos_pool_grant(&server->pool, &session->pool, request->bytes, qos_node_now(node),
                            ret_delay) != QOS_POOL_GRANTED)
        return REFUSED;
    if (server->pool.granted > HARD_LIMIT)
        qos_cluster_fail(node->cluster, "G = %d is above HL after a grant",
                         (int)server->pool.granted);
    return GRANTED;
}

static void server_receive(QosNode *node, QosNode *from, GBytes *bytes)
{
    Server *server = node->state;
    Session *session = &server->sessions[from->number - 1];
    const Message request = message_of(bytes);
    const gboolean is_ours = request.server == node->incarnation;
    Message answer = {
        .server = node->incarnation, .request = request.request, .bytes = request.bytes};

    if (is_ours && request.request < session->answer.request)
        return; /* it is late */
    if (is_ours && request.type == CLAIM && request.request != session->answer.request) {
        forget(server, session);
        session->is_known = TRUE;
        qos_pool_join(&server->pool, &session->pool);
    }
    if (!is_ours || !session->is_known) {
        answer.type = UNKNOWN;
    } else if (request.request == session->answer.request) {
        answer = session->answer;
    } else {
        answer.type = carry_out(node, session, &request, &answer.delay);
        session->answer = answer;
    }
    session->heard = qos_node_now(node);
    answer.signal = qos_pool_signal(&server->pool);
    post(node, from, &answer);
}

static const QosNodeClass server_class = {server_start, server_stop, server_receive, server_wake,
                                          describe};

/* --- the clients --- */

static void ask(QosNode *node, MessageType type, gint64 bytes)
{
    Client *client = node->state;
    const World *world = node->cluster->arg;

    client->request = (Message){.type = type,
                                .server = client->server,
                                .request = client->request.request + 1,
                                .bytes = bytes};
    client->is_waiting = TRUE;
    client->due = qos_node_now(node) + RESEND;
    post(node, world->server, &client->request);
    qos_node_wake_at(node, client->due);
}

static void client_start(QosNode *node)
{
    Client *client = g_new0(Client, 1);

    qos_lockcache_init(&client->cache);
    client->entries = g_ptr_array_new_with_free_func(g_free);
    client->request.request = (guint64)node->incarnation << 32;
    node->state = client;
    ask(node, CLAIM, 0);
}

static void client_stop(QosNode *node)
{
    Client *client = node->state;

    for (guint i = 0; i < client->entries->len; i++)
        qos_lockcache_drop(&client->cache, client->entries->pdata[i]);
    g_ptr_array_free(client->entries, TRUE);
    g_free(client);
}

/* Gives back what the cache says. */
static gboolean give_back(QosNode *node, gboolean is_capped)
{
    Client *client = node->state;
    QosLockcacheEntry *batch[BATCH];
    const QosTime now = qos_node_now(node);
    const guint count = is_capped ? qos_lockcache_evict(&client->cache, now, batch, BATCH)
                                  : qos_lockcache_shrink(&client->cache, now, batch, BATCH);
    gint64 bytes = 0;

    for (guint i = 0; i < count; i++) {
        bytes += batch[i]->bytes;
        g_ptr_array_remove_fast(client->entries, batch[i]);
    }
    client->held -= bytes;
    if (count > 0)
        ask(node, CANCEL, bytes);
    return count > 0;
}

static void client_wake(QosNode *node)
{
    Client *client = node->state;
    const World *world = node->cluster->arg;
    const QosTime now = qos_node_now(node);

    if (client->is_waiting) {
        post(node, world->server, &client->request);
        client->due = now + RESEND;
        qos_node_wake_at(node, client->due);
    } else if (!give_back(node, FALSE)) {
        ask(node, ENQUEUE, 500 + qos_cluster_random(node->cluster, 1500));
    }
}

static void keep(Client *client, gint64 bytes, QosTime now)
{
    QosLockcacheEntry *entry = g_new0(QosLockcacheEntry, 1);

    qos_lockcache_entry_init(entry, (guint32)bytes);
    g_ptr_array_add(client->entries, entry);
    client->held += bytes;
    qos_lockcache_put(&client->cache, entry, now);
}

static void heed(QosNode *node, QosPoolSignal signal)
{
    Client *client = node->state;
    const World *world = node->cluster->arg;

    if (signal.sequence > client->newest.sequence)
        client->newest = signal;
    client->heard++;
    if (world->late_slr) /* as if what came last were the newest */
        signal.sequence = client->heard;
    qos_lockcache_heed(&client->cache, signal);
}

static void client_receive(QosNode *node, QosNode *from G_GNUC_UNUSED, GBytes *bytes)
{
    Client *client = node->state;
    const Message answer = message_of(bytes);
    const QosTime now = qos_node_now(node);

    heed(node, answer.signal);
    client->server = MAX(client->server, answer.server);
    if (!client->is_waiting || answer.request != client->request.request)
        return;
    client->is_waiting = FALSE;
    client->due = now + (answer.type == REFUSED ? answer.delay : 0) +
                  qos_cluster_random(node->cluster, 100) * QOS_MILLISECOND;
    if (answer.type == UNKNOWN) {
        ask(node, CLAIM, client->held);
        return;
    }
    client->answered = node->cluster->now;
    if (answer.type == GRANTED)
        keep(client, answer.bytes, now);
    if (answer.type == REFUSED && answer.delay == 0 && give_back(node, TRUE))
        return;
    qos_node_wake_at(node, client->due);
}

static const QosNodeClass client_class = {client_start, client_stop, client_receive, client_wake,
                                          describe};

/* --- what must hold --- */

static void check_server(QosCluster *cluster, const Server *server)
{
    gint64 sum = 0;

    for (guint i = 0; i < CLIENTS; i++)
        sum += server->sessions[i].pool.granted;
    if (sum != server->pool.granted)
        qos_cluster_fail(cluster, "G = %d, and its clients have %d", (int)server->pool.granted,
                         (int)sum);
}

/* Of a client without a request under way, the server knows what it has; unless it forgot it. */
static void check_client(QosCluster *cluster, const QosNode *node)
{
    const World *world = cluster->arg;
    const Client *client = node->state;
    const Server *server = world->server->state;
    const Session *session = server ? &server->sessions[node->number - 1] : NULL;

    if (client->cache.signal.rate != client->newest.rate)
        qos_cluster_fail(cluster, "%s heeds SLR %d, and has heard %d later", node->name,
                         (int)client->cache.signal.rate, (int)client->newest.rate);
    if (session && session->is_known && !client->is_waiting &&
        session->answer.request == client->request.request && session->pool.granted != client->held)
        qos_cluster_fail(cluster, "%s has %d, and the server counts %d", node->name,
                         (int)client->held, (int)session->pool.granted);
}

static void check(QosCluster *cluster, QosNode *node)
{
    if (!node->state)
        return;
    if (node->number == 0)
        check_server(cluster, node->state);
    else
        check_client(cluster, node);
}

/* Each request ends, and the server has taken all that live in again. */
static void settled(QosCluster *cluster)
{
    const World *world = cluster->arg;

    for (guint i = 1; i < cluster->nodes->len; i++) {
        const QosNode *node = cluster->nodes->pdata[i];
        const Client *client = node->state;
        if (node->is_dead || world->server->is_dead)
            continue;
        if (client->is_waiting && qos_node_now(node) > client->due + QOS_SECOND)
            qos_cluster_fail(cluster, "%s still waits", node->name);
        if (client->answered < QOS_CLUSTER_TROUBLE)
            qos_cluster_fail(cluster, "%s has not found its server again", node->name);
    }
}

static void build(QosCluster *cluster, const char *broken)
{
    World *world = g_new0(World, 1);

    world->late_slr = g_strcmp0(broken, "late-slr") == 0;
    world->hard_limit = g_strcmp0(broken, "hard-limit") == 0;
    world->server = qos_cluster_add(cluster, &server_class, NULL, "server");
    for (guint i = 0; i < CLIENTS; i++)
        qos_cluster_add(cluster, &client_class, world->server, "client%u", i);
    cluster->arg = world;
}

static void clear(QosCluster *cluster)
{
    g_free(cluster->arg);
}

static const char *const rules[] = {"late-slr", "hard-limit", NULL};

const QosTrial qos_trial_pool = {
    .name = "pool",
    .promise = "no grant takes G above HL, the books agree, no late SLR is heeded, requests end",
    .rules = rules,
    .settles = SILENCE + 10 * RESEND,
    .build = build,
    .clear = clear,
    .check = check,
    .settled = settled,
};
