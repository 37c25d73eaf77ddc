/*
 * Tables of locks. fs/filelocks/table.h has the rules.
 *
 * A table is an array, and each change walks through it once, because few files have more than a
 * few locks.
 */
#include "fs/filelocks/table.h"

static GArray *array_new(void)
{
    return g_array_new(FALSE, FALSE, sizeof(QosFileLock));
}

static guint count_of(const QosFileLockTable *table)
{
    return table->locks != NULL ? table->locks->len : 0;
}

static QosFileLock *lock_at(const QosFileLockTable *table, guint i)
{
    return &g_array_index(table->locks, QosFileLock, i);
}

void qos_filelock_table_clear(QosFileLockTable *table)
{
    if (table->locks != NULL)
        g_array_unref(g_steal_pointer(&table->locks));
}

gboolean qos_filelock_table_is_empty(const QosFileLockTable *table)
{
    return count_of(table) == 0;
}

/* --- asking --- */

static gboolean overlaps(const QosSpan *one, guint64 first, guint64 last)
{
    return one->first <= last && first <= one->last;
}

static gboolean is_in_the_way(const QosFileLock *lock, guint64 owner, const QosSpan *span)
{
    return lock->owner != owner && (lock->span.writes || span->writes) &&
           overlaps(&lock->span, span->first, span->last);
}

const QosFileLock *qos_filelock_table_conflict(const QosFileLockTable *table, guint64 owner,
                                               const QosSpan *span)
{
    for (guint i = 0; i < count_of(table); i++) {
        if (is_in_the_way(lock_at(table, i), owner, span))
            return lock_at(table, i);
    }
    return NULL;
}

gboolean qos_filelock_table_has_room(const QosFileLockTable *table)
{
    return count_of(table) + 2 <= QOS_FILELOCK_TABLE_MAX; /* one may be split in three */
}

gboolean qos_filelock_table_has_owner(const QosFileLockTable *table, guint64 owner)
{
    for (guint i = 0; i < count_of(table); i++) {
        if (lock_at(table, i)->owner == owner)
            return TRUE;
    }
    return FALSE;
}

gboolean qos_filelock_table_has_taken(const QosFileLockTable *table, gconstpointer open_file,
                                      gint32 pid)
{
    for (guint i = 0; i < count_of(table); i++) {
        const QosFileLock *lock = lock_at(table, i);

        if (lock->open_file == open_file || (pid != 0 && lock->pid == pid))
            return TRUE;
    }
    return FALSE;
}

guint qos_filelock_table_add_conflicts(const QosFileLockTable *table, guint64 owner,
                                       const QosSpan *span, GHashTable *known, GArray *owners)
{
    for (guint i = 0; i < count_of(table); i++) {
        QosFileLock *lock = lock_at(table, i);

        if (is_in_the_way(lock, owner, span) && g_hash_table_add(known, &lock->owner))
            g_array_append_val(owners, lock->owner);
    }
    return count_of(table);
}

GArray *qos_filelock_table_owners(const QosFileLockTable *table, gconstpointer open_file)
{
    g_autoptr(GHashTable) known = g_hash_table_new(g_int64_hash, g_int64_equal);
    GArray *owners = g_array_new(FALSE, FALSE, sizeof(guint64));

    for (guint i = 0; i < count_of(table); i++) {
        QosFileLock *lock = lock_at(table, i);

        if ((open_file == NULL || lock->open_file == open_file) &&
            g_hash_table_add(known, &lock->owner))
            g_array_append_val(owners, lock->owner);
    }
    return owners;
}

/* By halves: as many steps for each lock as there are halvings. */
static QosCredit join_locks(const QosFileLock *locks, guint count)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_EXTENT);
    QosCredit one, other;

    if (count == 0)
        return (QosCredit){0};
    if (count == 1)
        return qos_credit_span(locks->span.first, locks->span.last, locks->span.writes);
    one = join_locks(locks, count / 2);
    other = join_locks(locks + count / 2, count - count / 2);
    type->join(&one, &other);
    qos_credit_clear(type, &other);
    return one;
}

QosCredit qos_filelock_table_join(const QosFileLockTable *table)
{
    guint count = count_of(table);

    return join_locks(count > 0 ? lock_at(table, 0) : NULL, count);
}

QosCredit qos_filelock_table_of_owner(const QosFileLockTable *table, guint64 owner)
{
    g_autoptr(GArray) locks = array_new();

    for (guint i = 0; i < count_of(table); i++) {
        if (lock_at(table, i)->owner == owner)
            g_array_append_val(locks, *lock_at(table, i));
    }
    return join_locks((const QosFileLock *)locks->data, locks->len);
}

/* --- changing --- */

static void insert(GArray *locks, const QosFileLock *lock)
{
    guint place = locks->len;

    while (place > 0 && g_array_index(locks, QosFileLock, place - 1).span.first > lock->span.first)
        place--;
    g_array_insert_vals(locks, place, lock, 1);
}

/* Adds what of `lock` lies before `first` and behind `last`. */
static void insert_rest(GArray *locks, const QosFileLock *lock, guint64 first, guint64 last)
{
    QosFileLock rest = *lock;

    if (lock->span.first < first) {
        rest.span.last = first - 1;
        insert(locks, &rest);
    }
    if (lock->span.last > last) {
        rest.span.first = last + 1;
        rest.span.last = lock->span.last;
        insert(locks, &rest);
    }
}

/* A table without locks has no array. */
static void replace(QosFileLockTable *table, GArray *locks)
{
    qos_filelock_table_clear(table);
    table->locks = locks;
    if (locks->len == 0)
        qos_filelock_table_clear(table);
}

/* They overlap or are neighbours. */
static gboolean touches(const QosSpan *one, const QosSpan *other)
{
    return (one->first == 0 || one->first - 1 <= other->last) &&
           (other->first == 0 || other->first - 1 <= one->last);
}

void qos_filelock_table_set(QosFileLockTable *table, const QosFileLock *lock)
{
    GArray *locks = array_new();
    QosFileLock merged = *lock;

    for (guint i = 0; i < count_of(table); i++) {
        const QosFileLock *old = lock_at(table, i);
        gboolean is_same_owner = old->owner == lock->owner;

        if (is_same_owner && old->span.writes == lock->span.writes &&
            touches(&old->span, &lock->span)) {
            merged.span.first = MIN(merged.span.first, old->span.first);
            merged.span.last = MAX(merged.span.last, old->span.last);
        } else if (is_same_owner && overlaps(&old->span, lock->span.first, lock->span.last)) {
            insert_rest(locks, old, lock->span.first, lock->span.last);
        } else {
            insert(locks, old);
        }
    }
    insert(locks, &merged);
    replace(table, locks);
}

gboolean qos_filelock_table_unset(QosFileLockTable *table, guint64 owner, guint64 first,
                                  guint64 last)
{
    GArray *locks = array_new();
    gboolean had_some = FALSE;

    for (guint i = 0; i < count_of(table); i++) {
        const QosFileLock *old = lock_at(table, i);

        if (old->owner != owner || !overlaps(&old->span, first, last)) {
            insert(locks, old);
            continue;
        }
        had_some = TRUE;
        insert_rest(locks, old, first, last);
    }
    replace(table, locks);
    return had_some;
}

void qos_filelock_table_unset_open_file(QosFileLockTable *table, gconstpointer open_file)
{
    GArray *locks = array_new();

    for (guint i = 0; i < count_of(table); i++) {
        if (lock_at(table, i)->open_file != open_file)
            insert(locks, lock_at(table, i));
    }
    replace(table, locks);
}
