/*
 * Those who only read, and go on where the server can grant nothing: it is away, or in its grace.
 * What they read of the store is no older for that: mounts write through, and nobody may change
 * what another has cached before there is a server, or a lease has run out.
 */
#include "fs/lockengine/state.h"

gboolean qos_lockengine_is_silent(const QosLockengine *engine)
{
    return !engine->outbox.is_open || engine->in_grace;
}

void qos_lockengine_note_reader(QosLockengine *engine, QosLockUse *use)
{
    use->reader.data = use;
    g_queue_push_tail_link(&engine->readers, &use->reader);
}

void qos_lockengine_forget_reader(QosLockengine *engine, QosLockUse *use)
{
    if (use->reader.data == NULL)
        return;
    g_queue_unlink(&engine->readers, &use->reader);
    use->reader.data = NULL;
}

void qos_lockengine_let_readers_go(QosLockengine *engine, QosTime now)
{
    while (engine->readers.length > 0) {
        QosLockUse *use = engine->readers.head->data;
        QosLockevent *event = qos_lockengine_add_event(engine, QOS_LOCKEVENT_DONE);

        qos_lockengine_forget_reader(engine, use);
        event->use = use;
        event->verdict = QOS_CREDIT_DENIED;
        engine->counts.refusals++;
        qos_credit_withdraw(engine->owner, now, &use->hold);
        qos_lockengine_take_outputs(engine, now); /* which may end others' waits */
    }
}

void qos_lockengine_ask_for_end_of_grace(QosLockengine *engine, QosTime now)
{
    if (!engine->in_grace || now < qos_time_add(engine->asked, QOS_LOCKENGINE_ASK_EVERY))
        return;
    engine->asked = now;
    qos_owner_reconnected(engine->owner, now);
    qos_owner_tick(engine->owner, now);
}
