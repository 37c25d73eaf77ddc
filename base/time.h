/*
 * Time and durations, in nanoseconds.
 */
#pragma once

#include <glib.h>

/* Nanoseconds on a monotonic clock, or a duration in nanoseconds. */
typedef gint64 QosTime;

#define QOS_NEVER       G_MAXINT64 /* later than every other time */
#define QOS_MICROSECOND G_GINT64_CONSTANT(1000)
#define QOS_MILLISECOND G_GINT64_CONSTANT(1000000)
#define QOS_SECOND      G_GINT64_CONSTANT(1000000000)

/* now + delay, QOS_NEVER where that would overflow or either is QOS_NEVER. Both are >= 0. */
static inline QosTime qos_time_add(QosTime now, QosTime delay)
{
    return now > QOS_NEVER - delay ? QOS_NEVER : now + delay;
}
