/*
 * What the store can serve, and how many requests it needs inside for that. Both are measured all
 * the time, from the store's replies.
 *
 * Pure: time is an argument. Part of the adaptive sharing (fs/adapt.h), under its caller's lock.
 */
#pragma once

#include "base/time.h"

#define QOS_CAPACITY_RATES  11 /* of the last windows, that the estimate is made of */
#define QOS_CAPACITY_ERRORS 48 /* of the last estimates, that tell the noise */

typedef enum {
    QOS_CAPACITY_TRIAL_NONE,
    QOS_CAPACITY_TRIAL_LESS,
    QOS_CAPACITY_TRIAL_MORE,
} QosCapacityTrial;

typedef struct {
    double estimate;  /* units/s */
    guint depth;      /* requests that are to be inside now, 1 to `slots` */
    QosTime patience; /* some times what a request spends inside at that depth, on average */
    QosTime stall;    /* twice what a request spends inside at that depth, or at the one before, of
                         which some are still there; 30 s at most */
    guint slots;      /* the depth is never more */
    guint enough;     /* inside, for the whole throughput; `slots` = nothing less is known to be */
    guint too_few;    /* are known to be too few; 0 = not known */
    gboolean is_starting; /* `enough` is doubled while that brings anything */
    guint doubted;        /* windows to come in which that may prove to have been misled */
    gboolean goes_on;     /* it had been, and began once more from what it had found */
    /* The window. */
    gboolean is_saturated;
    QosTime idle_since; /* where it is not saturated */
    QosTime idle;       /* in this window, before that */
    guint skip;         /* replies until it begins */
    QosTime start;
    guint replies;
    gint64 units;
    guint inside;     /* the fewest after a reply */
    QosTime interval; /* from one reply to the next, in the last window */
    /* The last windows of saturation. */
    double rates[QOS_CAPACITY_RATES];
    guint rate_count;                   /* ever; the next is at rate_count % QOS_CAPACITY_RATES */
    double errors[QOS_CAPACITY_ERRORS]; /* by what part they were beside the estimate before, */
    guint error_count;                  /* likewise */
    double noise;                       /* the usual error */
    /* The trial of another depth. */
    QosCapacityTrial trial;
    gboolean is_trying; /* its windows alternate: this one is at `candidate` */
    guint candidate;
    double base;        /* rate of the window before, at the depth in force; 0 = there was none */
    guint base_enough;  /* while it is starting: `enough` in that window, */
    guint base_replies; /* and the replies; */
    QosTime round;      /* and what a request spends inside at least */
    guint pairs;        /* of windows, so far; */
    double surplus;     /* what the candidate served in them beyond its goal, in parts of `base` */
    guint pause;        /* windows until the next trial, */
    guint rest;         /* and within one of less until its next pair */
    guint belief;       /* trials for more, before `too_few` is tried again; */
    guint believed;     /* of these, to come */
} QosCapacity;

/* The most requests that may be inside at `depth`. It is more than the depth, because a job without
 * a request inside may go beyond the depth if the others seem to hang. */
static inline guint qos_capacity_most(guint depth)
{
    return depth + depth / 2 + 1;
}

/* `estimate`: units/s, before anything was measured. */
void qos_capacity_init(QosCapacity *capacity, double estimate, guint slots, QosTime now);
/* The caller gives the capacity: it is used until something is measured. */
void qos_capacity_tell(QosCapacity *capacity, double estimate);
void qos_capacity_set_slots(QosCapacity *capacity, guint slots, QosTime now);
/* The depth has not been in force: the search for it begins anew. */
void qos_capacity_start(QosCapacity *capacity, QosTime now);
/* From `now` on something waits that might go but for the depth, or nothing. */
void qos_capacity_set_saturated(QosCapacity *capacity, gboolean is_saturated, QosTime now);
/* The store has served a request of so many units; so many are still inside. */
void qos_capacity_replied(QosCapacity *capacity, gint64 units, guint inside, QosTime now);
/* For how long a request may be inside before it seems to hang, where all that is inside costs so
 * many units: some times what the store takes for them. */
QosTime qos_capacity_patience(const QosCapacity *capacity, gint64 units);
/* The estimate has kept a job waiting for `elapsed` while the store had room: it is raised. */
void qos_capacity_raise(QosCapacity *capacity, QosTime elapsed);
