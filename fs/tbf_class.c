/*
 * The classes of the policy `tbf`: which queue a request belongs to, and when queues are made and
 * freed (fs/tbf.c has the definitions).
 *
 * Where a cluster rule matches too, a queue belongs to a class of each layer. Classes are shared: a
 * cluster class with per=rule by the queues of all jobs, for instance.
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

static guint classes_hash(gconstpointer data)
{
    QosTbfClass *const *classes = data;
    guint64 hash = (guint64)(gsize)classes[0] ^ (guint64)(gsize)classes[1] << 20;

    return (guint)(hash * G_GUINT64_CONSTANT(0x9E3779B97F4A7C15) >> 32);
}

static gboolean classes_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(QosTbfClass *[QOS_TBF_LAYERS])) == 0;
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

static QosTbfKey class_key(const QosRule *rule, const QosRequest *request)
{
    QosTbfKey key = {.rule_id = rule->id, .per = rule->per};
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

/* --- classes --- */

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
static gboolean set_bound(QosTbfBound *bound, gboolean is_there, gint64 per_operation, gint64 rate,
                          gint64 depth, QosTime now)
{
    QosBucket *bucket = &bound->bucket;

    bound->per_operation = per_operation;
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

/* The rule of a class was made or changed; what the class has of tokens stays. NULL: the rule is
 * gone, and bounds nothing. */
static void class_set_rule(QosTbfClass *class, const QosRule *rule, QosTime now)
{
    gboolean *const is_bound = class->is_bound;

    if (rule == NULL) {
        is_bound[QOS_UNIT_OPERATIONS] = is_bound[QOS_UNIT_BYTES] = FALSE;
        return;
    }
    class->weight = rule->weight;
    class->minimum = rule->minimum;
    if (class->share != NULL) {
        qos_tbf_share_set_rule(class, rule, now);
        return;
    }
    is_bound[QOS_UNIT_OPERATIONS] =
        set_bound(&class->bounds[QOS_UNIT_OPERATIONS], is_bound[QOS_UNIT_OPERATIONS], 1, rule->rate,
                  operations_depth(rule), now);
    is_bound[QOS_UNIT_BYTES] = set_bound(&class->bounds[QOS_UNIT_BYTES], is_bound[QOS_UNIT_BYTES],
                                         0, rule->bps, bytes_depth(rule), now);
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

static QosTbfClass *class_get(QosTbf *tbf, const QosRule *rule, const QosRequest *request,
                              QosTime now)
{
    QosTbfKey key = class_key(rule, request);
    QosTbfClass *class = g_hash_table_lookup(tbf->classes, &key);
    if (class != NULL)
        return class;

    class = g_new0(QosTbfClass, 1);
    class->key = key;
    class->per = rule->per;
    class->tbf = tbf;
    if (key.job != NULL)
        qos_job_ref(key.job);
    memcpy(class->rule_name, rule->name, sizeof(class->rule_name));
    class->counters = counters_of(tbf, rule->id);
    class->counters->buckets++;
    if (rule->scope == QOS_SCOPE_CLUSTER) {
        class->share = g_new0(QosTbfShare, 1);
        class->share->id = ++tbf->last_share;
        class->share->is_resting = TRUE;
        g_hash_table_insert(tbf->shares, &class->share->id, class);
    }
    class_set_rule(class, rule, now);
    g_hash_table_insert(tbf->classes, &class->key, class);
    return class;
}

static void class_free(QosTbfClass *class)
{
    QosTbf *tbf = class->tbf;

    g_hash_table_remove(tbf->classes, &class->key);
    if (class->share != NULL)
        g_hash_table_remove(tbf->shares, &class->share->id);
    if (class->line != NULL)
        qos_heap_clear(class->line);
    class->counters->buckets--;
    qos_job_unref(class->key.job);
    g_free(class->line);
    g_free(class->share);
    g_free(class);
}

static gboolean class_is_full(const QosTbfClass *class, QosTime now)
{
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        if (class->is_bound[unit] && !qos_bucket_is_full(&class->bounds[unit].bucket, now))
            return FALSE;
    }
    return TRUE;
}

/* --- queues --- */

/* Takes over what its classes have of bounds, weight and minimum. */
static void queue_refresh(QosTbfQueue *queue)
{
    const QosTbfClass *own = queue->classes[QOS_SCOPE_MOUNT];

    queue->bound_count = 0;
    queue->counts_operations = FALSE;
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        QosTbfClass *class = queue->classes[layer];

        for (guint unit = 0; class != NULL && unit < QOS_UNITS; unit++) {
            if (!class->is_bound[unit])
                continue;
            queue->bounds[queue->bound_count++] = &class->bounds[unit];
            queue->counts_operations |= unit == QOS_UNIT_OPERATIONS;
        }
    }
    queue->weight = own != NULL ? own->weight : 0;
    if (queue->weight == 0 && queue->cluster != NULL)
        queue->weight = queue->cluster->weight;
    queue->minimum = own != NULL ? own->minimum : 0;
}

/* The queue of the classes of these rules, of which one may be NULL. */
static QosTbfQueue *queue_get(QosTbf *tbf, const QosRule *const rules[QOS_TBF_LAYERS],
                              const QosRequest *request, QosTime now)
{
    QosTbfClass *classes[QOS_TBF_LAYERS];
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++)
        classes[layer] = rules[layer] ? class_get(tbf, rules[layer], request, now) : NULL;
    QosTbfQueue *queue = g_hash_table_lookup(tbf->queues, classes);
    if (queue != NULL)
        return queue;

    queue = g_new0(QosTbfQueue, 1);
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        queue->classes[layer] = classes[layer];
        if (classes[layer] != NULL)
            classes[layer]->queues++;
    }
    queue->cluster = classes[QOS_SCOPE_CLUSTER];
    queue->latest = classes[QOS_SCOPE_MOUNT];
    queue->counters = queue->latest != NULL ? queue->latest->counters : NULL;
    queue->allowance = QOS_TBF_FREE_MAX;
    queue_refresh(queue);
    g_hash_table_insert(tbf->queues, queue->classes, queue);
    return queue;
}

static void queue_free(QosTbfQueue *queue)
{
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        if (queue->classes[layer] != NULL && --queue->classes[layer]->queues == 0)
            class_free(queue->classes[layer]);
    }
    g_free(queue);
}

/* TRUE where the queue could be made again as it is. A class that other queues have too stays as it
 * is. */
static gboolean queue_is_as_new(const QosTbfQueue *queue, QosTime now)
{
    if (queue->waiting > 0 || queue->running > 0)
        return FALSE;
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        const QosTbfClass *class = queue->classes[layer];

        if (class != NULL && class->queues == 1 && !class_is_full(class, now))
            return FALSE;
    }
    return TRUE;
}

void qos_tbf_classes_set_rules(QosTbf *tbf, QosTime now)
{
    GHashTableIter iter;
    QosTbfClass *class;
    QosTbfQueue *queue;

    g_hash_table_iter_init(&iter, tbf->classes);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&class)) {
        const QosRules *rules =
            class->share != NULL ? tbf->context->cluster_rules : tbf->context->rules;

        class_set_rule(class, rules ? qos_rules_by_id(rules, class->key.rule_id) : NULL, now);
    }
    g_hash_table_iter_init(&iter, tbf->queues);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&queue))
        queue_refresh(queue);
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
        g_hash_table_remove(tbf->queues, queue->classes);
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
    const QosRule *rules[QOS_TBF_LAYERS] = {NULL}, *dryruns[QOS_TBF_LAYERS] = {NULL};
    QosTbfQueue *old_queue = flow->queue;
    QosTbfQueue *old_dryrun = flow->dryrun;

    rules[QOS_SCOPE_MOUNT] =
        qos_rules_match(tbf->context->rules, &subject, &dryruns[QOS_SCOPE_MOUNT]);
    if (tbf->context->cluster_rules != NULL)
        rules[QOS_SCOPE_CLUSTER] =
            qos_rules_match(tbf->context->cluster_rules, &subject, &dryruns[QOS_SCOPE_CLUSTER]);
    if (rules[QOS_SCOPE_CLUSTER] != NULL && rules[QOS_SCOPE_CLUSTER]->condition == NULL)
        rules[QOS_SCOPE_CLUSTER] = NULL; /* `default` bounds nothing */
    flow->queue = queue_get(tbf, rules, request, now);
    flow->queue->flows++;
    flow->dryrun = NULL;
    if (dryruns[QOS_SCOPE_MOUNT] != NULL || dryruns[QOS_SCOPE_CLUSTER] != NULL) {
        flow->dryrun = queue_get(tbf, dryruns, request, now);
        flow->dryrun->flows++;
    }
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
    tbf->classes = g_hash_table_new(key_hash, key_equal);
    tbf->shares = g_hash_table_new(g_int64_hash, g_int64_equal);
    tbf->queues = g_hash_table_new_full(classes_hash, classes_equal, NULL,
                                        (GDestroyNotify)(void (*)(void))queue_free);
    tbf->counters = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
}

void qos_tbf_classes_clear(QosTbf *tbf)
{
    g_hash_table_unref(tbf->flows);
    g_hash_table_unref(tbf->queues);
    g_hash_table_unref(tbf->classes);
    g_hash_table_unref(tbf->shares);
    g_hash_table_unref(tbf->counters);
}

static gboolean has_rule(const QosTbf *tbf, guint64 id)
{
    const QosRules *cluster = tbf->context->cluster_rules;

    return qos_rules_by_id(tbf->context->rules, id) != NULL ||
           (cluster != NULL && qos_rules_by_id(cluster, id) != NULL);
}

void qos_tbf_forget_counters(QosTbf *tbf)
{
    GHashTableIter iter;
    QosRuleState *counters;
    g_hash_table_iter_init(&iter, tbf->counters);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&counters)) {
        if (counters->buckets == 0 && !has_rule(tbf, counters->rule_id))
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
