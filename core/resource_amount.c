/*
 * Credits that are amounts: quantities of any kind, told apart by the resource's name. Amounts in
 * two owners' hands never conflict, since they are parts of one sum; sums stop at G_MAXUINT64.
 */
#include "base/bytes.h"
#include "core/resource_private.h"

static gboolean matches(const QosCredit *want, const QosCredit *have)
{
    return want->amount <= have->amount;
}

static gboolean conflicts(const QosCredit *one G_GNUC_UNUSED, const QosCredit *other G_GNUC_UNUSED)
{
    return FALSE;
}

static void join(QosCredit *to, const QosCredit *with)
{
    to->amount += MIN(with->amount, G_MAXUINT64 - to->amount);
}

static void intersect(QosCredit *with, const QosCredit *other)
{
    with->amount = MIN(with->amount, other->amount);
}

static void subtract(QosCredit *from, const QosCredit *other)
{
    from->amount -= MIN(from->amount, other->amount);
}

static gboolean choose(const QosCredit *want, const QosCredit *have, QosCredit *chosen)
{
    if (!matches(want, have))
        return FALSE;
    chosen->amount = want->amount;
    return TRUE;
}

static void encode(const QosCredit *credit, GByteArray *bytes)
{
    qos_bytes_put_u64(bytes, credit->amount);
}

static gboolean decode(QosCredit *credit, const guint8 **bytes, gsize *length)
{
    guint64 amount;

    if (!qos_bytes_take_u64(bytes, length, &amount))
        return FALSE;
    *credit = (QosCredit){.amount = amount};
    return TRUE;
}

const QosResourceType qos_resource_quantity = {
    .name = "quantity",
    .shape = QOS_SHAPE_AMOUNT,
    .divisible = TRUE,
    .matches = matches,
    .conflicts = conflicts,
    .join = join,
    .intersect = intersect,
    .diff = subtract,
    .yield = subtract,
    .choose = choose,
    .encode = encode,
    .decode = decode,
};
