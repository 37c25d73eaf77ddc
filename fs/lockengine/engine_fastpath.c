/*
 * What the engine holds for grips (fs/lockengine/fastpath.h).
 */
#include "fs/lockengine/state.h"

QosLockgrips *qos_lockengine_grips(QosLockengine *engine)
{
    return &engine->grips;
}

/* All of `owned`, which is had of a group: FALSE where that is not the whole group. */
static gboolean is_whole(const QosLockengine *engine, const QosCredit *owned)
{
    return owned->count == 1 && owned->spans[0].first == 0 &&
           owned->spans[0].last >= engine->server.group - 1;
}

/* One that only reads makes room for one that writes, too. */
void qos_lockengine_grip(QosLockengine *engine, const QosResource *resource, QosTime now)
{
    QosLockgrip *grip = qos_lockgrips_find(&engine->grips, resource);

    if (engine->owner == NULL || engine->server.group < QOS_LOCKGRIP_MARKS ||
        (grip->hold.book != NULL && !qos_lockgrip_only_reads(grip, resource)))
        return;
    QosCredit owned = qos_credit_owned(engine->owner, resource);
    const gboolean is_all = is_whole(engine, &owned);
    if (is_all && owned.spans[0].writes)
        qos_lockengine_shut_grip(engine, resource, now);
    if (is_all && grip->hold.book == NULL &&
        qos_lockengine_hold(engine, resource, &owned, &grip->hold, now)) {
        qos_lockgrip_open(grip, resource, owned.spans[0].writes);
        engine->shrink_at = MIN(engine->shrink_at, now + QOS_LOCKENGINE_SHRINK_EVERY);
    }
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &owned);
}

void qos_lockengine_narrow(QosLockengine *engine, QosLockgrip *grip, QosTime now)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);

    if (grip->hold.book == NULL || !qos_lockgrip_is_shut(grip))
        return; /* lost, or given up; and perhaps open again since the use ended */
    QosCredit used = qos_lockgrip_used(grip);
    if (qos_credit_is_empty(type, &used)) {
        qos_lockengine_unhold(engine, &grip->hold, now);
    } else {
        qos_credit_convert(engine->owner, now, &used, 0, &grip->hold);
        qos_lockengine_take_outputs(engine, now);
    }
    qos_credit_clear(type, &used);
}

void qos_lockengine_shut_grip(QosLockengine *engine, const QosResource *resource, QosTime now)
{
    QosLockgrip *grip = qos_lockgrips_shut(&engine->grips, resource);

    if (grip != NULL)
        qos_lockengine_narrow(engine, grip, now);
}

void qos_lockengine_shut_grips(QosLockengine *engine, QosTime now)
{
    for (guint i = 0; i < QOS_LOCKGRIPS; i++) {
        QosLockgrip *grip = &engine->grips.all[i];

        if (qos_lockgrip_shut(grip))
            qos_lockengine_narrow(engine, grip, now);
    }
}
