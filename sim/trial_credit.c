/*
 * Credits in a tree of three levels (core/credit.h). A root owns everything, servers borrow from it
 * and lend to mounts, and users at the mounts get, convert, use and put credits. Each use of a
 * credit goes to the store, which checks its token.
 */
#include "sim/trial_credit.h"

#include "sim/credit_waiting.h"
#include "sim/trial.h"

#define SERVERS     2
#define MOUNTS      2 /* of each server */
#define IDENTIFIERS 12
#define LENT_MAX    9 /* credits of one owner: two borrowers could have 12 */
#define LEASE       (3 * QOS_SECOND / 2)
#define RESEND      (50 * QOS_MILLISECOND)
#define PATIENCE    QOS_SECOND /* in which two that wait for each other are told apart */
/* At each of two levels below the root, a lease or grace that has to end, and then the longest
 * interval between two messages that go unanswered. */
#define SETTLES (2 * (LEASE + QOS_LEASE_DRIFT(LEASE) + 16 * RESEND))

static const QosOwner *owner_of(const QosNode *node)
{
    const QosCreditNode *state = node->state;

    return state && node != ((const QosCreditWorld *)node->cluster->arg)->store ? state->owner
                                                                                : NULL;
}

/* --- owners --- */

static void save_client(QosNode *node, QosOwnerId client, gboolean is_one)
{
    g_autoptr(GArray) clients = g_array_copy(node->saved);

    for (guint i = clients->len; i-- > 0;)
        if (g_array_index(clients, guint64, i) == client)
            g_array_remove_index(clients, i);
    if (is_one)
        g_array_append_val(clients, client);
    qos_node_save(node, (const guint64 *)clients->data, clients->len);
}

/* Another owner wants the credit: its local holders put it, and what is cached is dropped. */
static void conflict(QosNode *node, const QosOutput *output)
{
    QosCreditWorld *world = node->cluster->arg;
    QosCreditNode *state = node->state;

    for (guint i = 0; i < QOS_CREDIT_USERS; i++) {
        QosCreditUser *user = &state->users[i];
        if (user->state == QOS_USER_HOLDING &&
            qos_resource_equal(&output->resource, &world->observer.resources[user->resource])) {
            user->is_wanted = TRUE;
            user->due = MIN(user->due, qos_credit_soon(node, 200));
        }
    }
    for (guint i = 0; i < QOS_OBSERVED && world->caches; i++) {
        if (!qos_resource_equal(&output->resource, &world->observer.resources[i]))
            continue;
        qos_observer_type(&world->observer, i)->join(&state->wanted[i], &output->credit);
        state->drop[i] = qos_credit_soon(node, 200);
    }
}

static void drop_cached(QosNode *node, guint resource)
{
    QosCreditWorld *world = node->cluster->arg;
    QosCreditNode *state = node->state;

    qos_cluster_trace(node->cluster, node, "drops what it has cached");
    state->drop[resource] = QOS_NEVER;
    qos_credit_cancel(state->owner, qos_node_now(node), &world->observer.resources[resource],
                      &state->wanted[resource], FALSE);
    qos_credit_clear(qos_observer_type(&world->observer, resource), &state->wanted[resource]);
}

static void send_message(QosNode *node, QosOwnerId to, const QosCreditMessage *message)
{
    GByteArray *bytes = g_byte_array_new();

    qos_credit_message_encode(message, bytes);
    qos_node_send(node, node->cluster->nodes->pdata[to - 1], g_byte_array_free_to_bytes(bytes));
}

static void take_output(QosNode *node, const QosOutput *output)
{
    QosCreditNode *state = node->state;

    switch (output->kind) {
    case QOS_OUTPUT_SEND:
        send_message(node, output->peer, output->message);
        break;
    case QOS_OUTPUT_DONE:
        qos_credit_user_settle(node, output->hold->user, output->verdict, output->delay);
        break;
    case QOS_OUTPUT_CONFLICT:
        conflict(node, output);
        break;
    case QOS_OUTPUT_LOST:
        qos_cluster_trace(node->cluster, node, "has lost a credit");
        break;
    case QOS_OUTPUT_SAVE:
        save_client(node, output->peer, TRUE);
        if (!node->is_doomed)
            qos_owner_saved(state->owner, output->peer, qos_node_now(node));
        break;
    case QOS_OUTPUT_FORGET:
        save_client(node, output->peer, FALSE);
        break;
    }
}

/* Does what the owner has handed out; then it sleeps until something is due. */
static void go_on(QosNode *node)
{
    QosCreditNode *state = node->state;
    QosOutput output;
    QosTime due;

    while (qos_owner_output(state->owner, &output))
        take_output(node, &output);
    due = qos_owner_next(state->owner);
    for (guint i = 0; i < QOS_CREDIT_USERS; i++) {
        QosCreditUser *user = &state->users[i];
        if (user->state == QOS_USER_HOLDING && !user->hold.book && !user->before.book) {
            user->state = QOS_USER_IDLE;
            user->due = qos_credit_soon(node, 300);
        }
        due = MIN(due, user->due);
    }
    for (guint i = 0; i < QOS_OBSERVED; i++)
        due = MIN(due, state->drop[i]);
    qos_node_wake_at(node, due);
}

static void capital(const QosResource *resource, QosCredit *ret_credit, gpointer arg G_GNUC_UNUSED)
{
    const QosResourceType *type = qos_resource_type(resource->type);

    if (type->shape == QOS_SHAPE_AMOUNT)
        *ret_credit = (QosCredit){.amount = QOS_OBSERVED_AMOUNT};
    else if (resource->type == QOS_RESOURCE_IDENTIFIER)
        *ret_credit = qos_credit_span(0, IDENTIFIERS - 1, TRUE);
    else if (type->shape == QOS_SHAPE_SPANS)
        *ret_credit = qos_credit_span(0, G_MAXUINT64, TRUE);
    else
        *ret_credit = (QosCredit){.reads = G_MAXUINT32, .writes = G_MAXUINT32};
}

static gboolean may_grant(QosOwnerId borrower G_GNUC_UNUSED,
                          const QosResource *resource G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED,
                          QosTime *ret_delay, gpointer arg)
{
    const QosCreditNode *state = arg;

    *ret_delay = 100 * QOS_MILLISECOND;
    return state->lent < LENT_MAX;
}

static void counted(QosOwnerId borrower G_GNUC_UNUSED, const QosResource *resource G_GNUC_UNUSED,
                    gboolean is_more, gpointer arg)
{
    QosCreditNode *state = arg;

    state->lent += is_more ? 1 : (guint)-1;
}

static void resized(QosOwnerId borrower G_GNUC_UNUSED, const QosResource *resource G_GNUC_UNUSED,
                    gint64 bytes, gpointer arg)
{
    QosCreditNode *state = arg;

    state->bytes += bytes;
}

static gboolean is_mount(const QosNode *node)
{
    const QosCreditWorld *world = node->cluster->arg;

    return node->parent && (world->is_flat || node->parent->parent);
}

static void start(QosNode *node)
{
    const QosCreditWorld *world = node->cluster->arg;
    const char *list_rule = node->parent ? "server-list" : "double-grant";
    const gboolean forgets = qos_credit_world_is_broken(node->cluster, list_rule);
    const QosTime grace_used =
        !node->parent && qos_credit_world_is_broken(node->cluster, "reclaim") ? 2 * LEASE : 0;
    QosCreditNode *state = g_new0(QosCreditNode, 1);
    QosOwnerConfig config;

    qos_owner_config_init(&config, node->number + 1, node->incarnation);
    config.above = node->parent ? node->parent->number + 1 : 0;
    config.lends = !is_mount(node);
    config.lease = LEASE;
    config.resend = RESEND;
    config.contention = world->is_contended ? 2 : 0;
    config.lockless = 200 * QOS_MILLISECOND;
    config.capital = capital;
    config.caches = world->caches && is_mount(node);
    config.may_grant = may_grant;
    config.counted = counted;
    config.resized = resized;
    config.arg = state;
    state->owner = qos_owner_new(&config, (const QosOwnerId *)node->saved->data,
                                 forgets ? 0 : node->saved->len, qos_node_now(node) - grace_used);
    node->state = state;
    for (guint i = 0; i < QOS_CREDIT_USERS; i++)
        state->users[i].due =
            is_mount(node) || world->is_peopled ? qos_credit_soon(node, 300) : QOS_NEVER;
    for (guint i = 0; i < QOS_OBSERVED; i++)
        state->drop[i] = QOS_NEVER;
    go_on(node);
}

static void stop(QosNode *node)
{
    QosCreditNode *state = node->state;

    for (guint i = 0; i < QOS_OBSERVED; i++)
        qos_credit_clear(qos_resource_type(i), &state->wanted[i]);
    for (guint i = 0; i < QOS_CREDIT_USERS; i++)
        qos_credit_clear(qos_resource_type(state->users[i].resource), &state->users[i].want);
    qos_owner_free(state->owner);
    g_free(state);
}

static void wake(QosNode *node)
{
    QosCreditNode *state = node->state;
    const QosTime now = qos_node_now(node);

    qos_owner_tick(state->owner, now);
    for (guint i = 0; i < QOS_CREDIT_USERS; i++)
        if (now >= state->users[i].due)
            qos_credit_user_act(node, &state->users[i]);
    for (guint i = 0; i < QOS_OBSERVED; i++)
        if (now >= state->drop[i])
            drop_cached(node, i);
    go_on(node);
}

static void receive(QosNode *node, QosNode *from, GBytes *bytes)
{
    QosCreditNode *state = node->state;
    QosCreditMessage message;
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);

    if (!qos_credit_message_decode(&message, data, length)) {
        qos_cluster_fail(node->cluster, "%s cannot decode a message of %s", node->name, from->name);
        return;
    }
    if (qos_credit_world_is_broken(node->cluster,
                                   "lease-reuse")) /* the lender has it back before it ends */
        message.lease *= 2;
    if (qos_credit_world_is_broken(node->cluster, "reclaim") && message.type == QOS_MESSAGE_WELCOME)
        message.flags |= QOS_WELCOME_RECLAIM; /* though there is no grace */
    if (qos_credit_world_is_broken(node->cluster, "forgotten-want") &&
        message.type == QOS_MESSAGE_REVOKE)
        message.type = QOS_MESSAGE_RENEW; /* heard, and forgotten */
    qos_owner_receive(state->owner, from->number + 1, &message, qos_node_now(node));
    qos_credit_message_clear(&message);
    go_on(node);
}

static char *describe(GBytes *bytes)
{
    static const char *const names[] = {"HELLO",   "WELCOME",  "RESET",  "RENEW",
                                        "ENQUEUE", "WITHDRAW", "CANCEL", "RECLAIM",
                                        "GRANT",   "DENIED",   "REVOKE", "RESTORE"};
    gsize length;
    const guint8 *data = g_bytes_get_data(bytes, &length);
    QosCreditMessage message;

    G_STATIC_ASSERT(G_N_ELEMENTS(names) == QOS_MESSAGE_TYPES);
    if (!qos_credit_message_decode(&message, data, length))
        return g_strdup("a use");
    GString *text = g_string_new(names[message.type]);
    if (message.type >= QOS_MESSAGE_ENQUEUE) {
        const QosResourceType *type = qos_resource_type(message.resource.type);
        g_autofree char *credit = qos_credit_text(type, &message.credit);
        g_string_append_printf(text, " %s %s, request %" G_GUINT64_FORMAT, type->name, credit,
                               message.request);
    }
    g_string_append_printf(text, " (%" G_GUINT64_FORMAT ", acknowledges %" G_GUINT64_FORMAT ")",
                           message.sequence, message.acknowledged);
    if (message.granted != 0)
        g_string_append_printf(text, ", token %" G_GINT64_MODIFIER "x", message.granted);
    qos_credit_message_clear(&message);
    return g_string_free(text, FALSE);
}

static const QosNodeClass owner_class = {start, stop, receive, wake, describe};

/* --- the trial --- */

static void build(QosCluster *cluster, const char *broken)
{
    QosCreditWorld *world = g_new0(QosCreditWorld, 1);
    QosNode *root = qos_cluster_add(cluster, &owner_class, NULL, "root");

    qos_observer_init(&world->observer, owner_of);
    world->broken = broken;
    world->first = qos_cluster_random(cluster, QOS_OBSERVED);
    world->hot = 1 + qos_cluster_random(cluster, QOS_OBSERVED);
    world->caches = qos_cluster_chance(cluster, 500);
    world->is_contended = qos_cluster_chance(cluster, 250);
    world->is_peopled = qos_cluster_chance(cluster, 250);
    world->is_flat = qos_cluster_chance(cluster, 250);
    world->renames = qos_cluster_chance(cluster, 500);
    world->is_quiet = qos_faults_are_none(&cluster->faults);
    cluster->arg = world;
    for (guint i = 0; i < SERVERS; i++) {
        QosNode *lender =
            world->is_flat ? root : qos_cluster_add(cluster, &owner_class, root, "server%u", i);
        for (guint j = 0; j < MOUNTS; j++)
            qos_cluster_add(cluster, &owner_class, lender, "mount%u", i * MOUNTS + j);
    }
    world->store = qos_cluster_add(cluster, &qos_credit_store_class, NULL, "store");
}

static void clear(QosCluster *cluster)
{
    QosCreditWorld *world = cluster->arg;

    qos_observer_clear(&world->observer);
    g_free(world);
}

static void add_bytes(QosOwnerId borrower G_GNUC_UNUSED, const QosResource *resource,
                      const QosCredit *credit, QosToken token G_GNUC_UNUSED, gpointer bytes)
{
    *(gint64 *)bytes += (gint64)qos_credit_size(qos_resource_type(resource->type), credit);
}

/* Each wants to convert what it has, and waits for the other to give that up: one is denied, long
 * before the end of a lease frees the other. */
static gboolean wait_for_each_other(const QosCreditWorld *world, const QosCreditUser *one,
                                    const QosCreditUser *other, QosTime now)
{
    const QosResourceType *type = qos_observer_type(&world->observer, one->resource);

    return one->state == QOS_USER_CONVERTING && other->state == QOS_USER_CONVERTING &&
           one->resource == other->resource && now - one->since > PATIENCE &&
           now - other->since > PATIENCE && type->conflicts(&one->want, &other->hold.credit) &&
           type->conflicts(&other->want, &one->hold.credit);
}

static void check_waiting(QosCluster *cluster, const QosNode *node)
{
    const QosCreditWorld *world = cluster->arg;
    const QosCreditNode *state = node->state;

    for (guint i = 0; i < cluster->nodes->len; i++) {
        const QosNode *other = cluster->nodes->pdata[i];
        if (other == node || !owner_of(other))
            continue;
        const QosCreditNode *others = other->state;
        for (guint j = 0; j < QOS_CREDIT_USERS * QOS_CREDIT_USERS; j++) {
            if (wait_for_each_other(world, &state->users[j / QOS_CREDIT_USERS],
                                    &others->users[j % QOS_CREDIT_USERS], cluster->now))
                qos_cluster_fail(cluster, "users of %s and %s wait for each other", node->name,
                                 other->name);
        }
    }
}

static void check(QosCluster *cluster, QosNode *node)
{
    QosCreditWorld *world = cluster->arg;
    const QosCreditNode *state = node->state;

    qos_observer_check(&world->observer, node);
    if (!owner_of(node))
        return;
    if (state->lent != qos_owner_lent(state->owner))
        qos_cluster_fail(cluster, "%s has lent %d credits, and counted %u", node->name,
                         (int)qos_owner_lent(state->owner), state->lent);
    gint64 bytes = 0;
    qos_owner_each_sublet(state->owner, add_bytes, &bytes);
    if (state->bytes != bytes)
        qos_cluster_fail(cluster, "%s has lent spans of %d bytes, and counted %d", node->name,
                         (int)bytes, (int)state->bytes);
    if (state->lent > LENT_MAX)
        qos_cluster_fail(cluster, "%s has lent %u credits", node->name, state->lent);
    qos_waiting_check(node);
    if (world->is_quiet)
        check_waiting(cluster, node);
}

static gboolean is_cut_off(const QosNode *node)
{
    while (node && !node->is_dead)
        node = node->parent;
    return node != NULL;
}

/* Each request has ended, and all that live have lenders again. */
static void settled(QosCluster *cluster)
{
    QosCreditWorld *world = cluster->arg;

    for (guint i = 0; i < cluster->nodes->len; i++) {
        const QosNode *node = cluster->nodes->pdata[i];
        const QosCreditNode *state = node->state;
        if (!owner_of(node))
            continue;
        if (!is_cut_off(node) && !qos_owner_is_alive(state->owner, qos_node_now(node)))
            qos_cluster_fail(cluster, "%s has no lender again", node->name);
        for (guint j = 0; j < QOS_CREDIT_USERS; j++)
            if (state->users[j].state == QOS_USER_WAITING ||
                state->users[j].state == QOS_USER_CONVERTING)
                qos_cluster_fail(
                    cluster, "user %u of %s still waits for %s", j, node->name,
                    qos_observer_type(&world->observer, state->users[j].resource)->name);
    }
    qos_observer_check_books(&world->observer, cluster);
}

static const char *const rules[] = {"fencing",     "lease-reuse",    "reclaim", "double-grant",
                                    "server-list", "forgotten-want", NULL};

const QosTrial qos_trial_credit = {
    .name = "credit",
    .promise = "no two usable credits conflict, tokens grow, books agree, requests end",
    .rules = rules,
    .settles = SETTLES,
    .build = build,
    .clear = clear,
    .check = check,
    .settled = settled,
};
