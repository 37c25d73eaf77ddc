/*
 * What an operation of a fuzzer's input asks for.
 */
#pragma once

#include "core/credit.h"

/* Of that type, as one byte says; free with qos_credit_clear. */
static inline QosCredit want_of(const QosResourceType *type, guint8 much)
{
    if (type->shape == QOS_SHAPE_SPANS)
        return qos_credit_span(much & 15, much | 15, type->divisible || (much & 1) != 0);
    if (type->shape == QOS_SHAPE_AMOUNT)
        return (QosCredit){.amount = much};
    return (QosCredit){.reads = 3, .writes = much & 3};
}
