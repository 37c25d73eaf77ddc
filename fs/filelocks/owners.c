/*
 * Owners of record locks, by their numbers. fs/filelocks/owners.h has the contract.
 */
#include "fs/filelocks/owners.h"

static void free_owner(gpointer data)
{
    QosLockOwner *owner = data;

    g_hash_table_unref(owner->tables);
    g_free(owner);
}

void qos_lockowners_init(QosLockOwners *owners)
{
    G_STATIC_ASSERT(G_STRUCT_OFFSET(QosLockOwner, number) == 0);
    owners->owners = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_owner);
    g_queue_init(&owners->changed);
}

void qos_lockowners_clear(QosLockOwners *owners)
{
    g_queue_init(&owners->changed); /* its links lie in the owners */
    g_hash_table_unref(owners->owners);
}

const QosLockOwner *qos_lockowners_find(const QosLockOwners *owners, guint64 owner)
{
    return g_hash_table_lookup(owners->owners, &owner);
}

static QosLockOwner *get(QosLockOwners *owners, guint64 number)
{
    QosLockOwner *owner = g_hash_table_lookup(owners->owners, &number);

    if (owner != NULL)
        return owner;
    owner = g_new0(QosLockOwner, 1);
    owner->number = number;
    owner->tables = g_hash_table_new(NULL, NULL);
    g_hash_table_add(owners->owners, owner);
    return owner;
}

/* --- what has changed --- */

/* An owner that does not wait is in no circle, so its changes need not be told. */
static void note_change(QosLockOwners *owners, QosLockOwner *owner)
{
    if (owner->waits.length == 0 || owner->link.data != NULL)
        return;
    owner->link.data = owner;
    g_queue_push_tail_link(&owners->changed, &owner->link);
}

static void end_change(QosLockOwners *owners, QosLockOwner *owner)
{
    if (owner->link.data == NULL)
        return;
    g_queue_unlink(&owners->changed, &owner->link);
    owner->link.data = NULL;
}

static void tidy(QosLockOwners *owners, QosLockOwner *owner)
{
    if (owner->waits.length == 0)
        end_change(owners, owner);
    if (g_hash_table_size(owner->tables) == 0 && owner->waits.length == 0)
        g_hash_table_remove(owners->owners, owner);
}

void qos_lockowners_note(QosLockOwners *owners, const QosFileLockTable *table, guint64 number)
{
    QosLockOwner *owner = get(owners, number);

    if (qos_filelock_table_has_owner(table, number))
        g_hash_table_add(owner->tables, (gpointer)table);
    else
        g_hash_table_remove(owner->tables, table);
    owner->has_other = TRUE;
    note_change(owners, owner);
    tidy(owners, owner);
}

static void make_old(QosLockOwner *owner)
{
    for (GList *link = owner->waits.tail; owner->new_waits > 0; link = link->prev) {
        ((QosLockWait *)link->data)->is_new = FALSE;
        owner->new_waits--;
    }
}

const QosLockOwner *qos_lockowners_take_changed(QosLockOwners *owners, guint *ret_count)
{
    QosLockOwner *owner = g_queue_peek_head(&owners->changed);

    if (owner == NULL)
        return NULL;
    *ret_count = owner->has_other ? owner->waits.length : owner->new_waits;
    end_change(owners, owner);
    make_old(owner);
    owner->has_other = FALSE;
    return owner;
}

/* --- waiting --- */

void qos_lock_wait_init(QosLockWait *wait, const QosFileLockTable *table, guint64 owner,
                        const QosSpan *span)
{
    *wait = (QosLockWait){.table = table, .owner = owner, .span = *span};
    wait->link.data = wait;
}

void qos_lockowners_begin_wait(QosLockOwners *owners, QosLockWait *wait)
{
    QosLockOwner *owner = get(owners, wait->owner);

    wait->is_new = TRUE;
    owner->new_waits++;
    g_queue_push_tail_link(&owner->waits, &wait->link);
    note_change(owners, owner);
}

void qos_lockowners_end_wait(QosLockOwners *owners, QosLockWait *wait)
{
    QosLockOwner *owner = get(owners, wait->owner);

    owner->new_waits -= wait->is_new;
    g_queue_unlink(&owner->waits, &wait->link);
    tidy(owners, owner);
}

/* Adds the owners for which it waits to those that are reached; returns how many locks it looked
 * at. */
static guint follow(const QosLockWait *wait, GHashTable *known, GArray *reached)
{
    return qos_filelock_table_add_conflicts(wait->table, wait->owner, &wait->span, known, reached);
}

gboolean qos_lockowners_is_deadlock(const QosLockOwners *owners, const QosLockWait *wait)
{
    g_autoptr(GHashTable) known = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_autoptr(GArray) reached = g_array_new(FALSE, FALSE, sizeof(guint64));
    guint looks = follow(wait, known, reached);

    for (guint i = 0; i < reached->len && looks <= QOS_LOCKOWNERS_LOOKS_MAX; i++) {
        const guint64 number = g_array_index(reached, guint64, i);
        const QosLockOwner *owner = qos_lockowners_find(owners, number);

        if (number == wait->owner)
            return TRUE;
        for (const GList *link = owner != NULL ? owner->waits.head : NULL;
             link != NULL && looks <= QOS_LOCKOWNERS_LOOKS_MAX; link = link->next)
            looks += follow(link->data, known, reached);
    }
    return FALSE;
}
