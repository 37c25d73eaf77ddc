/*
 * The dispatch side of adaptive sharing; the laws are in adapt_paper.c and adapt_fair.c.
 *
 * Jobs that take part are members: each has one element in the array that the law works on, by
 * index. A job joins with its first request, and leaves after it was idle for ACTIVE_TIME; then its
 * record is written off. Once a period the law runs over all members (adapt_period.c).
 *
 * Jobs with waiting requests stand in a heap. Its key, and which job may go, depend on the mode:
 *
 *   fair   start-time fair queueing: the key is the virtual time at which the job's next request
 *          starts,
 *
 *              start  = finish of the one before it, or the virtual time where nothing waited
 *              finish = start + cost / rate          with the rates of the law
 *
 *          and the virtual time is the latest start that was served. So what one job leaves idle is
 *          served to the others in the same instant, by weight. A job that comes back waits for no
 *          period: it is served with the next slot. A job that was alone owes nothing for that but
 *          its record. A job that could not be served for want of slots catches up, but not more
 *          than VIRTUAL_LAG_MAX. Virtual time only grows, and grows fast if a job is entitled to
 *          next to nothing. Beyond QOS_VIRTUAL_TIME_MAX it begins anew.
 *   paper  the key is the time at which the job's bucket has a token. The bucket's rate is the
 *          job's allocation, its depth is Lustre's 3. Jobs that have a token stand in a second
 *          heap, by priority. A job without an allocation is not ruled, and stands in a third
 *          heap, as in Lustre's fallback queue.
 *
 * The depth of the store and its capacity are measured (fs/capacity.h). In mode paper, a capacity
 * that the administrator gives is all that is handed out. In mode fair it is where the search
 * begins, and the least that entitlements are made of. It holds no job back: a store that is found
 * to serve more has more to divide. A store that serves less may do so only for a moment, and the
 * shares stay the same.
 *
 * Paper throttles by the estimate, and so would never see the store saturated. Therefore the
 * estimate is raised while a job waits for tokens and slots are free.
 */
#include "fs/adapt_private.h"
#include "fs/rule.h"

#define CAPACITY_FIRST      1000                         /* op/s, before anything was measured */
#define DUE_NUMBERS         (G_GINT64_CONSTANT(1) << 40) /* they begin anew after months */
#define HIGHEST_PRIORITY    (1 << 20)                    /* nodes; with more all are equal */
#define VIRTUAL_LAG_MAX     (100 * QOS_MILLISECOND) /* what a job may catch up that had no slot */
#define VIRTUAL_ADVANCE_MAX (1000 * QOS_SECOND)     /* a million such fit QOS_VIRTUAL_TIME_MAX */

QosAdapt *qos_adapt_new(guint slots, QosTime now)
{
    QosAdapt *adapt = g_new0(QosAdapt, 1);
    adapt->config = (QosAdaptConfig){.mode = QOS_ADAPT_OFF, .period = QOS_ADAPT_PERIOD};
    adapt->jobs = g_ptr_array_new();
    adapt->seen = g_array_new(FALSE, TRUE, sizeof(QosTime));
    adapt->fair = g_array_new(FALSE, TRUE, sizeof(QosFairJob));
    adapt->paper = g_array_new(FALSE, TRUE, sizeof(QosPaperJob));
    qos_capacity_init(&adapt->capacity, CAPACITY_FIRST * (double)QOS_COST_UNIT, slots, now);
    adapt->period_start = now;
    for (guint i = 0; i < QOS_ADAPT_PLACES; i++)
        qos_heap_init(&adapt->waiting[i]);
    return adapt;
}

/* --- members --- */

/* The node count comes from the environment, which any user can set: so it gives no more weight
 * than a rule may. */
static gint64 weight_of(const QosJob *job, gint64 weight)
{
    return weight > 0 ? weight : CLAMP(job->nodes, 1, QOS_WEIGHT_MAX);
}

gint64 qos_adapt_units(const QosAdapt *adapt, double operations_per_second)
{
    double units = operations_per_second * (double)QOS_COST_UNIT * (double)adapt->config.period /
                   (double)QOS_SECOND;
    return (gint64)CLAMP(units, 1, (double)QOS_FAIR_UNITS_MAX);
}

/* Beside the others' rates, that of a job which the law has not seen yet: by weight. */
static gint64 provisional_rate(QosAdapt *adapt, gint64 weight)
{
    if (adapt->level <= 0)
        adapt->level = (double)qos_adapt_units(adapt, qos_adapt_capacity(adapt)) / (double)weight;
    return (gint64)CLAMP(adapt->level * (double)weight, 1, (double)QOS_FAIR_UNITS_MAX);
}

static void join(QosAdapt *adapt, QosJob *job, gint64 weight, QosTime now)
{
    QosShare *share = &job->share;

    if (adapt->jobs->len == 0)
        adapt->period_start = now;
    g_ptr_array_add(adapt->jobs, qos_job_ref(job));
    g_array_append_val(adapt->seen, now);
    share->member = adapt->jobs->len;
    share->is_ruled = FALSE;
    if (adapt->config.mode == QOS_ADAPT_FAIR) {
        share->finish = adapt->virtual_time;
        gint64 rate = provisional_rate(adapt, weight);
        QosTime left = MAX(adapt->period_start + adapt->config.period - now, 0);
        QosFairJob fair = {.weight = weight,
                           .rate = rate,
                           .entitlement = (gint64)((__int128)rate * left / adapt->config.period),
                           .totals = share->totals};
        g_array_append_val(adapt->fair, fair);
    } else {
        QosPaperJob paper = {.nodes = weight};
        g_array_append_val(adapt->paper, paper);
    }
}

static QosShareTotals totals_of(const QosAdapt *adapt, const QosJob *job)
{
    QosShareTotals totals = job->share.totals;

    if (job->share.member == 0)
        return totals;
    if (adapt->config.mode == QOS_ADAPT_PAPER) {
        const QosShareTotals *tokens = &qos_adapt_paper_of(adapt, job)->totals;
        totals.lent = qos_share_total(totals.lent, tokens->lent * QOS_COST_UNIT);
        totals.returned = qos_share_total(totals.returned, tokens->returned * QOS_COST_UNIT);
        totals.borrowed = qos_share_total(totals.borrowed, tokens->borrowed * QOS_COST_UNIT);
        totals.repaid = qos_share_total(totals.repaid, tokens->repaid * QOS_COST_UNIT);
        return totals;
    }
    return qos_adapt_fair_of(adapt, job)->totals;
}

static void leave_heap(QosAdapt *adapt, QosShare *share)
{
    qos_heap_remove(&adapt->waiting[share->place], &share->order);
    share->place = QOS_ADAPT_WAITING;
}

/* The last member takes the place of the one that leaves. */
void qos_adapt_leave(QosAdapt *adapt, guint index)
{
    QosJob *job = adapt->jobs->pdata[index];

    adapt->changes.others++;
    leave_heap(adapt, &job->share);
    job->share.totals = totals_of(adapt, job);
    job->share.member = 0;
    if (adapt->lender == job)
        adapt->lender = NULL;
    if (adapt->borrower == job)
        adapt->borrower = NULL;
    qos_anticipation_forget(&adapt->anticipation, job);
    g_ptr_array_remove_index_fast(adapt->jobs, index);
    g_array_remove_index_fast(adapt->seen, index);
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        g_array_remove_index_fast(adapt->fair, index);
    else
        g_array_remove_index_fast(adapt->paper, index);
    if (index < adapt->jobs->len)
        ((QosJob *)adapt->jobs->pdata[index])->share.member = index + 1;
    qos_job_unref(job);
}

void qos_adapt_free(QosAdapt *adapt)
{
    if (adapt == NULL)
        return;
    while (adapt->jobs->len > 0)
        qos_adapt_leave(adapt, adapt->jobs->len - 1);
    g_ptr_array_unref(adapt->jobs);
    g_array_unref(adapt->seen);
    g_array_unref(adapt->fair);
    g_array_unref(adapt->paper);
    for (guint i = 0; i < QOS_ADAPT_PLACES; i++)
        qos_heap_clear(&adapt->waiting[i]);
    g_free(adapt);
}

/* --- configuration --- */

/* Quantities of a period become those of another. */
static void change_period(QosAdapt *adapt, QosTime period)
{
    double factor = (double)period / (double)adapt->config.period;

    adapt->level *= factor;
    for (guint i = 0; i < adapt->fair->len; i++) {
        QosFairJob *job = &g_array_index(adapt->fair, QosFairJob, i);
        job->entitlement = (gint64)((double)job->entitlement * factor);
        job->filling = job->allocation = (gint64)((double)job->allocation * factor);
        job->minimum = (gint64)((double)job->minimum * factor);
        job->rate = MAX((gint64)((double)job->rate * factor), 1);
    }
}

void qos_adapt_configure(QosAdapt *adapt, const QosAdaptConfig *config, QosTime now)
{
    if (config->mode != adapt->config.mode) {
        while (adapt->jobs->len > 0)
            qos_adapt_leave(adapt, adapt->jobs->len - 1);
        adapt->level = 0;
        qos_capacity_start(&adapt->capacity, now);
    }
    if (config->capacity > 0 &&
        (config->capacity != adapt->config.capacity || config->mode != adapt->config.mode))
        qos_capacity_tell(&adapt->capacity, (double)config->capacity * (double)QOS_COST_UNIT);
    change_period(adapt, config->period);
    adapt->config = *config;
    adapt->period_start = now;
}

const QosAdaptConfig *qos_adapt_config(const QosAdapt *adapt)
{
    return &adapt->config;
}

double qos_adapt_capacity(const QosAdapt *adapt)
{
    if (adapt->config.mode == QOS_ADAPT_PAPER && adapt->config.capacity > 0)
        return (double)adapt->config.capacity;
    return adapt->capacity.estimate / (double)QOS_COST_UNIT;
}

double qos_adapt_reserved(const QosAdapt *adapt)
{
    double units = 0;

    for (guint i = 0; i < adapt->fair->len; i++)
        units += (double)g_array_index(adapt->fair, QosFairJob, i).minimum;
    return units / (double)QOS_COST_UNIT * (double)QOS_SECOND / (double)adapt->config.period;
}

gint64 qos_adapt_cost(const QosAdapt *adapt, QosOpcode opcode, guint64 bytes)
{
    return qos_adapt_config_cost(&adapt->config, opcode, bytes);
}

/* --- requests --- */

/* Where the job stands in the heap. */
static gint64 order_key(const QosAdapt *adapt, QosShare *share, QosTime now)
{
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        return share->finish;
    if (!share->is_ruled)
        return now;
    if (share->bucket.rate == 0)
        return QOS_NEVER; /* until the next period */
    qos_bucket_fill(&share->bucket, now);
    return qos_bucket_due(&share->bucket, now);
}

/* Lets the job take part, with its weight and minimum as they are now. */
static void take_part(QosAdapt *adapt, QosJob *job, gint64 weight, gint64 minimum, QosTime now)
{
    weight = weight_of(job, weight);
    if (job->share.member == 0)
        join(adapt, job, weight, now);
    *qos_adapt_seen_of(adapt, job) = now;
    if (adapt->config.mode == QOS_ADAPT_FAIR) {
        QosFairJob *fair = qos_adapt_fair_of(adapt, job);
        fair->weight = weight;
        fair->minimum = minimum > 0 ? qos_adapt_units(adapt, (double)minimum) : 0;
    } else {
        qos_adapt_paper_of(adapt, job)->nodes = weight;
    }
}

void qos_adapt_wait(QosAdapt *adapt, QosJob *job, gint64 cost, gint64 weight, gint64 minimum,
                    QosTime now)
{
    take_part(adapt, job, weight, minimum, now);
    if (adapt->config.mode != QOS_ADAPT_FAIR) {
        qos_adapt_paper_of(adapt, job)->demand++; /* it is issued, and served later */
        return;
    }
    QosFairJob *fair = qos_adapt_fair_of(adapt, job);
    if (fair->waiting == 0)
        job->share.finish = MAX(job->share.finish, adapt->virtual_time);
    fair->waiting += cost;
}

/* A job may have lost its membership while requests of it waited: another mode was chosen. */
static void ensure_member(QosAdapt *adapt, QosJob *job, QosTime now)
{
    if (job->share.member == 0)
        join(adapt, job, weight_of(job, 0), now);
}

void qos_adapt_stop_waiting(QosAdapt *adapt, QosJob *job, gint64 cost)
{
    if (job->share.member == 0)
        return;
    if (adapt->config.mode != QOS_ADAPT_FAIR) {
        QosPaperJob *paper = qos_adapt_paper_of(adapt, job);
        paper->demand = MAX(paper->demand - 1, 0); /* it counted when it began to wait */
        return;
    }
    QosFairJob *fair = qos_adapt_fair_of(adapt, job);
    fair->waiting = MAX(fair->waiting - cost, 0);
}

void qos_adapt_set_ready(QosAdapt *adapt, QosJob *job, gboolean is_ready, QosTime now)
{
    QosShare *share = &job->share;

    if (!is_ready) {
        leave_heap(adapt, share);
        return;
    }
    if (qos_heap_contains(&share->order))
        return;
    ensure_member(adapt, job, now);
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        share->finish = MAX(share->finish, adapt->virtual_time - VIRTUAL_LAG_MAX);
    qos_heap_push(&adapt->waiting[QOS_ADAPT_WAITING], &share->order, order_key(adapt, share, now));
}

static QosJob *job_of(QosHeapNode *order)
{
    return (QosJob *)((char *)qos_adapt_share_of(order) - G_STRUCT_OFFSET(QosJob, share));
}

const QosJob *qos_adapt_first(const QosAdapt *adapt)
{
    QosHeapNode *first = qos_heap_peek(&adapt->waiting[QOS_ADAPT_WAITING]);
    return first != NULL ? job_of(first) : NULL;
}

static QosHeapNode *first_of(const QosAdapt *adapt, guint place)
{
    return qos_heap_peek(&adapt->waiting[place]);
}

/* Numbers those that have come to be due, in order of that. */
static void find_due(QosAdapt *adapt, QosTime now)
{
    QosHeapNode *first;

    while ((first = first_of(adapt, QOS_ADAPT_WAITING)) != NULL && first->key <= now) {
        QosShare *share = qos_adapt_share_of(first);
        gint64 nodes = share->is_ruled ? qos_adapt_paper_of(adapt, job_of(first))->nodes : 0;

        leave_heap(adapt, share);
        share->place = share->is_ruled ? QOS_ADAPT_DUE : QOS_ADAPT_FALLBACK;
        adapt->due_number = (adapt->due_number + 1) % DUE_NUMBERS;
        qos_heap_push(&adapt->waiting[share->place], first,
                      adapt->due_number - MIN(nodes, HIGHEST_PRIORITY) * DUE_NUMBERS);
    }
}

static gint64 number_of(const QosHeapNode *order)
{
    return (order->key % DUE_NUMBERS + DUE_NUMBERS) % DUE_NUMBERS;
}

/* The next job: of the jobs with tokens the one of the highest priority (the hierarchy of the
 * rules, III-D), and of equal ones the one that has had its token for longest. Jobs without a rule
 * are one queue, which does not starve: it goes when it has been due for longer. */
static QosJob *next_of_paper(QosAdapt *adapt, QosTime now, QosTime *ret_wake)
{
    QosHeapNode *ruled, *fallback, *later;

    find_due(adapt, now);
    ruled = first_of(adapt, QOS_ADAPT_DUE);
    fallback = first_of(adapt, QOS_ADAPT_FALLBACK);
    if (ruled != NULL && (fallback == NULL || number_of(ruled) < number_of(fallback)))
        return job_of(ruled);
    if (fallback != NULL)
        return job_of(fallback);
    later = first_of(adapt, QOS_ADAPT_WAITING);
    if (later != NULL) {
        adapt->is_throttling = TRUE;
        *ret_wake = MIN(*ret_wake, later->key);
    }
    return NULL;
}

void qos_adapt_order_anew(QosAdapt *adapt, QosTime now)
{
    for (guint i = 0; i < adapt->jobs->len; i++) {
        QosShare *share = &((QosJob *)adapt->jobs->pdata[i])->share;

        if (!qos_heap_contains(&share->order) ||
            (share->place == QOS_ADAPT_FALLBACK && !share->is_ruled))
            continue;
        leave_heap(adapt, share);
        qos_heap_push(&adapt->waiting[QOS_ADAPT_WAITING], &share->order,
                      order_key(adapt, share, now));
    }
}

QosJob *qos_adapt_next(QosAdapt *adapt, QosTime now, QosTime *ret_wake)
{
    QosHeapNode *first = qos_heap_peek(&adapt->waiting[QOS_ADAPT_WAITING]);
    if (adapt->config.mode == QOS_ADAPT_PAPER)
        return next_of_paper(adapt, now, ret_wake);
    if (first == NULL)
        return NULL;
    if (qos_anticipation_waits(&adapt->anticipation, job_of(first), first->key, now, ret_wake))
        return NULL;
    return job_of(first);
}

gboolean qos_adapt_may_go(QosAdapt *adapt, QosJob *job, QosTime now)
{
    for (guint i = 0; i < QOS_ADAPT_PLACES; i++)
        if (first_of(adapt, i) != NULL)
            return FALSE;
    QosTime wake = QOS_NEVER;
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        return !qos_anticipation_waits(&adapt->anticipation, job,
                                       MAX(job->share.finish, adapt->virtual_time), now, &wake);
    return order_key(adapt, &job->share, now) <= now;
}

/* How far `cost` takes a job in virtual time: what it would take alone at its rate. */
static gint64 virtual_advance(const QosAdapt *adapt, const QosFairJob *fair, gint64 cost)
{
    gint64 product;

    if (!__builtin_mul_overflow(cost, adapt->config.period, &product))
        return CLAMP(product / fair->rate, -VIRTUAL_ADVANCE_MAX, VIRTUAL_ADVANCE_MAX);
    __int128 advance = (__int128)cost * adapt->config.period / fair->rate;
    return (gint64)CLAMP(advance, -VIRTUAL_ADVANCE_MAX, VIRTUAL_ADVANCE_MAX);
}

static gint64 finish_of(QosHeapNode *order, G_GNUC_UNUSED gpointer arg)
{
    return qos_adapt_share_of(order)->finish;
}

/* Sets virtual time to 0 again; the order of the jobs stays the same. A job that is very far behind
 * hangs in the store. */
static void begin_virtual_time_anew(QosAdapt *adapt)
{
    for (guint i = 0; i < adapt->jobs->len; i++) {
        QosShare *share = &((QosJob *)adapt->jobs->pdata[i])->share;
        share->finish = MAX(share->finish - adapt->virtual_time, -QOS_VIRTUAL_TIME_MAX);
    }
    adapt->virtual_time = 0;
    qos_heap_rekey(&adapt->waiting[QOS_ADAPT_WAITING], finish_of, NULL);
}

static void serve_fair(QosAdapt *adapt, QosJob *job, gint64 cost, QosTime now)
{
    QosFairJob *fair = qos_adapt_fair_of(adapt, job);
    QosShare *share = &job->share;

    if (fair->waiting == 0)
        share->finish = MAX(share->finish, adapt->virtual_time);
    adapt->virtual_time = MAX(adapt->virtual_time, share->finish);
    if (adapt->virtual_time > QOS_VIRTUAL_TIME_MAX)
        begin_virtual_time_anew(adapt);
    share->finish += virtual_advance(adapt, fair, cost);
    fair->served += cost;
    qos_anticipation_note_start(&adapt->anticipation, job, now);
}

/* Paper counts requests, not what they cost. */
static void serve_paper(QosAdapt *adapt, QosJob *job, QosTime now)
{
    QosPaperJob *paper = qos_adapt_paper_of(adapt, job);

    paper->demand++;
    adapt->served++;
    if (job->share.is_ruled && job->share.bucket.rate > 0) {
        qos_bucket_fill(&job->share.bucket, now);
        qos_bucket_take(&job->share.bucket, QOS_PAPER_TOKEN, now);
    }
}

void qos_adapt_serve(QosAdapt *adapt, QosJob *job, gint64 cost, gint64 weight, gint64 minimum,
                     QosTime now)
{
    QosShare *share = &job->share;

    take_part(adapt, job, weight, minimum, now);
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        serve_fair(adapt, job, cost, now);
    else
        serve_paper(adapt, job, now);
    if (!qos_heap_contains(&share->order))
        return;
    if (adapt->config.mode == QOS_ADAPT_FAIR) {
        qos_heap_update(&adapt->waiting[QOS_ADAPT_WAITING], &share->order, share->finish);
        return;
    }
    leave_heap(adapt, share);
    qos_heap_push(&adapt->waiting[QOS_ADAPT_WAITING], &share->order, order_key(adapt, share, now));
}

void qos_adapt_settle(QosAdapt *adapt, QosJob *job, gint64 difference)
{
    QosShare *share = &job->share;

    if (difference == 0 || share->member == 0 || adapt->config.mode != QOS_ADAPT_FAIR)
        return;
    QosFairJob *fair = qos_adapt_fair_of(adapt, job);
    fair->served = MAX(fair->served + difference, 0);
    share->finish += virtual_advance(adapt, fair, difference);
    if (qos_heap_contains(&share->order))
        qos_heap_update(&adapt->waiting[QOS_ADAPT_WAITING], &share->order, share->finish);
}

/* --- the store --- */

void qos_adapt_set_slots(QosAdapt *adapt, guint slots, QosTime now)
{
    qos_capacity_set_slots(&adapt->capacity, slots, now);
}

guint qos_adapt_depth(const QosAdapt *adapt)
{
    return adapt->config.mode == QOS_ADAPT_FAIR ? adapt->capacity.depth : adapt->capacity.slots;
}

QosTime qos_adapt_stall(const QosAdapt *adapt)
{
    return adapt->capacity.stall;
}

QosTime qos_adapt_patience(const QosAdapt *adapt, gint64 inside)
{
    return qos_capacity_patience(&adapt->capacity, inside);
}

/* Paper's tokens hold requests back from a store that has room: it is no measure of the store. */
void qos_adapt_set_waiting(QosAdapt *adapt, gboolean is_waiting, gboolean is_full, QosTime now)
{
    gboolean is_measure =
        is_full || (adapt->config.mode == QOS_ADAPT_FAIR && !adapt->anticipation.is_anticipating);
    qos_capacity_set_saturated(&adapt->capacity, is_waiting && is_measure, now);
}

void qos_adapt_replied(QosAdapt *adapt, QosJob *job, gint64 cost, QosTime took, guint inside,
                       QosTime now)
{
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        qos_anticipation_note_reply(&adapt->anticipation, job, cost, took, now);
    qos_capacity_replied(&adapt->capacity, cost, inside, now);
}

/* --- reports --- */

guint qos_adapt_count(const QosAdapt *adapt)
{
    return adapt->jobs->len;
}

GPtrArray *qos_adapt_list(const QosAdapt *adapt)
{
    GPtrArray *list = qos_job_list_new(adapt->jobs->len);

    for (guint i = 0; i < adapt->jobs->len; i++)
        g_ptr_array_add(list, qos_job_ref(adapt->jobs->pdata[i]));
    return list;
}

QosShareChanges qos_adapt_changes(const QosAdapt *adapt)
{
    return adapt->changes;
}

gint64 qos_adapt_record(const QosAdapt *adapt, const QosJob *job)
{
    if (job->share.member == 0)
        return 0;
    return adapt->config.mode == QOS_ADAPT_FAIR
               ? qos_adapt_fair_of(adapt, job)->record
               : qos_adapt_paper_of(adapt, job)->record * QOS_COST_UNIT;
}

gboolean qos_adapt_share_state(const QosAdapt *adapt, const QosJob *job, QosShareState *ret_state)
{
    *ret_state = (QosShareState){.totals = totals_of(adapt, job)};
    if (job->share.member == 0)
        return FALSE;
    ret_state->record = qos_adapt_record(adapt, job);
    if (adapt->config.mode == QOS_ADAPT_FAIR) {
        const QosFairJob *fair = qos_adapt_fair_of(adapt, job);
        ret_state->weight = fair->weight;
        ret_state->entitlement = fair->entitlement;
        ret_state->demand = fair->demand;
        ret_state->allocation = fair->allocation;
        ret_state->flow = fair->flow;
        if (fair->allocation != fair->filling)
            ret_state->repayment = fair->rate - fair->entitlement;
        if (fair->flow != 0)
            ret_state->partner = fair->flow > 0 ? adapt->borrower : adapt->lender;
    } else {
        const QosPaperJob *paper = qos_adapt_paper_of(adapt, job);
        ret_state->weight = paper->nodes;
        ret_state->entitlement =
            (gint64)(paper->priority * (double)qos_adapt_units(adapt, qos_adapt_capacity(adapt)));
        ret_state->demand = paper->demand * QOS_COST_UNIT;
        ret_state->allocation = paper->allocation * QOS_COST_UNIT;
    }
    return TRUE;
}

void qos_adapt_restore(QosAdapt *adapt, QosJob *job, gint64 record, const QosShareTotals *totals,
                       QosTime now)
{
    if (job->share.member != 0)
        return; /* it has begun anew already */
    adapt->changes.others++;
    job->share.totals = (QosShareTotals){.lent = MAX(totals->lent, 0),
                                         .returned = MAX(totals->returned, 0),
                                         .borrowed = MAX(totals->borrowed, 0),
                                         .repaid = MAX(totals->repaid, 0)};
    if (adapt->config.mode == QOS_ADAPT_OFF || record == 0 || record > QOS_FAIR_UNITS_MAX ||
        record < -QOS_FAIR_UNITS_MAX || adapt->restored > QOS_FAIR_UNITS_MAX)
        return;
    join(adapt, job, weight_of(job, 0), now);
    adapt->restored += ABS(record);
    adapt->has_records = TRUE;
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        qos_adapt_fair_of(adapt, job)->record = record;
    else
        qos_adapt_paper_of(adapt, job)->record = record / QOS_COST_UNIT;
}

void qos_adapt_clear_totals(QosAdapt *adapt, QosJob *job)
{
    adapt->changes.others++;
    job->share.totals = (QosShareTotals){0};
    if (job->share.member == 0)
        return;
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        qos_adapt_fair_of(adapt, job)->totals = (QosShareTotals){0};
    else
        qos_adapt_paper_of(adapt, job)->totals = (QosShareTotals){0};
}
