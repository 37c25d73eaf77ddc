/*
 * The settings and the state of the scheduler: policies, rules, bounds, reports. fs/sched.h has the
 * contract; a request's way is in sched.c.
 */
#include <stddef.h>
#include <string.h>

#include "fs/sched_state.h"

static QosLrs *lrs_new(QosSched *sched, const QosPolicyClass *class, QosTime now)
{
    QosLrs *lrs = g_new0(QosLrs, 1);
    lrs->class = class;
    lrs->self = class->init(&sched->context, now);
    return lrs;
}

QosSched *qos_sched_new(const QosPolicyClass *policy, guint slots, const char *host,
                        QosTime job_cleanup_interval, QosTime now)
{
    QosSched *sched = g_new0(QosSched, 1);
    sched->context.rules = qos_rules_new();
    sched->context.host = g_strdup(host);
    sched->context.max_wait = QOS_NEVER;
    qos_jobs_init(&sched->jobs, job_cleanup_interval);
    sched->stopping = g_ptr_array_new();
    sched->slots.count = MAX(slots, 1);
    sched->slots.stall_time = QOS_STALL_TIME;
    sched->parked_max = G_MAXUINT64;
    sched->background_max = G_MAXUINT;
    sched->current = lrs_new(sched, policy, now);
    sched->adapt = qos_adapt_new(sched->slots.count, now);
    sched->depth = sched->slots.count;
    return sched;
}

void qos_sched_free(QosSched *sched)
{
    if (sched == NULL)
        return;
    qos_sched_free_lrs(sched->current);
    for (guint i = 0; i < sched->stopping->len; i++)
        qos_sched_free_lrs(sched->stopping->pdata[i]);
    g_ptr_array_unref(sched->stopping);
    qos_adapt_free(sched->adapt);
    qos_jobs_clear(&sched->jobs);
    qos_rules_unref(sched->context.rules);
    qos_rules_unref(sched->context.cluster_rules);
    g_free(sched->context.host);
    g_free(sched);
}

void qos_sched_expire(QosSched *sched, QosTime now)
{
    if (sched->current->class->expire != NULL)
        sched->current->class->expire(sched->current->self, now);
    qos_jobs_expire(&sched->jobs, now);
}

QosJobs *qos_sched_jobs(QosSched *sched)
{
    return &sched->jobs;
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

    sched->quiet_until = 0;
    sched->current = take_stopping(sched, policy);
    if (sched->current == NULL)
        sched->current = lrs_new(sched, policy, now);
    old->class->shutdown(old->self, now);
    g_ptr_array_add(sched->stopping, old);
    qos_sched_retire(sched, old);
}

static void tell_rules_changed(QosLrs *lrs, QosTime now)
{
    if (lrs->class->rules_changed != NULL)
        lrs->class->rules_changed(lrs->self, now);
}

static void tell_all_rules_changed(QosSched *sched, QosTime now)
{
    sched->quiet_until = 0;
    tell_rules_changed(sched->current, now);
    for (guint i = 0; i < sched->stopping->len; i++)
        tell_rules_changed(sched->stopping->pdata[i], now);
}

void qos_sched_set_rules(QosSched *sched, QosRules *rules, QosTime now)
{
    QosRules *old = sched->context.rules;
    sched->context.rules = qos_rules_ref(rules);
    tell_all_rules_changed(sched, now);
    qos_rules_unref(old);
}

void qos_sched_set_cluster_rules(QosSched *sched, QosRules *rules, double floor_part, QosTime now)
{
    QosRules *old = sched->context.cluster_rules;
    sched->context.cluster_rules = rules != NULL ? qos_rules_ref(rules) : NULL;
    sched->context.floor_part = floor_part;
    tell_all_rules_changed(sched, now);
    qos_rules_unref(old);
}

QosRules *qos_sched_cluster_rules(const QosSched *sched)
{
    return sched->context.cluster_rules;
}

void qos_sched_each_budget(QosSched *sched, QosBudgetFunc func, void *arg)
{
    const QosLrs *lrs = sched->current;

    if (lrs->class->each_budget != NULL)
        lrs->class->each_budget(lrs->self, func, arg);
    for (guint i = 0; i < sched->stopping->len; i++) {
        lrs = sched->stopping->pdata[i];
        if (lrs->class->each_budget != NULL)
            lrs->class->each_budget(lrs->self, func, arg);
    }
}

static void lrs_rest_budget(const QosLrs *lrs, guint64 id)
{
    if (lrs->class->rest_budget != NULL)
        lrs->class->rest_budget(lrs->self, id);
}

/* One policy alone has classes, so an id says which is meant. */
void qos_sched_rest_budget(QosSched *sched, guint64 id)
{
    lrs_rest_budget(sched->current, id);
    for (guint i = 0; i < sched->stopping->len; i++)
        lrs_rest_budget(sched->stopping->pdata[i], id);
}

void qos_sched_set_budget_waker(QosSched *sched, void (*func)(void *arg), void *arg)
{
    sched->context.budget_woken = func;
    sched->context.budget_arg = arg;
}

static gboolean lrs_set_budget(const QosLrs *lrs, guint64 id, QosUnit unit, guint64 rate,
                               QosTime now)
{
    return lrs->class->set_budget != NULL && lrs->class->set_budget(lrs->self, id, unit, rate, now);
}

gboolean qos_sched_set_budget(QosSched *sched, guint64 id, QosUnit unit, guint64 rate, QosTime now)
{
    gboolean is_there = lrs_set_budget(sched->current, id, unit, rate, now);

    sched->quiet_until = 0;
    for (guint i = 0; !is_there && i < sched->stopping->len; i++)
        is_there = lrs_set_budget(sched->stopping->pdata[i], id, unit, rate, now);
    return is_there;
}

static void tell_epochs_changed(const QosLrs *lrs, QosTime now)
{
    if (lrs->class->epochs_changed != NULL)
        lrs->class->epochs_changed(lrs->self, now);
}

void qos_sched_set_epochs(QosSched *sched, QosEpochHandler *handler, GArray *actions,
                          void (*waker)(void *arg), void *waker_arg, QosTime now)
{
    sched->context.epochs = handler;
    sched->context.epoch_actions = actions;
    sched->context.epoch_waker = waker;
    sched->context.epoch_waker_arg = waker_arg;
    tell_epochs_changed(sched->current, now);
    for (guint i = 0; i < sched->stopping->len; i++)
        tell_epochs_changed(sched->stopping->pdata[i], now);
    sched->quiet_until = 0;
}

/* One policy alone asks for epochs. */
void qos_sched_start_epoch(QosSched *sched, gint64 epoch, const void *data, gsize length,
                           QosTime now)
{
    const QosLrs *lrs = sched->current;

    for (guint i = 0; lrs->class->start_epoch == NULL && i < sched->stopping->len; i++)
        lrs = sched->stopping->pdata[i];
    if (lrs->class->start_epoch == NULL)
        return;
    lrs->class->start_epoch(lrs->self, epoch, data, length, now);
    sched->quiet_until = 0;
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

/* Moves requests that are held with users back to their jobs, as far as the users may have
 * slots. */
static void requeue_all(QosSched *sched, QosTime now)
{
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, sched->jobs.users);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        QosUser *user = value;
        for (guint left = user->user_queue.length; left > 0; left--)
            qos_sched_requeue(sched, user, now);
    }
}

void qos_sched_set_slots(QosSched *sched, guint slots, QosTime now)
{
    sched->slots.count = MAX(slots, 1);
    qos_adapt_set_slots(sched->adapt, sched->slots.count, now);
    requeue_all(sched, now);
    qos_sched_update_ready(sched, now);
}

void qos_sched_set_parked_max(QosSched *sched, guint64 bytes)
{
    sched->parked_max = bytes;
}

void qos_sched_set_background_room(QosSched *sched, guint requests)
{
    sched->background_max = (guint)qos_slots_share_of(requests);
}

void qos_sched_set_request_memory(QosSched *sched, guint64 bytes)
{
    sched->request_memory = bytes;
}

void qos_sched_set_max_wait(QosSched *sched, QosTime max_wait)
{
    sched->quiet_until = 0;
    sched->context.max_wait = max_wait;
}

void qos_sched_set_adapt(QosSched *sched, const QosAdaptConfig *config, QosTime now)
{
    gboolean begins_anew = config->mode != qos_adapt_config(sched->adapt)->mode;

    qos_adapt_configure(sched->adapt, config, now);
    sched->slots.stall_time = QOS_STALL_TIME;
    qos_sched_update_ready(sched, now);
    if (begins_anew && qos_sched_is_adaptive(sched))
        qos_sched_share_queued(sched, now);
}

guint qos_sched_clear_jobs(QosSched *sched, const char *id, QosTime now)
{
    GHashTableIter iter;
    gpointer job_id, job;

    g_hash_table_iter_init(&iter, sched->jobs.by_id);
    while (g_hash_table_iter_next(&iter, &job_id, &job)) {
        if (id == NULL || strcmp(job_id, id) == 0)
            qos_adapt_clear_totals(sched->adapt, job);
    }
    return qos_jobs_reset(&sched->jobs, id, now);
}

void qos_sched_restore_share(QosSched *sched, QosJob *job, gint64 record,
                             const QosShareTotals *totals, QosTime now)
{
    sched->quiet_until = 0;
    qos_adapt_restore(sched->adapt, job, record, totals, now);
}

const QosAdapt *qos_sched_adapt(const QosSched *sched)
{
    return sched->adapt;
}

void qos_sched_state(const QosSched *sched, QosSchedState *ret_state)
{
    *ret_state = (QosSchedState){
        .slots = sched->slots.count,
        .running = sched->slots.running,
        .stalled = sched->slots.stalled.length,
        .oldest = sched->slots.stalled.length > 0 ? 0 : qos_slots_oldest(&sched->slots),
        .over_limit = sched->slots.over_limit,
        .at_limit = sched->at_limit,
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

/* --- copies for the reports --- */

void qos_sched_adapt_state(const QosSched *sched, QosSchedAdapt *ret_adapt)
{
    const QosAdapt *adapt = sched->adapt;

    *ret_adapt = (QosSchedAdapt){
        .config = *qos_adapt_config(adapt),
        .capacity = qos_adapt_capacity(adapt),
        .reserved = qos_adapt_reserved(adapt),
        .depth = MIN(sched->slots.count, qos_adapt_depth(adapt)),
        .members = qos_adapt_count(adapt),
    };
}

GPtrArray *qos_sched_changed_shares(const QosSched *sched, QosShareChanges *seen,
                                    gboolean *ret_is_all)
{
    const QosShareChanges changes = qos_adapt_changes(sched->adapt);
    const gboolean have_members_changed = changes.members != seen->members;

    *ret_is_all = changes.others != seen->others;
    *seen = changes;
    if (*ret_is_all)
        return qos_jobs_list(&sched->jobs);
    return have_members_changed ? qos_adapt_list(sched->adapt) : NULL;
}

gboolean qos_sched_share_state(const QosSched *sched, const QosJob *job, QosSchedShare *ret_share)
{
    const QosShareTotals *totals = &ret_share->state.totals;

    ret_share->takes_part = qos_adapt_share_state(sched->adapt, job, &ret_share->state);
    ret_share->period = qos_adapt_config(sched->adapt)->period;
    g_strlcpy(ret_share->job, job->id, sizeof(ret_share->job));
    g_strlcpy(ret_share->partner, ret_share->state.partner ? ret_share->state.partner->id : "",
              sizeof(ret_share->partner));
    ret_share->state.partner = NULL;
    return ret_share->takes_part || totals->lent || totals->returned || totals->borrowed ||
           totals->repaid;
}

gboolean qos_sched_copy_job(const QosSched *sched, const QosJob *job, QosJob *ret_copy,
                            QosSchedShare *ret_share, QosTime now)
{
    /* The atomic ones, which change without the caller's lock, come before it. */
    const gsize start = offsetof(QosJob, nodes);

    ret_copy->references = 0;
    ret_copy->files.count = (guint)g_atomic_int_get(&job->files.count);
    ret_copy->files.refused = (guint)g_atomic_int_get(&job->files.refused);
    memcpy((char *)ret_copy + start, (const char *)job + start, sizeof(*job) - start);
    qos_job_rates(job, now, &ret_copy->operation_rate, &ret_copy->byte_rate);
    const gboolean has_share = qos_sched_share_state(sched, job, ret_share);
    ret_copy->share.totals = ret_share->state.totals;
    return has_share;
}
