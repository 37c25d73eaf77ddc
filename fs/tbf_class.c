/*
 * The classes of the policy `tbf`: which queue a request belongs to, and when queues are made and
 * freed (fs/tbf.c has the definitions).
 */
#include <string.h>

#include "fs/tbf_private.h"

#define IDLE_TIME           (10 * QOS_SECOND) /* longer than a job's pauses between writes */
#define USED_STEP           QOS_SECOND /* of QosTbfFlow.used; moving in `idle` costs cache misses */
#define MINIMUM_DEPTH_OPS   3          /* Lustre's tbf_depth */
#define MINIMUM_DEPTH_BYTES 4096

/* --- keys --- */

static guint key_hash(gconstpointer data)
{
    const QosTbfKey *key = data;
    guint64 hash = (guint64)(gsize)key->job ^ key->rule_id << 32;
    hash = (hash ^ key->uid) * G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 29 ^ key->gid ^ (guint64)key->opcode << 32) *
           G_GUINT64_CONSTANT(0xBF58476D1CE4E5B9);
    return (guint)(hash >> 32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(QosTbfKey)) == 0;
}

static QosTbfKey flow_key(const QosTbf *tbf, const QosRequest *request)
{
    return (QosTbfKey){
        .job = tbf->fields & QOS_FIELD_JOBID ? request->job : NULL,
        .uid = tbf->fields & QOS_FIELD_UID ? request->uid : 0,
        .gid = tbf->fields & QOS_FIELD_GID ? request->gid : 0,
        .opcode = tbf->fields & QOS_FIELD_OPCODE ? (guint32)request->opcode + 1 : 0,
    };
}

static QosTbfKey queue_key(const QosRule *rule, const QosRequest *request)
{
    QosTbfKey key = {.rule_id = rule->id};
    switch (rule->per) {
    case QOS_PER_JOBID_OPCODE:
        key.opcode = (guint32)request->opcode + 1;
        key.job = request->job;
        break;
    case QOS_PER_JOBID:
        key.job = request->job;
        break;
    case QOS_PER_UID:
        key.uid = request->uid;
        break;
    case QOS_PER_GID:
        key.gid = request->gid;
        break;
    case QOS_PER_RULE:
        break;
    }
    return key;
}

/* --- queues --- */

static gint64 operations_depth(const QosRule *rule)
{
    return rule->depth_ops > 0 ? rule->depth_ops
                               : qos_bucket_default_depth(rule->rate, MINIMUM_DEPTH_OPS);
}

static gint64 bytes_depth(const QosRule *rule)
{
    return rule->depth_bytes > 0 ? rule->depth_bytes
                                 : qos_bucket_default_depth(rule->bps, MINIMUM_DEPTH_BYTES);
}

/* Gives a bucket the rule's rate; a bucket that was there keeps its tokens. If the rate changes,
 * the debt is cut to what a class may owe at the new rate, because a low rate would need days to
 * pay a debt that was made at a high one. */
static gboolean set_bucket(QosBucket *bucket, gboolean is_there, gint64 rate, gint64 depth,
                           QosTime now)
{
    if (rate != 0 && is_there) {
        const gboolean is_other_rate = rate != bucket->rate;

        qos_bucket_change(bucket, rate, depth, now);
        if (is_other_rate)
            bucket->tokens = MAX(bucket->tokens, -rate * (QOS_DEBT_MAX / QOS_SECOND));
    } else if (rate != 0) {
        qos_bucket_init(bucket, rate, depth, now);
    }
    return rate != 0;
}

void qos_tbf_queue_set_rule(QosTbfQueue *queue, const QosRule *rule, QosTime now)
{
    queue->has_operations = set_bucket(&queue->operations, queue->has_operations, rule->rate,
                                       operations_depth(rule), now);
    queue->has_bytes =
        set_bucket(&queue->bytes, queue->has_bytes, rule->bps, bytes_depth(rule), now);
    queue->weight = rule->weight;
    queue->minimum = rule->minimum;
}

static QosRuleState *counters_of(QosTbf *tbf, guint64 rule_id)
{
    QosRuleState *counters = g_hash_table_lookup(tbf->counters, &rule_id);
    if (counters == NULL) {
        counters = g_new0(QosRuleState, 1);
        counters->rule_id = rule_id;
        g_hash_table_insert(tbf->counters, &counters->rule_id, counters);
    }
    return counters;
}

static QosTbfQueue *queue_get(QosTbf *tbf, const QosRule *rule, const QosRequest *request,
                              QosTime now)
{
    QosTbfKey key = queue_key(rule, request);
    QosTbfQueue *queue = g_hash_table_lookup(tbf->queues, &key);
    if (queue != NULL)
        return queue;

    queue = g_new0(QosTbfQueue, 1);
    queue->key = key;
    if (key.job != NULL)
        qos_job_ref(key.job);
    memcpy(queue->rule_name, rule->name, sizeof(queue->rule_name));
    queue->counters = counters_of(tbf, rule->id);
    queue->counters->buckets++;
    queue->allowance = QOS_TBF_FREE_MAX;
    qos_tbf_queue_set_rule(queue, rule, now);
    g_hash_table_insert(tbf->queues, &queue->key, queue);
    return queue;
}

static void queue_free(QosTbfQueue *queue)
{
    queue->counters->buckets--;
    qos_job_unref(queue->key.job);
    g_free(queue);
}

/* TRUE where the queue could be made again as it is. */
static gboolean queue_is_as_new(const QosTbfQueue *queue, QosTime now)
{
    return queue->waiting == 0 && queue->running == 0 &&
           (!queue->has_operations || qos_bucket_is_full(&queue->operations, now)) &&
           (!queue->has_bytes || qos_bucket_is_full(&queue->bytes, now));
}

/* --- flows --- */

static void unbind(QosTbf *tbf, QosTbfQueue *queue, QosTime now)
{
    if (queue == NULL)
        return;
    queue->flows--;
    if (queue->flows > 0)
        return;
    if (queue_is_as_new(queue, now))
        g_hash_table_remove(tbf->queues, &queue->key);
    else
        tbf->has_orphans = TRUE;
}

static void bind(QosTbf *tbf, QosTbfFlow *flow, const QosRequest *request, QosTime now)
{
    const QosRuleSubject subject = {.job = request->job->id,
                                    .host = tbf->context->host,
                                    .uid = request->uid,
                                    .gid = request->gid,
                                    .opcode = request->opcode};
    const QosRule *dryrun = NULL;
    const QosRule *rule = qos_rules_match(tbf->context->rules, &subject, &dryrun);
    QosTbfQueue *old_queue = flow->queue;
    QosTbfQueue *old_dryrun = flow->dryrun;

    flow->queue = queue_get(tbf, rule, request, now);
    flow->queue->flows++;
    flow->dryrun = dryrun != NULL ? queue_get(tbf, dryrun, request, now) : NULL;
    if (flow->dryrun != NULL)
        flow->dryrun->flows++;
    flow->generation = tbf->generation;
    unbind(tbf, old_queue, now);
    unbind(tbf, old_dryrun, now);
}

/* Where the flow that was used last is kept, because it is mostly the next one too. It is kept with
 * the job if no rule uses the opcode, else for each opcode. */
static QosTbfFlow **recent_flow(QosTbf *tbf, const QosTbfKey *key, QosOpcode opcode)
{
    if (key->job != NULL && key->opcode == 0)
        return &key->job->tbf.flow;
    return &tbf->recent[opcode];
}

QosTbfFlow *qos_tbf_flow(QosTbf *tbf, const QosRequest *request, QosTime now)
{
    QosTbfKey key = flow_key(tbf, request);
    QosTbfFlow **recent = recent_flow(tbf, &key, request->opcode);
    QosTbfFlow *flow = *recent;
    if (flow == NULL || !key_equal(&flow->key, &key))
        flow = g_hash_table_lookup(tbf->flows, &key);
    if (flow == NULL) {
        flow = g_new0(QosTbfFlow, 1);
        flow->key = key;
        if (key.job != NULL)
            qos_job_ref(key.job);
        flow->link.data = flow;
        g_hash_table_insert(tbf->flows, &flow->key, flow);
        g_queue_push_tail_link(&tbf->idle, &flow->link);
        flow->used = now;
    } else if (now - flow->used >= USED_STEP) {
        g_queue_unlink(&tbf->idle, &flow->link);
        g_queue_push_tail_link(&tbf->idle, &flow->link);
        flow->used = now;
    }
    *recent = flow;
    if (flow->queue == NULL || flow->generation != tbf->generation)
        bind(tbf, flow, request, now);
    return flow;
}

static void flow_free(QosTbfFlow *flow)
{
    if (flow->key.job != NULL && flow->key.job->tbf.flow == flow)
        flow->key.job->tbf.flow = NULL;
    qos_job_unref(flow->key.job);
    g_free(flow);
}

/* --- all of them --- */

void qos_tbf_classes_init(QosTbf *tbf)
{
    tbf->flows =
        g_hash_table_new_full(key_hash, key_equal, NULL, (GDestroyNotify)(void (*)(void))flow_free);
    tbf->queues = g_hash_table_new_full(key_hash, key_equal, NULL,
                                        (GDestroyNotify)(void (*)(void))queue_free);
    tbf->counters = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
}

void qos_tbf_classes_clear(QosTbf *tbf)
{
    g_hash_table_unref(tbf->flows);
    g_hash_table_unref(tbf->queues);
    g_hash_table_unref(tbf->counters);
}

void qos_tbf_forget_counters(QosTbf *tbf)
{
    GHashTableIter iter;
    QosRuleState *counters;
    g_hash_table_iter_init(&iter, tbf->counters);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&counters)) {
        if (counters->buckets == 0 &&
            qos_rules_by_id(tbf->context->rules, counters->rule_id) == NULL)
            g_hash_table_iter_remove(&iter);
    }
}

/* Frees the queues without a flow that have become as new. */
static void expire_orphans(QosTbf *tbf, QosTime now)
{
    GHashTableIter iter;
    QosTbfQueue *queue;

    tbf->has_orphans = FALSE;
    g_hash_table_iter_init(&iter, tbf->queues);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&queue)) {
        if (queue->flows > 0)
            continue;
        if (queue_is_as_new(queue, now))
            g_hash_table_iter_remove(&iter);
        else
            tbf->has_orphans = TRUE;
    }
    qos_tbf_forget_counters(tbf);
}

void qos_tbf_expire(void *self, QosTime now)
{
    QosTbf *tbf = self;

    while (tbf->idle.length > 0) {
        QosTbfFlow *flow = tbf->idle.head->data;
        if (now - flow->used < IDLE_TIME)
            break;
        g_queue_unlink(&tbf->idle, &flow->link);
        unbind(tbf, flow->queue, now);
        unbind(tbf, flow->dryrun, now);
        for (guint opcode = 0; opcode < QOS_OP_COUNT; opcode++) {
            if (tbf->recent[opcode] == flow)
                tbf->recent[opcode] = NULL;
        }
        g_hash_table_remove(tbf->flows, &flow->key);
    }
    if (tbf->has_orphans)
        expire_orphans(tbf, now);
}
