/*
 * Keeps the waiters by mount and id, and for each file the locks that waiters have on it.
 * server/deadlocks.h has the contract.
 */
#include "server/deadlocks.h"

typedef struct {
    GHashTable *waiters; /* id -> Waiter, owned */
    guint locks;         /* that these have */
} Mount;

typedef struct {
    guint64 id; /* first: the key */
    Mount *mount;
    guint64 owner;     /* of the mount */
    GArray *items;     /* of QosCreditItem: what it waits for, then what it has */
    guint *places;     /* of each item in its File.locks */
    guint locks;       /* ranges in the items */
    guint64 looked_at; /* in this search */
} Waiter;

/* A file of which waiters have locks. */
typedef struct {
    QosResource resource; /* first: the key */
    GArray *locks;        /* of Lock */
} File;

typedef struct {
    Waiter *waiter;
    guint item;
} Lock;

struct QosDeadlocks {
    GHashTable *mounts; /* QosOwnerId (owned) -> Mount, owned */
    GHashTable *files;  /* a set of File, owned */
    guint count;        /* of waiters */
    guint64 searches;
};

/* --- what is known --- */

static const QosCreditItem *item_of(const Waiter *waiter, guint number)
{
    return &g_array_index(waiter->items, QosCreditItem, number);
}

static void free_file(gpointer data)
{
    File *file = data;

    g_array_unref(file->locks);
    g_free(file);
}

static void free_mount(gpointer data)
{
    Mount *mount = data;

    g_hash_table_unref(mount->waiters);
    g_free(mount);
}

static void free_waiter(gpointer data)
{
    Waiter *waiter = data;

    qos_wire_wait_clear(&(QosWireWait){.items = waiter->items});
    g_free(waiter->places);
    g_free(waiter);
}

static void add_lock(QosDeadlocks *deadlocks, Waiter *waiter, guint item)
{
    const QosResource *resource = &item_of(waiter, item)->resource;
    File *file = g_hash_table_lookup(deadlocks->files, resource);
    const Lock lock = {waiter, item};

    if (file == NULL) {
        file = g_new0(File, 1);
        file->resource = *resource;
        file->locks = g_array_new(FALSE, FALSE, sizeof(Lock));
        g_hash_table_add(deadlocks->files, file);
    }
    waiter->places[item] = file->locks->len;
    g_array_append_val(file->locks, lock);
}

static void remove_lock(QosDeadlocks *deadlocks, const Waiter *waiter, guint item)
{
    File *file = g_hash_table_lookup(deadlocks->files, &item_of(waiter, item)->resource);
    const Lock *last = &g_array_index(file->locks, Lock, file->locks->len - 1);

    last->waiter->places[last->item] = waiter->places[item];
    g_array_remove_index_fast(file->locks, waiter->places[item]);
    if (file->locks->len == 0)
        g_hash_table_remove(deadlocks->files, file);
}

static void remove_waiter(QosDeadlocks *deadlocks, Waiter *waiter)
{
    for (guint i = 1; i < waiter->items->len; i++)
        remove_lock(deadlocks, waiter, i);
    waiter->mount->locks -= waiter->locks;
    deadlocks->count--;
    g_hash_table_remove(waiter->mount->waiters, waiter);
}

/* NULL: the mount has too many locks. */
static Waiter *add_waiter(QosDeadlocks *deadlocks, Mount *mount, QosWireWait *wait)
{
    guint locks = 0;

    for (guint i = 0; i < wait->items->len; i++)
        locks += g_array_index(wait->items, QosCreditItem, i).credit.count;
    if (locks > QOS_WIRE_WAITS_RANGES_MAX - mount->locks)
        return NULL;
    Waiter *waiter = g_new0(Waiter, 1);
    *waiter = (Waiter){.id = wait->id, .mount = mount, .owner = wait->owner, .locks = locks};
    waiter->items = g_steal_pointer(&wait->items);
    waiter->places = g_new(guint, waiter->items->len);
    for (guint i = 1; i < waiter->items->len; i++)
        add_lock(deadlocks, waiter, i);
    mount->locks += locks;
    deadlocks->count++;
    g_hash_table_add(mount->waiters, waiter);
    return waiter;
}

static Mount *get_mount(QosDeadlocks *deadlocks, QosOwnerId id)
{
    Mount *mount = g_hash_table_lookup(deadlocks->mounts, &id);

    if (mount != NULL)
        return mount;
    mount = g_new0(Mount, 1);
    mount->waiters = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_waiter);
    g_hash_table_insert(deadlocks->mounts, g_memdup2(&id, sizeof(id)), mount);
    return mount;
}

/* --- circles --- */

static gboolean is_same_owner(const Waiter *one, const Waiter *other)
{
    return one->mount == other->mount && one->owner == other->owner;
}

/* Adds to `reached` the waiters that `waiter` waits for. FALSE: too many ranges were compared. */
static gboolean follow(QosDeadlocks *deadlocks, const Waiter *waiter, GPtrArray *reached,
                       guint *ranges)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    const QosCreditItem *wanted = item_of(waiter, 0);
    const File *file = g_hash_table_lookup(deadlocks->files, &wanted->resource);

    for (guint i = 0; file != NULL && i < file->locks->len; i++) {
        const Lock *lock = &g_array_index(file->locks, Lock, i);
        const QosCredit *theirs = &item_of(lock->waiter, lock->item)->credit;

        *ranges += wanted->credit.count + theirs->count;
        if (*ranges > QOS_DEADLOCKS_RANGES_MAX)
            return FALSE;
        if (lock->waiter->looked_at == deadlocks->searches || is_same_owner(lock->waiter, waiter) ||
            !type->conflicts(&wanted->credit, theirs))
            continue;
        lock->waiter->looked_at = deadlocks->searches;
        g_ptr_array_add(reached, lock->waiter);
    }
    return TRUE;
}

static gboolean waits_for_itself(QosDeadlocks *deadlocks, const Waiter *waiter)
{
    g_autoptr(GPtrArray) reached = g_ptr_array_new();
    guint ranges = 0;

    deadlocks->searches++;
    if (!follow(deadlocks, waiter, reached, &ranges))
        return FALSE;
    for (guint i = 0; i < reached->len; i++) {
        if (is_same_owner(reached->pdata[i], waiter))
            return TRUE;
        if (!follow(deadlocks, reached->pdata[i], reached, &ranges))
            return FALSE;
    }
    return FALSE;
}

/* --- the whole --- */

QosDeadlocks *qos_deadlocks_new(void)
{
    QosDeadlocks *deadlocks = g_new0(QosDeadlocks, 1);

    G_STATIC_ASSERT(G_STRUCT_OFFSET(Waiter, id) == 0);
    G_STATIC_ASSERT(G_STRUCT_OFFSET(File, resource) == 0);
    deadlocks->mounts = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, free_mount);
    deadlocks->files =
        g_hash_table_new_full(qos_resource_hash, qos_resource_equal, NULL, free_file);
    return deadlocks;
}

void qos_deadlocks_free(QosDeadlocks *deadlocks)
{
    if (deadlocks == NULL)
        return;
    g_hash_table_unref(deadlocks->files);
    g_hash_table_unref(deadlocks->mounts);
    g_free(deadlocks);
}

gboolean qos_deadlocks_tell(QosDeadlocks *deadlocks, QosOwnerId id, QosWireWait *wait)
{
    Mount *mount = get_mount(deadlocks, id);
    Waiter *waiter = g_hash_table_lookup(mount->waiters, &wait->id);

    if (waiter != NULL)
        remove_waiter(deadlocks, waiter);
    if (wait->items == NULL)
        return FALSE;
    waiter = add_waiter(deadlocks, mount, wait);
    if (waiter == NULL || !waits_for_itself(deadlocks, waiter))
        return FALSE;
    remove_waiter(deadlocks, waiter);
    return TRUE;
}

void qos_deadlocks_forget(QosDeadlocks *deadlocks, QosOwnerId id)
{
    Mount *mount = g_hash_table_lookup(deadlocks->mounts, &id);
    GHashTableIter iter;
    gpointer key;

    if (mount == NULL)
        return;
    while (g_hash_table_iter_init(&iter, mount->waiters), g_hash_table_iter_next(&iter, &key, NULL))
        remove_waiter(deadlocks, key);
    g_hash_table_remove(deadlocks->mounts, &id);
}

guint qos_deadlocks_count(const QosDeadlocks *deadlocks)
{
    return deadlocks->count;
}
