/*
 * Chooses the next of the waiting requests (fs/sched_state.h).
 *
 * qos_sched_dispatch() asks the policies for due requests as long as a slot is free. Policies that
 * were switched off come first, because what they hold is older. If a request's job has its full
 * share of slots, the request is queued in the job. When the job is below its share again, the
 * request goes before all that the policies keep, because it was due before them. If the request's
 * user has its full share, the request is held with the user, and comes back to its job when
 * another request of the user has left. So meanwhile the scheduler need not look at it, or past it.
 *
 * With adaptive sharing (fs/adapt.h) all due requests are held in the jobs, and dispatch_shared()
 * serves the job that is next.
 */
#include "fs/capacity.h"
#include "fs/sched_state.h"

void qos_sched_free_lrs(QosLrs *lrs)
{
    lrs->class->fini(lrs->self);
    g_free(lrs);
}

void qos_sched_retire(QosSched *sched, QosLrs *lrs)
{
    if (lrs != sched->current && lrs->queued == 0 && lrs->running == 0) {
        g_ptr_array_remove(sched->stopping, lrs);
        qos_sched_free_lrs(lrs);
    }
}

/* TRUE where adaptive sharing may let one more of the job into the store. */
static gboolean may_be_served(const QosSched *sched, const QosJob *job)
{
    return qos_slots_job_may(&sched->slots, job) && job->sched.use.running < sched->depth;
}

void qos_sched_update_job(QosSched *sched, QosJob *job, QosTime now)
{
    if (qos_sched_is_adaptive(sched))
        qos_adapt_set_ready(sched->adapt, job,
                            job->sched.job_queue.length > 0 && may_be_served(sched, job), now);
}

/* Counts a queued request with the adaptive sharing. */
static void share_queued(QosSched *sched, QosRequest *request, QosTime now)
{
    request->cost = qos_adapt_cost(sched->adapt, request->opcode, request->bytes);
    qos_adapt_wait(sched->adapt, request->job, request->cost, request->weight, request->minimum,
                   now);
}

void qos_sched_update_ready(QosSched *sched, QosTime now)
{
    sched->quiet_until = 0;
    sched->depth = qos_adapt_depth(sched->adapt);
    for (GList *link = sched->jobs_at_limit.head; link != NULL; link = link->next)
        qos_sched_update_job(sched, link->data, now);
}

/* The jobs of these requests, some of them more than once. */
static void update_jobs_of(QosSched *sched, const GQueue *requests, QosTime now)
{
    for (const GList *link = requests->head; link != NULL; link = link->next)
        qos_sched_update_job(sched, ((QosRequest *)link->data)->job, now);
}

/* Takes note of how many requests are to be inside now. A change matters only to jobs that have a
 * slot, however many others wait. */
static void refresh_depth(QosSched *sched, QosTime now)
{
    sched->slots.stall_time = MAX(QOS_STALL_TIME, qos_adapt_stall(sched->adapt));
    if (sched->depth == qos_adapt_depth(sched->adapt))
        return;
    sched->quiet_until = 0;
    sched->depth = qos_adapt_depth(sched->adapt);
    update_jobs_of(sched, &sched->slots.inside, now);
    update_jobs_of(sched, &sched->slots.stalled, now);
    update_jobs_of(sched, &sched->ready, now);
}

void qos_sched_share_queued(QosSched *sched, QosTime now)
{
    for (GList *link = sched->jobs_at_limit.head; link != NULL; link = link->next) {
        QosJob *job = link->data;
        for (GList *held = job->sched.job_queue.head; held != NULL; held = held->next)
            share_queued(sched, held->data, now);
        qos_sched_update_job(sched, job, now);
    }
}

void qos_sched_book_share(QosSched *sched, QosRequest *request, QosTime now)
{
    if (!qos_sched_is_adaptive(sched))
        return;
    if (request->cost == 0) /* else it was queued */
        request->cost = qos_adapt_cost(sched->adapt, request->opcode, request->bytes);
    qos_adapt_serve(sched->adapt, request->job, request->cost, request->weight, request->minimum,
                    now);
}

static void hold_in_job(QosSched *sched, QosRequest *request, QosTime now)
{
    QosJob *job = request->job;
    if (job->sched.job_queue.length == 0) {
        job->sched_rare.at_limit_link = (GList){.data = job};
        g_queue_push_tail_link(&sched->jobs_at_limit, &job->sched_rare.at_limit_link);
    }
    request->in_user_queue = FALSE;
    g_queue_push_tail_link(&job->sched.job_queue, &request->link);
    sched->at_limit++;
    sched->at_limit_owing += qos_request_owes_first(request);
    if (!qos_sched_is_adaptive(sched))
        return;
    share_queued(sched, request, now);
    if (job->sched.job_queue.length == 1)
        qos_sched_update_job(sched, job, now);
}

static void hold_with_user(QosSched *sched, QosRequest *request)
{
    request->in_user_queue = TRUE;
    g_queue_push_tail_link(&request->user->user_queue, &request->link);
    sched->at_limit++;
    sched->at_limit_owing += qos_request_owes_first(request);
}

/* A request is held with its user only if its job has a slot for it; otherwise it waits in the
 * job. */
void qos_sched_queue_at_limit(QosSched *sched, QosRequest *request, QosTime now)
{
    request->state = QOS_REQUEST_AT_LIMIT;
    if (qos_slots_job_may(&sched->slots, request->job) &&
        !qos_slots_user_may(&sched->slots, request->user))
        hold_with_user(sched, request);
    else
        hold_in_job(sched, request, now);
}

void qos_sched_unqueue(QosSched *sched, QosRequest *request, QosTime now)
{
    QosJob *job = request->job;
    sched->at_limit--;
    sched->at_limit_owing -= qos_request_owes_first(request);
    if (request->in_user_queue) {
        g_queue_unlink(&request->user->user_queue, &request->link);
        return;
    }
    g_queue_unlink(&job->sched.job_queue, &request->link);
    if (job->sched.job_queue.length == 0)
        g_queue_unlink(&sched->jobs_at_limit, &job->sched_rare.at_limit_link);
    if (!qos_sched_is_adaptive(sched))
        return;
    qos_adapt_stop_waiting(sched->adapt, job, request->cost);
    if (job->sched.job_queue.length == 0)
        qos_sched_update_job(sched, job, now);
}

/* Moves the user's held requests back to their jobs, until one is moved that its job lets go. */
void qos_sched_requeue(QosSched *sched, QosUser *user, QosTime now)
{
    gboolean may_go = FALSE;

    while (!may_go && user->user_queue.length > 0 && qos_slots_user_may(&sched->slots, user)) {
        QosRequest *request = user->user_queue.head->data;
        may_go = qos_slots_job_may(&sched->slots, request->job);
        qos_sched_unqueue(sched, request, now);
        hold_in_job(sched, request, now);
    }
}

/* The first held request of the job with a user that may have a slot, or NULL; the requests before
 * it are queued with their users from now on. */
static QosRequest *first_held(QosSched *sched, QosJob *job, QosTime now)
{
    while (job->sched.job_queue.length > 0) {
        QosRequest *request = job->sched.job_queue.head->data;
        if (qos_slots_user_may(&sched->slots, request->user))
            return request;
        qos_sched_unqueue(sched, request, now);
        hold_with_user(sched, request);
    }
    return NULL;
}

static void take_ready(QosRequest *request, void *arg)
{
    *(QosRequest **)arg = request;
}

/* The first due request of `lrs` with a job and user that may have a slot; it gets the slot. */
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
        if (qos_slots_may_grant(&sched->slots, request)) {
            qos_slots_grant(&sched->slots, request);
            return request;
        }
        qos_sched_queue_at_limit(sched, request, now);
    }
    return NULL;
}

/* The first held request with a job that may have a slot again; it gets the slot. Only jobs at
 * their share hold requests while others find a slot free, so there are few jobs to look at. */
static QosRequest *pick_held(QosSched *sched, QosTime now)
{
    for (GList *link = sched->jobs_at_limit.head, *next_link; link != NULL; link = next_link) {
        QosJob *job = link->data;
        next_link = link->next; /* it may leave the list */
        QosRequest *request =
            qos_slots_job_may(&sched->slots, job) ? first_held(sched, job, now) : NULL;
        if (request != NULL) {
            qos_sched_unqueue(sched, request, now);
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
        qos_sched_queue_at_limit(sched, request, now);
    }
}

/* When the oldest request inside will have been there for so long that it seems to hang. */
static QosTime next_delay(const QosSched *sched)
{
    return qos_time_add(qos_slots_oldest(&sched->slots),
                        qos_adapt_patience(sched->adapt, sched->slots.cost));
}

/* TRUE where the store has as many requests inside as it is to have. All of them may belong to one
 * job, and hang. While it seems so, half as many again may be inside, of jobs that have none
 * there. */
static gboolean is_full(QosSched *sched, const QosJob *job, QosTime now)
{
    guint depth = sched->depth;

    if (!qos_slots_are_taken(&sched->slots, depth, now))
        return FALSE;
    if (job == NULL || job->sched.use.running > 0 || next_delay(sched) > now)
        return TRUE;
    depth = MIN(qos_capacity_most(depth), sched->slots.count);
    return qos_slots_are_taken(&sched->slots, depth, now);
}

/* When a full store may take one more without any reply. */
static QosTime next_look(const QosSched *sched, QosTime now)
{
    QosTime delay = next_delay(sched);

    return MIN(qos_slots_next_stall(&sched->slots), delay > now ? delay : QOS_NEVER);
}

/* Lets the job's first held request go. */
static QosRequest *serve(QosSched *sched, QosJob *job, QosTime now)
{
    QosRequest *request = job->sched.job_queue.head->data;

    qos_sched_book_share(sched, request, now);
    qos_sched_unqueue(sched, request, now);
    qos_slots_grant(&sched->slots, request);
    if (!may_be_served(sched, job))
        qos_sched_update_job(sched, job, now);
    return request;
}

/* The next of the held requests, if it may go now. *ret_full: afterwards the store has as many
 * requests inside as it is to have. */
static QosRequest *serve_next(QosSched *sched, QosTime now, QosTime *wake, gboolean *ret_full)
{
    refresh_depth(sched, now);
    QosJob *job;
    do
        job = qos_adapt_next(sched->adapt, now, wake);
    while (job != NULL && first_held(sched, job, now) == NULL);
    *ret_full = is_full(sched, job, now);
    if (*ret_full)
        *wake = MIN(*wake, next_look(sched, now));
    if (*ret_full || job == NULL)
        return NULL;
    QosRequest *request = serve(sched, job, now);
    *ret_full = is_full(sched, NULL, now);
    return request;
}

/* As qos_sched_dispatch(), with the adaptive sharing on: all due requests take part, and the next
 * job is served. */
static QosRequest *dispatch_shared(QosSched *sched, QosTime now, QosTime *wake)
{
    QosRequest *request = NULL;
    gboolean is_at_depth = FALSE;

    for (guint i = 0; i < sched->stopping->len; i++)
        drain(sched, sched->stopping->pdata[i], now, wake);
    drain(sched, sched->current, now, wake);
    qos_adapt_tick(sched->adapt, now);
    *wake = MIN(*wake, qos_adapt_next_tick(sched->adapt));
    if (sched->at_limit > 0)
        request = serve_next(sched, now, wake, &is_at_depth);
    qos_adapt_set_waiting(sched->adapt, sched->at_limit > 0, is_at_depth, now);
    return request;
}

/* As qos_sched_dispatch(), without adaptive sharing. */
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

QosRequest *qos_sched_dispatch(QosSched *sched, QosTime now, QosTime *wake)
{
    QosRequest *request;

    *wake = sched->quiet_until;
    if (now < sched->quiet_until)
        return NULL;
    *wake = QOS_NEVER;
    request = qos_sched_is_adaptive(sched) ? dispatch_shared(sched, now, wake)
                                           : pick_due(sched, now, wake);
    if (request == NULL)
        sched->quiet_until = *wake;
    return request;
}

gboolean qos_sched_may_go(QosSched *sched, QosJob *job, QosTime now)
{
    qos_adapt_tick(sched->adapt, now);
    refresh_depth(sched, now);
    return !is_full(sched, job, now) && qos_adapt_may_go(sched->adapt, job, now);
}
