/*
 * A histogram over powers of two: bucket i counts the values v with 2^(i-1) < v <= 2^i (bucket 0:
 * 0 and 1), as Lustre's brw statistics label them, by their upper bound.
 */
#pragma once

#include <glib.h>

/* 2^47 ns = 39 hours; 2^47 bytes = 128 TiB; the last takes the rest. */
#define QOS_HISTOGRAM_BUCKETS 48

typedef struct {
    guint64 count[QOS_HISTOGRAM_BUCKETS];
} QosHistogram;

void qos_histogram_add(QosHistogram *histogram, guint64 value);
guint64 qos_histogram_total(const QosHistogram *histogram);
/* The upper bound of bucket `index`. */
guint64 qos_histogram_bound(guint index);
