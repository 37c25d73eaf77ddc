/*
 * Waits for record locks, and circles of them (fs/filelocks/state.h).
 *
 * Circles within the mount are found here. To find others, the server is told of each wait, with
 * what its owner wants and what it has. An owner that has nothing keeps nobody waiting, so its
 * waits are not told.
 *
 * For flock(2) no deadlocks are found, as on other file systems.
 */
#include "fs/filelocks/state.h"

static QosCall *call_of(const QosLockWait *wait)
{
    return (QosCall *)((char *)wait - G_STRUCT_OFFSET(QosCall, wait));
}

static const QosLockedFile *file_of(const QosFileLockTable *table)
{
    return (const QosLockedFile *)((const char *)table - G_STRUCT_OFFSET(QosLockedFile, table));
}

/* --- telling the server --- */

/* What is said of each wait of an owner: first what it waits for, then what the owner has. */
typedef struct {
    GArray *items; /* of QosCreditItem */
    guint ranges;  /* in them */
} Telling;

/* The first item, what it waits for, is left open. */
static Telling begin_telling(const QosLockOwner *owner)
{
    Telling telling = {g_array_new(FALSE, TRUE, sizeof(QosCreditItem)), 1};
    GHashTableIter iter;
    gpointer key;

    g_array_set_size(telling.items, 1);
    g_hash_table_iter_init(&iter, owner->tables);
    while (telling.items->len < QOS_WIRE_WAIT_MAX && g_hash_table_iter_next(&iter, &key, NULL)) {
        const QosCreditItem item = {.resource = file_of(key)->resource,
                                    .credit = qos_filelock_table_of_owner(key, owner->number)};
        g_array_append_val(telling.items, item);
        telling.ranges += item.credit.count;
    }
    return telling;
}

static void end_telling(const Telling *telling)
{
    QosWireWait wait = {.items = telling->items};

    qos_wire_wait_clear(&wait);
}

static void untell_locked(QosCall *call)
{
    QosFileLocks *locks = call->locks;

    if (call->told == 0)
        return;
    g_hash_table_remove(locks->told, &call->told);
    locks->told_ranges -= call->told_ranges;
    qos_lockclient_end_wait(locks->client, call->told);
    call->told = 0;
    call->told_ranges = 0;
}

static void give_number_locked(QosCall *call)
{
    if (call->told != 0)
        return;
    call->told = ++call->locks->last_told;
    g_hash_table_insert(call->locks->told, &call->told, call);
}

/* Tells the server of the call's wait, unless the server would not keep it. */
static void tell_locked(QosCall *call, const Telling *telling)
{
    QosFileLocks *locks = call->locks;
    const QosSpan *span = &call->lock.span;
    const guint others = locks->told_ranges - call->told_ranges;
    QosCreditItem *wanted = &g_array_index(telling->items, QosCreditItem, 0);

    if (telling->items->len == 1 || telling->ranges > QOS_WIRE_WAITS_RANGES_MAX - others) {
        untell_locked(call);
        return;
    }
    give_number_locked(call);
    locks->told_ranges = others + telling->ranges;
    call->told_ranges = telling->ranges;
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_EXTENT), &wanted->credit);
    wanted->resource = call->file->resource;
    wanted->credit = qos_credit_span(span->first, span->last, span->writes);
    const QosWireWait wait = {.id = call->told, .owner = call->lock.owner, .items = telling->items};
    qos_lockclient_set_wait(locks->client, &wait);
}

void qos_filelocks_tell_locked(QosFileLocks *locks)
{
    const QosLockOwner *owner;
    guint count;

    while ((owner = qos_lockowners_take_changed(&locks->owners, &count)) != NULL) {
        const Telling telling = begin_telling(owner);
        const guint old = owner->waits.length - count;
        const GList *link = g_queue_peek_nth_link((GQueue *)&owner->waits, old);

        for (; link != NULL; link = link->next)
            tell_locked(call_of(link->data), &telling);
        end_telling(&telling);
    }
}

void qos_filelocks_note_owner_locked(QosFileLocks *locks, const QosLockedFile *file, guint64 owner)
{
    if (file->kind == QOS_FILELOCKS_RECORD)
        qos_lockowners_note(&locks->owners, &file->table, owner);
}

QosCall *qos_filelocks_find_told_locked(const QosFileLocks *locks, guint64 wait)
{
    return g_hash_table_lookup(locks->told, &wait);
}

/* --- waiting --- */

gboolean qos_call_is_deadlock_locked(QosCall *call)
{
    qos_lock_wait_init(&call->wait, &call->file->table, call->lock.owner, &call->lock.span);
    return call->kind == QOS_FILELOCKS_RECORD &&
           qos_lockowners_is_deadlock(&call->locks->owners, &call->wait);
}

void qos_call_begin_wait_locked(QosCall *call)
{
    if (call->kind != QOS_FILELOCKS_RECORD || call->mode != QOS_FILELOCKS_WAIT)
        return;
    qos_lock_wait_init(&call->wait, &call->file->table, call->lock.owner, &call->lock.span);
    qos_lockowners_begin_wait(&call->locks->owners, &call->wait);
    call->waits = TRUE;
}

void qos_call_end_wait_locked(QosCall *call)
{
    if (!call->waits)
        return;
    qos_lockowners_end_wait(&call->locks->owners, &call->wait);
    call->waits = FALSE;
    untell_locked(call);
}
