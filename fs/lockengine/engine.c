/*
 * The engine of a mount's credits. fs/lockengine/engine.h has the contract.
 *
 * An entry of the cache lies in the owner's bytes for its resource: no table of its own, and no
 * allocation. It is in the cache while something of the resource is had and nothing is held.
 */
#include "fs/lockengine/state.h"

#include "base/error.h"

#define SERVERS_SHIFT   8
#define RESETS_MAX      4          /* sessions that end at once, */
#define RESETS_APART    QOS_SECOND /* each so soon after the one before */
#define EVICT_WHEN_FULL 32         /* credits, each time that the server has no room for another */

static const QosResourceType *type_of(const QosResource *resource)
{
    return qos_resource_type(resource->type);
}

/* --- entries --- */

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

void qos_lockengine_settle(QosLockengine *engine, gpointer extra, QosTime now)
{
    QosLockcacheEntry *entry = extra;

    if (entry->bytes == 0) {
        qos_lockcache_entry_init(entry, QOS_LOCKENGINE_CREDIT_BYTES);
        engine->counts.credits++;
    }
    if (qos_extra_is_held(entry)) {
        qos_lockcache_use(&engine->cache, entry, now);
    } else if (entry->place == 0) {
        qos_lockcache_put(&engine->cache, entry, now);
        engine->shrink_at = MIN(engine->shrink_at, now + QOS_LOCKENGINE_SHRINK_EVERY);
    }
}

/* --- events --- */

QosLockevent *qos_lockengine_add_event(QosLockengine *engine, QosLockeventKind kind)
{
    QosLockevent *event = g_new0(QosLockevent, 1);

    event->kind = kind;
    g_queue_push_tail(&engine->events, event);
    return event;
}

/* --- what the owner hands out --- */

/* A hold was granted. */
static void begin_use(QosLockengine *engine, const QosHold *hold, QosTime now)
{
    QosLockcacheEntry *extra = qos_hold_extra(hold);

    qos_lockengine_settle(engine, extra, now);
    extra->spared = 0;
    qos_lockdrops_note_use(&engine->drops, qos_extra_resource(extra), &hold->credit);
}

static void end_waiting(QosLockengine *engine, const QosOutput *output, QosTime now)
{
    QosLockevent *event = qos_lockengine_add_event(engine, QOS_LOCKEVENT_DONE);

    event->use = (QosLockUse *)output->hold;
    event->verdict = output->verdict;
    qos_lockengine_forget_reader(engine, event->use);
    event->use->delay = output->delay;
    if (output->verdict == QOS_CREDIT_GRANTED && output->hold->book != NULL)
        begin_use(engine, output->hold, now);
    else
        engine->counts.refusals++;
    if (output->verdict == QOS_CREDIT_RETRY)
        qos_lockengine_drop(engine, qos_lockcache_evict, EVICT_WHEN_FULL, now);
}

gboolean qos_lockengine_hold(QosLockengine *engine, const QosResource *resource,
                             const QosCredit *want, QosHold *hold, QosTime now)
{
    const gboolean is_held = qos_credit_get(engine->owner, now, resource, want,
                                            QOS_CREDIT_NON_BLOCK_LOCAL, hold) == QOS_CREDIT_GRANTED;

    if (is_held)
        begin_use(engine, hold, now);
    qos_lockengine_take_outputs(engine, now);
    return is_held;
}

/* Those that were postponed and are due ask again. */
static void end_postponed(QosLockengine *engine, QosTime now)
{
    QosLockUse *use;

    while ((use = qos_lockpatience_take(&engine->patience, now)) != NULL) {
        QosLockevent *event = qos_lockengine_add_event(engine, QOS_LOCKEVENT_DONE);

        event->use = use;
        event->verdict = QOS_CREDIT_RETRY;
    }
}

static void tell_lost(QosLockengine *engine, const QosOutput *output)
{
    QosLockevent *event = qos_lockengine_add_event(engine, QOS_LOCKEVENT_LOST);

    event->resource = output->resource;
    event->credit = qos_credit_copy(type_of(&output->resource), &output->credit);
    qos_lockdrops_note_loss(&engine->drops, &output->resource);
    qos_lockgrips_shut(&engine->grips, &output->resource);
}

/* It was told, and given up by the same release. */
static gboolean stands_against(const QosLockengine *engine, const QosOutput *output)
{
    const QosResourceType *type = type_of(&output->resource);
    QosCredit owned = qos_credit_owned(engine->owner, &output->resource);
    gboolean stands = type->divisible || type->conflicts(&owned, &output->credit);

    qos_credit_clear(type, &owned);
    return stands;
}

void qos_lockengine_take_outputs(QosLockengine *engine, QosTime now)
{
    QosOutput output;
    gboolean has_lost = FALSE;
    gboolean is_up = qos_owner_is_alive(engine->owner, now);

    if (engine->is_up && !is_up)
        qos_owner_tick(engine->owner, now); /* tells what is lost, before that there is nobody */
    while (qos_owner_output(engine->owner, &output)) {
        switch (output.kind) {
        case QOS_OUTPUT_SEND:
            qos_lockoutbox_add(&engine->outbox, output.message, engine->cache.signal);
            break;
        case QOS_OUTPUT_DONE:
            end_waiting(engine, &output, now);
            break;
        case QOS_OUTPUT_CONFLICT:
            if (stands_against(engine, &output))
                qos_lockengine_begin_drop(engine, &output.resource, &output.credit, FALSE);
            break;
        case QOS_OUTPUT_LOST:
            tell_lost(engine, &output);
            has_lost = TRUE;
            break;
        case QOS_OUTPUT_SAVE: /* a lender's */
        case QOS_OUTPUT_FORGET:
            break;
        }
    }
    engine->counts.evictions += has_lost;
    if (is_up != engine->is_up) {
        engine->is_up = is_up;
        qos_lockengine_add_event(engine, QOS_LOCKEVENT_CHANGED)->is_up = is_up;
        if (is_up)
            qos_lockpatience_wake(&engine->patience, now);
    }
    end_postponed(engine, now);
}

/* --- the engine --- */

QosLockengine *qos_lockengine_new(QosOwnerId id, guint32 incarnation)
{
    QosLockengine *engine = g_new0(QosLockengine, 1);

    G_STATIC_ASSERT(QOS_LOCKENGINE_SERVERS == 1 << SERVERS_SHIFT);
    engine->id = id;
    engine->incarnation = incarnation;
    engine->shrink_at = QOS_NEVER;
    qos_lockdrops_init(&engine->drops);
    qos_lockcache_init(&engine->cache);
    qos_lockpatience_init(&engine->patience);
    qos_lockwaits_init(&engine->waits);
    return engine;
}

void qos_lockengine_free(QosLockengine *engine)
{
    QosLockevent event;

    if (engine == NULL)
        return;
    qos_owner_free(engine->owner);
    while (qos_lockengine_take_event(engine, &event))
        qos_credit_clear(type_of(&event.resource), &event.credit);
    qos_lockdrops_clear(&engine->drops);
    qos_lockpatience_clear(&engine->patience);
    qos_lockoutbox_close(&engine->outbox);
    qos_lockwaits_clear(&engine->waits);
    g_free(engine);
}

guint32 qos_lockengine_incarnation(const QosLockengine *engine)
{
    return engine->incarnation << SERVERS_SHIFT | engine->servers;
}

/* An older start of the same is one whose database comes from a backup: it knows nothing of what it
 * lent since, and would answer each of the tokens that are known here by RESET. So does one whose
 * number happens to be that of the start before: note_reset() finds it. */
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
    qos_lockoutbox_open(&engine->outbox);
    engine->in_grace = FALSE; /* or it will say so */
    qos_lockwaits_renew(&engine->waits);
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
    qos_lockoutbox_close(&engine->outbox);
    if (engine->owner != NULL)
        qos_lockengine_let_readers_go(engine, now);
}

/* FALSE: it is one of many in a row. Only a server that lends by smaller tokens than are known here
 * ends each session as soon as it has begun. */
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
    qos_lockoutbox_note_heard(&engine->outbox, message);
    if (message->type == QOS_MESSAGE_REVOKE)
        qos_lockengine_shut_grip(engine, &message->resource, now);
    qos_owner_receive(engine->owner, engine->server.id, message, now);
    qos_lockengine_take_outputs(engine, now);
    if (engine->in_grace)
        qos_lockengine_let_readers_go(engine, now);
    if (message->type != QOS_MESSAGE_GRANT)
        return;
    engine->grants += message->resource.type == QOS_RESOURCE_INODES;
    /* Who asked for it may have gone meanwhile. */
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

void qos_lockengine_tick(QosLockengine *engine, QosTime now)
{
    end_postponed(engine, now);
    if (engine->owner == NULL)
        return;
    qos_owner_tick(engine->owner, now);
    if (now >= engine->shrink_at) {
        qos_lockengine_shut_grips(engine, now);
        guint dropped = qos_lockengine_drop(engine, qos_lockcache_shrink, QOS_CREDIT_BATCH, now);
        gboolean is_idle = dropped == 0 && engine->cache.bytes == 0;
        engine->shrink_at = is_idle ? QOS_NEVER : now + QOS_LOCKENGINE_SHRINK_EVERY;
    }
    qos_lockengine_take_outputs(engine, now);
}

QosTime qos_lockengine_next(const QosLockengine *engine)
{
    QosTime next = qos_lockpatience_next(&engine->patience);

    if (engine->owner == NULL)
        return next;
    next = MIN(next, engine->shrink_at);
    return MIN(next, qos_owner_next(engine->owner));
}

static gboolean has_waits(const QosLockengine *engine)
{
    return engine->outbox.is_open && qos_lockwaits_has_frames(&engine->waits);
}

GByteArray *qos_lockengine_take_bytes(QosLockengine *engine)
{
    GByteArray *bytes = qos_lockoutbox_take(&engine->outbox);

    if (!has_waits(engine))
        return bytes;
    /* Before what is given back for which others may wait (server/deadlocks.h). */
    GByteArray *all = g_byte_array_new();
    qos_lockwaits_take(&engine->waits, all);
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

gboolean qos_lockengine_take_event(QosLockengine *engine, QosLockevent *ret_event)
{
    QosLockevent *event = g_queue_pop_head(&engine->events);

    if (event == NULL)
        return FALSE;
    /* Granted, and lost before it was told. */
    if (event->kind == QOS_LOCKEVENT_DONE && event->use->hold.book == NULL &&
        event->verdict == QOS_CREDIT_GRANTED)
        event->verdict = QOS_CREDIT_ERROR;
    *ret_event = *event;
    g_free(event);
    return TRUE;
}

gboolean qos_lockengine_has_events(const QosLockengine *engine)
{
    return engine->events.length > 0;
}

/* --- uses --- */

/* Counts what became of a request, and does what goes with it. */
static QosCreditVerdict began(QosLockengine *engine, QosCreditVerdict verdict, QosLockUse *use,
                              QosTime now)
{
    if (verdict == QOS_CREDIT_GRANTED) {
        engine->counts.hits++;
        begin_use(engine, &use->hold, now);
    } else if (verdict == QOS_CREDIT_WAITING) {
        engine->counts.misses++;
        if (use->goes_on)
            qos_lockengine_note_reader(engine, use);
        qos_lockengine_drop(engine, qos_lockcache_shrink, QOS_CREDIT_BATCH, now);
    } else {
        engine->counts.refusals++;
    }
    qos_lockengine_take_outputs(engine, now);
    return verdict;
}

QosCreditVerdict qos_lockengine_get(QosLockengine *engine, const QosResource *resource,
                                    const QosCredit *want, guint flags, QosLockUse *use,
                                    QosTime now)
{
    if (engine->owner == NULL) {
        engine->counts.refusals++;
        return QOS_CREDIT_ERROR;
    }
    if (use->goes_on && qos_lockengine_is_silent(engine)) {
        flags = QOS_CREDIT_NON_BLOCK_LOCAL;
        qos_lockengine_ask_for_end_of_grace(engine, now);
    }
    const QosCreditVerdict verdict = began(
        engine, qos_credit_get(engine->owner, now, resource, want, flags, &use->hold), use, now);
    if (verdict == QOS_CREDIT_WAITING)
        qos_lockdrops_note_miss(engine->owner, resource);
    return verdict;
}

QosCreditVerdict qos_lockengine_convert(QosLockengine *engine, const QosCredit *want, guint flags,
                                        QosLockUse *use, QosTime now)
{
    if (engine->owner == NULL)
        return QOS_CREDIT_ERROR;
    return began(engine, qos_credit_convert(engine->owner, now, want, flags, &use->hold), use, now);
}

QosCreditVerdict qos_lockengine_postpone(QosLockengine *engine, QosLockUse *use,
                                         QosCreditVerdict verdict, QosTime *since, QosTime now)
{
    gboolean is_up = engine->owner != NULL && qos_owner_is_alive(engine->owner, now);

    verdict = qos_lockpatience_begin(&engine->patience, use, verdict, since, is_up, now);
    end_postponed(engine, now);
    return verdict;
}

void qos_lockengine_unhold(QosLockengine *engine, QosHold *hold, QosTime now)
{
    gpointer extra = qos_hold_extra(hold);
    const guint64 forgotten = engine->forgotten;

    if (extra == NULL)
        return; /* lost, or denied */
    QosResource resource = *qos_extra_resource(extra);
    qos_credit_put(engine->owner, now, hold);
    if (engine->forgotten != forgotten)
        extra = qos_owner_extra(engine->owner, &resource);
    if (extra != NULL)
        qos_lockengine_settle(engine, extra, now);
    qos_lockengine_take_outputs(engine, now);
}

void qos_lockengine_put(QosLockengine *engine, QosLockUse *use, QosTime now)
{
    qos_lockengine_unhold(engine, &use->hold, now);
}

static gboolean is_told_of(gconstpointer event, gconstpointer use)
{
    const QosLockevent *told = event;

    return told->kind != QOS_LOCKEVENT_DONE || told->use != use;
}

gboolean qos_lockengine_withdraw(QosLockengine *engine, QosLockUse *use, QosTime now)
{
    GList *link;

    if (qos_lockpatience_remove(&engine->patience, use))
        return TRUE;
    if (use->hold.request != NULL) {
        qos_lockengine_forget_reader(engine, use);
        qos_credit_withdraw(engine->owner, now, &use->hold);
        qos_lockengine_take_outputs(engine, now);
        return TRUE;
    }
    link = g_queue_find_custom(&engine->events, use, is_told_of);
    if (link == NULL)
        return FALSE;
    gboolean is_granted = ((QosLockevent *)link->data)->verdict == QOS_CREDIT_GRANTED;
    if (is_granted && use->hold.flags & QOS_CREDIT_UPGRADE)
        return FALSE; /* what was held before is no more */
    g_free(link->data);
    g_queue_delete_link(&engine->events, link);
    if (is_granted)
        qos_lockengine_put(engine, use, now);
    return TRUE;
}

void qos_lockengine_set_wait(QosLockengine *engine, const QosWireWait *wait)
{
    qos_lockwaits_set(&engine->waits, wait);
}

void qos_lockengine_end_wait(QosLockengine *engine, guint64 id)
{
    qos_lockwaits_end(&engine->waits, id);
}

void qos_lockengine_leave(QosLockengine *engine, QosTime now)
{
    if (engine->owner == NULL)
        return;
    qos_owner_leave(engine->owner, now);
    qos_lockengine_take_outputs(engine, now);
}

QosTime qos_lockengine_until(const QosLockengine *engine)
{
    return engine->owner != NULL ? qos_owner_until(engine->owner) : 0;
}

guint64 qos_lockengine_losses(const QosLockengine *engine)
{
    return engine->counts.evictions;
}

guint64 qos_lockengine_grants(const QosLockengine *engine)
{
    return engine->grants;
}

guint qos_lockengine_group(const QosLockengine *engine)
{
    return engine->owner != NULL ? engine->server.group : 0;
}

void qos_lockengine_status(const QosLockengine *engine, QosLockclientStatus *status, QosTime now)
{
    QosTime until = qos_lockengine_until(engine);

    status->id = engine->id;
    status->server_id = engine->owner != NULL ? engine->server.id : 0;
    status->server_incarnation = engine->server.incarnation;
    status->lease = engine->server.lease;
    status->valid = MAX(until - now, 0);
    status->group = qos_lockengine_group(engine);
    status->credits = engine->counts.credits;
    status->bytes = engine->cache.bytes;
    status->rate = engine->cache.signal.rate;
    status->floor = engine->cache.signal.floor;
    status->hits = engine->counts.hits + qos_lockgrips_uses(&engine->grips);
    status->misses = engine->counts.misses;
    status->refusals = engine->counts.refusals;
    status->enqueues = engine->outbox.enqueues;
    status->cancels = engine->outbox.cancels;
    status->cancel_messages = engine->outbox.cancel_messages;
    status->revocations = engine->outbox.revocations;
    status->evictions = engine->counts.evictions;
}
