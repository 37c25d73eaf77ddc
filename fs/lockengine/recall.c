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
} Recall;

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

static void free_recall(gpointer data)
{
    Recall *recall = data;
    const QosResourceType *type = type_of(&recall->resource);

    qos_credit_clear(type, &recall->credit);
    qos_credit_clear(type, &recall->beside);
    qos_credit_clear(type, &recall->again);
    g_free(recall);
}

static guint hash_recall(gconstpointer recall)
{
    return qos_resource_hash(recall); /* its first member */
}

void qos_recalls_init(QosRecalls *recalls)
{
    G_STATIC_ASSERT(G_STRUCT_OFFSET(Recall, resource) == 0);
    recalls->by_resource =
        g_hash_table_new_full(hash_recall, qos_resource_equal, NULL, free_recall);
}

void qos_recalls_clear(QosRecalls *recalls)
{
    g_clear_pointer(&recalls->by_resource, g_hash_table_unref);
}

/* Each use asks for it: mostly there are none at all. */
static Recall *find(const QosRecalls *recalls, const QosResource *resource)
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
    Recall *recall = find(recalls, resource);

    if (recall != NULL) {
        if (!is_shrink)
            type->join(&recall->again, credit);
        return FALSE;
    }
    recall = g_new0(Recall, 1);
    recall->resource = *resource;
    recall->credit = qos_credit_copy(type, credit);
    recall->is_shrink = is_shrink;
    if (type->widened && !is_shrink)
        recall->beside = beside(owner, resource, credit);
    g_hash_table_add(recalls->by_resource, recall);
    *ret_told = qos_credit_copy(type, credit);
    type->join(ret_told, &recall->beside);
    if (type->widened)
        cut_to_owned(owner, resource, ret_told);
    return TRUE;
}

gboolean qos_recalls_is_shrink(const QosRecalls *recalls, const QosResource *resource)
{
    const Recall *recall = find(recalls, resource);

    return recall != NULL && recall->is_shrink;
}

void qos_recalls_note_miss(QosOwner *owner, const QosResource *resource)
{
    QosLockcacheEntry *entry = qos_owner_extra(owner, resource);

    if (entry != NULL)
        entry->calls = 0;
}

/* If a part that another mount waits for is in use, it has gone to that mount and come back since.
 * That mount waits for it no more, so the part stays and the rest goes. */
static void keep_used(Recall *recall, const QosCredit *used)
{
    const QosResourceType *type = type_of(&recall->resource);
    QosCredit all = qos_recalls_all(type, used);

    type->diff(&recall->credit, &all);
    qos_credit_clear(type, &all);
}

void qos_recalls_note_use(QosRecalls *recalls, const QosResource *resource, const QosCredit *credit)
{
    const QosResourceType *type = type_of(resource);
    Recall *recall = find(recalls, resource);

    if (recall == NULL)
        return;
    const gboolean is_told = type->conflicts(credit, &recall->credit);
    if (is_told && !recall->is_shrink)
        keep_used(recall, credit);
    else
        recall->is_void |= is_told;
    if (type->conflicts(credit, &recall->beside))
        qos_credit_clear(type, &recall->beside);
}

gboolean qos_recalls_keep(QosRecalls *recalls, const QosResource *resource, const QosCredit *credit)
{
    const QosResourceType *type = type_of(resource);
    Recall *recall = find(recalls, resource);

    if (recall == NULL || recall->is_shrink || type->conflicts(credit, &recall->credit))
        return FALSE;
    type->diff(&recall->beside, credit);
    return TRUE;
}

gboolean qos_recalls_spare(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                           guint times)
{
    const Recall *recall = find(recalls, resource);
    QosLockcacheEntry *entry = qos_owner_extra(owner, resource);

    if (recall == NULL || !recall->is_shrink ||
        !qos_credit_is_empty(type_of(resource), &recall->again) || entry == NULL ||
        entry->bytes == 0 || entry->spared >= MIN(times, G_MAXUINT8))
        return FALSE;
    entry->spared++;
    g_hash_table_remove(recalls->by_resource, resource);
    return TRUE;
}

void qos_recalls_note_loss(QosRecalls *recalls, const QosResource *resource)
{
    Recall *recall = find(recalls, resource);

    if (recall == NULL)
        return;
    recall->is_void = TRUE;
    qos_credit_clear(type_of(resource), &recall->again);
}

gboolean qos_recalls_release(QosRecalls *recalls, QosOwner *owner, const QosResource *resource,
                             const QosCredit *credit, QosTime now, QosCredit *ret_again)
{
    const QosResourceType *type = type_of(resource);
    Recall *recall = find(recalls, resource);

    if (recall == NULL)
        return FALSE;
    g_assert(type->widened || type->matches(&recall->credit, credit));
    g_hash_table_steal(recalls->by_resource, resource);
    if (!recall->is_void && !qos_credit_is_empty(type, &recall->beside))
        qos_credit_cancel(owner, now, resource, &recall->beside, TRUE); /* goes before */
    gboolean is_done = !recall->is_void && !qos_credit_is_empty(type, &recall->credit) &&
                       qos_credit_cancel(owner, now, resource, &recall->credit, recall->is_shrink);
    *ret_again = recall->again;
    recall->again = (QosCredit){0};
    if (is_done && type->matches(ret_again, &recall->credit))
        qos_credit_clear(type, ret_again); /* is done with it */
    free_recall(recall);
    return TRUE;
}
