/*
 * The engine's sessions with servers: which server the engine speaks with, what it does when the
 * connection comes or goes, what the server says, and what is sent to it.
 *
 * A server that comes back after a restart is the same, and goes on with what it lent. Another
 * server is accepted only when the lease of the last one is over. The engine then has a new owner
 * of credits, and another incarnation.
 */
#include "base/error.h"
#include "fs/lockengine/state.h"

#define SERVERS_SHIFT 8
#define RESETS_MAX    4          /* sessions that end at once, */
#define RESETS_APART  QOS_SECOND /* each so soon after the one before */

static void forget_entry(gpointer extra, gpointer arg)
{
    QosLockengine *engine = arg;
    QosLockcacheEntry *entry = extra;

    engine->forgotten++;
    if (entry->bytes == 0)
        return; /* nothing was ever had */
    qos_lockcache_drop(&engine->cache, entry);
    engine->counts.credits--;
}

guint32 qos_lockengine_incarnation(const QosLockengine *engine)
{
    G_STATIC_ASSERT(QOS_LOCKENGINE_SERVERS == 1 << SERVERS_SHIFT);
    return engine->incarnation << SERVERS_SHIFT | engine->servers;
}

/* An older start of the same server means that its database comes from a backup. It knows nothing
 * of what it lent since, and would answer each of the tokens that are known here by RESET. A
 * restored server may also happen to have the number of the start before; note_reset() finds
 * that. */
static gboolean is_other_server(const QosWireWelcome *one, const QosWireWelcome *other)
{
    return one->id != other->id || one->group != other->group ||
           one->incarnation < other->incarnation;
}

static gboolean leave_server(QosLockengine *engine, QosTime now, GError **error)
{
    if (qos_owner_is_alive(engine->owner, now)) {
        qos_set_error(error, EBUSY,
                      "the server is another one; what the last one lent is used until its lease "
                      "ends");
        return FALSE;
    }
    if (engine->servers + 1 == QOS_LOCKENGINE_SERVERS) {
        qos_set_error(error, EMFILE, "this is one server too many; unmount, and mount again");
        return FALSE;
    }
    qos_owner_tick(engine->owner, now); /* loses what is left */
    qos_lockengine_take_outputs(engine, now);
    qos_owner_free(engine->owner);
    engine->owner = NULL;
    engine->servers++;
    qos_lockcache_forget_signal(&engine->cache);
    return TRUE;
}

gboolean qos_lockengine_connected(QosLockengine *engine, const QosWireWelcome *welcome, QosTime now,
                                  GError **error)
{
    QosOwnerConfig config;

    if (engine->owner != NULL && (engine->is_reset || is_other_server(welcome, &engine->server)) &&
        !leave_server(engine, now, error))
        return FALSE;
    qos_outbox_open(&engine->outbox);
    engine->in_grace = FALSE; /* or it will say so */
    qos_wait_reports_renew(&engine->wait_reports);
    engine->server = *welcome;
    engine->is_reset = FALSE;
    if (engine->owner == NULL) {
        qos_owner_config_init(&config, engine->id, qos_lockengine_incarnation(engine));
        config.above = welcome->id;
        config.caches = TRUE;
        config.resend = welcome->resend;
        config.extra = sizeof(QosLockcacheEntry);
        config.forgotten = forget_entry;
        config.arg = engine;
        engine->owner = qos_owner_new(&config, NULL, 0, now);
    } else {
        qos_owner_reconnected(engine->owner, now);
        qos_owner_tick(engine->owner, now);
    }
    qos_lockengine_take_outputs(engine, now);
    return TRUE;
}

void qos_lockengine_disconnected(QosLockengine *engine, QosTime now)
{
    qos_outbox_close(&engine->outbox);
    if (engine->owner != NULL)
        qos_lockengine_let_shared_go(engine, now);
}

/* Counts a reset of the session. FALSE: it is one of many in a row. Only a server that lends by
 * smaller tokens than are known here ends each session as soon as it has begun. */
static gboolean note_reset(QosLockengine *engine, QosTime now)
{
    engine->resets = now < qos_time_add(engine->reset, RESETS_APART) ? engine->resets + 1 : 1;
    engine->reset = now;
    if (engine->resets < RESETS_MAX)
        return TRUE;
    engine->resets = 0;
    engine->is_reset = TRUE;
    return FALSE;
}

static void take_message(QosLockengine *engine, const QosCreditMessage *message, QosTime now)
{
    engine->in_grace = message->stamp.sequence == 0;
    if (!engine->in_grace)
        qos_lockcache_heed(&engine->cache, message->stamp);
    qos_outbox_note_heard(&engine->outbox, message);
    if (message->type == QOS_MESSAGE_REVOKE)
        qos_lockengine_close_fastpath(engine, &message->resource, now);
    qos_owner_receive(engine->owner, engine->server.id, message, now);
    qos_lockengine_take_outputs(engine, now);
    if (engine->in_grace)
        qos_lockengine_let_shared_go(engine, now);
    if (message->type != QOS_MESSAGE_GRANT)
        return;
    engine->grants += message->resource.type == QOS_RESOURCE_INODES;
    /* The use that asked for it may have gone meanwhile. */
    gpointer extra = qos_owner_extra(engine->owner, &message->resource);
    if (extra != NULL)
        qos_lockengine_settle(engine, extra, now);
}

gboolean qos_lockengine_receive(QosLockengine *engine, const guint8 *payload, gsize length,
                                QosTime now)
{
    QosCreditMessage message;

    while (length > 0) {
        if (!qos_wire_get_credits(&payload, &length, &message))
            return FALSE;
        gboolean was_alive = qos_owner_is_alive(engine->owner, now);
        gboolean is_reset = message.type == QOS_MESSAGE_RESET;
        take_message(engine, &message, now);
        qos_credit_message_clear(&message);
        if (is_reset && was_alive && !qos_owner_is_alive(engine->owner, now) &&
            !note_reset(engine, now))
            return FALSE;
    }
    return TRUE;
}

void qos_lockengine_set_wait(QosLockengine *engine, const QosWireWait *wait)
{
    qos_wait_reports_set(&engine->wait_reports, wait);
}

void qos_lockengine_end_wait(QosLockengine *engine, guint64 id)
{
    qos_wait_reports_end(&engine->wait_reports, id);
}

void qos_lockengine_leave(QosLockengine *engine, QosTime now)
{
    if (engine->owner == NULL)
        return;
    qos_owner_leave(engine->owner, now);
    qos_lockengine_take_outputs(engine, now);
}

static gboolean has_waits(const QosLockengine *engine)
{
    return engine->outbox.is_open && qos_wait_reports_has_frames(&engine->wait_reports);
}

GByteArray *qos_lockengine_take_bytes(QosLockengine *engine)
{
    GByteArray *bytes = qos_outbox_take(&engine->outbox);

    if (!has_waits(engine))
        return bytes;
    /* Before what is given back for which others may wait (server/deadlocks.h). */
    GByteArray *all = g_byte_array_new();
    qos_wait_reports_take(&engine->wait_reports, all);
    if (bytes != NULL) {
        g_byte_array_append(all, bytes->data, bytes->len);
        g_byte_array_unref(bytes);
    }
    return all;
}

gboolean qos_lockengine_has_bytes(const QosLockengine *engine)
{
    return engine->outbox.bytes != NULL || has_waits(engine);
}
