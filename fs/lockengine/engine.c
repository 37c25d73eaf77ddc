/*
 * The engine: gets, puts, leases, drops, and what is held for fast paths. fs/lockengine/engine.h
 * has the contract.
 *
 * An entry of the cache lies in the extra bytes that the owner of credits has for each resource, so
 * it needs no table and no allocation. It is in the cache while the mount has something of the
 * resource and holds nothing of it.
 */
#include "fs/lockengine/state.h"

#define EVICT_WHEN_FULL 32 /* credits, each time that the server has no room for another */

static const QosResourceType *type_of(const QosResource *resource)
{
    return qos_resource_type(resource->type);
}

/* --- entries --- */

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

/* The engine's, zeroed but for its kind. */
static QosLockevent *add_event(QosLockengine *engine, QosLockeventKind kind)
{
    QosLockevent *event = g_new0(QosLockevent, 1);

    event->kind = kind;
    g_queue_push_tail(&engine->events, event);
    return event;
}

/* --- readers ---
 *
 * Uses that only read, and go on without a credit when the server can grant nothing, because it is
 * away or in its grace. What they read from the store is not too old, because mounts write through.
 * And no mount may change what another has cached before there is a server, or a lease has run
 * out. */

/* The server can grant nothing now. */
static gboolean is_silent(const QosLockengine *engine)
{
    return !engine->outbox.is_open || engine->in_grace;
}

/* Notes a use that `goes_on` and now waits. */
static void note_reader(QosLockengine *engine, QosLockUse *use)
{
    use->reader.data = use;
    g_queue_push_tail_link(&engine->readers, &use->reader);
}

/* The use waits no more; it may be any use. */
static void forget_reader(QosLockengine *engine, QosLockUse *use)
{
    if (use->reader.data == NULL)
        return;
    g_queue_unlink(&engine->readers, &use->reader);
    use->reader.data = NULL;
}

void qos_lockengine_let_shared_go(QosLockengine *engine, QosTime now)
{
    while (engine->readers.length > 0) {
        QosLockUse *use = engine->readers.head->data;
        QosLockevent *event = add_event(engine, QOS_LOCKEVENT_DONE);

        forget_reader(engine, use);
        event->use = use;
        event->verdict = QOS_CREDIT_DENIED;
        engine->counts.refusals++;
        qos_credit_withdraw(engine->owner, now, &use->hold);
        qos_lockengine_take_outputs(engine, now); /* which may end others' waits */
    }
}

/* Asks the server whether its grace is over. Only its messages tell that, and no use asks it for a
 * credit meanwhile. */
static void ask_for_end_of_grace(QosLockengine *engine, QosTime now)
{
    if (!engine->in_grace || now < qos_time_add(engine->asked, QOS_LOCKENGINE_ASK_EVERY))
        return;
    engine->asked = now;
    qos_owner_reconnected(engine->owner, now);
    qos_owner_tick(engine->owner, now);
}

/* --- what is to go --- */

/* Tells to forget what stands against `credit`, now or after the drop under way. */
static void begin_drop(QosLockengine *engine, const QosResource *resource, const QosCredit *credit,
                       gboolean is_shrink)
{
    QosCredit told;

    if (qos_recalls_begin(&engine->recalls, engine->owner, resource, credit, is_shrink, &told)) {
        QosLockevent *event = add_event(engine, QOS_LOCKEVENT_DROP);
        event->resource = *resource;
        event->credit = told;
        event->is_wanted = !is_shrink;
    } else if (!is_shrink && qos_recalls_is_shrink(&engine->recalls, resource)) {
        add_event(engine, QOS_LOCKEVENT_WANTED)->resource = *resource;
    }
}

/* Of fs/lockcache.h. */
typedef guint (*Choose)(QosLockcache *cache, QosTime now, QosLockcacheEntry **batch, guint max);

/* Begins to give back what `choose` takes out of the cache, `max` at most; returns how many. */
static guint drop_some(QosLockengine *engine, Choose choose, guint max, QosTime now)
{
    QosLockcacheEntry *batch[QOS_CREDIT_BATCH];
    guint count = choose(&engine->cache, now, batch, MIN(max, G_N_ELEMENTS(batch)));

    for (guint i = 0; i < count; i++) {
        const QosResource *resource = qos_extra_resource(batch[i]);
        QosCredit owned = qos_credit_owned(engine->owner, resource);
        QosCredit all = qos_recalls_all(type_of(resource), &owned);
        begin_drop(engine, resource, &all, TRUE);
        qos_credit_clear(type_of(resource), &owned);
        qos_credit_clear(type_of(resource), &all);
    }
    return count;
}

/* --- what the owner hands out --- */

/* A hold was granted. */
static void begin_use(QosLockengine *engine, const QosHold *hold, QosTime now)
{
    QosLockcacheEntry *extra = qos_hold_extra(hold);

    qos_lockengine_settle(engine, extra, now);
    extra->spared = 0;
    qos_recalls_note_use(&engine->recalls, qos_extra_resource(extra), &hold->credit);
}

static void end_waiting(QosLockengine *engine, const QosOutput *output, QosTime now)
{
    QosLockevent *event = add_event(engine, QOS_LOCKEVENT_DONE);

    event->use = (QosLockUse *)output->hold;
    event->verdict = output->verdict;
    forget_reader(engine, event->use);
    event->use->delay = output->delay;
    if (output->verdict == QOS_CREDIT_GRANTED && output->hold->book != NULL)
        begin_use(engine, output->hold, now);
    else
        engine->counts.refusals++;
    if (output->verdict == QOS_CREDIT_RETRY)
        drop_some(engine, qos_lockcache_evict, EVICT_WHEN_FULL, now);
}

/* Tells the refused uses that are due to ask again. */
static void end_retries(QosLockengine *engine, QosTime now)
{
    QosLockUse *use;

    while ((use = qos_retry_take(&engine->retry, now)) != NULL) {
        QosLockevent *event = add_event(engine, QOS_LOCKEVENT_DONE);

        event->use = use;
        event->verdict = QOS_CREDIT_RETRY;
    }
}

static void tell_lost(QosLockengine *engine, const QosOutput *output)
{
    QosLockevent *event = add_event(engine, QOS_LOCKEVENT_LOST);

    event->resource = output->resource;
    event->credit = qos_credit_copy(type_of(&output->resource), &output->credit);
    qos_recalls_note_loss(&engine->recalls, &output->resource);
    qos_fastpaths_close(&engine->fastpaths, &output->resource);
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
            qos_outbox_add(&engine->outbox, output.message, engine->cache.signal);
            break;
        case QOS_OUTPUT_DONE:
            end_waiting(engine, &output, now);
            break;
        case QOS_OUTPUT_CONFLICT:
            if (stands_against(engine, &output))
                begin_drop(engine, &output.resource, &output.credit, FALSE);
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
        add_event(engine, QOS_LOCKEVENT_CHANGED)->is_up = is_up;
        if (is_up)
            qos_retry_wake(&engine->retry, now);
    }
    end_retries(engine, now);
}

/* --- holds, and the fast paths of fs/lockengine/fastpath.h --- */

/* Holds what is here of the resource. FALSE: it is not to be had at once. */
static gboolean take_hold(QosLockengine *engine, const QosResource *resource, const QosCredit *want,
                          QosHold *hold, QosTime now)
{
    const gboolean is_held = qos_credit_get(engine->owner, now, resource, want,
                                            QOS_CREDIT_NON_BLOCK_LOCAL, hold) == QOS_CREDIT_GRANTED;

    if (is_held)
        begin_use(engine, hold, now);
    qos_lockengine_take_outputs(engine, now);
    return is_held;
}

/* Puts it; of what was lost nothing happens. */
static void put_hold(QosLockengine *engine, QosHold *hold, QosTime now)
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

QosFastpaths *qos_lockengine_fastpaths(QosLockengine *engine)
{
    return &engine->fastpaths;
}

/* Whether `owned`, the part that the mount has of a group, is the whole group. */
static gboolean is_whole(const QosLockengine *engine, const QosCredit *owned)
{
    return owned->count == 1 && owned->spans[0].first == 0 &&
           owned->spans[0].last >= engine->server.group - 1;
}

/* A fast path that only reads makes room for one that also writes. */
void qos_lockengine_open_fastpath(QosLockengine *engine, const QosResource *resource, QosTime now)
{
    QosFastpath *path = qos_fastpaths_find(&engine->fastpaths, resource);

    if (engine->owner == NULL || engine->server.group < QOS_FASTPATH_PINS ||
        (path->hold.book != NULL && !qos_fastpath_only_reads(path, resource)))
        return;
    QosCredit owned = qos_credit_owned(engine->owner, resource);
    const gboolean is_all = is_whole(engine, &owned);
    if (is_all && owned.spans[0].writes)
        qos_lockengine_close_fastpath(engine, resource, now);
    if (is_all && path->hold.book == NULL &&
        take_hold(engine, resource, &owned, &path->hold, now)) {
        qos_fastpath_open(path, resource, owned.spans[0].writes);
        engine->shrink_at = MIN(engine->shrink_at, now + QOS_LOCKENGINE_SHRINK_EVERY);
    }
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &owned);
}

void qos_lockengine_unpin(QosLockengine *engine, QosFastpath *path, QosTime now)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);

    if (path->hold.book == NULL || !qos_fastpath_is_closed(path))
        return; /* lost, or given up; and perhaps open again since the use ended */
    QosCredit used = qos_fastpath_pinned(path);
    if (qos_credit_is_empty(type, &used)) {
        put_hold(engine, &path->hold, now);
    } else {
        qos_credit_convert(engine->owner, now, &used, 0, &path->hold);
        qos_lockengine_take_outputs(engine, now);
    }
    qos_credit_clear(type, &used);
}

void qos_lockengine_close_fastpath(QosLockengine *engine, const QosResource *resource, QosTime now)
{
    QosFastpath *path = qos_fastpaths_close(&engine->fastpaths, resource);

    if (path != NULL)
        qos_lockengine_unpin(engine, path, now);
}

/* No use of any resource begins by its fast path any more. */
static void close_fastpaths(QosLockengine *engine, QosTime now)
{
    for (guint i = 0; i < QOS_FASTPATHS; i++) {
        QosFastpath *path = &engine->fastpaths.all[i];

        if (qos_fastpath_close(path))
            qos_lockengine_unpin(engine, path, now);
    }
}

/* --- the engine --- */

QosLockengine *qos_lockengine_new(QosOwnerId id, guint32 incarnation)
{
    QosLockengine *engine = g_new0(QosLockengine, 1);

    engine->id = id;
    engine->incarnation = incarnation;
    engine->shrink_at = QOS_NEVER;
    qos_recalls_init(&engine->recalls);
    qos_lockcache_init(&engine->cache);
    qos_retry_init(&engine->retry);
    qos_wait_reports_init(&engine->wait_reports);
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
    qos_recalls_clear(&engine->recalls);
    qos_retry_clear(&engine->retry);
    qos_outbox_close(&engine->outbox);
    qos_wait_reports_clear(&engine->wait_reports);
    g_free(engine);
}

void qos_lockengine_tick(QosLockengine *engine, QosTime now)
{
    end_retries(engine, now);
    if (engine->owner == NULL)
        return;
    qos_owner_tick(engine->owner, now);
    if (now >= engine->shrink_at) {
        close_fastpaths(engine, now);
        guint dropped = drop_some(engine, qos_lockcache_shrink, QOS_CREDIT_BATCH, now);
        gboolean is_idle = dropped == 0 && engine->cache.bytes == 0;
        engine->shrink_at = is_idle ? QOS_NEVER : now + QOS_LOCKENGINE_SHRINK_EVERY;
    }
    qos_lockengine_take_outputs(engine, now);
}

QosTime qos_lockengine_next(const QosLockengine *engine)
{
    QosTime next = qos_retry_next(&engine->retry);

    if (engine->owner == NULL)
        return next;
    next = MIN(next, engine->shrink_at);
    return MIN(next, qos_owner_next(engine->owner));
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
            note_reader(engine, use);
        drop_some(engine, qos_lockcache_shrink, QOS_CREDIT_BATCH, now);
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
    if (use->goes_on && is_silent(engine)) {
        flags = QOS_CREDIT_NON_BLOCK_LOCAL;
        ask_for_end_of_grace(engine, now);
    }
    const QosCreditVerdict verdict = began(
        engine, qos_credit_get(engine->owner, now, resource, want, flags, &use->hold), use, now);
    if (verdict == QOS_CREDIT_WAITING)
        qos_recalls_note_miss(engine->owner, resource);
    return verdict;
}

QosCreditVerdict qos_lockengine_convert(QosLockengine *engine, const QosCredit *want, guint flags,
                                        QosLockUse *use, QosTime now)
{
    if (engine->owner == NULL)
        return QOS_CREDIT_ERROR;
    return began(engine, qos_credit_convert(engine->owner, now, want, flags, &use->hold), use, now);
}

QosCreditVerdict qos_lockengine_retry(QosLockengine *engine, QosLockUse *use,
                                      QosCreditVerdict verdict, QosTime *since, QosTime now)
{
    gboolean is_up = engine->owner != NULL && qos_owner_is_alive(engine->owner, now);

    verdict = qos_retry_begin(&engine->retry, use, verdict, since, is_up, now);
    end_retries(engine, now);
    return verdict;
}

void qos_lockengine_put(QosLockengine *engine, QosLockUse *use, QosTime now)
{
    put_hold(engine, &use->hold, now);
}

static gboolean is_told_of(gconstpointer event, gconstpointer use)
{
    const QosLockevent *told = event;

    return told->kind != QOS_LOCKEVENT_DONE || told->use != use;
}

gboolean qos_lockengine_withdraw(QosLockengine *engine, QosLockUse *use, QosTime now)
{
    GList *link;

    if (qos_retry_remove(&engine->retry, use))
        return TRUE;
    if (use->hold.request != NULL) {
        forget_reader(engine, use);
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

/* --- what becomes of a drop --- */

void qos_lockengine_release(QosLockengine *engine, const QosResource *resource,
                            const QosCredit *credit, QosTime now)
{
    const QosResourceType *type = type_of(resource);
    QosCredit again;

    if (engine->owner == NULL ||
        !qos_recalls_release(&engine->recalls, engine->owner, resource, credit, now, &again))
        return;
    if (!qos_credit_is_empty(type, &again))
        begin_drop(engine, resource, &again, FALSE);
    qos_credit_clear(type, &again);
    gpointer extra = qos_owner_extra(engine->owner, resource);
    if (extra != NULL && ((QosLockcacheEntry *)extra)->bytes != 0)
        qos_lockengine_settle(engine, extra, now);
    qos_lockengine_take_outputs(engine, now);
}

gboolean qos_lockengine_keep(QosLockengine *engine, const QosResource *resource,
                             const QosCredit *credit)
{
    return qos_recalls_keep(&engine->recalls, resource, credit);
}

gboolean qos_lockengine_spare(QosLockengine *engine, const QosResource *resource, guint times,
                              QosTime now)
{
    if (engine->owner == NULL ||
        !qos_recalls_spare(&engine->recalls, engine->owner, resource, times))
        return FALSE;
    qos_lockengine_settle(engine, qos_owner_extra(engine->owner, resource), now);
    return TRUE;
}

void qos_lockengine_shrink(QosLockengine *engine, double part, QosTime now)
{
    if (engine->owner == NULL)
        return;
    close_fastpaths(engine, now);
    const gint64 aim = engine->cache.bytes - (gint64)(part * (double)engine->cache.bytes);
    while (engine->cache.bytes > aim) {
        guint max = (guint)MIN((engine->cache.bytes - aim) / QOS_LOCKENGINE_CREDIT_BYTES + 1,
                               QOS_CREDIT_BATCH);
        if (drop_some(engine, qos_lockcache_evict, max, now) == 0)
            break;
    }
    qos_lockengine_take_outputs(engine, now);
}

/* --- what is known of it --- */

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
    status->hits = engine->counts.hits + qos_fastpaths_uses(&engine->fastpaths);
    status->misses = engine->counts.misses;
    status->refusals = engine->counts.refusals;
    status->enqueues = engine->outbox.enqueues;
    status->cancels = engine->outbox.cancels;
    status->cancel_messages = engine->outbox.cancel_messages;
    status->revocations = engine->outbox.revocations;
    status->evictions = engine->counts.evictions;
}
