/*
 * Who waits for a record lock, and the circles of those (ops/locks_private.h). Within the mount
 * they are found here; for others the server is told who waits for what, and what he has. Who has
 * nothing keeps nobody waiting, and is not told of.
 *
 * Of flock(2) no deadlocks are found, as on other file systems.
 */
#include "ops/locks_private.h"

static QosCall *call_of(const QosLockWait *wait)
{
    return (QosCall *)((char *)wait - G_STRUCT_OFFSET(QosCall, wait));
}

static void add_item(GArray *items, const QosLockedFile *file, QosCredit credit)
{
    const QosCreditItem item = {.resource = file->resource, .credit = credit};

    if (credit.count > 0 && items->len < QOS_WIRE_WAIT_MAX)
        g_array_append_val(items, item);
    else
        qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &credit);
}

/* What he waits for, and what he has. */
static GArray *items_of(const QosCall *call)
{
    const QosSpan *span = &call->lock.span;
    GArray *items = g_array_new(FALSE, FALSE, sizeof(QosCreditItem));
    GHashTableIter iter;
    gpointer key;

    add_item(items, call->file, qos_credit_span(span->first, span->last, span->writes));
    g_hash_table_iter_init(&iter, call->locks->files);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        const QosLockedFile *file = key;
        if (file->kind == QOS_LOCKS_RECORD)
            add_item(items, file, qos_locktable_of_owner(&file->table, call->lock.owner));
    }
    return items;
}

static void untell_locked(QosCall *call)
{
    if (call->told != 0)
        qos_lockclient_end_wait(call->locks->client, call->told);
    call->told = 0;
}

static void tell_locked(QosCall *call)
{
    QosWireWait wait = {.owner = call->lock.owner, .items = items_of(call)};

    if (wait.items->len > 1) {
        if (call->told == 0)
            call->told = ++call->locks->last_told;
        wait.id = call->told;
        qos_lockclient_set_wait(call->locks->client, &wait);
    } else {
        untell_locked(call);
    }
    qos_wire_wait_clear(&wait);
}

gboolean qos_call_is_deadlock_locked(QosCall *call)
{
    qos_lock_wait_init(&call->wait, &call->file->table, call->lock.owner, &call->lock.span);
    return call->kind == QOS_LOCKS_RECORD &&
           qos_lock_wait_is_deadlock(&call->wait, &call->locks->waits);
}

void qos_call_begin_wait_locked(QosCall *call)
{
    if (call->kind != QOS_LOCKS_RECORD || call->mode != QOS_LOCKS_WAIT)
        return;
    qos_lock_wait_init(&call->wait, &call->file->table, call->lock.owner, &call->lock.span);
    g_queue_push_tail_link(&call->locks->waits, &call->wait.link);
    call->waits = TRUE;
    tell_locked(call);
}

void qos_call_end_wait_locked(QosCall *call)
{
    if (!call->waits)
        return;
    g_queue_unlink(&call->locks->waits, &call->wait.link);
    call->waits = FALSE;
    untell_locked(call);
}

void qos_locks_tell_owner_locked(QosLocks *locks, guint64 owner)
{
    for (const GList *link = locks->waits.head; link != NULL; link = link->next) {
        const QosLockWait *wait = link->data;
        if (wait->owner == owner)
            tell_locked(call_of(wait));
    }
}

void qos_locks_tell_all_locked(QosLocks *locks)
{
    for (const GList *link = locks->waits.head; link != NULL; link = link->next)
        tell_locked(call_of(link->data));
}

QosCall *qos_locks_find_told_locked(const QosLocks *locks, guint64 wait)
{
    for (const GList *link = locks->waits.head; link != NULL; link = link->next) {
        QosCall *call = call_of(link->data);
        if (call->told == wait)
            return call;
    }
    return NULL;
}
