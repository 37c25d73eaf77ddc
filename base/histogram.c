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

guint64 qos_histogram_quantile(const QosHistogram *histogram, double fraction)
{
    guint64 total = qos_histogram_total(histogram);
    /* The rank, from 1. A double holds it exactly up to 2^53 samples. */
    double rank = CLAMP(fraction * (double)total, 1.0, (double)total);
    guint64 seen = 0;
    guint i = 0;

    if (total == 0)
        return 0;
    while ((double)(seen += histogram->count[i]) < rank)
        i++;
    return qos_histogram_bound(i);
}

guint64 qos_histogram_bound(guint index)
{
    return G_GUINT64_CONSTANT(1) << MIN(index, QOS_HISTOGRAM_BUCKETS - 1);
}
