/*
 * Drops under way. fs/lockengine/recall.h has the contract.
 */
#include "fs/lockengine/recall.h"

#include "fs/lockcache.h"

#define CALLS_MAX 10 /* all of a group of QOS_INODES_GROUP_MAX */

typedef struct {
    QosResource resource;
    QosCredit credit;
    QosCredit beside; /* given up too, unless it is used meanwhile (qos_recalls_beside()) */
    QosCredit again;  /* what else was wanted meanwhile */
    gboolean is_shrink;
    gboolean is_void; /* see fs/lockengine/engine.h */
} Drop;

static const QosResourceType *type_of(const QosResource *resource)
{
    return qos_resource_type(resource->type);
}

/* --- how much goes --- */

/* The blocks around what is wanted. */
static QosCredit blocks_around(const QosResourceType *type, const QosCredit *wanted, guint calls)
{
    const guint64 inside = ((guint64)1 << MIN(calls, CALLS_MAX)) - 1;
    QosCredit blocks = {0};

    for (guint i = 0; i < wanted->count; i++) {
        const QosSpan *span = &wanted->spans[i];
        QosCredit block = qos_credit_span(span->first & ~inside, span->last | inside, span->writes);
        type->join(&blocks, &block);
        qos_credit_clear(type, &block);
    }
    return blocks;
}

QosCredit qos_recalls_beside(const QosCredit *owned, const QosCredit *wanted, guint calls)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit beside = blocks_around(type, wanted, calls);
    QosCredit all = qos_recalls_all(type, owned);

    G_STATIC_ASSERT(1 << CALLS_MAX == QOS_INODES_GROUP_MAX);
    type->intersect(&beside, &all);
    type->diff(&beside, wanted);
    qos_credit_clear(type, &all);
    return beside;
}

QosCredit qos_recalls_all(const QosResourceType *type, const QosCredit *owned)
{
    QosCredit all = {0};

    switch (type->shape) {
    case QOS_SHAPE_MODES:
        all.reads = all.writes = owned->reads;
        break;
    case QOS_SHAPE_SPANS:
        for (guint i = 0; i < owned->count; i++) {
            QosCredit span = qos_credit_span(owned->spans[i].first, owned->spans[i].last, TRUE);
            type->join(&all, &span);
            qos_credit_clear(type, &span);
        }
        break;
    case QOS_SHAPE_AMOUNT:
        all.amount = owned->amount;
        break;
    }
    return all;
}

/* --- the recalls --- */

static void free_drop(gpointer data)
{
    Drop *drop = data;
    const QosResourceType *type = type_of(&drop->resource);

    qos_credit_clear(type, &drop->credit);
    qos_credit_clear(type, &drop->beside);
    qos_credit_clear(type, &drop->again);
    g_free(drop);
}

static guint hash_drop(gconstpointer drop)
{
    return qos_resource_hash(drop); /* its first member */
}

void qos_recalls_init(QosRecalls *recalls)
{
    G_STATIC_ASSERT(G_STRUCT_OFFSET(Drop, resource) == 0);
    recalls->by_resource = g_hash_table_new_full(hash_drop, qos_resource_equal, NULL, free_drop);
}

void qos_recalls_clear(QosRecalls *recalls)
{
    g_clear_pointer(&recalls->by_resource, g_hash_table_unref);
}

/* Each use asks for it: mostly there are none at all. */
static Drop *find(const QosRecalls *recalls, const QosResource *resource)
{
    if (g_hash_table_size(recalls->by_resource) == 0)
        return NULL;
    return g_hash_table_lookup(recalls->by_resource, resource);
}

/* Only the credits that the mount has are told, because the kernel believes nothing of others: what
 * is wanted may have gone already, or not be here yet. If those were told too, an operation that
 * asks for one just now would lose its answer (docs/design/coherence.md). */
static void cut_to_owned(QosOwner *owner, const QosResource *resource, QosCredit *told)
{
    const QosResourceType *type = type_of(resource);
    QosCredit owned = qos_credit_owned(owner, resource);
    QosCredit all = qos_recalls_all(type, &owned);

    type->intersect(told, &all);
    qos_credit_clear(type, &all);
    qos_credit_clear(type, &owned);
}

/* What goes beside `credit`, of a group of which another mount wants some. */
static QosCredit beside(QosOwner *owner, const QosResource *resource, const QosCredit *credit)
{
    QosLockcacheEntry *entry = qos_owner_extra(owner, resource);
    if (entry == NULL)
        return (QosCredit){0}; /* nothing is had of it any more */
    QosCredit owned = qos_credit_owned(owner, resource);
    QosCredit more = qos_recalls_beside(&owned, credit, entry->calls);
    entry->calls += entry->calls < G_MAXUINT8;
    qos_credit_clear(type_of(resource), &owned);
    return more;
}

gboolean qos_recalls_begin(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                           const QosCredit *credit, gboolean is_shrink, QosCredit *ret_told)
{
    const QosResourceType *type = type_of(resource);
    Drop *drop = find(recalls, resource);

    if (drop != NULL) {
        if (!is_shrink)
            type->join(&drop->again, credit);
        return FALSE;
    }
    drop = g_new0(Drop, 1);
    drop->resource = *resource;
    drop->credit = qos_credit_copy(type, credit);
    drop->is_shrink = is_shrink;
    if (type->widened && !is_shrink)
        drop->beside = beside(owner, resource, credit);
    g_hash_table_add(recalls->by_resource, drop);
    *ret_told = qos_credit_copy(type, credit);
    type->join(ret_told, &drop->beside);
    if (type->widened)
        cut_to_owned(owner, resource, ret_told);
    return TRUE;
}

gboolean qos_recalls_is_shrink(const QosRecalls *recalls, const QosResource *resource)
{
    const Drop *drop = find(recalls, resource);

    return drop != NULL && drop->is_shrink;
}

void qos_recalls_note_miss(QosOwner *owner, const QosResource *resource)
{
    QosLockcacheEntry *entry = qos_owner_extra(owner, resource);

    if (entry != NULL)
        entry->calls = 0;
}

/* If a part that another mount waits for is in use, it has gone to that mount and come back since.
 * That mount waits for it no more, so the part stays and the rest goes. */
static void keep_used(Drop *drop, const QosCredit *used)
{
    const QosResourceType *type = type_of(&drop->resource);
    QosCredit all = qos_recalls_all(type, used);

    type->diff(&drop->credit, &all);
    qos_credit_clear(type, &all);
}

void qos_recalls_note_use(QosRecalls *recalls, const QosResource *resource, const QosCredit *credit)
{
    const QosResourceType *type = type_of(resource);
    Drop *drop = find(recalls, resource);

    if (drop == NULL)
        return;
    const gboolean is_told = type->conflicts(credit, &drop->credit);
    if (is_told && !drop->is_shrink)
        keep_used(drop, credit);
    else
        drop->is_void |= is_told;
    if (type->conflicts(credit, &drop->beside))
        qos_credit_clear(type, &drop->beside);
}

gboolean qos_recalls_keep(QosRecalls *recalls, const QosResource *resource, const QosCredit *credit)
{
    const QosResourceType *type = type_of(resource);
    Drop *drop = find(recalls, resource);

    if (drop == NULL || drop->is_shrink || type->conflicts(credit, &drop->credit))
        return FALSE;
    type->diff(&drop->beside, credit);
    return TRUE;
}

gboolean qos_recalls_spare(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                           guint times)
{
    const Drop *drop = find(recalls, resource);
    QosLockcacheEntry *entry = qos_owner_extra(owner, resource);

    if (drop == NULL || !drop->is_shrink || !qos_credit_is_empty(type_of(resource), &drop->again) ||
        entry == NULL || entry->bytes == 0 || entry->spared >= MIN(times, G_MAXUINT8))
        return FALSE;
    entry->spared++;
    g_hash_table_remove(recalls->by_resource, resource);
    return TRUE;
}

void qos_recalls_note_loss(QosRecalls *recalls, const QosResource *resource)
{
    Drop *drop = find(recalls, resource);

    if (drop == NULL)
        return;
    drop->is_void = TRUE;
    qos_credit_clear(type_of(resource), &drop->again);
}

gboolean qos_recalls_release(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                             const QosCredit *credit, QosTime now, QosCredit *ret_again)
{
    const QosResourceType *type = type_of(resource);
    Drop *drop = find(recalls, resource);

    if (drop == NULL)
        return FALSE;
    g_assert(type->widened || type->matches(&drop->credit, credit));
    g_hash_table_steal(recalls->by_resource, resource);
    if (!drop->is_void && !qos_credit_is_empty(type, &drop->beside))
        qos_credit_cancel(owner, now, resource, &drop->beside, TRUE); /* goes before */
    gboolean is_done = !drop->is_void && !qos_credit_is_empty(type, &drop->credit) &&
                       qos_credit_cancel(owner, now, resource, &drop->credit, drop->is_shrink);
    *ret_again = drop->again;
    drop->again = (QosCredit){0};
    if (is_done && type->matches(ret_again, &drop->credit))
        qos_credit_clear(type, ret_again); /* is done with it */
    free_drop(drop);
    return TRUE;
}
