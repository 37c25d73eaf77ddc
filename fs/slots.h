/*
 * The places inside the store: at most `count` requests have a slot, and a few go beyond the limit.
 *
 * One job has at most seven eighths of the slots, and never the last one. So if the requests of one
 * job hang, some slots are left to the others. If several jobs hang, that is not enough. Therefore
 * a request that has been inside for QOS_STALL_TIME has *stalled*: it still counts against its
 * job's share, but no longer takes a slot from other jobs. That holds for up to QOS_STALLED_MAX
 * requests. So each further job that hangs uses up its own share of these, and the store is given
 * no more requests than it answers.
 *
 * A user, with however many jobs, has as many slots as two jobs that hang in full. Further jobs of
 * the user have to wait for these, and other users go on.
 *
 * The requests inside stand in a queue in the order of their start. So only its head has to be
 * checked, and only when all slots are taken.
 *
 * Pure: time is an argument. Part of the scheduler (fs/sched.c), under its caller's lock.
 */
#pragma once

#include "fs/sched.h"

typedef struct {
    guint count;
    guint running;      /* have a slot, those that have stalled included */
    guint over_limit;   /* inside without a slot */
    GQueue inside;      /* of QosRequest: in the store, not stalled, the oldest first */
    gint64 cost;        /* of these, in units of the adaptive sharing */
    QosTime stall_time; /* QOS_STALL_TIME, or longer where the store takes longer for what it has */
    GQueue stalled;     /* likewise: in the store for too long */
} QosSlots;

/* `all` less a part of it, at least one; of nothing nothing. */
static inline guint64 qos_slots_less(guint64 all, guint64 part)
{
    return all == 0 ? 0 : all - MAX(part, 1);
}

/* What one job may have of `all`: an eighth is left to the others. */
static inline guint64 qos_slots_share_of(guint64 all)
{
    return qos_slots_less(all, all / 8);
}

/* And what one user may have, with all jobs: it leaves half as much to other users. */
static inline guint64 qos_slots_users_share_of(guint64 all)
{
    return qos_slots_less(all, all / 16);
}

/* TRUE where `depth` slots are taken; finds out which requests have stalled. */
gboolean qos_slots_are_taken(QosSlots *slots, guint depth, QosTime now);
/* When the next request stalls, so that a slot is free. */
QosTime qos_slots_next_stall(const QosSlots *slots);
/* When the oldest request inside that has not stalled went there; QOS_NEVER with none. */
static inline QosTime qos_slots_oldest(const QosSlots *slots)
{
    const GList *oldest = slots->inside.head;
    return oldest != NULL ? ((const QosRequest *)oldest->data)->start : QOS_NEVER;
}

/* The slots that one job may have. */
static inline guint qos_slots_of_job(const QosSlots *slots)
{
    return slots->count == 1 ? 1 : (guint)qos_slots_share_of(slots->count);
}

/* TRUE where the job has less than its share... */
static inline gboolean qos_slots_job_may(const QosSlots *slots, const QosJob *job)
{
    return job->sched.use.running < qos_slots_of_job(slots);
}

/* ...and where the user has, if there is one. The user's share leaves slots to others even if all
 * of the user's requests hang. */
static inline gboolean qos_slots_user_may(const QosSlots *slots, const QosUser *user)
{
    return user == NULL ||
           user->use.running < MIN(2 * qos_slots_of_job(slots),
                                   (guint)qos_slots_share_of(slots->count + QOS_STALLED_MAX));
}

static inline gboolean qos_slots_may_grant(const QosSlots *slots, const QosRequest *request)
{
    return qos_slots_job_may(slots, request->job) && qos_slots_user_may(slots, request->user);
}

/* TRUE where one more of its job and user may go beyond the slots. */
gboolean qos_slots_may_exceed(const QosSlots *slots, const QosRequest *request);

void qos_slots_grant(QosSlots *slots, QosRequest *request);
/* It goes beyond the slots (1), or does so no more (-1). */
void qos_slots_count_over_limit(QosSlots *slots, const QosRequest *request, gint change);
/* A request that was let in goes to the store now. */
void qos_slots_enter(QosSlots *slots, QosRequest *request, QosTime now);
/* Takes back what it was let in by, whether it entered or not. */
void qos_slots_give_back(QosSlots *slots, QosRequest *request);
