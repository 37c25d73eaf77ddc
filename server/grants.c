/*
 * Joins the owner, the pool and the database.
 *
 * A credit costs the pool CREDIT_BYTES, which includes the book of its resource and related
 * records, and its spans. The owner asks before it grants a credit on one more resource. It also
 * reports what it has granted, so that what a client reclaims after a restart is counted too.
 */
#include "server/grants_private.h"

/* The server's memory for a credit, including its resource if it is the only credit on it
 * (tests/unit/test_grants.c measures it). */
#define CREDIT_BYTES 216
/* A client at its cap comes back after this, and has given some back by then. */
#define CAPPED_DELAY (100 * QOS_MILLISECOND)
#define ADVICE_PAUSE (600 * QOS_SECOND)

/* --- the pool --- */

void qos_grants_keep_in_pool(QosGrants *grants, QosClient *client)
{
    gboolean belongs = client->is_connected || client->credits > 0;

    if (belongs && !client->is_in_pool)
        qos_pool_join(&grants->pool, &client->pool);
    else if (!belongs && client->is_in_pool)
        qos_pool_leave(&grants->pool, &client->pool);
    client->is_in_pool = belongs;
    qos_clients_note(&grants->clients, client);
}

static gboolean may_grant(QosOwnerId borrower, const QosResource *resource G_GNUC_UNUSED,
                          QosTime now, QosTime *ret_delay, gpointer arg)
{
    QosGrants *grants = arg;
    QosClient *client = qos_clients_find(&grants->clients, borrower);

    qos_grants_keep_in_pool(grants, client);
    switch (qos_pool_grant(&grants->pool, &client->pool, CREDIT_BYTES, now, ret_delay)) {
    case QOS_POOL_GRANTED:
        grants->is_paid = TRUE;
        return TRUE;
    case QOS_POOL_CAPPED:
        *ret_delay = CAPPED_DELAY;
        return FALSE;
    case QOS_POOL_FULL:
        break;
    }
    return FALSE;
}

void qos_grants_set_claimable(QosGrants *grants, gint64 bytes, gboolean falls)
{
    if (bytes == grants->claimable || (bytes < grants->claimable && !falls))
        return;
    grants->claimable = MIN(bytes, QOS_POOL_BYTES_MAX);
    qos_server_db_save_claimable(grants->db, grants->claimable);
}

/* Bounds what a client may claim: before the restart it was granted no more than the hard limit of
 * that time. */
static gboolean may_claim(QosOwnerId borrower, gsize bytes, gpointer arg)
{
    QosGrants *grants = arg;
    const QosClient *client = qos_clients_find(&grants->clients, borrower);

    return client->pool.granted + CREDIT_BYTES + (gint64)bytes <= grants->claimable;
}

static void counted(QosOwnerId borrower, const QosResource *resource G_GNUC_UNUSED,
                    gboolean is_more, gpointer arg)
{
    QosGrants *grants = arg;
    QosClient *client = qos_clients_find(&grants->clients, borrower);

    if (is_more) {
        client->credits++;
        qos_grants_keep_in_pool(grants, client);
        if (!grants->is_paid)
            qos_pool_adopt(&grants->pool, &client->pool, CREDIT_BYTES);
        grants->is_paid = FALSE;
        return;
    }
    client->lost++;
    client->credits--;
    qos_pool_cancel(&grants->pool, &client->pool, CREDIT_BYTES);
    qos_grants_keep_in_pool(grants, client);
}

static void resized(QosOwnerId borrower, const QosResource *resource G_GNUC_UNUSED, gint64 bytes,
                    gpointer arg)
{
    QosGrants *grants = arg;
    QosClient *client = qos_clients_find(&grants->clients, borrower);

    if (bytes <= 0) {
        qos_pool_cancel(&grants->pool, &client->pool, -bytes);
        return;
    }
    qos_pool_adopt(&grants->pool, &client->pool, bytes);
    if (client->pool.granted > grants->claimable) /* by file locks in many pieces */
        qos_grants_set_claimable(grants, 2 * client->pool.granted, FALSE);
}

/* In the grace the pool goes on from the newest signal of the server before this one that a mount
 * has heard. */
static void resume_pool(QosGrants *grants, const QosPoolSignal *heard)
{
    if (!qos_owner_in_grace(grants->owner) || heard->sequence <= grants->resumed)
        return;
    grants->resumed = heard->sequence;
    qos_pool_resume(&grants->pool, heard->rate);
}

static void step_pool(QosGrants *grants, QosTime now)
{
    qos_pool_step(&grants->pool, now);
    if (now < grants->advised)
        return;
    g_autofree char *advice = qos_pool_advice(&grants->pool);
    if (advice) {
        g_message("%s", advice);
        grants->advised = now + ADVICE_PAUSE;
    }
}

/* --- what the owner puts out --- */

static void send_message(QosGrants *grants, QosClient *client, const QosCreditMessage *message)
{
    QosCreditMessage stamped = *message;

    if (!client->is_connected)
        return;                             /* the owner repeats it */
    if (!qos_owner_in_grace(grants->owner)) /* until its end the pool knows not what is granted */
        stamped.stamp = qos_pool_signal(&grants->pool);
    grants->sent[message->type]++;
    client->sent++;
    client->called_back += message->type == QOS_MESSAGE_REVOKE;
    grants->output.send(client->id, &stamped, grants->output.arg);
}

/* Its lease has ended, or it did not come back in the grace. */
static void forget(QosGrants *grants, QosClient *client)
{
    client->is_durable = FALSE;
    qos_server_db_forget_client(grants->db, client->id);
    if (client->lost > 0) {
        grants->evictions++;
        qos_complain(&grants->complaints, G_LOG_LEVEL_MESSAGE, qos_grants_now(),
                     "%s was not heard of, or did not give back what was called back, until its "
                     "lease ended: its %" G_GUINT64_FORMAT " credits are free",
                     client->name, client->lost);
    } else {
        g_info("%s has left", client->name);
    }
    qos_clients_note(&grants->clients, client);
}

static void handle(QosGrants *grants, const QosOutput *output)
{
    QosClient *client = qos_clients_find(&grants->clients, output->peer);

    if (!client)
        return; /* it has long gone */
    switch (output->kind) {
    case QOS_OUTPUT_SEND:
        send_message(grants, client, output->message);
        break;
    case QOS_OUTPUT_SAVE:
        client->is_durable = TRUE;
        qos_server_db_save_client(grants->db, client->id, client->principal, client->name);
        break;
    case QOS_OUTPUT_FORGET:
        forget(grants, client);
        break;
    default: /* of local users, which there are none of */
        break;
    }
}

void qos_grants_settle(QosGrants *grants)
{
    QosTime now = qos_grants_now();
    QosTime step, next;
    QosOutput output;

    while (qos_owner_output(grants->owner, &output))
        handle(grants, &output);
    if (grants->was_in_grace && !qos_owner_in_grace(grants->owner)) {
        grants->was_in_grace = FALSE;
        if (grants->pool.granted <= grants->settings.pool.hard_limit)
            qos_grants_set_claimable(grants, grants->settings.pool.hard_limit, TRUE);
        g_message("the grace is over: %" G_GUINT64_FORMAT " credits were reclaimed",
                  qos_owner_lent(grants->owner));
    }
    step = qos_pool_step(&grants->pool, now);
    next = qos_owner_next(grants->owner);
    if (!qos_pool_rests(&grants->pool))
        next = MIN(next, step);
    if (next >= grants->armed && grants->armed > now)
        return; /* early enough: tick() looks again, and to set it would wake the loop */
    grants->armed = next;
    g_source_set_ready_time(
        grants->timer, next == QOS_NEVER ? -1 : (next + QOS_MICROSECOND - 1) / QOS_MICROSECOND);
}

static gboolean tick(gpointer data)
{
    QosGrants *grants = data;
    QosTime now = qos_grants_now();

    grants->armed = 0;
    step_pool(grants, now);
    qos_owner_tick(grants->owner, now);
    qos_grants_settle(grants);
    return G_SOURCE_CONTINUE;
}

static gboolean dispatch(GSource *source G_GNUC_UNUSED, GSourceFunc function, gpointer data)
{
    return function(data);
}

/* --- the database --- */

static void client_saved(QosOwnerId id, gpointer arg)
{
    QosGrants *grants = arg;

    qos_owner_saved(grants->owner, id, qos_grants_now());
    qos_grants_settle(grants);
}

static void database_trouble(const char *message, gpointer arg)
{
    QosGrants *grants = arg;

    if (message)
        g_warning("%s; mounts that are new wait until that is fixed, all others are served",
                  message);
    else
        g_message("the database works again");
    g_free(grants->trouble);
    grants->trouble = g_strdup(message);
}

/* Restores the settings that were made before, if they still fit the options. */
static void restore_settings(QosGrants *grants, GHashTable *saved)
{
    g_autoptr(GError) error = NULL;
    GHashTableIter iter;
    gpointer name, text;

    if (!qos_server_settings_apply(&grants->settings, saved, &error)) {
        g_warning("what was set by \"qosfsctl server set\" does not go with the options any more, "
                  "and is ignored: %s",
                  error->message);
        return;
    }
    g_hash_table_iter_init(&iter, saved);
    while (g_hash_table_iter_next(&iter, &name, &text))
        g_hash_table_replace(grants->set, g_strdup(name), g_strdup(text));
}

/* The ids of the clients that the grace waits for; free with g_array_unref. */
static GArray *restore_clients(QosGrants *grants, const GPtrArray *saved)
{
    GArray *ids = g_array_new(FALSE, FALSE, sizeof(QosOwnerId));

    for (guint i = 0; i < saved->len; i++) {
        const QosServerDbClient *old = saved->pdata[i];
        QosClient *client = qos_clients_add(&grants->clients, old->id, old->principal, old->name);
        if (!client)
            break;
        client->is_durable = TRUE;
        qos_clients_note(&grants->clients, client);
        g_array_append_val(ids, old->id);
    }
    return ids;
}

/* --- start and end --- */

static void start_owner(QosGrants *grants, const QosServerRecord *record, QosTime now)
{
    g_autoptr(GArray) clients = restore_clients(grants, record->clients);
    QosOwnerConfig config;

    /* Clients may still use what they have for as long as they were promised. */
    if (clients->len > 0)
        grants->settings.lease = MAX(grants->settings.lease, record->lease);
    qos_server_db_save_lease(grants->db, grants->settings.lease);
    if (clients->len > 0)
        grants->claimable = record->claimable;
    qos_grants_set_claimable(grants, grants->settings.pool.hard_limit, FALSE);
    qos_pool_init(&grants->pool, &grants->settings.pool, (guint64)record->incarnation << 32, now);
    qos_owner_config_init(&config, record->id, record->incarnation);
    config.lends = TRUE;
    config.lease = grants->settings.lease;
    config.resend = grants->resend;
    config.arg = grants;
    config.may_grant = may_grant;
    config.may_claim = may_claim;
    config.key[0] = record->key[0];
    config.key[1] = record->key[1];
    config.counted = counted;
    config.resized = resized;
    grants->owner = qos_owner_new(&config, (const QosOwnerId *)clients->data, clients->len, now);
    grants->was_in_grace = qos_owner_in_grace(grants->owner);
    if (grants->was_in_grace)
        g_message("the grace begins: until %u mounts have come back, or for %" G_GINT64_FORMAT
                  " s, nothing new is granted",
                  clients->len, config.lease / QOS_SECOND);
}

QosGrants *qos_grants_new(const QosGrantsConfig *config, const QosGrantsOutput *output,
                          GError **error)
{
    static GSourceFuncs functions = {.dispatch = dispatch};
    QosGrants *grants = g_new0(QosGrants, 1);
    const QosServerDbCalls calls = {
        .saved = client_saved, .trouble = database_trouble, .arg = grants};
    g_autofree char *path = g_build_filename(config->database, "server.db", NULL);

    grants->db = qos_server_db_open(path, &calls, error);
    if (!grants->db) {
        g_free(grants);
        return NULL;
    }
    const QosServerRecord *record = qos_server_db_record(grants->db);
    grants->output = *output;
    grants->configured = grants->settings = config->settings;
    grants->resend = config->resend;
    grants->started = qos_grants_now();
    grants->store = g_strdup(record->store);
    grants->set = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    restore_settings(grants, record->tunables);
    grants->next = grants->settings; /* start_owner() may have to lengthen the lease */
    qos_clients_init(&grants->clients);
    grants->waits = qos_deadlocks_new();
    start_owner(grants, record, grants->started);
    grants->timer = g_source_new(&functions, sizeof(GSource));
    g_source_set_callback(grants->timer, tick, grants, NULL);
    g_source_attach(grants->timer, NULL);
    qos_grants_settle(grants);
    return grants;
}

void qos_grants_free(QosGrants *grants)
{
    if (grants == NULL)
        return;
    g_source_destroy(grants->timer);
    g_source_unref(grants->timer);
    qos_server_db_close(grants->db);
    qos_owner_free(grants->owner);
    qos_clients_clear(&grants->clients);
    qos_deadlocks_free(grants->waits);
    g_hash_table_unref(grants->set);
    g_free(grants->store);
    g_free(grants->trouble);
    g_free(grants);
}

QosServerDb *qos_grants_database(QosGrants *grants)
{
    return grants->db;
}

/* --- clients --- */

static gboolean refuse(QosWireRefused *refused, QosWireRefusal code, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

static gboolean refuse(QosWireRefused *refused, QosWireRefusal code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    *refused = (QosWireRefused){.code = code};
    g_vsnprintf(refused->reason, sizeof(refused->reason), format, values);
    va_end(values);
    return FALSE;
}

/* All mounts must be of the same store. The first mount says which one; when no mount is left, the
 * next one says it anew. */
static gboolean check_store(QosGrants *grants, const QosWireHello *hello, QosWireRefused *refused)
{
    if (g_strcmp0(grants->store, hello->store) == 0)
        return TRUE;
    if (grants->store && qos_clients_count(&grants->clients) > 0)
        return refuse(refused, QOS_WIRE_OTHER_STORE,
                      "the server serves the store %.70s, and this mount is of %.70s; if these are "
                      "one network file system, give store=NAME to all",
                      grants->store, hello->store);
    g_free(grants->store);
    grants->store = g_strdup(hello->store);
    qos_server_db_save_store(grants->db, grants->store);
    return TRUE;
}

static gboolean check_client(const QosGrants *grants, const QosWireHello *hello,
                             const char *principal, QosWireRefused *refused)
{
    const QosClient *client = qos_clients_find(&grants->clients, hello->id);

    if (hello->id == qos_server_db_record(grants->db)->id ||
        (client && !qos_client_is_idle(client) && !g_str_equal(client->principal, principal)))
        return refuse(refused, QOS_WIRE_IDENTITY_TAKEN,
                      "the identity %" G_GINT64_MODIFIER
                      "x belongs to another client, at least until its lease ends",
                      hello->id);
    if (client && qos_grants_now() < client->expelled_until)
        return refuse(refused, QOS_WIRE_NOT_PERMITTED,
                      "the administrator has evicted this mount; it may come back when its lease "
                      "has ended");
    return TRUE;
}

/* The client, made if need be; NULL: refused. */
static QosClient *admit(QosGrants *grants, const QosWireHello *hello, const char *principal,
                        QosWireRefused *refused)
{
    QosClient *client;

    if (!check_client(grants, hello, principal, refused) || !check_store(grants, hello, refused))
        return NULL;
    client = qos_clients_find(&grants->clients, hello->id);
    if (client && !g_str_equal(client->principal, principal))
        qos_client_hand_over(client, principal);
    if (!client)
        client = qos_clients_add(&grants->clients, hello->id, principal, hello->name);
    if (!client)
        refuse(refused, QOS_WIRE_FULL, "the server knows %u mounts, and takes no more",
               QOS_CLIENTS_MAX);
    return client;
}

gboolean qos_grants_connected(QosGrants *grants, const QosWireHello *hello, const char *principal,
                              QosWireWelcome *ret_welcome, QosWireRefused *ret_refused)
{
    const QosServerRecord *record = qos_server_db_record(grants->db);
    QosClient *client = admit(grants, hello, principal, ret_refused);

    if (!client)
        return FALSE;
    if (!g_str_equal(client->name, hello->name)) {
        qos_client_rename(client, hello->name);
        if (client->is_durable)
            qos_server_db_save_client(grants->db, client->id, client->principal, client->name);
    }
    client->incarnation = hello->incarnation;
    client->is_connected = TRUE;
    client->connected = qos_grants_now();
    qos_grants_keep_in_pool(grants, client);
    qos_deadlocks_forget(grants->waits, client->id);
    *ret_welcome = (QosWireWelcome){.version = QOS_WIRE_VERSION,
                                    .id = record->id,
                                    .incarnation = record->incarnation,
                                    .lease = grants->settings.lease,
                                    .resend = grants->resend,
                                    .group = grants->settings.group};
    return TRUE;
}

void qos_grants_received(QosGrants *grants, QosOwnerId id, const QosCreditMessage *messages,
                         guint count)
{
    QosClient *client = qos_clients_find(&grants->clients, id);
    QosTime now = qos_grants_now();

    for (guint i = 0; i < count; i++) {
        grants->received[messages[i].type]++;
        if (messages[i].type == QOS_MESSAGE_RECLAIM)
            resume_pool(grants, &messages[i].stamp);
        qos_owner_receive(grants->owner, id, &messages[i], now);
    }
    client->received += count;
    client->lost = 0; /* what it has given back is not lost */
    qos_grants_settle(grants);
}

gboolean qos_grants_waits(QosGrants *grants, QosOwnerId id, QosWireWait *wait)
{
    gboolean is_deadlock = qos_deadlocks_tell(grants->waits, id, wait);

    grants->deadlocks += is_deadlock;
    return is_deadlock;
}

void qos_grants_disconnect(QosGrants *grants, QosClient *client)
{
    client->is_connected = FALSE;
    qos_deadlocks_forget(grants->waits, client->id);
    qos_grants_keep_in_pool(grants, client);
}

void qos_grants_disconnected(QosGrants *grants, QosOwnerId id)
{
    qos_grants_disconnect(grants, qos_clients_find(&grants->clients, id));
}
