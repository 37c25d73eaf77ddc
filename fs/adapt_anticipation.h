/*
 * Shares between jobs of one or two processes.
 *
 * Such a job has no request waiting while its own is in the store, and for a moment after the
 * reply. Without more ado the request of any other job would go then. So two jobs of one process
 * each would get half of the store, whatever their weights.
 *
 * The hold is an anticipation, as in disk schedulers that idle for a process. It keeps a request
 * waiting for another job that is behind in virtual time, if that job has a request in the store or
 * had one until a moment ago. The next request of that job goes first. This is right if the store
 * is short. If the store serves both requests at once, the hold is waste, because neither is served
 * faster without the other. So anticipation is tried: windows with it are compared with one
 * without, job by job. It stays while the gain of some jobs is most of the loss of the others.
 *
 * Limit: it works for up to QOS_ANTICIPATION_JOBS jobs at work; with more jobs there are always
 * waiting requests to choose from. It does not wait for a job that thinks for longer than
 * GRACE_PART of the time that its requests take.
 *
 * Pure: time is an argument. Part of the adaptive sharing (fs/adapt.h), under its caller's lock.
 */
#pragma once

#include "base/time.h"

struct QosJob;

#define QOS_ANTICIPATION_JOBS 8

typedef struct {
    struct QosJob *job; /* a member */
    QosTime until;      /* the reply, or its next request, is expected before */
    QosTime took;       /* the last of its requests, in the store; 0 = not known */
    gboolean has_gone;  /* some of its requests, in this window */
    gint64 units;       /* served in this window */
    double base;        /* units/s in the last window without anticipation */
} QosAnticipatedJob;

typedef struct {
    QosAnticipatedJob jobs[QOS_ANTICIPATION_JOBS]; /* at work */
    guint count;
    gboolean is_crowded; /* more than these were at work in this window */
    gboolean is_anticipating;
    gboolean has_waited; /* in this window */
    guint windows;       /* until anticipation begins, or pauses */
    guint failures;      /* one after the other */
    /* The window. */
    QosTime start;
    guint replies;
} QosAnticipation;

/* The job is at work: a request of it goes. */
void qos_anticipation_note_start(QosAnticipation *anticipation, struct QosJob *job, QosTime now);
/* A request of the job that cost `units` has been answered, `took` after it went. */
void qos_anticipation_note_reply(QosAnticipation *anticipation, const struct QosJob *job,
                                 gint64 units, QosTime took, QosTime now);
/* The job is no member any more. */
void qos_anticipation_forget(QosAnticipation *anticipation, const struct QosJob *job);
/* TRUE where the next request of `job`, which starts at `start` of virtual time, is to wait for
 * another job's; lowers *ret_wake to when to ask again. */
gboolean qos_anticipation_waits(QosAnticipation *anticipation, const struct QosJob *job,
                                gint64 start, QosTime now, QosTime *ret_wake);
