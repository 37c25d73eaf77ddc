/*
 * The policy `tbf`: token buckets per class, served in order of deadlines (seed 000, section 2).
 *
 * Definitions. A flow is what requests have in common as far as the rules can see: job, uid, gid,
 * opcode, less the fields that no rule uses. A flow is matched against the rules once for each list
 * of rules and remembers its queue; a job remembers its last flow. So a request costs at most one
 * hash look-up, however many rules and jobs there are. A class is one rule, and one value of what
 * the rule is `per`; it has the buckets. Its queue stands in a heap by its deadline while requests
 * wait:
 *
 *     deadline = max(arrival of its first request, when each of its buckets has a token)
 *                and at most the arrival of its oldest + max_wait
 *
 * A class without a bucket has the arrival as its deadline. So deadlines also give the order in
 * which requests get slots if all slots are taken; saved tokens count (docs/reference/rules.md,
 * "Unlike Lustre").
 *
 * Lock holders. A lock holder goes into debt, and waits only if its class owes QOS_DEBT_MAX
 * already. Then it is due as soon as the class owes no more than that, before all requests that
 * hold nothing. So the jobs that want the lock get on at the rule's rate. Write-back has a line of
 * its own, because there may be thousands of such requests, and no thread waits for them. It takes
 * turns with the lock holders that came later.
 *
 * If no other job is known to want the lock of a request, the request waits for its tokens like one
 * without a lock. But an unknown job may want the lock, because it used a name that the kernel had
 * cached. So requests with such a lock and requests without share the rule's time evenly, however
 * many wait (`lead`). While lock holders wait at the bound on debt, all requests with a lock wait
 * there, in order of arrival.
 *
 * Payers. Lock holders may keep a class in debt, so that it has hardly a token for its other
 * requests. These "payers" are requests that hold nothing, and requests with a lock that no job is
 * known to want. Payers are passed over while lock holders have more than PASSED_PART times as much
 * of the rule's time. (A program that makes some names for each name that it looks up passes over
 * no request: its look-ups pay.) If that has lasted for QOS_DEBT_MAX, all payers that wait take
 * turns with the lock holders and the write-back that came later, and share the rule's time evenly
 * with these. A payer then goes although the class is in debt: at the debt that the class had when
 * this began, and with it to no more than QOS_DEBT_MAX (`level`). So no request with a contended
 * lock waits for a later one. A lock holder that comes meanwhile waits behind the payers that were
 * passed over. Each payer lowers that level by a quarter of what it takes (PAID_PART). So the class
 * comes out of debt, and its lock holders need not wait any more.
 *
 * Pay points (fs/isolate/pay_point.h). A request at a pay point is there to pay the debt. If it is
 * the first payer, the others wait until the debt is paid. Then the payers behind it go, because
 * otherwise each of them would wait until the debt has grown anew. But requests at pay points get
 * no more than AT_POINTS_MAX of the rule's time in one go. They hold nothing, and other jobs wait
 * for those that have a lock: in a shared directory for the lock of each thread, one after another.
 *
 * Free requests. What the kernel asks for by itself is free. But a program can make it ask, by
 * calls that then fail. So a class has an allowance of free requests, QOS_TBF_FREE_SHARE for each
 * request that is charged. Beyond it a free request is charged, and goes into debt like a lock
 * holder.
 *
 * Layers. Where a rule of the cluster matches too (fs/rule.h), a queue has buckets of both rules'
 * classes, and a request takes its tokens of all of them in one step. A class may then be shared by
 * several queues: fs/tbf_line.c lets these take turns.
 *
 * Changes of rules. Rules change by a new list, and a flow is matched again when it is next used.
 * Queued requests are put aside in `rematching`. Each get_next gives up to REMATCH_BATCH of them to
 * the queues where they belong now, with the old arrival, so a change of rank reaches them too.
 * Queues outlive a change of their rule, by the rule's id, and keep their tokens.
 *
 * A flow that is idle for IDLE_TIME is freed. A queue is freed when no flow refers to it and its
 * buckets are full, because it would be made again in the same state, except for the allowance. So
 * idle jobs cost nothing, and a debt is not forgotten.
 *
 * fs/tbf_class.c has the flows, the classes and the queues; this file decides which request goes
 * when.
 *
 * Limit: it cannot give away what a class leaves unused (fs/adapt.c does). To watch it:
 * .qosfs/rules, and the wait lines of each job (fs/jobs.h).
 */
#include <string.h>

#include "fs/tbf_private.h"

#define REMATCH_BATCH 64 /* keeps one call under some 100 us with 1,000 rules */
#define PASSED_PART   16
#define PAID_PART     4
/* The most of the rule's time that requests at pay points get in one go; lock holders may have
 * QOS_DEBT_MAX. */
#define AT_POINTS_MAX (QOS_DEBT_MAX / 8)

/* --- tokens and deadlines --- */

/* What the request takes of the bucket. */
static gint64 cost_of(const QosTbfBound *bound, const QosRequest *request)
{
    if (bound->per_operation == 0)
        return (gint64)request->bytes;
    return request->is_free ? 0 : bound->per_operation;
}

/* When all buckets have a token, `now` at the earliest. */
static QosTime tokens_due(QosTbfQueue *queue, QosTime now)
{
    QosTime due = now;

    for (guint i = 0; i < queue->bound_count; i++) {
        QosBucket *bucket = &queue->bounds[i]->bucket;

        qos_bucket_fill(bucket, now);
        if (bucket->tokens < 1)
            due = MAX(due, qos_bucket_due(bucket, now));
    }
    return due;
}

/* When the bucket lacks no more than `max_debt` of what the request takes; `now` at the earliest. A
 * lock holder that moves no bytes does not wait because of them: it makes that debt no larger. */
static QosTime bound_due(QosTbfBound *bound, const QosRequest *request, QosTime max_debt,
                         QosTime now)
{
    qos_bucket_fill(&bound->bucket, now);
    if (cost_of(bound, request) == 0 && (bound->per_operation > 0 || max_debt > 0))
        return now;
    return MAX(now, qos_bucket_due(&bound->bucket, now) - max_debt);
}

/* When the class owes no more than `max_debt` of what the request takes. */
static QosTime debt_due(QosTbfQueue *queue, const QosRequest *request, QosTime max_debt,
                        QosTime now)
{
    QosTime due = now;

    for (guint i = 0; i < queue->bound_count; i++)
        due = MAX(due, bound_due(queue->bounds[i], request, max_debt, now));
    return due;
}

/* The same of one of its classes. */
static QosTime class_due(QosTbfClass *class, const QosRequest *request, QosTime max_debt,
                         QosTime now)
{
    QosTime due = now;

    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        if (class->is_bound[unit])
            due = MAX(due, bound_due(&class->bounds[unit], request, max_debt, now));
    }
    return due;
}

/* TRUE where the request takes tokens from one of the class's buckets. */
static gboolean takes(const QosTbfQueue *queue, const QosRequest *request)
{
    for (guint i = 0; i < queue->bound_count; i++) {
        if (cost_of(queue->bounds[i], request) != 0)
            return TRUE;
    }
    return FALSE;
}

/* How long the rules take to bring what the request takes, QOS_DEBT_MAX at most. Of several bounds
 * the longest time counts. */
static QosTime rule_time(const QosTbfQueue *queue, const QosRequest *request)
{
    double seconds = 0;

    for (guint i = 0; i < queue->bound_count; i++) {
        const gint64 cost = cost_of(queue->bounds[i], request);

        if (cost != 0)
            seconds = MAX(seconds, (double)cost / (double)queue->bounds[i]->bucket.rate);
    }
    return (QosTime)MIN(seconds * (double)QOS_SECOND, (double)QOS_DEBT_MAX);
}

/* Where a request of the class waits. Without a bound all wait for a slot, in order of arrival. */
static GQueue *line_of(QosTbfQueue *queue, const QosRequest *request)
{
    const gboolean is_bound = queue->bound_count > 0;

    if (request->writes_back)
        return &queue->write_backs;
    return qos_request_owes_first(request) || (request->lock != 0 && is_bound)
               ? &queue->lock_holders
               : &queue->requests;
}

/* TRUE for a lock holder that goes into debt. */
static gboolean is_contended(QosTbfQueue *queue, const QosRequest *request)
{
    return qos_request_owes_first(request) && line_of(queue, request) == &queue->lock_holders;
}

/* TRUE where some wait until the class owes no more than QOS_DEBT_MAX. */
static gboolean has_debtors(const QosTbfQueue *queue)
{
    return queue->contended > 0 || queue->write_backs.length > 0;
}

/* How many payers wait for a token: requests that hold nothing, and requests with a lock that no
 * job is known to want. */
static guint payers(const QosTbfQueue *queue)
{
    return queue->requests.length + queue->lock_holders.length - queue->contended;
}

/* TRUE for a payer. */
static gboolean is_payer(QosTbfQueue *queue, const QosRequest *request)
{
    return !request->writes_back && !is_contended(queue, request);
}

/* A request goes and has left its line. The kind that has had less of the rule's time is next.
 * While no request of a kind waits, that kind saves up no more than one turn. */
static void note_turn(QosTbfQueue *queue, const QosRequest *request)
{
    const QosTime taken = MAX(rule_time(queue, request), 1);
    const guint holders = queue->lock_holders.length + queue->write_backs.length;

    if (line_of(queue, request) == &queue->requests)
        queue->lead = MIN(queue->lead + taken, holders > 0 ? QOS_DEBT_MAX : taken);
    else
        queue->lead = queue->requests.length > 0 ? MAX(queue->lead - taken, -QOS_DEBT_MAX) : 0;
}

/* When payers have been passed over for as long as they may be; QOS_NEVER if they are not passed
 * over, or take turns already. */
static QosTime passed_over(const QosTbfQueue *queue)
{
    return queue->is_paying || queue->passed == 0 ? QOS_NEVER : queue->first_since + QOS_DEBT_MAX;
}

/* If payers have been passed over for that long, they take turns with all others from now on. */
static void refresh_paying(QosTbfQueue *queue, QosTime now)
{
    if (passed_over(queue) > now)
        return;
    queue->is_paying = TRUE;
    queue->lead = 0;
    queue->level = MIN(tokens_due(queue, now) - now, QOS_DEBT_MAX);
    queue->to_pay = payers(queue);
    queue->at_points = 0;
}

/* Payers are no longer passed over. */
static void end_passing(QosTbfQueue *queue, QosTime now)
{
    queue->is_paying = FALSE;
    queue->passed = 0;
    queue->first_since = now;
}

/* TRUE where `request` came before `other`. */
static gboolean is_older(const QosRequest *request, const QosRequest *other)
{
    return request->arrival < other->arrival;
}

/* The one that has waited longest, or NULL. */
static QosRequest *oldest_of(const QosTbfQueue *queue)
{
    const GQueue *const lines[] = {&queue->lock_holders, &queue->write_backs, &queue->requests};
    QosRequest *oldest = NULL;

    for (guint i = 0; i < G_N_ELEMENTS(lines); i++) {
        QosRequest *first = g_queue_peek_head((GQueue *)lines[i]);

        if (first != NULL && (oldest == NULL || is_older(first, oldest)))
            oldest = first;
    }
    return oldest;
}

/* When the oldest request of the class will have waited for max_wait; QOS_NEVER if there is no such
 * bound. */
static QosTime overdue(const QosTbf *tbf, const QosTbfQueue *queue)
{
    const QosTime max_wait = tbf->context->max_wait;

    return max_wait == QOS_NEVER ? QOS_NEVER : qos_time_add(oldest_of(queue)->arrival, max_wait);
}

/* The first of the requests with a lock and of write-back, or NULL. They take turns, but write-back
 * that came later than the first request with a lock waits. */
static QosRequest *first_holder(QosTbfQueue *queue)
{
    QosRequest *holder = g_queue_peek_head(&queue->lock_holders);
    QosRequest *write_back = g_queue_peek_head(&queue->write_backs);

    if (holder == NULL || write_back == NULL)
        return holder != NULL ? holder : write_back;
    return queue->is_turn_of_write_backs && !is_older(holder, write_back) ? write_back : holder;
}

/* The next to go of a class in which some wait. */
static QosRequest *first_of(const QosTbf *tbf, QosTbfQueue *queue, QosTime now)
{
    QosRequest *holder = first_holder(queue), *payer = g_queue_peek_head(&queue->requests);

    if (overdue(tbf, queue) <= now)
        return oldest_of(queue);
    if (holder == NULL || payer == NULL)
        return holder != NULL ? holder : payer;
    if (has_debtors(queue) && !(queue->is_paying && !is_older(holder, payer)))
        return holder;
    return queue->lead <= 0 ? payer : holder;
}

/* The most that the class may owe when the request goes. */
static QosTime debt_for(QosTbfQueue *queue, const QosRequest *request)
{
    if (qos_request_owes_first(request))
        return QOS_DEBT_MAX;
    if (line_of(queue, request) == &queue->lock_holders && has_debtors(queue))
        return QOS_DEBT_MAX;
    if (!queue->is_paying || request->is_at_pay_point)
        return 0;
    return MIN(queue->level, QOS_DEBT_MAX - rule_time(queue, request));
}

/* Notes for which rule the request waits. */
static void name_wait(const QosTbfQueue *queue, QosRequest *request)
{
    request->wait_rule_id = queue->latest->key.rule_id;
    memcpy(request->wait_rule_name, queue->latest->rule_name, sizeof(request->wait_rule_name));
}

/* The class that keeps the queue's first request waiting longest, and is to let its queues take
 * turns; or NULL. Notes the latest one too. */
static QosTbfClass *find_line(QosTbfQueue *queue, const QosRequest *first, QosTime max_debt,
                              QosTime now)
{
    QosTime latest = now;
    QosTbfClass *line = queue->line != NULL ? queue->line : queue->cluster;

    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        QosTbfClass *class = queue->classes[layer];
        const QosTime due = class != NULL ? class_due(class, first, max_debt, now) : now;

        if (due > latest) {
            latest = due;
            line = queue->latest = class;
        }
    }
    if (line == NULL || (line->share == NULL && line->queues == 1))
        return NULL;
    if (latest == now) /* it has tokens: the queue waits for its turn there, if for anything */
        queue->latest = line;
    return line;
}

/* Lets the queue take turns with the others of its classes. TRUE where it is its turn. */
static gboolean take_turn(QosTbf *tbf, QosTbfQueue *queue, const QosRequest *first, QosTime now)
{
    const QosTime max_debt = debt_for(queue, first);
    QosTbfClass *line = find_line(queue, first, max_debt, now);
    const QosTime since = MAX(first->arrival, queue->served);

    if (line == NULL)
        qos_tbf_line_leave(tbf, queue, now);
    else
        qos_tbf_line_join(tbf, queue, line, max_debt > 0 ? since - QOS_DEBT_MAX : since, now);
    return line == NULL || line->first == queue;
}

/* Puts the queue where it belongs in the heap. TRUE where it is due. */
static gboolean reschedule(QosTbf *tbf, QosTbfQueue *queue, QosTime now)
{
    if (queue->waiting == 0) {
        qos_tbf_line_leave(tbf, queue, now);
        qos_heap_remove(&tbf->heap, &queue->heap);
        return FALSE;
    }
    const gboolean is_contended = has_debtors(queue);
    if (is_contended)
        refresh_paying(queue, now);
    QosRequest *first = first_of(tbf, queue, now);
    QosTime due = debt_due(queue, first, debt_for(queue, first), now);
    QosTime deadline = overdue(tbf, queue);
    const gboolean is_turn =
        (queue->cluster == NULL && queue->latest->queues == 1) || take_turn(tbf, queue, first, now);
    if (is_contended && (due > now || !is_turn))
        deadline = MIN(deadline, passed_over(queue));
    queue->limit = deadline;
    if (is_turn)
        deadline = MIN(deadline, due > now ? due : first->arrival);
    qos_tbf_set_deadline(tbf, queue, deadline);
    if (deadline > now && queue->cluster != NULL)
        name_wait(queue, first);
    return deadline <= now;
}

/* A dry run polices: what conforms takes tokens, what would wait is counted. */
static void police(QosTbfClass *class, const QosRequest *request, QosTime now)
{
    const QosRequest charged = {.bytes = request->bytes};

    class->counters->requests++;
    class->counters->bytes += request->bytes;
    if (class->share != NULL)
        qos_tbf_share_served(class, 1, request->bytes);
    if (class_due(class, &charged, 0, now) > now) {
        class->counters->dryrun_waits++;
        class->counters->dryrun_bytes += request->bytes;
        return;
    }
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        if (class->is_bound[unit])
            qos_bucket_take(&class->bounds[unit].bucket, cost_of(&class->bounds[unit], &charged),
                            now);
    }
}

static void try_dryrun(QosTbfQueue *queue, const QosRequest *request, QosTime now)
{
    if (queue == NULL)
        return;
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++) {
        if (queue->classes[layer] != NULL)
            police(queue->classes[layer], request, now);
    }
}

/* --- the policy --- */

/* That the rules look at. */
static guint fields_of(const QosPolicyContext *context)
{
    return qos_rules_fields(context->rules) |
           (context->cluster_rules != NULL ? qos_rules_fields(context->cluster_rules) : 0);
}

static void *tbf_init(const QosPolicyContext *context, QosTime now G_GNUC_UNUSED)
{
    QosTbf *tbf = g_new0(QosTbf, 1);
    tbf->context = context;
    tbf->generation = 1;
    tbf->fields = fields_of(context);
    qos_tbf_classes_init(tbf);
    qos_heap_init(&tbf->heap);
    return tbf;
}

static void tbf_shutdown(void *self G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED)
{
}

static void tbf_fini(void *self)
{
    QosTbf *tbf = self;
    qos_tbf_classes_clear(tbf);
    qos_heap_clear(&tbf->heap);
    g_free(tbf);
}

/* One more waits (1), or one less (-1). */
static void count_waiting(QosTbfQueue *queue, const QosRequest *request, gint change)
{
    queue->waiting += (guint)change;
    queue->counters->waiting += (guint)change;
    if (queue->cluster == NULL)
        return;
    queue->cluster->counters->waiting += (guint)change;
    qos_tbf_share_waits(queue->cluster, request, change);
}

static void enqueue(QosTbf *tbf, QosTbfQueue *queue, QosRequest *request, QosTime now)
{
    GQueue *line = line_of(queue, request);

    request->queue = queue;
    g_queue_push_tail_link(line, &request->link);
    queue->contended += is_contended(queue, request);
    if (is_payer(queue, request) && payers(queue) == 1)
        end_passing(queue, now);
    count_waiting(queue, request, 1);
    gboolean is_due = queue->bound_count == 0 || queue->waiting == 1;
    if (qos_request_owes_first(request) || first_of(tbf, queue, now) == request)
        is_due &= reschedule(tbf, queue, now);
    if (!is_due)
        name_wait(queue, request);
}

/* Where a request waits: in its own class; a payment in the class that it is to pay for. */
static QosTbfQueue *waiting_queue(QosTbf *tbf, QosRequest *request, QosTime now)
{
    QosTbfQueue *own = qos_tbf_flow(tbf, request, now)->queue;
    if (!request->is_at_pay_point)
        return own;

    QosRequest owed = *request;
    owed.opcode = request->pay_opcode;
    QosTbfQueue *queue = qos_tbf_flow(tbf, &owed, now)->queue;
    request->prepays = queue != own;
    return queue;
}

static void let_go_in_cluster(QosTbfClass *class, const QosRequest *request)
{
    class->counters->requests += !request->is_free;
    class->counters->bytes += request->bytes;
    qos_tbf_share_served(class, !request->is_free, request->bytes);
}

/* Books a request that goes. The operation of a free one is not charged, the bytes that it moves
 * are. */
static void let_go(QosTbfQueue *queue, QosRequest *request, QosTime now)
{
    request->queue = queue;
    request->weight = queue->weight;
    request->minimum = queue->minimum;
    queue->running++;
    for (guint i = 0; i < queue->bound_count; i++)
        qos_bucket_take(&queue->bounds[i]->bucket, cost_of(queue->bounds[i], request), now);
    if (!request->is_free)
        queue->allowance = MIN(queue->allowance + QOS_TBF_FREE_SHARE, QOS_TBF_FREE_MAX);
    queue->counters->requests += !request->is_free;
    queue->counters->bytes += request->bytes;
    if (queue->cluster != NULL)
        let_go_in_cluster(queue->cluster, request);
}

/* A payer that was passed over goes. */
static void note_payment(QosTbfQueue *queue, const QosRequest *request, QosTime now)
{
    const QosTime taken = rule_time(queue, request);

    queue->level = MAX(queue->level - taken / PAID_PART, 0);
    queue->at_points += request->is_at_pay_point ? taken : 0;
    if (--queue->to_pay == 0 || queue->at_points >= AT_POINTS_MAX)
        end_passing(queue, now);
}

/* A request goes while payers wait: it is one of them, or it goes into debt before them. If it had
 * waited itself, it passes over no payer with a lock, because it came before these. */
static void note_passing(QosTbfQueue *queue, const QosRequest *request, gboolean has_waited,
                         QosTime now)
{
    const gboolean is_passing = !is_payer(queue, request);
    const guint passed = is_passing && has_waited ? queue->requests.length : payers(queue);

    if (passed == 0 || (is_passing && !request->owes))
        return;
    if (is_passing)
        queue->passed = MIN(queue->passed + rule_time(queue, request), QOS_DEBT_MAX);
    else
        queue->passed = MAX(queue->passed - PASSED_PART * rule_time(queue, request), 0);
    if (queue->is_paying && !is_passing)
        note_payment(queue, request, now);
    else if (!queue->is_paying && queue->passed == 0)
        end_passing(queue, now);
}

/* Books a request that goes, maybe into debt. */
static void book(QosTbfQueue *queue, QosRequest *request, gboolean has_waited, QosTime now)
{
    const gboolean is_charged = takes(queue, request) || !request->is_free;
    const QosTime debt = is_charged ? tokens_due(queue, now) - now : 0;

    request->owes = debt > 0;
    request->owes_much = debt > QOS_DEBT_UNTOLD;
    if (queue->is_paying || !(qos_request_owes_first(request) || has_debtors(queue)))
        note_turn(queue, request);
    note_passing(queue, request, has_waited, now);
    let_go(queue, request, now);
}

static gboolean tbf_try_now(void *self, QosRequest *request, QosTime now)
{
    QosTbf *tbf = self;
    const QosHeapNode *root = qos_heap_peek(&tbf->heap);

    if (request->is_at_pay_point || tbf->rematching.length > 0 ||
        (root != NULL && root->key <= now))
        return FALSE;
    const QosTbfFlow *flow = qos_tbf_flow(tbf, request, now);
    if (flow->queue->waiting > 0 || tokens_due(flow->queue, now) > now)
        return FALSE;
    try_dryrun(flow->dryrun, request, now);
    let_go(flow->queue, request, now);
    return TRUE;
}

static void tbf_incoming(void *self, QosRequest *request, QosTime now)
{
    QosTbf *tbf = self;
    try_dryrun(qos_tbf_flow(tbf, request, now)->dryrun, request, now);
    if (tbf->rematching.length > 0) /* it does not overtake them */
        g_queue_push_tail_link(&tbf->rematching, &request->link);
    else
        enqueue(tbf, waiting_queue(tbf, request, now), request, now);
}

static void dequeue(QosTbf *tbf, QosTbfQueue *queue, QosRequest *request, QosTime now)
{
    g_queue_unlink(line_of(queue, request), &request->link);
    queue->contended -= is_contended(queue, request);
    if (payers(queue) == 0) {
        queue->passed = 0;
        queue->is_paying = FALSE;
    }
    count_waiting(queue, request, -1);
    if (queue->waiting == 0) {
        qos_tbf_line_leave(tbf, queue, now);
        qos_heap_remove(&tbf->heap, &queue->heap);
    }
}

/* Books the wait of a request with its rule, however the wait ends; the job's account counts it
 * too. */
static void end_wait(QosTbf *tbf, QosTbfQueue *queue, QosRequest *request, QosTime now)
{
    QosRuleState *counters = queue->counters;

    if (queue->cluster != NULL && request->wait_rule_id == queue->cluster->key.rule_id)
        counters = queue->cluster->counters;
    dequeue(tbf, queue, request, now);
    if (now > request->arrival && request->wait_rule_id != 0) {
        counters->waits++;
        counters->waited += now - request->arrival;
    }
}

/* Gives what was queued when the rules changed to the queues where it belongs now. */
static void rematch(QosTbf *tbf, QosTime now)
{
    for (guint i = 0; i < REMATCH_BATCH && tbf->rematching.length > 0; i++) {
        QosRequest *request = g_queue_pop_head_link(&tbf->rematching)->data;
        enqueue(tbf, waiting_queue(tbf, request, now), request, now);
    }
}

/* The first class with a due request; or NULL, with *ret_due set to when there will be one. The
 * root's key may have been made for another request than the class's first one now, because turns
 * have changed meanwhile. */
static QosTbfQueue *due_queue(QosTbf *tbf, QosTime now, QosTime *ret_due)
{
    const QosHeapNode *root;

    while ((root = qos_heap_peek(&tbf->heap)) != NULL && root->key <= now) {
        QosTbfQueue *queue = (QosTbfQueue *)((char *)root - G_STRUCT_OFFSET(QosTbfQueue, heap));

        if (reschedule(tbf, queue, now))
            return queue;
    }
    *ret_due = root != NULL ? root->key : QOS_NEVER;
    return NULL;
}

static QosTime tbf_get_next(void *self, QosTime now, QosReadyFunc ready, void *arg)
{
    QosTbf *tbf = self;
    QosTime due;

    if (tbf->rematching.length > 0)
        rematch(tbf, now);
    QosTbfQueue *queue = due_queue(tbf, now, &due);
    if (queue == NULL)
        return tbf->rematching.length > 0 ? now : due;

    QosRequest *request = first_of(tbf, queue, now);
    end_wait(tbf, queue, request, now);
    if (line_of(queue, request) == &queue->lock_holders || request->writes_back)
        queue->is_turn_of_write_backs = !request->writes_back;
    book(queue, request, TRUE, now);
    queue->served = now;
    qos_tbf_line_leave(tbf, queue, now);
    reschedule(tbf, queue, now);
    ready(request, arg);
    return now;
}

/* TRUE where the class owes as much as it may for the request, or others wait that go before it. */
static gboolean is_at_bound(const QosTbf *tbf, QosTbfQueue *queue, const QosRequest *request,
                            QosTime now)
{
    if (!takes(queue, request))
        return FALSE;
    refresh_paying(queue, now);
    return tbf->rematching.length > 0 ||
           (request->writes_back ? queue->write_backs.length : queue->contended) > 0 ||
           (queue->is_paying && (queue->lead <= 0 || queue->lock_holders.length > 0)) ||
           debt_due(queue, request, debt_for(queue, request), now) > now ||
           qos_tbf_line_is_due(queue, now);
}

/* Books a request that goes into debt. */
static void charge(QosTbf *tbf, QosTbfQueue *queue, QosRequest *request, QosTime now)
{
    book(queue, request, FALSE, now);
    reschedule(tbf, queue, now);
}

/* Takes a free request from the allowance, or has it charged. */
static void judge_free(QosTbfQueue *queue, QosRequest *request)
{
    if (!request->is_free || request->is_imposed || !queue->counts_operations)
        return;
    if (queue->allowance > 0) {
        queue->allowance--;
        return;
    }
    request->is_free = FALSE;
    request->holds_lock = TRUE;
}

static gboolean tbf_charge(void *self, QosRequest *request, gboolean is_done, QosTime now)
{
    QosTbf *tbf = self;
    QosTbfQueue *queue = qos_tbf_flow(tbf, request, now)->queue;

    judge_free(queue, request);
    if (!is_done && is_at_bound(tbf, queue, request, now))
        return FALSE;
    charge(tbf, queue, request, now);
    return TRUE;
}

static gboolean tbf_is_limited(void *self, const QosRequest *request, QosTime now)
{
    const QosTbfFlow *flow = qos_tbf_flow(self, request, now);

    return flow->queue->bound_count > 0 || flow->dryrun != NULL;
}

/* A request that was booked with other bytes has moved so many more. */
G_GNUC_NO_INLINE static void correct(QosTbf *tbf, QosTbfQueue *queue, guint64 more, QosTime now)
{
    queue->counters->bytes += more;
    if (queue->cluster != NULL) {
        queue->cluster->counters->bytes += more;
        qos_tbf_share_served(queue->cluster, 0, more);
    }
    if (queue->bound_count == 0)
        return;
    for (guint i = 0; i < queue->bound_count; i++) {
        if (queue->bounds[i]->per_operation == 0)
            qos_bucket_take(&queue->bounds[i]->bucket, (gint64)more, now);
    }
    if (queue->waiting > 0)
        reschedule(tbf, queue, now);
    for (guint layer = 0; layer < QOS_TBF_LAYERS; layer++)
        qos_tbf_line_look(tbf, queue->classes[layer], now);
}

static void tbf_settle(void *self, QosRequest *request, guint64 bytes, QosTime now)
{
    QosTbfQueue *queue = request->queue;
    request->queue = NULL;
    queue->running--;
    if (bytes != request->bytes)
        correct(self, queue, bytes - request->bytes, now);
}

static void tbf_cancel(void *self, QosRequest *request, QosTime now)
{
    QosTbf *tbf = self;
    QosTbfQueue *queue = request->queue;
    if (queue == NULL) {
        g_queue_unlink(&tbf->rematching, &request->link);
        return;
    }
    end_wait(tbf, queue, request, now);
    request->queue = NULL;
    reschedule(tbf, queue, now);
}

static gboolean tbf_boost(void *self, QosRequest *request, QosTime now)
{
    QosTbf *tbf = self;
    QosTbfQueue *payer = qos_tbf_flow(tbf, request, now)->queue;
    QosTbfQueue *queue = request->queue;

    if (qos_request_owes_first(request)) /* it waits at the bound already */
        return FALSE;
    QosRequest holder = *request;
    holder.holds_lock = TRUE;
    if (!is_at_bound(tbf, payer, &holder, now)) {
        tbf_cancel(tbf, request, now);
        request->holds_lock = TRUE;
        charge(tbf, payer, request, now);
        return TRUE;
    }
    request->holds_lock = TRUE;
    if (queue == NULL) /* it is matched again before long */
        return FALSE;
    queue->contended += is_contended(queue, request);
    if (payers(queue) == 0)
        end_passing(queue, now);
    reschedule(tbf, queue, now);
    return FALSE;
}

static void put_aside(QosTbf *tbf, QosTbfQueue *queue, QosTime now)
{
    while (queue->waiting > 0) {
        QosRequest *request = first_of(tbf, queue, now);

        dequeue(tbf, queue, request, now);
        request->queue = NULL;
        g_queue_push_tail_link(&tbf->rematching, &request->link);
    }
}

static gint compare_arrivals(gconstpointer left, gconstpointer right, gpointer data G_GNUC_UNUSED)
{
    const QosRequest *a = left, *b = right;

    return (a->arrival > b->arrival) - (a->arrival < b->arrival);
}

/* Queues take the new rates at once if their rule is still there. All waiting requests are matched
 * again, in order of arrival, whatever class they were in. */
static void tbf_rules_changed(void *self, QosTime now)
{
    QosTbf *tbf = self;
    GHashTableIter iter;
    QosTbfQueue *queue;

    tbf->generation++;
    tbf->fields = fields_of(tbf->context);
    g_hash_table_iter_init(&iter, tbf->queues);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&queue))
        put_aside(tbf, queue, now); /* by the lines of the rules as they were */
    qos_tbf_classes_set_rules(tbf, now);
    g_queue_sort(&tbf->rematching, compare_arrivals, NULL);
    qos_tbf_forget_counters(tbf);
}

static gboolean tbf_rule_state(void *self, guint64 rule_id, QosRuleState *ret_state)
{
    const QosTbf *tbf = self;
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
    .boost = tbf_boost,
    .is_limited = tbf_is_limited,
    .cancel = tbf_cancel,
    .settle = tbf_settle,
    .rules_changed = tbf_rules_changed,
    .expire = qos_tbf_expire,
    .rule_state = tbf_rule_state,
    .rest_budget = qos_tbf_rest_budget,
    .set_budget = qos_tbf_set_budget,
    .each_budget = qos_tbf_each_budget,
};
