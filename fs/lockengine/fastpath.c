/*
 * Grips on groups of inodes. fs/lockengine/fastpath.h has the contract.
 *
 * A mark is a word: which place, and how it is used, above; how many use it so, below. 0 is none.
 * The order that it needs between marks and `allows` is that of sequentially consistent atomics.
 */
#include "fs/lockengine/fastpath.h"

#define COUNT_BITS 32

enum { SHUT, READS, WRITES }; /* `allows` */

static const QosSpan *place_of(const QosResource *resource, const QosCredit *want)
{
    if (resource->type != QOS_RESOURCE_INODES || want->count != 1 ||
        want->spans[0].first != want->spans[0].last)
        return NULL;
    return &want->spans[0];
}

static guint64 name_of(const QosResource *resource)
{
    guint64 name;

    G_STATIC_ASSERT(sizeof(name) <= sizeof(resource->name));
    memcpy(&name, resource->name, sizeof(name));
    return name;
}

/* Neighbours have grips of their own. */
static QosLockgrip *grip_of(QosLockgrips *grips, guint64 name)
{
    return &grips->all[GUINT64_FROM_BE(name) % QOS_LOCKGRIPS];
}

static gboolean is_open(const QosLockgrip *grip, guint64 name, gboolean writes)
{
    return atomic_load(&grip->allows) >= (writes ? WRITES : READS) &&
           atomic_load(&grip->group) == name;
}

/* --- any thread's --- */

static guint64 key_of(const QosSpan *place)
{
    return place->first * 2 + (place->writes ? 1 : 0) + 1;
}

static gboolean set_mark(QosLockgrip *grip, guint64 key, guint *ret_mark)
{
    for (guint i = 0; i < QOS_LOCKGRIP_MARKS; i++) {
        const guint at = (guint)(key + i) % QOS_LOCKGRIP_MARKS;
        guint64 mark = atomic_load_explicit(&grip->marks[at], memory_order_relaxed);

        while (mark == 0 || mark >> COUNT_BITS == key) {
            guint64 more = mark == 0 ? key << COUNT_BITS | 1 : mark + 1;
            if (atomic_compare_exchange_weak(&grip->marks[at], &mark, more)) {
                *ret_mark = at;
                return TRUE;
            }
        }
    }
    return FALSE;
}

QosLockgrip *qos_lockgrips_mark(QosLockgrips *grips, const QosResource *resource,
                                const QosCredit *want, guint *ret_mark)
{
    const QosSpan *place = place_of(resource, want);
    const guint64 name = name_of(resource);
    QosLockgrip *grip = grip_of(grips, name);

    if (place == NULL || !is_open(grip, name, place->writes) ||
        !set_mark(grip, key_of(place), ret_mark))
        return NULL;
    atomic_fetch_add_explicit(&grip->uses, 1, memory_order_relaxed);
    return grip;
}

gboolean qos_lockgrip_unmark(QosLockgrip *grip, guint at)
{
    guint64 mark = atomic_load_explicit(&grip->marks[at], memory_order_relaxed), less;

    do {
        less = (guint32)mark == 1 ? 0 : mark - 1;
    } while (!atomic_compare_exchange_weak(&grip->marks[at], &mark, less));
    return atomic_load(&grip->allows) == SHUT;
}

gboolean qos_lockgrips_is_open(QosLockgrips *grips, const QosResource *resource,
                               const QosCredit *want)
{
    const QosSpan *place = place_of(resource, want);
    const guint64 name = name_of(resource);

    return place != NULL && is_open(grip_of(grips, name), name, place->writes);
}

/* --- under the engine's lock --- */

QosLockgrip *qos_lockgrips_find(QosLockgrips *grips, const QosResource *resource)
{
    return grip_of(grips, name_of(resource));
}

gboolean qos_lockgrip_is_shut(const QosLockgrip *grip)
{
    return atomic_load(&grip->allows) == SHUT;
}

gboolean qos_lockgrip_only_reads(const QosLockgrip *grip, const QosResource *resource)
{
    return atomic_load(&grip->allows) == READS && atomic_load(&grip->group) == name_of(resource);
}

void qos_lockgrip_open(QosLockgrip *grip, const QosResource *resource, gboolean writes)
{
    atomic_store(&grip->group, name_of(resource));
    atomic_store(&grip->allows, writes ? WRITES : READS);
}

gboolean qos_lockgrip_shut(QosLockgrip *grip)
{
    return atomic_exchange(&grip->allows, SHUT) != SHUT;
}

QosLockgrip *qos_lockgrips_shut(QosLockgrips *grips, const QosResource *resource)
{
    const guint64 name = name_of(resource);
    QosLockgrip *grip = grip_of(grips, name);

    if (resource->type != QOS_RESOURCE_INODES || atomic_load(&grip->group) != name)
        return NULL;
    return qos_lockgrip_shut(grip) ? grip : NULL;
}

QosCredit qos_lockgrip_used(const QosLockgrip *grip)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit used = {0};

    for (guint i = 0; i < QOS_LOCKGRIP_MARKS; i++) {
        const guint64 mark = atomic_load(&grip->marks[i]);
        if (mark == 0)
            continue;
        const guint64 key = (mark >> COUNT_BITS) - 1;
        QosCredit place = qos_credit_span(key / 2, key / 2, key % 2 != 0);
        type->join(&used, &place);
        qos_credit_clear(type, &place);
    }
    type->intersect(&used, &grip->hold.credit);
    return used;
}

guint64 qos_lockgrips_uses(const QosLockgrips *grips)
{
    guint64 uses = 0;

    for (guint i = 0; i < QOS_LOCKGRIPS; i++)
        uses += atomic_load_explicit(&grips->all[i].uses, memory_order_relaxed);
    return uses;
}
