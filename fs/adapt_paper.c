/*
 * AdapTBF as published (seed 004). The paper's notation and the fields here:
 *
 *     n_x      nodes                       u_x      utilization        (3)
 *     p_x      priority         (1)        T_s^x    surplus            (4)
 *     d_x      demand                      DF_x     factor             (6), RF_x (18)
 *     alpha_x  allocation       (2)        J+, J-   is_compensated, is_reclaimed_of  (9, 10)
 *     r_x      record                      C        reclaim_coefficient()  (13)
 *     rho_x    remainder        (21-25)    T_R^x    part, in reclaim()     (14)
 *
 * The steps are those of section III-C: initial allocation, redistribution, re-compensation, each
 * rounded to whole tokens by hand_out().
 *
 * The equations do not run as they stand. The repairs, each the smallest that there is:
 *
 *   R1  (3) divides by the last allocation, which is 0 or unknown for a new job: the initial
 *       allocation of this period stands in.
 *   R2  (13) passes 1, and (14) then reclaims more than the job has: the allocation is the bound.
 *   R3  (24) read literally loses what the old remainder added: rho = alpha + rho_old - floor.
 *   R4  (7) and (19) divide by a sum of factors that is 0 where no demand is left: nothing moves.
 *   R5  (23) may floor to less than nothing, because a remainder is negative if rounding gave a
 *       token too much. "Reduce allocated tokens by one" in the excess case may do the same. No
 *       job's tokens go below 0 in any step; what is not taken of them stays in the remainder.
 *   R6  (2) divides a whole number of tokens. What T x period has beyond whole tokens is given out
 *       in the next periods (fs/adapt_period.c), together with what rounding a rate to tokens/s
 *       would lose.
 *   R7  Jobs end, and their records with them: what the others lent to them, or borrowed, is
 *       written off. So the records still add up to 0, and no job pays that owes nothing.
 *   R8  A period may end late, because no timer wakes an idle mount. The demand is then what was
 *       issued in a period's time, cut to whole requests, because surplus (4) is in whole tokens.
 *   R9  Jobs without a rule are served "if any idle I/O threads are available" (III-D), and the
 *       paper says that they do not starve. In a full store no thread is idle, so such a job goes
 *       when it has waited for longer than the next job with a rule (fs/adapt.c).
 *   R10 The numbers are of double precision. What is less than EPSILON below a whole token counts
 *       as whole, and remainders that differ by less are equal: in exact numbers these are ties.
 *       Among ties, the first job in the array goes first.
 *
 * tests/unit/paper_oracle.py has the equations in exact rational numbers.
 *
 * docs/design/adaptbf.md measures what AdapTBF cannot do well.
 */
#include "fs/adapt_paper.h"

#include <math.h>
#include <stdlib.h>

#include "fs/split.h"

#define EPSILON 1e-9

static double whole_of(double tokens)
{
    return floor(tokens + EPSILON); /* R10 */
}

/* Largest remainder first; the order of the jobs breaks ties, so that a run can be repeated. */
static int by_remainder(const void *a, const void *b)
{
    const QosPaperJob *left = *(QosPaperJob *const *)a;
    const QosPaperJob *right = *(QosPaperJob *const *)b;

    if (fabs(left->remainder - right->remainder) > EPSILON)
        return left->remainder > right->remainder ? -1 : 1;
    return left < right ? -1 : 1;
}

/* Corrects the parts by one token each, largest remainder first, until they add up: `missing` more
 * tokens, or fewer where it is negative. */
static void correct(QosPaperJob **jobs, guint count, gint64 missing)
{
    gint64 step = missing > 0 ? 1 : -1;

    if (count == 0)
        return;
    qsort(jobs, count, sizeof(*jobs), by_remainder);
    for (guint i = 0; missing != 0; i = (i + 1) % count) {
        QosPaperJob *job = jobs[i];
        if (job->part + step < -job->kept)
            continue; /* R5 */
        job->part += step;
        job->remainder -= (double)step;
        missing -= step;
    }
}

/* Rounds each `raw` to whole tokens, `part`, that add up to `tokens` (21 to 25). */
static void hand_out(QosPaperJob *jobs, guint count, gint64 tokens, gboolean compensated_only)
{
    g_autofree QosPaperJob **receivers = g_new(QosPaperJob *, count);
    guint receiver_count = 0;
    gint64 missing = tokens;

    for (guint i = 0; i < count; i++) {
        QosPaperJob *job = &jobs[i];
        job->part = 0;
        if (compensated_only && !job->is_compensated)
            continue;
        double whole = MAX(whole_of(job->raw + job->remainder), (double)-job->kept); /* R5 */
        job->remainder = job->raw + job->remainder - whole;                          /* R3 */
        job->part = (gint64)whole;
        missing -= job->part;
        receivers[receiver_count++] = job;
    }
    if (missing != 0)
        correct(receivers, receiver_count, missing);
}

/* Books what a job gives (> 0) or takes (< 0). */
static void book(QosPaperJob *job, gint64 flow)
{
    qos_share_totals_book(&job->totals, job->record, flow);
    job->record += flow;
}

/* 1. Priority-based initial allocation (1, 2). The allocation of the last period is replaced; its
 * utilization (3) is taken first. */
static void allocate_initially(QosPaperJob *jobs, guint count, gint64 tokens)
{
    double nodes = 0;

    for (guint i = 0; i < count; i++)
        nodes += (double)jobs[i].nodes;
    for (guint i = 0; i < count; i++) {
        jobs[i].priority = (double)jobs[i].nodes / nodes;
        jobs[i].raw = jobs[i].priority * (double)tokens;
        jobs[i].kept = 0;
    }
    hand_out(jobs, count, tokens, FALSE);
    for (guint i = 0; i < count; i++) {
        QosPaperJob *job = &jobs[i];
        gint64 last = job->allocation > 0 ? job->allocation : MAX(job->part, 1); /* R1 */
        job->utilization = (double)job->demand / (double)last;
        job->allocation = job->part;
    }
}

/* 2. Redistribution of surplus tokens (4 to 8). */
static void redistribute(QosPaperJob *jobs, guint count)
{
    gint64 surplus = 0;
    double factors = 0;

    for (guint i = 0; i < count; i++) {
        QosPaperJob *job = &jobs[i];
        job->surplus = MAX(job->allocation - job->demand, 0);
        job->factor = job->utilization * job->priority;
        if (job->utilization > 1)
            job->factor += job->utilization;
        job->old_record = job->record;
        surplus += job->surplus;
        factors += job->factor;
    }
    if (factors <= 0)
        return; /* R4 */
    for (guint i = 0; i < count; i++) {
        jobs[i].raw = jobs[i].factor / factors * (double)surplus;
        jobs[i].kept = jobs[i].allocation - jobs[i].surplus;
    }
    hand_out(jobs, count, surplus, FALSE);
    for (guint i = 0; i < count; i++) {
        jobs[i].allocation += jobs[i].part - jobs[i].surplus;
        book(&jobs[i], jobs[i].surplus - jobs[i].part);
    }
}

/* C (13), with the demand of the next period taken to be that of this one (11, 12). */
static double reclaim_coefficient(const QosPaperJob *jobs, guint count)
{
    double coefficient = 0;

    for (guint i = 0; i < count; i++) {
        const QosPaperJob *job = &jobs[i];
        if (!job->is_compensated)
            continue;
        double next = job->allocation > 0 ? (double)job->demand / (double)job->allocation : 1;
        coefficient += job->priority * (MAX(1, job->utilization) + MAX(0, 1 - next)) / 2;
    }
    return coefficient;
}

/* What the borrowers give back (14 to 17), in tokens. */
static gint64 reclaim(QosPaperJob *jobs, guint count, double coefficient)
{
    gint64 reclaimed = 0;

    for (guint i = 0; i < count; i++) {
        QosPaperJob *job = &jobs[i];
        if (!job->is_reclaimed_of)
            continue;
        double bound =
            MIN(whole_of(coefficient * (double)job->allocation), (double)job->allocation);
        gint64 part = (gint64)MIN((double)-job->old_record, bound); /* R2 */
        job->allocation -= part;
        book(job, part);
        reclaimed += part;
    }
    return reclaimed;
}

/* 3. Re-compensation for borrowed tokens (9 to 20). */
static void recompensate(QosPaperJob *jobs, guint count)
{
    double factors = 0;

    for (guint i = 0; i < count; i++) {
        QosPaperJob *job = &jobs[i];
        job->is_compensated = job->old_record > 0 && job->record > 0;
        job->is_reclaimed_of = job->old_record < 0 && job->record < 0;
        if (job->is_compensated)
            factors += job->factor;
    }
    if (factors <= 0)
        return; /* R4 */
    gint64 reclaimed = reclaim(jobs, count, reclaim_coefficient(jobs, count));
    for (guint i = 0; i < count; i++) {
        jobs[i].raw = jobs[i].factor / factors * (double)reclaimed;
        jobs[i].kept = jobs[i].allocation;
    }
    hand_out(jobs, count, reclaimed, TRUE);
    for (guint i = 0; i < count; i++) {
        jobs[i].allocation += jobs[i].part;
        book(&jobs[i], -jobs[i].part);
    }
}

void qos_paper_write_off(QosPaperJob *jobs, guint count)
{
    QosSplit lent = {0};
    QosSplit borrowed = {0};

    for (guint i = 0; i < count; i++) {
        lent.sum += MAX(jobs[i].record, 0);
        borrowed.sum += MAX(-jobs[i].record, 0);
    }
    lent.total = MAX(lent.sum - borrowed.sum, 0);
    borrowed.total = MAX(borrowed.sum - lent.sum, 0);
    for (guint i = 0; i < count; i++) {
        gint64 record = jobs[i].record;
        jobs[i].record -=
            record > 0 ? qos_split_next(&lent, record) : -qos_split_next(&borrowed, -record);
    }
}

static gint64 sum_of_records(const QosPaperJob *jobs, guint count)
{
    gint64 sum = 0;

    for (guint i = 0; i < count; i++)
        sum += jobs[i].record;
    return sum;
}

#ifndef NDEBUG
/* Jobs that are not active have records too: so what the sum is must stay. */
static void assert_sums(const QosPaperJob *jobs, guint count, gint64 tokens, gint64 records)
{
    gint64 allocations = 0;

    for (guint i = 0; i < count; i++) {
        g_assert(jobs[i].allocation >= 0);
        allocations += jobs[i].allocation;
    }
    g_assert(allocations == tokens && sum_of_records(jobs, count) == records);
}
#else
static void assert_sums(G_GNUC_UNUSED const QosPaperJob *jobs, G_GNUC_UNUSED guint count,
                        G_GNUC_UNUSED gint64 tokens, G_GNUC_UNUSED gint64 records)
{
}
#endif

void qos_paper_allocate(QosPaperJob *jobs, guint count, gint64 tokens)
{
    const gint64 records = sum_of_records(jobs, count);

    if (count == 0)
        return;
    allocate_initially(jobs, count, tokens);
    redistribute(jobs, count);
    recompensate(jobs, count);
    assert_sums(jobs, count, tokens, records);
}
