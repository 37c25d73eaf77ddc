/*
 * A request's way through the scheduler; fs/sched.h has the contract.
 *
 *     enter -> policy queue -> [queue of its job] -> ready or go -> running -> leave
 *
 * fs/sched_dispatch.c chooses the next of the waiting requests. fs/sched_parking.c has the room for
 * them and their data. fs/sched_control.c has the settings and the state of the scheduler.
 *
 * Each policy in use is a QosLrs. A policy that was switched off is `stopping` until nothing is
 * queued in it, and no request that it let go is still running (settle needs the policy); then it
 * is freed.
 */
#include <string.h>

#include "fs/sched_state.h"

static void push_ready(QosSched *sched, QosRequest *request)
{
    request->state = QOS_REQUEST_READY;
    g_queue_push_tail_link(&sched->ready, &request->link);
}

/* --- slots --- */

static QosRequest *first_that_may_exceed(const QosSched *sched, const GQueue *queue)
{
    for (const GList *link = queue->head; link != NULL; link = link->next) {
        QosRequest *request = link->data;

        if (qos_request_owes_first(request) && qos_slots_may_exceed(&sched->slots, request))
            return request;
    }
    return NULL;
}

/* A request that passed beside the slots has left the store. Returns a held lock holder that may
 * pass in its place: of the same job or user if there is one, else of any job. */
static QosRequest *successor(const QosSched *sched, const QosRequest *request)
{
    const GList *link = sched->jobs_at_limit.head;
    QosRequest *next = first_that_may_exceed(sched, &request->job->sched.job_queue);

    if (next == NULL && request->user != NULL)
        next = first_that_may_exceed(sched, &request->user->user_queue);
    for (; next == NULL && link != NULL; link = link->next)
        next = first_that_may_exceed(sched, &((const QosJob *)link->data)->sched.job_queue);
    return next;
}

static void let_pass(QosSched *sched, QosRequest *request, QosTime now)
{
    request->is_over_limit = TRUE;
    qos_slots_count_over_limit(&sched->slots, request, 1);
    qos_sched_book_share(sched, request, now);
    qos_sched_unqueue(sched, request, now);
    push_ready(sched, request);
}

static void give_slot_back(QosSched *sched, QosRequest *request, QosTime now)
{
    const gboolean was_over_limit = request->is_over_limit;

    sched->quiet_until = 0;
    qos_slots_give_back(&sched->slots, request);
    QosRequest *next =
        was_over_limit && sched->at_limit_owing > 0 ? successor(sched, request) : NULL;
    if (next != NULL)
        let_pass(sched, next, now);
    if (request->job->sched.job_queue.length > 0)
        qos_sched_update_job(sched, request->job, now);
    if (request->user != NULL)
        qos_sched_requeue(sched, request->user, now);
}

static gboolean has_free_slot(QosSched *sched, const QosRequest *request, QosTime now)
{
    return qos_slots_may_grant(&sched->slots, request) &&
           !qos_slots_are_taken(&sched->slots, sched->slots.count, now);
}

/* Lets a request that does not wait for tokens into the store: with a slot if one is free, else
 * beside the slots. FALSE if too many are beside them already. */
static gboolean go_over_limit(QosSched *sched, QosRequest *request, QosTime now)
{
    if (has_free_slot(sched, request, now)) {
        qos_slots_grant(&sched->slots, request);
        return TRUE;
    }
    if (!qos_slots_may_exceed(&sched->slots, request))
        return FALSE;
    request->is_over_limit = TRUE;
    qos_slots_count_over_limit(&sched->slots, request, 1);
    return TRUE;
}

/* --- a request's way --- */

static void prepare(QosSched *sched, QosRequest *request, QosTime now)
{
    sched->quiet_until = 0;
    request->arrival = request->start = now;
    request->link = (GList){.data = request};
    request->queue = NULL;
    request->lrs = sched->current;
    request->has_slot = request->is_over_limit = request->has_stalled = FALSE;
    request->owes = request->owes_much = request->prepays = request->in_user_queue =
        request->is_stored = FALSE;
    request->weight = request->minimum = request->cost = 0;
    qos_job_comes(request->job, now);
}

/* The short way, which nearly all requests take: no other request comes first, and the request need
 * not wait. */
static gboolean try_now(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = sched->current;

    if (sched->ready.length > 0 || sched->at_limit > 0 || sched->stopping->len > 0 ||
        lrs->class->try_now == NULL || !has_free_slot(sched, request, now))
        return FALSE;
    if (qos_sched_is_adaptive(sched) && !qos_sched_may_go(sched, request->job, now))
        return FALSE;
    if (!lrs->class->try_now(lrs->self, request, now))
        return FALSE;
    lrs->running++;
    qos_slots_grant(&sched->slots, request);
    qos_slots_enter(&sched->slots, request, now);
    qos_sched_book_share(sched, request, now);
    return TRUE;
}

/* With adaptive sharing, a request that its policy would hand out at once is queued in its job
 * right away. */
static gboolean hold_now(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = sched->current;

    if (!qos_sched_is_adaptive(sched) || sched->stopping->len > 0 || lrs->class->try_now == NULL ||
        !lrs->class->try_now(lrs->self, request, now))
        return FALSE;
    lrs->running++;
    qos_sched_queue_at_limit(sched, request, now);
    return TRUE;
}

/* What a request waits for if no rule makes it wait. */
typedef enum { SLOTS, SHARE, CREDIT } Cause;

static void set_cause(QosRequest *request, Cause cause)
{
    static const char names[][QOS_RULE_NAME_MAX + 1] = {QOS_WAIT_SLOTS, QOS_WAIT_SHARE,
                                                        QOS_WAIT_CREDIT};

    request->wait_rule_id = 0;
    memcpy(request->wait_rule_name, names[cause], sizeof(request->wait_rule_name));
}

/* Notes what the request waits for, unless a rule makes it wait. */
static void name_wait(QosSched *sched, QosRequest *request, QosTime now)
{
    gboolean is_turn = qos_sched_is_adaptive(sched) && has_free_slot(sched, request, now);

    set_cause(request, is_turn ? SHARE : SLOTS);
}

static void begin_wait(QosSched *sched, QosRequest *request, QosTime now)
{
    qos_sched_count_waiting(sched, request, 1);
    qos_job_waits(request->job, request->wait_rule_id, request->wait_rule_name, now);
}

/* A request that has been charged goes, or is held if its job has as many requests in the store as
 * it may. */
static QosVerdict admit(QosSched *sched, QosRequest *request, QosTime now)
{
    request->lrs->running++;
    if (go_over_limit(sched, request, now)) {
        qos_slots_enter(&sched->slots, request, now);
        qos_sched_book_share(sched, request, now);
        return QOS_GO;
    }
    name_wait(sched, request, now);
    qos_sched_queue_at_limit(sched, request, now);
    begin_wait(sched, request, now);
    return QOS_WAIT;
}

/* Books a request that goes into debt; FALSE where its class owes as much as it may. */
static gboolean charge(QosSched *sched, QosRequest *request, QosTime now)
{
    const QosLrs *lrs = sched->current;

    return qos_request_owes_first(request) &&
           (lrs->class->charge == NULL || lrs->class->charge(lrs->self, request, FALSE, now));
}

gboolean qos_sched_is_limited(QosSched *sched, const QosRequest *request, QosTime now)
{
    const QosLrs *lrs = sched->current;

    return lrs->class->is_limited != NULL && lrs->class->is_limited(lrs->self, request, now);
}

QosVerdict qos_sched_enter(QosSched *sched, QosRequest *request, QosTime now, QosTime *ret_wake)
{
    QosLrs *lrs = sched->current;
    prepare(sched, request, now);
    *ret_wake = qos_slots_next_stall(&sched->slots);
    if (charge(sched, request, now))
        return admit(sched, request, now);
    if (!qos_request_owes_first(request) && try_now(sched, request, now))
        return QOS_GO;
    name_wait(sched, request, now);
    if (!hold_now(sched, request, now)) {
        request->state = QOS_REQUEST_QUEUED;
        lrs->queued++;
        lrs->class->incoming(lrs->self, request, now);
    }

    QosRequest *next;
    while ((next = qos_sched_dispatch(sched, now, ret_wake)) != NULL) {
        if (next == request) {
            qos_slots_enter(&sched->slots, request, now);
            return QOS_GO;
        }
        push_ready(sched, next);
    }
    if (sched->ready.length > 0)
        *ret_wake = now;
    begin_wait(sched, request, now);
    return QOS_WAIT;
}

/* FALSE where it stays in its policy. */
static gboolean release_queued(QosRequest *request, QosTime now)
{
    QosLrs *lrs = request->lrs;

    if (lrs->class->boost == NULL)
        lrs->class->cancel(lrs->self, request, now);
    else if (!lrs->class->boost(lrs->self, request, now))
        return FALSE;
    lrs->queued--;
    lrs->running++;
    return TRUE;
}

void qos_sched_boost(QosSched *sched, QosRequest *request, QosTime now)
{
    sched->quiet_until = 0;
    if (request->state == QOS_REQUEST_QUEUED && release_queued(request, now))
        qos_sched_queue_at_limit(sched, request, now);
    if (request->state == QOS_REQUEST_AT_LIMIT)
        sched->at_limit_owing -= qos_request_owes_first(request);
    request->holds_lock = TRUE;
    if (request->state == QOS_REQUEST_AT_LIMIT)
        sched->at_limit_owing += qos_request_owes_first(request);
    if (request->state == QOS_REQUEST_AT_LIMIT && go_over_limit(sched, request, now)) {
        qos_sched_book_share(sched, request, now);
        qos_sched_unqueue(sched, request, now);
        push_ready(sched, request);
    }
}

static void book_wait(QosSched *sched, QosRequest *request, QosTime now)
{
    qos_sched_count_waiting(sched, request, -1);
    qos_job_waited(request->job, request->wait_rule_id, request->wait_rule_name,
                   now - request->arrival, now);
}

gboolean qos_sched_has_waiting(const QosSched *sched)
{
    return sched->ready.length > 0 || sched->at_limit > 0 || sched->current->queued > 0 ||
           sched->stopping->len > 0;
}

QosTime qos_sched_next_period(const QosSched *sched)
{
    return qos_sched_is_adaptive(sched) ? qos_adapt_next_tick(sched->adapt) : QOS_NEVER;
}

QosRequest *qos_sched_next(QosSched *sched, QosTime now, QosTime *ret_wake)
{
    QosRequest *request;

    *ret_wake = QOS_NEVER;
    if (!qos_sched_has_waiting(sched) && !qos_sched_is_adaptive(sched))
        return NULL;
    GList *link = g_queue_pop_head_link(&sched->ready);
    *ret_wake = now;
    request = link != NULL ? link->data : qos_sched_dispatch(sched, now, ret_wake);
    if (request == NULL)
        return NULL;
    qos_slots_enter(&sched->slots, request, now);
    book_wait(sched, request, now);
    return request;
}

void qos_sched_pause(QosSched *sched, QosRequest *request, QosTime now)
{
    if (!qos_sched_park_paused(sched, request))
        return;
    give_slot_back(sched, request, now);
    request->state = QOS_REQUEST_PAUSED;
    request->arrival = now;
    set_cause(request, CREDIT);
    begin_wait(sched, request, now);
}

void qos_sched_go_on(QosSched *sched, QosRequest *request, QosTime now)
{
    if (request->state != QOS_REQUEST_PAUSED)
        return;
    const QosTime before = request->arrival - request->start; /* in the store */
    book_wait(sched, request, now);
    qos_slots_grant(&sched->slots, request);
    qos_slots_enter(&sched->slots, request, now);
    request->start -= before;
    if (request->job->sched.job_queue.length > 0)
        qos_sched_update_job(sched, request->job, now);
}

/* Books what a request that went has cost indeed. */
static void settle_share(QosSched *sched, const QosRequest *request, guint64 bytes, QosTime now)
{
    gint64 cost = request->cost;

    if (bytes != request->bytes) {
        cost = qos_adapt_cost(sched->adapt, request->opcode, bytes);
        qos_adapt_settle(sched->adapt, request->job, cost - request->cost);
    }
    qos_adapt_replied(sched->adapt, request->job, cost, now - request->start,
                      sched->slots.running - sched->slots.stalled.length, now);
}

void qos_sched_leave(QosSched *sched, QosRequest *request, guint64 bytes, int error, QosTime now)
{
    QosLrs *lrs = request->lrs;
    qos_sched_go_on(sched, request, now);
    give_slot_back(sched, request, now);
    request->state = QOS_REQUEST_DONE;
    qos_sched_unpark(sched, request);
    if (lrs->class->settle != NULL)
        lrs->class->settle(lrs->self, request, bytes, now);
    if (request->cost > 0)
        settle_share(sched, request, bytes, now);
    lrs->running--;
    qos_sched_retire(sched, lrs);
    qos_job_served(request->job, request->opcode, now - request->start, bytes, error, now);
}

/* The request's data was written while it waited, and it is taken back before its turn: its class
 * pays for the data. */
static void book_stored(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = request->lrs;

    if (request->state == QOS_REQUEST_QUEUED) {
        lrs->running++;
        if (lrs->class->charge != NULL)
            lrs->class->charge(lrs->self, request, TRUE, now);
    }
    if (request->state != QOS_REQUEST_READY)
        qos_sched_book_share(sched, request, now);
    qos_job_served(request->job, request->opcode, 0, request->bytes, 0, now);
}

void qos_sched_cancel(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = request->lrs;
    const gboolean is_settled = request->state != QOS_REQUEST_QUEUED || request->is_stored;

    sched->quiet_until = 0;
    if (request->state == QOS_REQUEST_QUEUED) {
        lrs->class->cancel(lrs->self, request, now);
        lrs->queued--;
    }
    if (request->is_stored)
        book_stored(sched, request, now);
    if (request->state == QOS_REQUEST_AT_LIMIT) {
        qos_sched_unqueue(sched, request, now);
        if (request->user != NULL) /* it may have been recalled */
            qos_sched_requeue(sched, request->user, now);
    } else if (request->state == QOS_REQUEST_READY) {
        g_queue_unlink(&sched->ready, &request->link);
        give_slot_back(sched, request, now);
        if (!request->is_stored)
            qos_adapt_settle(sched->adapt, request->job, -request->cost);
    }
    if (is_settled) {
        if (lrs->class->settle != NULL)
            lrs->class->settle(lrs->self, request, request->is_stored ? request->bytes : 0, now);
        lrs->running--;
    }
    request->state = QOS_REQUEST_DONE;
    qos_sched_unpark(sched, request);
    book_wait(sched, request, now);
    qos_sched_retire(sched, lrs);
}
