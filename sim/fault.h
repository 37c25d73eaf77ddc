/*
 * The faults of a simulated cluster. The seed chooses them, so that some seeds have one kind of
 * fault and others have all of them.
 */
#pragma once

#include "base/time.h"

/* Clocks that run at most so wrong are within the bound that leases allow for (core/credit.h). */
#define QOS_FAULT_DRIFT_BOUND 10000 /* per million */

typedef enum {
    QOS_FAULT_CRASH = 1 << 0,   /* of a node, between any two of its steps; it starts again */
    QOS_FAULT_DEATH = 1 << 1,   /* the same, for good */
    QOS_FAULT_CUT = 1 << 2,     /* of a node from all others, or of two from each other */
    QOS_FAULT_ONE_WAY = 1 << 3, /* the same, in one direction */
    QOS_FAULT_PAUSE = 1 << 4,   /* a node stands still, as a stopped process, and then goes on */
    QOS_FAULT_SLOW = 1 << 5,    /* what a node sends takes long */
} QosFaultKind;

typedef struct {
    guint kinds;      /* of QosFaultKind */
    guint loss;       /* of messages, per thousand */
    guint repeat;     /* per thousand */
    guint straggle;   /* per thousand come seconds late */
    QosTime delay;    /* of a message, at most: they overtake each other */
    QosTime interval; /* from one fault to the next, at most */
    gint64 drift;     /* of a clock, at most, per million */
} QosFaults;

void qos_faults_choose(QosFaults *faults, GRand *random);
gboolean qos_faults_keep_time(const QosFaults *faults);
/* Messages are repeated and delayed, but come. */
gboolean qos_faults_are_none(const QosFaults *faults);
/* For the trace; free with g_free. */
char *qos_faults_text(const QosFaults *faults);
/* For the trace, of one kind. */
const char *qos_fault_name(QosFaultKind kind);
/* One kind, by chance. */
QosFaultKind qos_fault_choose(GRand *random);
