/*
 * Counting by powers of two: the bucket of v is the number of bits of v - 1.
 */
#include "base/histogram.h"

static guint bucket_of(guint64 value)
{
    guint bits = value <= 1 ? 0 : 64 - (guint)__builtin_clzll(value - 1);

    return MIN(bits, QOS_HISTOGRAM_BUCKETS - 1);
}

void qos_histogram_add(QosHistogram *histogram, guint64 value)
{
    histogram->count[bucket_of(value)]++;
}

guint64 qos_histogram_total(const QosHistogram *histogram)
{
    guint64 total = 0;

    for (guint i = 0; i < QOS_HISTOGRAM_BUCKETS; i++)
        total += histogram->count[i];
    return total;
}

guint64 qos_histogram_bound(guint index)
{
    return G_GUINT64_CONSTANT(1) << MIN(index, QOS_HISTOGRAM_BUCKETS - 1);
}
