/*
 * What goes beside what is wanted. fs/lockengine/yield.h tells the law.
 */
#include "fs/lockengine/yield.h"

#define CALLS_MAX 10 /* all of a group of QOS_INODES_GROUP_MAX */

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

QosCredit qos_lockyield_beside(const QosCredit *owned, const QosCredit *wanted, guint calls)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit beside = blocks_around(type, wanted, calls);
    QosCredit all = qos_lockyield_all(type, owned);

    G_STATIC_ASSERT(1 << CALLS_MAX == QOS_INODES_GROUP_MAX);
    type->intersect(&beside, &all);
    type->diff(&beside, wanted);
    qos_credit_clear(type, &all);
    return beside;
}

QosCredit qos_lockyield_all(const QosResourceType *type, const QosCredit *owned)
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
