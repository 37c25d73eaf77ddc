/*
 * Divides a total in proportion to weights, exact to the unit: one part after the other, with the
 * rounding error carried on.
 */
#pragma once

#include <glib.h>

typedef struct {
    gint64 total;  /* at most `sum`, >= 0 */
    __int128 sum;  /* of the weights, each of 64 bits */
    __int128 seen; /* of the weights, so far */
    gint64 given;
} QosSplit;

/* The next one's part, not more than its weight (>= 0). */
static inline gint64 qos_split_next(QosSplit *split, gint64 weight)
{
    if (weight == 0 || split->total == 0 || split->sum == 0)
        return 0;
    split->seen += weight;
    gint64 upto = (gint64)(split->seen * split->total / split->sum);
    gint64 part = upto - split->given;
    split->given = upto;
    return part;
}
