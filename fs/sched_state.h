/*
 * What the files of the scheduler share:
 *
 *     sched.c           a request's way
 *     sched_dispatch.c  the choice of the next waiting request
 *     sched_parking.c   the room for waiting requests
 *     sched_control.c   the settings and the state of the scheduler
 */
#pragma once

#include "fs/adapt.h"
#include "fs/sched.h"
#include "fs/slots.h"

typedef struct QosLrs {
    const QosPolicyClass *class;
    void *self;
    guint queued;
    guint running; /* let go, not yet left; those at a limit and ready ones included */
} QosLrs;

struct QosSched {
    QosPolicyContext context;
    QosJobs jobs;
    QosLrs *current;
    GPtrArray *stopping; /* of QosLrs, owned, oldest first */
    GQueue ready;        /* of QosRequest: have a slot, wait to be taken */
    QosSlots slots;
    guint at_limit;
    guint
        at_limit_owing; /* of these: lock holders and the like, because too many of the job pass */
    guint64 parked_max; /* bytes that requests which wait may take, with their data */
    guint64 request_memory; /* of these each takes so many beside its data */
    guint64 parked_bytes;
    guint background; /* requests that wait, and may be the kernel's in the background */
    guint background_max;
    guint64 refused;      /* for want of these or of memory */
    GQueue jobs_at_limit; /* of QosJob, by its at_limit_link: have requests at their limit, longest
                             first */
    QosAdapt *adapt;
    QosTime quiet_until; /* nothing more may go before, unless something happens: set to 0 then */
    guint depth; /* the adaptive sharing's, as far as the jobs that may be served know of it */
};

/* --- sched_dispatch.c --- */

/* Frees a policy in which nothing is queued. */
void qos_sched_free_lrs(QosLrs *lrs);
/* Frees a policy that is being left and has nothing more to do. */
void qos_sched_retire(QosSched *sched, QosLrs *lrs);
/* The next request that may go; it gets a slot. Or NULL, with *wake set to when to ask again.
 * Before that time the answer is the same, unless something has happened. */
QosRequest *qos_sched_dispatch(QosSched *sched, QosTime now, QosTime *wake);
/* qos_sched_queue_at_limit(): a due request begins to wait in its job, for a slot or its turn, or
 * with its user. qos_sched_unqueue(): its wait has ended. */
void qos_sched_queue_at_limit(QosSched *sched, QosRequest *request, QosTime now);
void qos_sched_unqueue(QosSched *sched, QosRequest *request, QosTime now);
/* The user has fewer requests inside, or may have more: one more of the requests that are held with
 * the user moves back to its job. */
void qos_sched_requeue(QosSched *sched, QosUser *user, QosTime now);
/* TRUE where adaptive sharing lets a request go that comes while none is queued. */
gboolean qos_sched_may_go(QosSched *sched, QosJob *job, QosTime now);
/* Books a request that goes. */
void qos_sched_book_share(QosSched *sched, QosRequest *request, QosTime now);
/* Tells the adaptive sharing whether the job may be served: it has queued requests, and slots. */
void qos_sched_update_job(QosSched *sched, QosJob *job, QosTime now);
/* The slots or the depth have changed: which jobs may be served has, too. */
void qos_sched_update_ready(QosSched *sched, QosTime now);
/* Adaptive sharing was turned on: what is queued takes part from now on. */
void qos_sched_share_queued(QosSched *sched, QosTime now);

/* --- sched_parking.c --- */

/* One more of its kind waits (1), or one less (-1). */
void qos_sched_count_waiting(QosSched *sched, const QosRequest *request, gint change);
/* Takes room for a running request that is to wait. FALSE: there is none. */
gboolean qos_sched_park_paused(QosSched *sched, QosRequest *request);
/* It needs no room any more. */
void qos_sched_unpark(QosSched *sched, QosRequest *request);

static inline gboolean qos_sched_is_adaptive(const QosSched *sched)
{
    return qos_adapt_config(sched->adapt)->mode != QOS_ADAPT_OFF;
}
