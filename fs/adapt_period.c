/*
 * What adaptive sharing does once a period: it drops members that have sent nothing for
 * ACTIVE_TIME, and asks the law what each job is to have in the next period. fs/adapt.c has the
 * dispatch.
 *
 * A period may end late, because no timer wakes an idle mount. So what was served is compared with
 * what the jobs were entitled to in the time that has really passed.
 */
#include <math.h>

#include "fs/adapt_private.h"

#define ACTIVE_TIME (10 * QOS_SECOND) /* longer than the pauses between bursts */
#define NEARLY_ALL  0.9
#define GROWN       2 /* times, for what waits to be stamped anew */

static void drop_idle(QosAdapt *adapt, QosTime now)
{
    gboolean has_left = FALSE;

    for (guint i = adapt->jobs->len; i-- > 0;) {
        const QosJob *job = adapt->jobs->pdata[i];
        if (now - g_array_index(adapt->seen, QosTime, i) < ACTIVE_TIME ||
            job->sched.use.waiting > 0 || job->sched.use.running > 0)
            continue;
        qos_adapt_leave(adapt, i);
        has_left = TRUE;
    }
    if (!has_left && adapt->restored == 0)
        return;
    if (adapt->config.mode == QOS_ADAPT_FAIR)
        qos_fair_write_off((QosFairJob *)(void *)adapt->fair->data, adapt->fair->len);
    else
        qos_paper_write_off((QosPaperJob *)(void *)adapt->paper->data, adapt->paper->len);
}

/* A request's stamp is its cost divided by the rate that the job had when its last request went. If
 * that rate was near 0, the stamp lies far ahead in virtual time, and the job would wait that long
 * although its rate is back. So if a rate has grown, the job's next request is stamped anew. */
static void stamp_anew(QosAdapt *adapt, QosJob *job, gint64 before, gint64 rate)
{
    QosShare *share = &job->share;
    const gint64 ahead = share->finish - adapt->virtual_time;

    if (rate / GROWN <= before || ahead <= 0)
        return;
    share->finish = adapt->virtual_time + (gint64)((__int128)ahead * before / rate);
    if (qos_heap_contains(&share->order))
        qos_heap_update(&adapt->waiting[QOS_ADAPT_WAITING], &share->order, share->finish);
}

/* TRUE where records or totals may have changed: a job lent, or owed before. */
static gboolean step_fair(QosAdapt *adapt, QosTime elapsed)
{
    QosFairJob *jobs = (QosFairJob *)(void *)adapt->fair->data;
    gint64 capacity = qos_adapt_units(adapt, qos_adapt_capacity(adapt));
    double weights = 0;
    gint64 least = 0;
    gint64 most = 0;
    gboolean had_records = adapt->has_records;
    g_autofree gint64 *rates = g_new0(gint64, adapt->fair->len); /* in the period that ends */

    for (guint i = 0; i < adapt->fair->len; i++)
        rates[i] = jobs[i].rate;
    qos_fair_step(jobs, adapt->fair->len, capacity, adapt->config.period, elapsed);
    adapt->lender = adapt->borrower = NULL;
    adapt->has_records = FALSE;
    for (guint i = 0; i < adapt->fair->len; i++) {
        jobs[i].served = 0;
        stamp_anew(adapt, adapt->jobs->pdata[i], rates[i], jobs[i].rate);
        weights += (double)jobs[i].weight;
        adapt->has_records = adapt->has_records || jobs[i].record != 0;
        if (jobs[i].flow > most) {
            most = jobs[i].flow;
            adapt->lender = adapt->jobs->pdata[i];
        } else if (jobs[i].flow < least) {
            least = jobs[i].flow;
            adapt->borrower = adapt->jobs->pdata[i];
        }
    }
    adapt->level = weights > 0 ? (double)capacity / weights : 0;
    return had_records || most > 0;
}

/* TRUE where a job waited for tokens although slots were free, and nearly all that the estimate
 * allows was served. So the job did not wait because others left their tokens unused. */
static gboolean is_estimate_too_low(const QosAdapt *adapt, QosTime elapsed)
{
    double allowed = qos_adapt_capacity(adapt) * (double)elapsed / (double)QOS_SECOND;

    if (!adapt->is_throttling || adapt->capacity.is_saturated)
        return FALSE;
    return (double)adapt->served >= NEARLY_ALL * allowed;
}

/* Gives a job its allocation as a rate; tokens that it has stay, as with a changed rule. */
static void rule(QosShare *share, gint64 allocation, QosTime period, QosTime now)
{
    const gint64 rate = (gint64)((__int128)allocation * QOS_PAPER_TOKEN * QOS_SECOND / period);
    gboolean had_bucket = share->is_ruled && share->bucket.rate > 0;

    share->is_ruled = TRUE;
    if (rate > 0 && had_bucket)
        qos_bucket_change(&share->bucket, rate, QOS_PAPER_DEPTH, now);
    else if (rate > 0)
        qos_bucket_init(&share->bucket, rate, QOS_PAPER_DEPTH, now);
    else
        share->bucket.rate = 0;
}

/* The whole tokens that a period gives out; the fraction that is left goes into the next period
 * (R6). */
static gint64 take_tokens(QosAdapt *adapt)
{
    double tokens = qos_adapt_capacity(adapt) * (double)adapt->config.period / (double)QOS_SECOND +
                    adapt->token_part;
    double whole = floor(tokens);

    adapt->token_part = tokens - whole;
    return (gint64)whole;
}

#ifndef NDEBUG
static void assert_paper_records(const QosAdapt *adapt)
{
    gint64 sum = 0;

    for (guint i = 0; i < adapt->paper->len; i++)
        sum += g_array_index(adapt->paper, QosPaperJob, i).record;
    g_assert(sum == 0);
}
#else
static void assert_paper_records(G_GNUC_UNUSED const QosAdapt *adapt)
{
}
#endif

/* Only jobs that sent requests in the period that ends are active (seed 004, III-C1); the others
 * keep their records, and are not ruled. TRUE if there are active jobs. */
static gboolean step_paper(QosAdapt *adapt, QosTime elapsed, QosTime now)
{
    guint count = 0;
    g_autofree QosPaperJob *active = g_new(QosPaperJob, adapt->paper->len);
    g_autofree QosJob **jobs = g_new(QosJob *, adapt->paper->len);

    for (guint i = 0; i < adapt->paper->len; i++) {
        QosPaperJob *paper = &g_array_index(adapt->paper, QosPaperJob, i);
        QosJob *job = adapt->jobs->pdata[i];
        job->share.is_ruled = job->share.is_ruled && paper->demand > 0;
        if (paper->demand > 0) {
            jobs[count] = job;
            active[count] = *paper;
            active[count++].demand =
                (gint64)((__int128)paper->demand * adapt->config.period / elapsed);
        } else {
            paper->allocation = 0;
        }
    }
    if (count > 0)
        qos_paper_allocate(active, count, take_tokens(adapt));
    for (guint i = 0; i < count; i++) {
        active[i].demand = 0;
        *qos_adapt_paper_of(adapt, jobs[i]) = active[i];
        rule(&jobs[i]->share, active[i].allocation, adapt->config.period, now);
    }
    assert_paper_records(adapt);
    return count > 0;
}

void qos_adapt_tick(QosAdapt *adapt, QosTime now)
{
    if (now < qos_adapt_next_tick(adapt))
        return;
    QosTime elapsed = now - adapt->period_start;
    gboolean have_changed;

    drop_idle(adapt, now);
    if (adapt->config.mode == QOS_ADAPT_FAIR) {
        have_changed = step_fair(adapt, elapsed);
    } else {
        if (is_estimate_too_low(adapt, elapsed))
            qos_capacity_raise(&adapt->capacity, elapsed);
        have_changed = step_paper(adapt, elapsed, now);
        qos_adapt_order_anew(adapt, now); /* the rates have changed */
    }
    if (have_changed)
        adapt->changes.members++;
    adapt->period_start = now;
    adapt->is_throttling = FALSE;
    adapt->served = 0;
    adapt->restored = 0;
}

QosTime qos_adapt_next_tick(const QosAdapt *adapt)
{
    return adapt->jobs->len > 0 ? adapt->period_start + adapt->config.period : QOS_NEVER;
}
