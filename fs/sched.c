/*
 * The scheduler around the policies: slots, each job's share of them, and the change of policies.
 * fs/sched.h has the contract.
 *
 * A request's way:  enter -> policy queue -> [held in its job] -> ready or go -> running -> leave.
 *
 * pick() asks the policies for what is due as long as a slot is free: those that are being left
 * first, as what they hold is older. A request whose job has its full share of slots is held in the
 * job, and goes before all that the policies keep once its job is below its share again: it was due
 * before them.
 *
 * With adaptive sharing (fs/adapt.h) all that is due is held in the jobs, and pick_shared() serves
 * the job whose turn it is.
 *
 * Each policy in use is a QosLrs. One that is being left is `stopping` until nothing is queued in
 * it and nothing that it let go is still running (settle needs it); then it is freed.
 */
#include <string.h>

#include "fs/sched_private.h"

/* --- slots --- */

/* TRUE where adaptive sharing may let one more of the job into the store. */
static gboolean may_be_served(const QosSched *sched, const QosJob *job)
{
    return qos_slots_may_grant(&sched->slots, job) && job->running < sched->depth;
}

/* Tells the adaptive sharing whether the job may be served: it has held requests, and slots. */
static void update_ready(QosSched *sched, QosJob *job, QosTime now)
{
    if (qos_sched_is_adaptive(sched))
        qos_adapt_set_ready(sched->adapt, job, job->held.length > 0 && may_be_served(sched, job),
                            now);
}

static void give_slot_back(QosSched *sched, QosRequest *request, QosTime now)
{
    sched->quiet_until = 0;
    qos_slots_give_back(&sched->slots, request);
    if (request->job->held.length > 0)
        update_ready(sched, request->job, now);
}

static gboolean has_free_slot(QosSched *sched, const QosJob *job, QosTime now)
{
    return qos_slots_may_grant(&sched->slots, job) &&
           !qos_slots_are_taken(&sched->slots, sched->slots.count, now);
}

/* Lets a request into the store that does not wait for tokens: with a slot if one is free, else
 * beside them. FALSE where those beside are too many already. */
static gboolean squeeze_in(QosSched *sched, QosRequest *request, QosTime now)
{
    if (has_free_slot(sched, request->job, now)) {
        qos_slots_grant(&sched->slots, request);
        return TRUE;
    }
    if (!qos_slots_may_pass(&sched->slots, request->job))
        return FALSE;
    request->is_passing = TRUE;
    qos_slots_pass(&sched->slots, request->job, 1);
    return TRUE;
}

/* Counts a held request with the adaptive sharing. */
static void share_held(QosSched *sched, QosRequest *request, QosTime now)
{
    request->cost = qos_adapt_cost(sched->adapt, request->opcode, request->bytes);
    qos_adapt_wait(sched->adapt, request->job, request->cost, request->weight, request->minimum,
                   now);
}

void qos_sched_update_ready(QosSched *sched, QosTime now)
{
    sched->quiet_until = 0;
    sched->depth = qos_adapt_depth(sched->adapt);
    for (GList *link = sched->held_jobs.head; link != NULL; link = link->next)
        update_ready(sched, link->data, now);
}

void qos_sched_share_held(QosSched *sched, QosTime now)
{
    for (GList *link = sched->held_jobs.head; link != NULL; link = link->next) {
        QosJob *job = link->data;
        for (GList *held = job->held.head; held != NULL; held = held->next)
            share_held(sched, held->data, now);
        update_ready(sched, job, now);
    }
}

/* Books a request that goes. */
static void book_share(QosSched *sched, QosRequest *request, QosTime now)
{
    if (!qos_sched_is_adaptive(sched))
        return;
    if (request->cost == 0) /* else it was held */
        request->cost = qos_adapt_cost(sched->adapt, request->opcode, request->bytes);
    qos_adapt_serve(sched->adapt, request->job, request->cost, request->weight, request->minimum,
                    now);
}

static void hold(QosSched *sched, QosRequest *request, QosTime now)
{
    QosJob *job = request->job;
    if (job->held.length == 0) {
        job->held_link = (GList){.data = job};
        g_queue_push_tail_link(&sched->held_jobs, &job->held_link);
    }
    request->state = QOS_REQUEST_HELD;
    g_queue_push_tail_link(&job->held, &request->link);
    sched->held++;
    if (!qos_sched_is_adaptive(sched))
        return;
    share_held(sched, request, now);
    if (job->held.length == 1)
        update_ready(sched, job, now);
}

static void unhold(QosSched *sched, QosRequest *request, QosTime now)
{
    QosJob *job = request->job;
    g_queue_unlink(&job->held, &request->link);
    sched->held--;
    if (job->held.length == 0)
        g_queue_unlink(&sched->held_jobs, &job->held_link);
    if (!qos_sched_is_adaptive(sched))
        return;
    qos_adapt_stop_waiting(sched->adapt, job, request->cost);
    if (job->held.length == 0)
        update_ready(sched, job, now);
}

static void take_ready(QosRequest *request, void *arg)
{
    *(QosRequest **)arg = request;
}

/* The first request of `lrs` that is due and whose job may have a slot; it has one then. */
static QosRequest *pick_from(QosSched *sched, QosLrs *lrs, QosTime now, QosTime *wake)
{
    while (lrs->queued > 0) {
        QosRequest *request = NULL;
        QosTime next = lrs->class->get_next(lrs->self, now, take_ready, &request);
        if (request == NULL) {
            *wake = MIN(*wake, next);
            return NULL;
        }
        lrs->queued--;
        lrs->running++;
        if (qos_slots_may_grant(&sched->slots, request->job)) {
            qos_slots_grant(&sched->slots, request);
            return request;
        }
        hold(sched, request, now);
    }
    return NULL;
}

/* The first held request whose job may have a slot again; it has one then. A job is at its share
 * while others find a slot free, so that few jobs are looked at. */
static QosRequest *pick_held(QosSched *sched, QosTime now)
{
    for (GList *link = sched->held_jobs.head; link != NULL; link = link->next) {
        QosJob *job = link->data;
        if (qos_slots_may_grant(&sched->slots, job)) {
            QosRequest *request = job->held.head->data;
            unhold(sched, request, now);
            qos_slots_grant(&sched->slots, request);
            return request;
        }
    }
    return NULL;
}

/* Gives all that is due in `lrs` to the jobs, for the adaptive sharing to choose from. */
static void drain(QosSched *sched, QosLrs *lrs, QosTime now, QosTime *wake)
{
    while (lrs->queued > 0) {
        QosRequest *request = NULL;
        QosTime next = lrs->class->get_next(lrs->self, now, take_ready, &request);
        if (request == NULL) {
            *wake = MIN(*wake, next);
            return;
        }
        lrs->queued--;
        lrs->running++;
        hold(sched, request, now);
    }
}

/* When the oldest request inside will have been there for so long that it seems to hang. */
static QosTime next_delay(const QosSched *sched)
{
    return qos_time_add(qos_slots_oldest(&sched->slots), qos_adapt_patience(sched->adapt));
}

/* Takes note of how many are to be inside now. */
static void refresh_depth(QosSched *sched, QosTime now)
{
    if (sched->depth != qos_adapt_depth(sched->adapt))
        qos_sched_update_ready(sched, now);
}

/* TRUE where the store has as many inside as it is to have. All of them may be one job's, and hang:
 * while it seems so, half as many again may be there, of jobs that have none. */
static gboolean is_full(QosSched *sched, const QosJob *job, QosTime now)
{
    guint depth = sched->depth;

    if (!qos_slots_are_taken(&sched->slots, depth, now))
        return FALSE;
    if (job == NULL || job->running > 0 || next_delay(sched) > now)
        return TRUE;
    depth = MIN(depth + depth / 2 + 1, sched->slots.count);
    return qos_slots_are_taken(&sched->slots, depth, now);
}

/* When a full store may take one more without any reply. */
static QosTime next_look(const QosSched *sched, QosTime now)
{
    QosTime delay = next_delay(sched);

    return MIN(qos_slots_next_stall(&sched->slots), delay > now ? delay : QOS_NEVER);
}

/* Lets the first request of the job go that it holds. */
static QosRequest *serve(QosSched *sched, QosJob *job, QosTime now)
{
    QosRequest *request = job->held.head->data;

    book_share(sched, request, now);
    unhold(sched, request, now);
    qos_slots_grant(&sched->slots, request);
    if (!may_be_served(sched, job))
        update_ready(sched, job, now);
    return request;
}

/* The request whose turn it is of those that are held, if it may go now. *ret_full: the store has
 * as many inside as it is to have, afterwards. */
static QosRequest *serve_next(QosSched *sched, QosTime now, QosTime *wake, gboolean *ret_full)
{
    refresh_depth(sched, now);
    QosJob *job = qos_adapt_next(sched->adapt, now, wake);
    *ret_full = is_full(sched, job, now);
    if (*ret_full)
        *wake = MIN(*wake, next_look(sched, now));
    if (*ret_full || job == NULL)
        return NULL;
    QosRequest *request = serve(sched, job, now);
    *ret_full = is_full(sched, NULL, now);
    return request;
}

/* As pick(), with the adaptive sharing on: all that is due takes part, and the job whose turn it
 * is is served. */
static QosRequest *pick_shared(QosSched *sched, QosTime now, QosTime *wake)
{
    QosRequest *request = NULL;
    gboolean is_at_depth = FALSE;

    for (guint i = 0; i < sched->stopping->len; i++)
        drain(sched, sched->stopping->pdata[i], now, wake);
    drain(sched, sched->current, now, wake);
    qos_adapt_tick(sched->adapt, now);
    *wake = MIN(*wake, qos_adapt_next_tick(sched->adapt));
    if (sched->held > 0)
        request = serve_next(sched, now, wake, &is_at_depth);
    qos_adapt_set_waiting(sched->adapt, sched->held > 0, is_at_depth, now);
    return request;
}

/* As pick(), without adaptive sharing. */
static QosRequest *pick_due(QosSched *sched, QosTime now, QosTime *wake)
{
    QosRequest *request;

    if (qos_slots_are_taken(&sched->slots, sched->slots.count, now)) {
        *wake = qos_slots_next_stall(&sched->slots);
        return NULL;
    }
    request = pick_held(sched, now);
    if (request != NULL)
        return request;
    for (guint i = 0; i < sched->stopping->len; i++) {
        request = pick_from(sched, sched->stopping->pdata[i], now, wake);
        if (request != NULL)
            return request;
    }
    return pick_from(sched, sched->current, now, wake);
}

/* The next request that may go, and has a slot then; or NULL, with *wake set to when to ask again:
 * who asks before, and nothing has happened, is told the same. */
static QosRequest *pick(QosSched *sched, QosTime now, QosTime *wake)
{
    QosRequest *request;

    *wake = sched->quiet_until;
    if (now < sched->quiet_until)
        return NULL;
    *wake = QOS_NEVER;
    request =
        qos_sched_is_adaptive(sched) ? pick_shared(sched, now, wake) : pick_due(sched, now, wake);
    if (request == NULL)
        sched->quiet_until = *wake;
    return request;
}

static void push_ready(QosSched *sched, QosRequest *request)
{
    request->state = QOS_REQUEST_READY;
    g_queue_push_tail_link(&sched->ready, &request->link);
}

/* --- room for what waits --- */

/* It may be one of those that the kernel sends in the background: read ahead, written back, or
 * asked for without waiting. It does not tell. */
static gboolean may_be_background(const QosRequest *request)
{
    return request->opcode == QOS_OP_READ || request->opcode == QOS_OP_WRITE;
}

/* TRUE where so many `more` of these may wait. */
static gboolean has_background(const QosSched *sched, const QosJob *job, guint more)
{
    return sched->background + more <= sched->background_max &&
           job->background + more <= qos_slots_share_of(sched->background_max);
}

static void count_waiting(QosSched *sched, const QosRequest *request, gint change)
{
    QosJob *job = request->job;

    job->waiting += (guint)change;
    if (request->fills_cache)
        job->filling += (guint)change;
    if (!may_be_background(request))
        return;
    job->background += (guint)change;
    sched->background += (guint)change;
}

static gboolean has_room(const QosSched *sched, const QosJob *job, guint64 bytes, guint64 bound)
{
    return sched->parked_bytes + bytes <= bound &&
           job->parked_bytes + bytes <= qos_slots_share_of(bound);
}

static QosKeep refuse(QosSched *sched, QosJob *job, QosKeep reason)
{
    job->refused++;
    sched->refused++;
    return reason;
}

/* What waits is counted among the background ones already. */
QosKeep qos_sched_keep(QosSched *sched, QosRequest *request)
{
    QosJob *job = request->job;
    guint64 bytes = sched->request_memory + request->data;
    gboolean is_early = request->data > 0 && !has_room(sched, job, bytes, sched->parked_max / 2) &&
                        qos_slots_may_pass(&sched->slots, job);

    if (is_early)
        bytes -= request->data;
    if (may_be_background(request) && !has_background(sched, job, 0))
        return refuse(sched, job, QOS_KEEP_TOO_MANY);
    if (!request->cannot_fail && !has_room(sched, job, bytes, sched->parked_max))
        return refuse(sched, job, QOS_KEEP_NOWHERE);
    if (is_early)
        qos_slots_pass(&sched->slots, job, 1);
    request->kept = bytes;
    sched->parked_bytes += bytes;
    job->parked_bytes += bytes;
    return is_early ? QOS_KEEP_IN_STORE : QOS_KEEP_IN_MEMORY;
}

void qos_sched_kept(QosSched *sched, QosRequest *request)
{
    qos_slots_pass(&sched->slots, request->job, -1);
}

static void drop_kept(QosSched *sched, QosRequest *request)
{
    sched->parked_bytes -= request->kept;
    request->job->parked_bytes -= request->kept;
    request->kept = 0;
}

/* --- a request's way --- */

static void prepare(QosSched *sched, QosRequest *request, QosTime now)
{
    sched->quiet_until = 0;
    request->arrival = request->start = now;
    request->link = (GList){.data = request};
    request->queue = NULL;
    request->lrs = sched->current;
    request->has_slot = request->is_passing = request->has_stalled = FALSE;
    request->owes = request->prepays = FALSE;
    request->weight = request->minimum = request->cost = 0;
    request->job->seen = now;
}

/* TRUE where adaptive sharing lets a request go that comes while none is held. */
static gboolean may_go(QosSched *sched, QosJob *job, QosTime now)
{
    qos_adapt_tick(sched->adapt, now);
    refresh_depth(sched, now);
    return !is_full(sched, job, now) && qos_adapt_may_go(sched->adapt, job, now);
}

/* Lets a request go that nothing stands before and that need not wait: what nearly all are. */
static gboolean try_now(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = sched->current;

    if (sched->ready.length > 0 || sched->held > 0 || sched->stopping->len > 0 ||
        lrs->class->try_now == NULL || !has_free_slot(sched, request->job, now))
        return FALSE;
    if (qos_sched_is_adaptive(sched) && !may_go(sched, request->job, now))
        return FALSE;
    if (!lrs->class->try_now(lrs->self, request, now))
        return FALSE;
    lrs->running++;
    qos_slots_grant(&sched->slots, request);
    qos_slots_enter(&sched->slots, request, now);
    book_share(sched, request, now);
    return TRUE;
}

/* With adaptive sharing, a request that its policy would hand out at once is held right away. */
static gboolean hold_now(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = sched->current;

    if (!qos_sched_is_adaptive(sched) || sched->stopping->len > 0 || lrs->class->try_now == NULL ||
        !lrs->class->try_now(lrs->self, request, now))
        return FALSE;
    lrs->running++;
    hold(sched, request, now);
    return TRUE;
}

/* What it waits for, unless a rule makes it wait. */
static void name_wait(QosSched *sched, QosRequest *request, QosTime now)
{
    static const char names[][QOS_RULE_NAME_MAX + 1] = {QOS_WAIT_SLOTS, QOS_WAIT_SHARE};
    gboolean is_turn = qos_sched_is_adaptive(sched) && has_free_slot(sched, request->job, now);

    request->wait_rule_id = 0;
    memcpy(request->wait_rule_name, names[is_turn ? 1 : 0], sizeof(request->wait_rule_name));
}

static void begin_wait(QosSched *sched, QosRequest *request, QosTime now)
{
    count_waiting(sched, request, 1);
    qos_job_waits(request->job, request->wait_rule_id, request->wait_rule_name, now);
}

/* A request that is charged, and waits for no token: it goes, or is held where its job has as much
 * in the store as it may. */
static QosVerdict admit(QosSched *sched, QosRequest *request, QosTime now)
{
    request->lrs->running++;
    if (squeeze_in(sched, request, now)) {
        qos_slots_enter(&sched->slots, request, now);
        book_share(sched, request, now);
        return QOS_GO;
    }
    name_wait(sched, request, now);
    hold(sched, request, now);
    begin_wait(sched, request, now);
    return QOS_WAIT;
}

/* Books a request that must not wait because of what it holds; FALSE where its class owes too much.
 */
static gboolean charge_lock(QosSched *sched, QosRequest *request, QosTime now)
{
    const QosLrs *lrs = sched->current;

    return request->holds_lock && (lrs->class->charge == NULL ||
                                   lrs->class->charge(lrs->self, request, QOS_DEBT_MAX, now));
}

QosVerdict qos_sched_enter(QosSched *sched, QosRequest *request, QosTime now, QosTime *ret_wake)
{
    QosLrs *lrs = sched->current;
    prepare(sched, request, now);
    *ret_wake = qos_slots_next_stall(&sched->slots);
    if (charge_lock(sched, request, now))
        return admit(sched, request, now);
    if (!request->holds_lock && try_now(sched, request, now))
        return QOS_GO;
    if (request->fills_cache &&
        (request->job->filling >= QOS_FILLING_MAX || !has_background(sched, request->job, 1)))
        return qos_sched_charge(sched, request, now);
    name_wait(sched, request, now);
    if (!hold_now(sched, request, now)) {
        request->state = QOS_REQUEST_QUEUED;
        lrs->queued++;
        lrs->class->incoming(lrs->self, request, now);
    }

    QosRequest *next;
    while ((next = pick(sched, now, ret_wake)) != NULL) {
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

QosVerdict qos_sched_charge(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = sched->current;
    prepare(sched, request, now);
    if (lrs->class->charge != NULL)
        lrs->class->charge(lrs->self, request, QOS_NEVER, now);
    return admit(sched, request, now);
}

void qos_sched_release(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = request->lrs;

    sched->quiet_until = 0;
    if (request->state == QOS_REQUEST_QUEUED) {
        lrs->class->cancel(lrs->self, request, now);
        lrs->queued--;
        lrs->running++;
        if (lrs->class->charge != NULL)
            lrs->class->charge(lrs->self, request, QOS_NEVER, now);
        hold(sched, request, now);
    }
    if (request->state == QOS_REQUEST_HELD && squeeze_in(sched, request, now)) {
        book_share(sched, request, now);
        unhold(sched, request, now);
        push_ready(sched, request);
    }
}

static void book_wait(QosSched *sched, QosRequest *request, QosTime now)
{
    count_waiting(sched, request, -1);
    qos_job_waited(request->job, request->wait_rule_id, request->wait_rule_name,
                   now - request->arrival, now);
}

/* Mostly nothing does, and a request that leaves lets no other go. */
static gboolean does_any_wait(const QosSched *sched)
{
    return sched->ready.length > 0 || sched->held > 0 || sched->current->queued > 0 ||
           sched->stopping->len > 0 || qos_sched_is_adaptive(sched);
}

QosRequest *qos_sched_next(QosSched *sched, QosTime now, QosTime *ret_wake)
{
    QosRequest *request;

    *ret_wake = QOS_NEVER;
    if (!does_any_wait(sched))
        return NULL;
    GList *link = g_queue_pop_head_link(&sched->ready);
    *ret_wake = now;
    request = link != NULL ? link->data : pick(sched, now, ret_wake);
    if (request == NULL)
        return NULL;
    qos_slots_enter(&sched->slots, request, now);
    book_wait(sched, request, now);
    return request;
}

/* Books what a request that went has cost indeed. */
static void settle_share(QosSched *sched, const QosRequest *request, guint64 bytes, QosTime now)
{
    gint64 cost = qos_adapt_cost(sched->adapt, request->opcode, bytes);

    qos_adapt_settle(sched->adapt, request->job, cost - request->cost);
    qos_adapt_replied(sched->adapt, cost, sched->slots.running - sched->slots.stalled, now);
}

void qos_sched_leave(QosSched *sched, QosRequest *request, guint64 bytes, int error, QosTime now)
{
    QosLrs *lrs = request->lrs;
    give_slot_back(sched, request, now);
    request->state = QOS_REQUEST_DONE;
    drop_kept(sched, request);
    if (lrs->class->settle != NULL)
        lrs->class->settle(lrs->self, request, bytes, now);
    if (request->cost > 0)
        settle_share(sched, request, bytes, now);
    lrs->running--;
    qos_sched_retire(sched, lrs);
    qos_job_served(request->job, request->opcode, now - request->start, bytes, error, now);
}

void qos_sched_cancel(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = request->lrs;

    sched->quiet_until = 0;
    if (request->state == QOS_REQUEST_QUEUED) {
        lrs->class->cancel(lrs->self, request, now);
        lrs->queued--;
    } else {
        if (request->state == QOS_REQUEST_HELD) {
            unhold(sched, request, now);
        } else {
            g_queue_unlink(&sched->ready, &request->link);
            give_slot_back(sched, request, now);
        }
        if (lrs->class->settle != NULL)
            lrs->class->settle(lrs->self, request, 0, now);
        lrs->running--;
    }
    request->state = QOS_REQUEST_DONE;
    drop_kept(sched, request);
    book_wait(sched, request, now);
    qos_sched_retire(sched, lrs);
}
