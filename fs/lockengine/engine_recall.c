/*
 * The drops of a mount's engine (fs/lockengine/engine.h): what it is told to forget, because
 * another wants it or the cache is to shrink, and what becomes of it.
 */
#include "fs/lockengine/state.h"
#include "fs/lockengine/yield.h"

static const QosResourceType *type_of(const QosResource *resource)
{
    return qos_resource_type(resource->type);
}

/* --- what is to go --- */

void qos_lockengine_begin_drop(QosLockengine *engine, const QosResource *resource,
                               const QosCredit *credit, gboolean is_shrink)
{
    QosCredit told;

    if (qos_lockdrops_begin(&engine->drops, engine->owner, resource, credit, is_shrink, &told)) {
        QosLockevent *event = qos_lockengine_add_event(engine, QOS_LOCKEVENT_DROP);
        event->resource = *resource;
        event->credit = told;
        event->is_wanted = !is_shrink;
    } else if (!is_shrink && qos_lockdrops_is_shrink(&engine->drops, resource)) {
        qos_lockengine_add_event(engine, QOS_LOCKEVENT_WANTED)->resource = *resource;
    }
}

guint qos_lockengine_drop(QosLockengine *engine, QosLockengineChoose choose, guint max, QosTime now)
{
    QosLockcacheEntry *batch[QOS_CREDIT_BATCH];
    guint count = choose(&engine->cache, now, batch, MIN(max, G_N_ELEMENTS(batch)));

    for (guint i = 0; i < count; i++) {
        const QosResource *resource = qos_extra_resource(batch[i]);
        QosCredit owned = qos_credit_owned(engine->owner, resource);
        QosCredit all = qos_lockyield_all(type_of(resource), &owned);
        qos_lockengine_begin_drop(engine, resource, &all, TRUE);
        qos_credit_clear(type_of(resource), &owned);
        qos_credit_clear(type_of(resource), &all);
    }
    return count;
}

/* --- what becomes of it --- */

void qos_lockengine_release(QosLockengine *engine, const QosResource *resource,
                            const QosCredit *credit, QosTime now)
{
    const QosResourceType *type = type_of(resource);
    QosCredit again;

    if (engine->owner == NULL ||
        !qos_lockdrops_release(&engine->drops, engine->owner, resource, credit, now, &again))
        return;
    if (!qos_credit_is_empty(type, &again))
        qos_lockengine_begin_drop(engine, resource, &again, FALSE);
    qos_credit_clear(type, &again);
    gpointer extra = qos_owner_extra(engine->owner, resource);
    if (extra != NULL && ((QosLockcacheEntry *)extra)->bytes != 0)
        qos_lockengine_settle(engine, extra, now);
    qos_lockengine_take_outputs(engine, now);
}

gboolean qos_lockengine_keep(QosLockengine *engine, const QosResource *resource,
                             const QosCredit *credit)
{
    return qos_lockdrops_keep(&engine->drops, resource, credit);
}

gboolean qos_lockengine_spare(QosLockengine *engine, const QosResource *resource, guint times,
                              QosTime now)
{
    if (engine->owner == NULL ||
        !qos_lockdrops_spare(&engine->drops, engine->owner, resource, times))
        return FALSE;
    qos_lockengine_settle(engine, qos_owner_extra(engine->owner, resource), now);
    return TRUE;
}

void qos_lockengine_shrink(QosLockengine *engine, double part, QosTime now)
{
    if (engine->owner == NULL)
        return;
    qos_lockengine_shut_grips(engine, now);
    const gint64 aim = engine->cache.bytes - (gint64)(part * (double)engine->cache.bytes);
    while (engine->cache.bytes > aim) {
        guint max = (guint)MIN((engine->cache.bytes - aim) / QOS_LOCKENGINE_CREDIT_BYTES + 1,
                               QOS_CREDIT_BATCH);
        if (qos_lockengine_drop(engine, qos_lockcache_evict, max, now) == 0)
            break;
    }
    qos_lockengine_take_outputs(engine, now);
}
