/*
 * Fast paths of groups of inodes. fs/lockengine/fastpath.h has the contract.
 *
 * A pin is a word: which place, and how it is used, above; how many use it so, below. 0 is none.
 * The order that it needs between pins and `allows` is that of sequentially consistent atomics.
 */
#include "fs/lockengine/fastpath.h"

#define COUNT_BITS 32

enum { CLOSED, READS, WRITES }; /* `allows` */

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

/* Neighbours have fast paths of their own. */
static QosFastpath *fastpath_of(QosFastpaths *fastpaths, guint64 name)
{
    return &fastpaths->all[GUINT64_FROM_BE(name) % QOS_FASTPATHS];
}

static gboolean is_open(const QosFastpath *path, guint64 name, gboolean writes)
{
    return atomic_load(&path->allows) >= (writes ? WRITES : READS) &&
           atomic_load(&path->group) == name;
}

/* --- any thread's --- */

static guint64 key_of(const QosSpan *place)
{
    return place->first * 2 + (place->writes ? 1 : 0) + 1;
}

static gboolean set_pin(QosFastpath *path, guint64 key, guint *ret_pin)
{
    for (guint i = 0; i < QOS_FASTPATH_PINS; i++) {
        const guint at = (guint)(key + i) % QOS_FASTPATH_PINS;
        guint64 pin = atomic_load_explicit(&path->pins[at], memory_order_relaxed);

        while (pin == 0 || pin >> COUNT_BITS == key) {
            guint64 more = pin == 0 ? key << COUNT_BITS | 1 : pin + 1;
            if (atomic_compare_exchange_weak(&path->pins[at], &pin, more)) {
                *ret_pin = at;
                return TRUE;
            }
        }
    }
    return FALSE;
}

QosFastpath *qos_fastpaths_pin(QosFastpaths *fastpaths, const QosResource *resource,
                               const QosCredit *want, guint *ret_pin)
{
    const QosSpan *place = place_of(resource, want);
    const guint64 name = name_of(resource);
    QosFastpath *path = fastpath_of(fastpaths, name);

    if (place == NULL || !is_open(path, name, place->writes) ||
        !set_pin(path, key_of(place), ret_pin))
        return NULL;
    atomic_fetch_add_explicit(&path->uses, 1, memory_order_relaxed);
    return path;
}

gboolean qos_fastpath_unpin(QosFastpath *path, guint at)
{
    guint64 pin = atomic_load_explicit(&path->pins[at], memory_order_relaxed), less;

    do {
        less = (guint32)pin == 1 ? 0 : pin - 1;
    } while (!atomic_compare_exchange_weak(&path->pins[at], &pin, less));
    return atomic_load(&path->allows) == CLOSED;
}

gboolean qos_fastpaths_is_open(QosFastpaths *fastpaths, const QosResource *resource,
                               const QosCredit *want)
{
    const QosSpan *place = place_of(resource, want);
    const guint64 name = name_of(resource);

    return place != NULL && is_open(fastpath_of(fastpaths, name), name, place->writes);
}

/* --- under the engine's lock --- */

QosFastpath *qos_fastpaths_find(QosFastpaths *fastpaths, const QosResource *resource)
{
    return fastpath_of(fastpaths, name_of(resource));
}

gboolean qos_fastpath_is_closed(const QosFastpath *path)
{
    return atomic_load(&path->allows) == CLOSED;
}

gboolean qos_fastpath_only_reads(const QosFastpath *path, const QosResource *resource)
{
    return atomic_load(&path->allows) == READS && atomic_load(&path->group) == name_of(resource);
}

void qos_fastpath_open(QosFastpath *path, const QosResource *resource, gboolean writes)
{
    atomic_store(&path->group, name_of(resource));
    atomic_store(&path->allows, writes ? WRITES : READS);
}

gboolean qos_fastpath_close(QosFastpath *path)
{
    return atomic_exchange(&path->allows, CLOSED) != CLOSED;
}

QosFastpath *qos_fastpaths_close(QosFastpaths *fastpaths, const QosResource *resource)
{
    const guint64 name = name_of(resource);
    QosFastpath *path = fastpath_of(fastpaths, name);

    if (resource->type != QOS_RESOURCE_INODES || atomic_load(&path->group) != name)
        return NULL;
    return qos_fastpath_close(path) ? path : NULL;
}

QosCredit qos_fastpath_pinned(const QosFastpath *path)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit used = {0};

    for (guint i = 0; i < QOS_FASTPATH_PINS; i++) {
        const guint64 pin = atomic_load(&path->pins[i]);
        if (pin == 0)
            continue;
        const guint64 key = (pin >> COUNT_BITS) - 1;
        QosCredit place = qos_credit_span(key / 2, key / 2, key % 2 != 0);
        type->join(&used, &place);
        qos_credit_clear(type, &place);
    }
    type->intersect(&used, &path->hold.credit);
    return used;
}

guint64 qos_fastpaths_uses(const QosFastpaths *fastpaths)
{
    guint64 uses = 0;

    for (guint i = 0; i < QOS_FASTPATHS; i++)
        uses += atomic_load_explicit(&fastpaths->all[i].uses, memory_order_relaxed);
    return uses;
}
