/*
 * A grid of stores: adaptive sharing finds out the store's capacity and the number of requests that
 * it needs inside. Does it then let through all that the store can serve, whatever the store is
 * like?
 *
 * A point of the grid is a store with some round trip, jitter, slots and capacity. Two jobs of
 * weights 1 and 3 always want more than there is. The round trip is the store's latency and its
 * time for one request. The expected throughput is what the same store serves without sharing
 * (`none`), which is a queue in order of arrival.
 *
 * A point is reached at the beginning of the first stretch of time that serves QOS_GRID_PART of the
 * expected throughput. A stretch is 20 round trips long, or QOS_GRID_REQUESTS if these take less
 * time. It has at least as many requests as are needed to tell that part from jitter, to a
 * hundredth. The point must be reached within 20 round trips or 2 s, whichever is longer. A point
 * that runs for hours has to keep the throughput, on average, until the end. In both cases the jobs
 * must have their shares, to a hundredth and eight requests.
 */
#pragma once

#include <glib.h>
#include <stdio.h>

#include "base/time.h"

#define QOS_GRID_PART     0.99
#define QOS_GRID_REQUESTS 200000

typedef struct {
    QosTime latency;
    double jitter; /* 0 to 1, as in a scenario */
    guint slots;
    guint capacity; /* op/s */
} QosGridPoint;

typedef struct {
    double expected;   /* op/s, of `none` */
    double part;       /* of that, in the stretch from `reached`, or until the end */
    double share;      /* of what was served then, of the job that is due three quarters */
    QosTime reached;   /* QOS_NEVER: not in time */
    QosTime deadline;  /* for that */
    gboolean is_right; /* reached in time, and kept */
} QosGridResult;

/* The points, `*ret_count` of them: the grid's own. */
const QosGridPoint *qos_grid_points(guint *ret_count);
/* TRUE for those that are to be run for an hour each time. */
gboolean qos_grid_is_long(const QosGridPoint *point);
/* Runs one until its stretch is over, or for `duration` where that is longer. */
void qos_grid_run(const QosGridPoint *point, QosTime duration, QosGridResult *ret_result);

/* Runs all, those that are long for an hour and with `hours` all for so many, and prints a table of
 * them. Returns how many are not right. */
guint qos_grid_print(guint hours, FILE *out);
