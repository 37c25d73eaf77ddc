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
 * Each policy in use is a QosLrs. One that is being left is `stopping` until nothing is queued in
 * it and nothing that it let go is still running (settle needs it); then it is freed.
 */
#include "fs/sched.h"

#include <string.h>

typedef struct QosLrs {
    const QosPolicyClass *class;
    void *self;
    guint queued;
    guint running; /* let go, not yet left; held and ready ones included */
} QosLrs;

struct QosSched {
    QosPolicyContext context;
    QosAccount account;
    QosLrs *current;
    GPtrArray *stopping; /* of QosLrs, owned, oldest first */
    GQueue ready;        /* of QosRequest: have a slot, wait to be taken */
    guint slots;
    guint running; /* slots in use */
    guint passing; /* inside without a slot */
    guint held;
    guint64 parked_max; /* bytes of data that requests which wait may keep */
    guint64 parked_bytes;
    guint64 refused;  /* for want of them */
    GQueue held_jobs; /* of QosJob, by its held_link: have held requests, longest first */
};

const QosPolicyClass *const qos_policies[] = {&qos_policy_fifo, &qos_policy_jrr, &qos_policy_tbf,
                                              NULL};

const QosPolicyClass *qos_policy_by_name(const char *name)
{
    for (guint i = 0; qos_policies[i] != NULL; i++) {
        if (strcmp(qos_policies[i]->name, name) == 0)
            return qos_policies[i];
    }
    return NULL;
}

static QosLrs *lrs_new(QosSched *sched, const QosPolicyClass *class, QosTime now)
{
    QosLrs *lrs = g_new0(QosLrs, 1);
    lrs->class = class;
    lrs->self = class->init(&sched->context, now);
    return lrs;
}

static void lrs_free(QosLrs *lrs)
{
    lrs->class->fini(lrs->self);
    g_free(lrs);
}

QosSched *qos_sched_new(const QosPolicyClass *policy, guint slots, const char *host,
                        QosTime job_cleanup_interval, QosTime now)
{
    QosSched *sched = g_new0(QosSched, 1);
    sched->context.rules = qos_rules_new();
    sched->context.host = g_strdup(host);
    sched->context.max_wait = QOS_NEVER;
    qos_account_init(&sched->account, job_cleanup_interval);
    sched->stopping = g_ptr_array_new();
    sched->slots = MAX(slots, 1);
    sched->parked_max = G_MAXUINT64;
    sched->current = lrs_new(sched, policy, now);
    return sched;
}

void qos_sched_free(QosSched *sched)
{
    if (sched == NULL)
        return;
    lrs_free(sched->current);
    for (guint i = 0; i < sched->stopping->len; i++)
        lrs_free(sched->stopping->pdata[i]);
    g_ptr_array_unref(sched->stopping);
    qos_account_clear(&sched->account);
    qos_rules_unref(sched->context.rules);
    g_free(sched->context.host);
    g_free(sched);
}

/* --- slots --- */

/* What one job may have of `all`: an eighth, at least one, is left to the others. */
static guint64 share_of(guint64 all)
{
    return all - MAX(all / 8, 1);
}

static guint job_share(const QosSched *sched)
{
    return sched->slots == 1 ? 1 : (guint)share_of(sched->slots);
}

static void grant_slot(QosSched *sched, QosRequest *request, QosTime now)
{
    request->has_slot = TRUE;
    request->start = now;
    sched->running++;
    request->job->running++;
}

static void give_slot_back(QosSched *sched, QosRequest *request)
{
    if (request->is_passing) {
        sched->passing--;
        request->job->passing--;
    }
    if (request->has_slot) {
        sched->running--;
        request->job->running--;
    }
    request->is_passing = request->has_slot = FALSE;
}

static gboolean may_pass_by(const QosSched *sched, const QosJob *job)
{
    return job->passing < QOS_PASSING_MAX && sched->passing < QOS_PASSING_ALL;
}

static gboolean has_free_slot(const QosSched *sched, const QosJob *job)
{
    return sched->running < sched->slots && job->running < job_share(sched);
}

/* Lets a request into the store that does not wait for tokens: with a slot if one is free, else
 * beside them. FALSE where those beside are too many already. */
static gboolean squeeze_in(QosSched *sched, QosRequest *request, QosTime now)
{
    QosJob *job = request->job;

    if (has_free_slot(sched, job)) {
        grant_slot(sched, request, now);
        return TRUE;
    }
    if (!may_pass_by(sched, job))
        return FALSE;
    request->is_passing = TRUE;
    sched->passing++;
    job->passing++;
    return TRUE;
}

static void hold(QosSched *sched, QosRequest *request)
{
    QosJob *job = request->job;
    if (job->held.length == 0) {
        job->held_link = (GList){.data = job};
        g_queue_push_tail_link(&sched->held_jobs, &job->held_link);
    }
    request->state = QOS_REQUEST_HELD;
    g_queue_push_tail_link(&job->held, &request->link);
    sched->held++;
}

static void unhold(QosSched *sched, QosRequest *request)
{
    QosJob *job = request->job;
    g_queue_unlink(&job->held, &request->link);
    sched->held--;
    if (job->held.length == 0)
        g_queue_unlink(&sched->held_jobs, &job->held_link);
}

/* Frees a policy that is being left and has nothing more to do. */
static void retire(QosSched *sched, QosLrs *lrs)
{
    if (lrs != sched->current && lrs->queued == 0 && lrs->running == 0) {
        g_ptr_array_remove(sched->stopping, lrs);
        lrs_free(lrs);
    }
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
        if (request->job->running < job_share(sched)) {
            grant_slot(sched, request, now);
            return request;
        }
        hold(sched, request);
    }
    return NULL;
}

/* The first held request whose job may have a slot again; it has one then. A job is at its share
 * while others find a slot free, so that few jobs are looked at. */
static QosRequest *pick_held(QosSched *sched, QosTime now)
{
    for (GList *link = sched->held_jobs.head; link != NULL; link = link->next) {
        QosJob *job = link->data;
        if (job->running < job_share(sched)) {
            QosRequest *request = job->held.head->data;
            unhold(sched, request);
            grant_slot(sched, request, now);
            return request;
        }
    }
    return NULL;
}

static QosRequest *pick(QosSched *sched, QosTime now, QosTime *wake)
{
    QosRequest *request;

    *wake = QOS_NEVER;
    if (sched->running >= sched->slots)
        return NULL;
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

static void push_ready(QosSched *sched, QosRequest *request)
{
    request->state = QOS_REQUEST_READY;
    g_queue_push_tail_link(&sched->ready, &request->link);
}

/* --- data that waits --- */

static gboolean has_room(const QosSched *sched, const QosRequest *request, guint64 bound)
{
    return sched->parked_bytes + request->data <= bound &&
           request->job->parked_bytes + request->data <= share_of(bound);
}

QosKeep qos_sched_keep(QosSched *sched, QosRequest *request)
{
    if (!has_room(sched, request, sched->parked_max / 2)) {
        if (may_pass_by(sched, request->job)) {
            sched->passing++;
            request->job->passing++;
            return QOS_KEEP_IN_STORE;
        }
        if (!has_room(sched, request, sched->parked_max)) {
            request->job->refused++;
            sched->refused++;
            return QOS_KEEP_NOWHERE;
        }
    }
    request->is_kept = TRUE;
    sched->parked_bytes += request->data;
    request->job->parked_bytes += request->data;
    return QOS_KEEP_IN_MEMORY;
}

void qos_sched_kept(QosSched *sched, QosRequest *request)
{
    sched->passing--;
    request->job->passing--;
}

static void drop_data(QosSched *sched, QosRequest *request)
{
    if (!request->is_kept)
        return;
    request->is_kept = FALSE;
    sched->parked_bytes -= request->data;
    request->job->parked_bytes -= request->data;
}

/* --- a request's way --- */

static void prepare(QosSched *sched, QosRequest *request, QosTime now)
{
    request->arrival = request->start = now;
    request->link = (GList){.data = request};
    request->queue = NULL;
    request->lrs = sched->current;
    request->has_slot = request->is_passing = request->owes = request->prepays = FALSE;
    request->job->seen = now;
}

/* Lets a request go that nothing stands before and that need not wait: what nearly all are. */
static gboolean try_now(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = sched->current;

    if (sched->ready.length > 0 || sched->held > 0 || sched->stopping->len > 0 ||
        lrs->class->try_now == NULL || !has_free_slot(sched, request->job) ||
        !lrs->class->try_now(lrs->self, request, now))
        return FALSE;
    lrs->running++;
    request->state = QOS_REQUEST_RUNNING;
    grant_slot(sched, request, now);
    return TRUE;
}

static void name_wait_for_slots(QosRequest *request)
{
    request->wait_rule_id = 0;
    g_strlcpy(request->wait_rule_name, QOS_WAIT_SLOTS, sizeof(request->wait_rule_name));
}

static void begin_wait(QosRequest *request, QosTime now)
{
    request->job->waiting++;
    request->job->filling += request->fills_cache ? 1 : 0;
    qos_job_waits(request->job, request->wait_rule_id, request->wait_rule_name, now);
}

/* A request that is charged, and waits for no token: it goes, or is held where its job has as much
 * in the store as it may. */
static QosVerdict admit(QosSched *sched, QosRequest *request, QosTime now)
{
    request->lrs->running++;
    if (squeeze_in(sched, request, now)) {
        request->state = QOS_REQUEST_RUNNING;
        return QOS_GO;
    }
    name_wait_for_slots(request);
    hold(sched, request);
    begin_wait(request, now);
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
    *ret_wake = QOS_NEVER;
    if (charge_lock(sched, request, now))
        return admit(sched, request, now);
    if (!request->holds_lock && try_now(sched, request, now))
        return QOS_GO;
    if (request->fills_cache && request->job->filling >= QOS_FILLING_MAX)
        return qos_sched_charge(sched, request, now);
    request->state = QOS_REQUEST_QUEUED;
    name_wait_for_slots(request);
    lrs->queued++;
    lrs->class->incoming(lrs->self, request, now);

    QosRequest *next;
    while ((next = pick(sched, now, ret_wake)) != NULL) {
        if (next == request) {
            request->state = QOS_REQUEST_RUNNING;
            return QOS_GO;
        }
        push_ready(sched, next);
    }
    if (sched->ready.length > 0)
        *ret_wake = now;
    begin_wait(request, now);
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

    if (request->state == QOS_REQUEST_QUEUED) {
        lrs->class->cancel(lrs->self, request, now);
        lrs->queued--;
        lrs->running++;
        if (lrs->class->charge != NULL)
            lrs->class->charge(lrs->self, request, QOS_NEVER, now);
        hold(sched, request);
    }
    if (request->state == QOS_REQUEST_HELD && squeeze_in(sched, request, now)) {
        unhold(sched, request);
        push_ready(sched, request);
    }
}

static void book_wait(QosRequest *request, QosTime now)
{
    request->job->waiting--;
    request->job->filling -= request->fills_cache ? 1 : 0;
    qos_job_waited(request->job, request->wait_rule_id, request->wait_rule_name,
                   now - request->arrival, now);
}

QosRequest *qos_sched_next(QosSched *sched, QosTime now, QosTime *ret_wake)
{
    QosRequest *request;
    GList *link = g_queue_pop_head_link(&sched->ready);

    *ret_wake = now;
    request = link != NULL ? link->data : pick(sched, now, ret_wake);
    if (request == NULL)
        return NULL;
    request->state = QOS_REQUEST_RUNNING;
    request->start = now;
    book_wait(request, now);
    return request;
}

void qos_sched_leave(QosSched *sched, QosRequest *request, guint64 bytes, int error, QosTime now)
{
    QosLrs *lrs = request->lrs;
    request->state = QOS_REQUEST_DONE;
    drop_data(sched, request);
    give_slot_back(sched, request);
    if (lrs->class->settle != NULL)
        lrs->class->settle(lrs->self, request, bytes, now);
    lrs->running--;
    retire(sched, lrs);
    qos_job_served(request->job, request->opcode, now - request->start, bytes, error, now);
}

void qos_sched_cancel(QosSched *sched, QosRequest *request, QosTime now)
{
    QosLrs *lrs = request->lrs;

    if (request->state == QOS_REQUEST_QUEUED) {
        lrs->class->cancel(lrs->self, request, now);
        lrs->queued--;
    } else {
        if (request->state == QOS_REQUEST_HELD) {
            unhold(sched, request);
        } else {
            g_queue_unlink(&sched->ready, &request->link);
            give_slot_back(sched, request);
        }
        if (lrs->class->settle != NULL)
            lrs->class->settle(lrs->self, request, 0, now);
        lrs->running--;
    }
    request->state = QOS_REQUEST_DONE;
    drop_data(sched, request);
    book_wait(request, now);
    retire(sched, lrs);
}

/* --- control --- */

void qos_sched_expire(QosSched *sched, QosTime now)
{
    if (sched->current->class->expire != NULL)
        sched->current->class->expire(sched->current->self, now);
    qos_account_expire(&sched->account, now);
}

QosAccount *qos_sched_account(QosSched *sched)
{
    return &sched->account;
}

/* A policy that is being left and is of that class, taken off the list; or NULL. */
static QosLrs *take_stopping(QosSched *sched, const QosPolicyClass *policy)
{
    for (guint i = 0; i < sched->stopping->len; i++) {
        QosLrs *lrs = sched->stopping->pdata[i];
        if (lrs->class == policy)
            return g_ptr_array_steal_index(sched->stopping, i);
    }
    return NULL;
}

void qos_sched_set_policy(QosSched *sched, const QosPolicyClass *policy, QosTime now)
{
    QosLrs *old = sched->current;
    if (old->class == policy)
        return;

    sched->current = take_stopping(sched, policy);
    if (sched->current == NULL)
        sched->current = lrs_new(sched, policy, now);
    old->class->shutdown(old->self);
    g_ptr_array_add(sched->stopping, old);
    retire(sched, old);
}

static void tell_rules_changed(QosLrs *lrs, QosTime now)
{
    if (lrs->class->rules_changed != NULL)
        lrs->class->rules_changed(lrs->self, now);
}

void qos_sched_set_rules(QosSched *sched, QosRules *rules, QosTime now)
{
    QosRules *old = sched->context.rules;
    sched->context.rules = qos_rules_ref(rules);
    tell_rules_changed(sched->current, now);
    for (guint i = 0; i < sched->stopping->len; i++)
        tell_rules_changed(sched->stopping->pdata[i], now);
    qos_rules_unref(old);
}

QosRules *qos_sched_rules(const QosSched *sched)
{
    return sched->context.rules;
}

gboolean qos_sched_passes_through(const QosSched *sched, const QosRequest *request,
                                  QosOpcodeSet opcodes)
{
    const QosRuleSubject subject = {.job = request->job->id,
                                    .host = sched->context.host,
                                    .uid = request->uid,
                                    .gid = request->gid};

    return sched->current->class->rules_changed != NULL &&
           qos_rules_pass_through(sched->context.rules, &subject, opcodes);
}

void qos_sched_set_slots(QosSched *sched, guint slots)
{
    sched->slots = MAX(slots, 1);
}

void qos_sched_set_parked_max(QosSched *sched, guint64 bytes)
{
    sched->parked_max = bytes;
}

void qos_sched_set_max_wait(QosSched *sched, QosTime max_wait)
{
    sched->context.max_wait = max_wait;
}

void qos_sched_state(const QosSched *sched, QosSchedState *ret_state)
{
    *ret_state = (QosSchedState){.slots = sched->slots,
                                 .running = sched->running,
                                 .passing = sched->passing,
                                 .held = sched->held,
                                 .parked_bytes = sched->parked_bytes,
                                 .parked_max = sched->parked_max,
                                 .refused = sched->refused};
    for (guint i = 0; i < sched->stopping->len; i++)
        ret_state->draining += ((const QosLrs *)sched->stopping->pdata[i])->queued;
}

QosPolicyState qos_sched_policy_state(const QosSched *sched, const QosPolicyClass *policy,
                                      guint *ret_queued)
{
    *ret_queued = 0;
    for (guint i = 0; i < sched->stopping->len; i++) {
        const QosLrs *lrs = sched->stopping->pdata[i];
        if (lrs->class == policy) {
            *ret_queued = lrs->queued;
            return QOS_POLICY_STOPPING;
        }
    }
    if (sched->current->class != policy)
        return QOS_POLICY_STOPPED;
    *ret_queued = sched->current->queued;
    return QOS_POLICY_STARTED;
}

static gboolean lrs_rule_state(const QosLrs *lrs, guint64 rule_id, QosRuleState *ret_state)
{
    return lrs->class->rule_state != NULL && lrs->class->rule_state(lrs->self, rule_id, ret_state);
}

gboolean qos_sched_rule_state(const QosSched *sched, guint64 rule_id, QosRuleState *ret_state)
{
    *ret_state = (QosRuleState){.rule_id = rule_id};
    if (lrs_rule_state(sched->current, rule_id, ret_state))
        return TRUE;
    for (guint i = 0; i < sched->stopping->len; i++) {
        if (lrs_rule_state(sched->stopping->pdata[i], rule_id, ret_state))
            return TRUE;
    }
    return FALSE;
}
