/*
 * The policy `tbf`: token buckets per class, served in order of deadlines (seed 000, section 2).
 *
 * Definitions. A flow is what requests have in common as far as the rules can see: job, uid, gid,
 * opcode, less the fields that no rule looks at. A flow is matched against the rules once for each
 * list of rules, and remembers its queue: so a request costs one hash look-up, however many rules
 * and jobs there are. A queue is a class: one rule, and one value of what the rule is `per`; it has
 * the buckets and, while requests wait, stands in a heap by its deadline:
 *
 *     deadline = max(arrival of its first request, when each of its buckets has a token)
 *                and at most that arrival + max_wait
 *
 * A class without a bucket has the arrival as its deadline, so that a store with all slots taken is
 * shared in order of deadlines too; saved tokens count (lustre-tbf.md, defect 2).
 *
 * Rules change by a new list. Flows are matched again when they are next used. What is queued is
 * put aside in `rematching`, and each get_next gives up to REMATCH_BATCH of it to the queues where
 * it belongs now, with the old arrival (defect 3: a change of rank reaches what is there). Queues
 * outlive a change of their rule, by the rule's id, and keep their tokens.
 *
 * A flow idle for IDLE_TIME goes, and a queue once no flow refers to it and its buckets are full:
 * it would be made again as it is. So idle jobs cost nothing, and a debt is not forgotten.
 *
 * What it cannot do: give away what a class leaves unused (fs/adapt.c does).
 * To watch it: .qosfs/rules, and the wait lines of each job (fs/account.h).
 */
#include "fs/sched.h"

#include <string.h>

#include "base/heap.h"
#include "fs/bucket.h"

#define IDLE_TIME           (10 * QOS_SECOND) /* longer than the pauses of a job that computes and writes */
#define USED_STEP           QOS_SECOND /* of thousands of flows, neighbours in Tbf.idle are cache misses */
#define REMATCH_BATCH       64         /* keeps one call under some 100 us with 1,000 rules */
#define MINIMUM_DEPTH_OPS   3          /* Lustre's tbf_depth */
#define MINIMUM_DEPTH_BYTES 4096

typedef struct Queue Queue;

/* What decides a class or a flow; unused fields are zero. */
typedef struct {
    guint64 rule_id; /* 0 in a flow */
    QosJob *job;
    guint32 uid;
    guint32 gid;
    guint32 opcode; /* plus one */
    guint32 padding;
} Key;

typedef struct {
    Key key;            /* holds a reference to the job */
    guint64 generation; /* of the rules that `queue` and `dryrun` were matched by */
    Queue *queue;       /* counted in its `flows` */
    Queue *dryrun;      /* or NULL; likewise */
    QosTime used;       /* last, to USED_STEP */
    GList link;         /* in Tbf.idle */
} Flow;

struct Queue {
    Key key; /* holds a reference to the job */
    char rule_name[QOS_RULE_NAME_MAX + 1];
    gboolean has_operations;
    gboolean has_bytes;
    QosBucket operations;
    QosBucket bytes;
    gint64 weight;          /* for fs/adapt.h; 0 = not given */
    gint64 minimum;         /* likewise, op/s */
    QosRuleState *counters; /* owned by Tbf.counters */
    GQueue requests;        /* of QosRequest, by its link */
    QosHeapNode heap;
    guint flows;   /* bound to it */
    guint running; /* let go, to be settled */
};

typedef struct {
    const QosPolicyContext *context;
    guint64 generation;         /* of the rules */
    guint fields;               /* that the rules look at */
    GHashTable *flows;          /* Key -> Flow */
    Flow *recent[QOS_OP_COUNT]; /* the last one used, or NULL: mostly the next one too */
    GQueue idle;                /* of Flow, by `used` */
    GHashTable *queues;         /* Key -> Queue */
    GHashTable *counters;       /* rule id -> QosRuleState */
    QosHeap heap;               /* of Queue, non-empty, by deadline */
    GQueue rematching;    /* of QosRequest: queued when the rules changed; their queue is NULL */
    gboolean has_orphans; /* some queue has no flow, but is not as new */
} Tbf;

/* --- keys --- */

static guint key_hash(gconstpointer data)
{
    const Key *key = data;
    guint64 hash = (guint64)(gsize)key->job ^ key->rule_id << 32;
    hash = (hash ^ key->uid) * G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 29 ^ key->gid ^ (guint64)key->opcode << 32) *
           G_GUINT64_CONSTANT(0xBF58476D1CE4E5B9);
    return (guint)(hash >> 32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, sizeof(Key)) == 0;
}

static Key flow_key(const Tbf *tbf, const QosRequest *request)
{
    return (Key){
        .job = tbf->fields & QOS_FIELD_JOBID ? request->job : NULL,
        .uid = tbf->fields & QOS_FIELD_UID ? request->uid : 0,
        .gid = tbf->fields & QOS_FIELD_GID ? request->gid : 0,
        .opcode = tbf->fields & QOS_FIELD_OPCODE ? (guint32)request->opcode + 1 : 0,
    };
}

static Key queue_key(const QosRule *rule, const QosRequest *request)
{
    Key key = {.rule_id = rule->id};
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

/* Gives a bucket the rule's rate; one that was there keeps its tokens. */
static void set_bucket(QosBucket *bucket, gboolean *has, gint64 rate, gint64 depth, QosTime now)
{
    if (rate == 0)
        *has = FALSE;
    else if (*has)
        qos_bucket_change(bucket, rate, depth, now);
    else
        qos_bucket_init(bucket, rate, depth, now);
    *has = rate != 0;
}

static void queue_set_rule(Queue *queue, const QosRule *rule, QosTime now)
{
    set_bucket(&queue->operations, &queue->has_operations, rule->rate, operations_depth(rule), now);
    set_bucket(&queue->bytes, &queue->has_bytes, rule->bps, bytes_depth(rule), now);
    queue->weight = rule->weight;
    queue->minimum = rule->minimum;
}

static QosRuleState *counters_of(Tbf *tbf, guint64 rule_id)
{
    QosRuleState *counters = g_hash_table_lookup(tbf->counters, &rule_id);
    if (counters == NULL) {
        counters = g_new0(QosRuleState, 1);
        counters->rule_id = rule_id;
        g_hash_table_insert(tbf->counters, &counters->rule_id, counters);
    }
    return counters;
}

static Queue *queue_get(Tbf *tbf, const QosRule *rule, const QosRequest *request, QosTime now)
{
    Key key = queue_key(rule, request);
    Queue *queue = g_hash_table_lookup(tbf->queues, &key);
    if (queue != NULL)
        return queue;

    queue = g_new0(Queue, 1);
    queue->key = key;
    if (key.job != NULL)
        qos_job_ref(key.job);
    memcpy(queue->rule_name, rule->name, sizeof(queue->rule_name));
    queue->counters = counters_of(tbf, rule->id);
    queue->counters->buckets++;
    queue_set_rule(queue, rule, now);
    g_hash_table_insert(tbf->queues, &queue->key, queue);
    return queue;
}

static void queue_free(Queue *queue)
{
    queue->counters->buckets--;
    qos_job_unref(queue->key.job);
    g_free(queue);
}

/* TRUE where the queue could be made again as it is. */
static gboolean queue_is_as_new(const Queue *queue, QosTime now)
{
    return queue->requests.length == 0 && queue->running == 0 &&
           (!queue->has_operations || qos_bucket_is_full(&queue->operations, now)) &&
           (!queue->has_bytes || qos_bucket_is_full(&queue->bytes, now));
}

/* When both buckets have a token, `now` at the earliest. */
static QosTime tokens_due(Queue *queue, QosTime now)
{
    QosTime due = now;
    if (queue->has_operations) {
        qos_bucket_fill(&queue->operations, now);
        due = qos_bucket_due(&queue->operations, now);
    }
    if (queue->has_bytes) {
        qos_bucket_fill(&queue->bytes, now);
        due = MAX(due, qos_bucket_due(&queue->bytes, now));
    }
    return due;
}

static void take_tokens(Queue *queue, gint64 operations, gint64 bytes, QosTime now)
{
    if (queue->has_operations)
        qos_bucket_take(&queue->operations, operations, now);
    if (queue->has_bytes)
        qos_bucket_take(&queue->bytes, bytes, now);
}

/* Puts the queue where it belongs in the heap. */
static void reschedule(Tbf *tbf, Queue *queue, QosTime now)
{
    if (queue->requests.length == 0) {
        qos_heap_remove(&tbf->heap, &queue->heap);
        return;
    }
    const QosRequest *first = queue->requests.head->data;
    QosTime due = tokens_due(queue, now);
    QosTime deadline = due <= now ? first->arrival : due;
    deadline = MIN(deadline, qos_time_add(first->arrival, tbf->context->max_wait));
    if (qos_heap_contains(&queue->heap))
        qos_heap_update(&tbf->heap, &queue->heap, deadline);
    else
        qos_heap_push(&tbf->heap, &queue->heap, deadline);
}

/* --- flows --- */

static void unbind(Tbf *tbf, Queue *queue, QosTime now)
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

static void bind(Tbf *tbf, Flow *flow, const QosRequest *request, QosTime now)
{
    const QosRuleSubject subject = {.job = request->job->id,
                                    .host = tbf->context->host,
                                    .uid = request->uid,
                                    .gid = request->gid,
                                    .opcode = request->opcode};
    const QosRule *dryrun = NULL;
    const QosRule *rule = qos_rules_match(tbf->context->rules, &subject, &dryrun);
    Queue *old_queue = flow->queue;
    Queue *old_dryrun = flow->dryrun;

    flow->queue = queue_get(tbf, rule, request, now);
    flow->queue->flows++;
    flow->dryrun = dryrun != NULL ? queue_get(tbf, dryrun, request, now) : NULL;
    if (flow->dryrun != NULL)
        flow->dryrun->flows++;
    flow->generation = tbf->generation;
    unbind(tbf, old_queue, now);
    unbind(tbf, old_dryrun, now);
}

/* The flow of a request, matched by the rules in force. */
static Flow *flow_get(Tbf *tbf, const QosRequest *request, QosTime now)
{
    Key key = flow_key(tbf, request);
    Flow *flow = tbf->recent[request->opcode];
    if (flow == NULL || !key_equal(&flow->key, &key))
        flow = g_hash_table_lookup(tbf->flows, &key);
    if (flow == NULL) {
        flow = g_new0(Flow, 1);
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
    tbf->recent[request->opcode] = flow;
    if (flow->queue == NULL || flow->generation != tbf->generation)
        bind(tbf, flow, request, now);
    return flow;
}

static void flow_free(Flow *flow)
{
    qos_job_unref(flow->key.job);
    g_free(flow);
}

/* A dry run polices: what conforms takes tokens, what would wait is counted. */
static void try_dryrun(Queue *queue, const QosRequest *request, QosTime now)
{
    if (queue == NULL)
        return;
    queue->counters->requests++;
    queue->counters->bytes += request->bytes;
    if (tokens_due(queue, now) <= now) {
        take_tokens(queue, 1, (gint64)request->bytes, now);
    } else {
        queue->counters->dryrun_waits++;
        queue->counters->dryrun_bytes += request->bytes;
    }
}

/* --- the policy --- */

static void *tbf_init(const QosPolicyContext *context, QosTime now G_GNUC_UNUSED)
{
    Tbf *tbf = g_new0(Tbf, 1);
    tbf->context = context;
    tbf->generation = 1;
    tbf->fields = qos_rules_fields(context->rules);
    tbf->flows =
        g_hash_table_new_full(key_hash, key_equal, NULL, (GDestroyNotify)(void (*)(void))flow_free);
    tbf->queues = g_hash_table_new_full(key_hash, key_equal, NULL,
                                        (GDestroyNotify)(void (*)(void))queue_free);
    tbf->counters = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    qos_heap_init(&tbf->heap);
    return tbf;
}

static void tbf_shutdown(void *self G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED)
{
}

static void tbf_fini(void *self)
{
    Tbf *tbf = self;
    g_hash_table_unref(tbf->flows);
    g_hash_table_unref(tbf->queues);
    g_hash_table_unref(tbf->counters);
    qos_heap_clear(&tbf->heap);
    g_free(tbf);
}

static void enqueue(Tbf *tbf, Queue *queue, QosRequest *request, QosTime now)
{
    request->queue = queue;
    g_queue_push_tail_link(&queue->requests, &request->link);
    queue->counters->waiting++;
    if (queue->requests.length == 1)
        reschedule(tbf, queue, now);
    gboolean is_limited = queue->has_operations || queue->has_bytes;
    if (queue->heap.key > now || (is_limited && queue->requests.length > 1)) {
        request->wait_rule_id = queue->key.rule_id;
        memcpy(request->wait_rule_name, queue->rule_name, sizeof(request->wait_rule_name));
    }
}

/* Where a request waits: in its own class; a toll in the class that it is to pay for. */
static Queue *waiting_queue(Tbf *tbf, QosRequest *request, QosTime now)
{
    Queue *own = flow_get(tbf, request, now)->queue;
    if (!request->is_toll)
        return own;

    QosRequest owed = *request;
    owed.opcode = request->toll_opcode;
    Queue *queue = flow_get(tbf, &owed, now)->queue;
    request->prepays = queue != own;
    return queue;
}

/* Books a request that goes. */
static void let_go(Queue *queue, QosRequest *request, gint64 operations, QosTime now)
{
    request->queue = queue;
    request->weight = queue->weight;
    request->minimum = queue->minimum;
    take_tokens(queue, operations, (gint64)request->bytes, now);
    queue->running++;
    queue->counters->requests++;
    queue->counters->bytes += request->bytes;
}

static gboolean tbf_try_now(void *self, QosRequest *request, QosTime now)
{
    Tbf *tbf = self;
    const QosHeapNode *root = qos_heap_peek(&tbf->heap);

    if (request->is_toll || tbf->rematching.length > 0 || (root != NULL && root->key <= now))
        return FALSE;
    const Flow *flow = flow_get(tbf, request, now);
    if (flow->queue->requests.length > 0 || tokens_due(flow->queue, now) > now)
        return FALSE;
    try_dryrun(flow->dryrun, request, now);
    let_go(flow->queue, request, 1, now);
    return TRUE;
}

static void tbf_incoming(void *self, QosRequest *request, QosTime now)
{
    Tbf *tbf = self;
    try_dryrun(flow_get(tbf, request, now)->dryrun, request, now);
    enqueue(tbf, waiting_queue(tbf, request, now), request, now);
}

static void dequeue(Tbf *tbf, Queue *queue, QosRequest *request)
{
    g_queue_unlink(&queue->requests, &request->link);
    queue->counters->waiting--;
    if (queue->requests.length == 0)
        qos_heap_remove(&tbf->heap, &queue->heap);
}

/* Gives what was queued when the rules changed to the queues where it belongs now. */
static void rematch(Tbf *tbf, QosTime now)
{
    for (guint i = 0; i < REMATCH_BATCH && tbf->rematching.length > 0; i++) {
        QosRequest *request = g_queue_pop_head_link(&tbf->rematching)->data;
        enqueue(tbf, waiting_queue(tbf, request, now), request, now);
    }
}

static QosTime tbf_get_next(void *self, QosTime now, QosReadyFunc ready, void *arg)
{
    Tbf *tbf = self;

    if (tbf->rematching.length > 0)
        rematch(tbf, now);
    QosHeapNode *root = qos_heap_peek(&tbf->heap);
    if (root == NULL || root->key > now) {
        if (tbf->rematching.length > 0)
            return now;
        return root != NULL ? root->key : QOS_NEVER;
    }

    Queue *queue = (Queue *)((char *)root - G_STRUCT_OFFSET(Queue, heap));
    QosRequest *request = queue->requests.head->data;
    dequeue(tbf, queue, request);
    let_go(queue, request, 1, now);
    if (now > request->arrival && request->wait_rule_id != 0) {
        queue->counters->waits++;
        queue->counters->waited += now - request->arrival;
    }
    reschedule(tbf, queue, now);
    ready(request, arg);
    return now;
}

/* Its tokens are filled up to `now`. */
static gboolean owes_too_much(const Queue *queue, QosTime max_debt, QosTime now)
{
    return (queue->has_operations && qos_bucket_due(&queue->operations, now) - now > max_debt) ||
           (queue->has_bytes && queue->bytes.tokens <= -QOS_DEBT_BYTES &&
            qos_bucket_due(&queue->bytes, now) - now > max_debt);
}

static gboolean tbf_charge(void *self, QosRequest *request, QosTime max_debt, QosTime now)
{
    Tbf *tbf = self;
    Queue *queue = flow_get(tbf, request, now)->queue;
    QosTime owed = request->is_prepaid ? 0 : tokens_due(queue, now) - now;

    if (owed > max_debt && owes_too_much(queue, max_debt, now))
        return FALSE;
    request->owes = owed > 0;
    let_go(queue, request, request->is_prepaid ? 0 : 1, now);
    reschedule(tbf, queue, now);
    return TRUE;
}

static void tbf_settle(void *self, QosRequest *request, guint64 bytes, QosTime now)
{
    Tbf *tbf = self;
    Queue *queue = request->queue;
    request->queue = NULL;
    queue->running--;
    if (bytes == request->bytes)
        return;
    queue->counters->bytes += bytes - request->bytes;
    if (queue->has_bytes) {
        qos_bucket_take(&queue->bytes, (gint64)bytes - (gint64)request->bytes, now);
        reschedule(tbf, queue, now);
    }
}

static void tbf_cancel(void *self, QosRequest *request, QosTime now)
{
    Tbf *tbf = self;
    Queue *queue = request->queue;
    if (queue == NULL) {
        g_queue_unlink(&tbf->rematching, &request->link);
        return;
    }
    dequeue(tbf, queue, request);
    request->queue = NULL;
    reschedule(tbf, queue, now);
}

static void put_aside(Tbf *tbf, Queue *queue)
{
    while (queue->requests.length > 0) {
        QosRequest *request = queue->requests.head->data;
        dequeue(tbf, queue, request);
        request->queue = NULL;
        g_queue_push_tail_link(&tbf->rematching, &request->link);
    }
}

static void forget_unused_counters(Tbf *tbf)
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

/* Queues whose rule is still there take its new rates at once; all that waits is matched again. */
static void tbf_rules_changed(void *self, QosTime now)
{
    Tbf *tbf = self;
    GHashTableIter iter;
    Queue *queue;

    tbf->generation++;
    tbf->fields = qos_rules_fields(tbf->context->rules);
    g_hash_table_iter_init(&iter, tbf->queues);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&queue)) {
        const QosRule *rule = qos_rules_by_id(tbf->context->rules, queue->key.rule_id);
        if (rule != NULL)
            queue_set_rule(queue, rule, now);
        put_aside(tbf, queue);
    }
    forget_unused_counters(tbf);
}

/* Frees the queues without a flow that have become as new. */
static void expire_orphans(Tbf *tbf, QosTime now)
{
    GHashTableIter iter;
    Queue *queue;

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
    forget_unused_counters(tbf);
}

static void tbf_expire(void *self, QosTime now)
{
    Tbf *tbf = self;

    while (tbf->idle.length > 0) {
        Flow *flow = tbf->idle.head->data;
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

static gboolean tbf_rule_state(void *self, guint64 rule_id, QosRuleState *ret_state)
{
    const Tbf *tbf = self;
    const QosRuleState *counters = g_hash_table_lookup(tbf->counters, &rule_id);
    if (counters != NULL)
        *ret_state = *counters;
    return counters != NULL;
}

const QosPolicyClass qos_policy_tbf = {
    .name = "tbf",
    .init = tbf_init,
    .shutdown = tbf_shutdown,
    .fini = tbf_fini,
    .try_now = tbf_try_now,
    .incoming = tbf_incoming,
    .get_next = tbf_get_next,
    .charge = tbf_charge,
    .cancel = tbf_cancel,
    .settle = tbf_settle,
    .rules_changed = tbf_rules_changed,
    .expire = tbf_expire,
    .rule_state = tbf_rule_state,
};
