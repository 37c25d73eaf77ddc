/*
 * Fair adaptive sharing. For each job with weight w and minimum m, and for the capacity C:
 *
 *     entitlement  E = max(m, level w)                 sum E = C: what it gets when all want theirs
 *     demand       D = served + waiting                (mend 4)
 *     filling      F = min(D + headroom, max(m, level' w))   sum F = C   (mend 2)
 *                  and what is left where all have enough goes by weight
 *     repayment    R = from borrowers to lenders that want more than F   (mends 1 and 7)
 *     allocation   A = F + R                           sum A = C
 *     rate         E A / F                             E itself, but for those in a repayment
 *
 * A "mend" is a change to AdapTBF's published equations. docs/design/adaptbf.md numbers the mends,
 * and has the reasons and the figures.
 *
 * A record changes only by consumption: by what one job was served beyond its entitlement, as far
 * as other jobs left theirs unused. The records of those jobs change by the same sum (mend 11). A
 * job with waiting requests has left nothing unused: if another job was served one request more,
 * that is no loan. Records are bounded by RECORD_BOUND, and shrink to a third in RECORD_DECAY, so
 * that what was lent in the morning does not rule the evening.
 *
 * Repayment takes at most a tenth of a borrower's entitlement, and gives a lender at most a tenth
 * of its own. So a backlogged job gets between 0.9 and 1.1 of its entitlement in any window, and
 * Jain's index over these is at least 1 - 0.1^2 = 0.99. A record at its bound, 3 s, is paid back or
 * decayed to a tenth within 20 s.
 *
 * The levels come from Newton's method on a sum of clamped lines (solve_level()); each step is
 * O(n).
 */
#include "fs/adapt_fair.h"

#include <math.h>

#include "fs/split.h"

#define RECORD_BOUND        (3 * QOS_SECOND)  /* of the lender's entitlement: a burst's worth */
#define RECORD_DECAY        (20 * QOS_SECOND) /* some bursts of a job that computes and writes */
#define HEADROOM_FRACTION   8   /* of the demand: a job that grows is not held at what it was */
#define REPAID_FRACTION     10  /* of an entitlement, in a period: see above */
#define UNRESERVED_FRACTION 100 /* of the capacity, for all without a reservation */
#define LEVEL_STEPS_MAX     200 /* bisection alone needs about 110 for any double */

/* --- levels --- */

/* A quantity of `from` as one of `to`; `from` > 0. */
static gint64 scaled(gint64 quantity, gint64 to, gint64 from)
{
    if (to == from)
        return quantity;
    __int128 part = (__int128)quantity * to / from;
    return (gint64)MIN(part, QOS_FAIR_UNITS_MAX);
}

static gint64 clamped(const QosFairJob *job, double level)
{
    double line = rint(level * (double)job->weight);
    return line >= (double)job->high ? job->high : MAX((gint64)line, job->low);
}

/* The sum of clamp(level w, low, high) and, in *ret_slope, of the weights that are not clamped. */
static double level_sum(const QosFairJob *jobs, guint count, double level, double *ret_slope)
{
    double sum = 0;

    *ret_slope = 0;
    for (guint i = 0; i < count; i++) {
        const QosFairJob *job = &jobs[i];
        double line = level * (double)job->weight;
        if (line <= (double)job->low) {
            sum += (double)job->low;
        } else if (line >= (double)job->high) {
            sum += (double)job->high;
        } else {
            sum += line;
            *ret_slope += (double)job->weight;
        }
    }
    return sum;
}

/* The level at which the clamped lines add up to `capacity`: Newton's method, kept inside a
 * bracket. It ends where the sum is right to a unit a job, which the rounding takes anyway. */
static double solve_level(const QosFairJob *jobs, guint count, gint64 capacity)
{
    double low = 0;
    double high = (double)capacity; /* weights are 1 and more: no job can have a higher level */
    double weights = 0;

    for (guint i = 0; i < count; i++)
        weights += (double)jobs[i].weight;
    double level = high / weights; /* the level if no job is at a bound */
    for (guint i = 0; i < LEVEL_STEPS_MAX && low < high; i++) {
        double slope;
        double missing = (double)capacity - level_sum(jobs, count, level, &slope);
        if (fabs(missing) < 0.5)
            break;
        if (missing > 0)
            low = level;
        else
            high = level;
        double next = slope > 0 ? level + missing / slope : high + 1;
        level = next > low && next < high ? next : low + (high - low) / 2;
    }
    return level;
}

/* Divides `capacity` into `part`s of clamp(level w, low, high), to the unit. The sum of the lows
 * must not pass it, that of the highs must reach it. */
static void fill(QosFairJob *jobs, guint count, gint64 capacity)
{
    double level = solve_level(jobs, count, capacity);
    gint64 missing = capacity;

    for (guint i = 0; i < count; i++) {
        jobs[i].part = clamped(&jobs[i], level);
        missing -= jobs[i].part;
    }
    /* Rounding leaves a few units a job, which are spread evenly over the jobs that are not at a
     * bound. */
    for (gint64 each = missing / (gint64)count; missing != 0; each = missing / (gint64)count) {
        gint64 before = missing;
        for (guint i = 0; i < count && missing != 0; i++) {
            QosFairJob *job = &jobs[i];
            gint64 step = each != 0 ? each : (missing > 0 ? 1 : -1);
            gint64 part = CLAMP(job->part + step, job->low, job->high);
            missing -= part - job->part;
            job->part = part;
        }
        g_assert(missing != before);
    }
}

static __int128 sum_of_minimums(const QosFairJob *jobs, guint count)
{
    __int128 sum = 0;
    for (guint i = 0; i < count; i++)
        sum += jobs[i].minimum;
    return sum;
}

/* The part of the capacity that reservations may take: not all of it if some jobs have none. */
static gint64 reservable(const QosFairJob *jobs, guint count, gint64 capacity)
{
    for (guint i = 0; i < count; i++) {
        if (jobs[i].minimum == 0)
            return capacity - capacity / UNRESERVED_FRACTION;
    }
    return capacity;
}

/* The part of its reservation that a job gets. If the reservations are more than there is, all are
 * cut in proportion. */
static gint64 granted_minimum(const QosFairJob *job, __int128 sum, gint64 there)
{
    if (sum <= there)
        return job->minimum;
    return (gint64)((__int128)job->minimum * there / sum);
}

static void set_entitlements(QosFairJob *jobs, guint count, gint64 capacity)
{
    const __int128 minimums = sum_of_minimums(jobs, count);
    const gint64 there = reservable(jobs, count, capacity);

    for (guint i = 0; i < count; i++) {
        jobs[i].low = granted_minimum(&jobs[i], minimums, there);
        jobs[i].high = capacity;
    }
    fill(jobs, count, capacity);
    for (guint i = 0; i < count; i++)
        jobs[i].entitlement = jobs[i].part;
}

/* Sets the allocations to the filling. */
static void fill_demands(QosFairJob *jobs, guint count, gint64 capacity, QosTime period,
                         QosTime elapsed)
{
    const __int128 minimums = sum_of_minimums(jobs, count);
    const gint64 there = reservable(jobs, count, capacity);
    gint64 wanted = 0;

    for (guint i = 0; i < count; i++) {
        QosFairJob *job = &jobs[i];
        job->demand = scaled(job->served, period, elapsed) + job->waiting;
        job->high = MIN(job->demand + job->demand / HEADROOM_FRACTION, capacity);
        job->low = MIN(granted_minimum(job, minimums, there), job->high);
        wanted = MIN(wanted + job->high, QOS_FAIR_UNITS_MAX);
    }
    if (wanted < capacity) { /* all have enough: the rest by weight, in case they want it */
        for (guint i = 0; i < count; i++) {
            jobs[i].low = jobs[i].high;
            jobs[i].high = capacity;
        }
    }
    fill(jobs, count, capacity);
    for (guint i = 0; i < count; i++)
        jobs[i].filling = jobs[i].allocation = jobs[i].part;
}

/* --- records --- */

/* Shrinks what is lent and what is borrowed to `kept` of it, and to the smaller of both. */
static void shrink_records(QosFairJob *jobs, guint count, double kept)
{
    QosSplit credit = {0};
    QosSplit debt = {0};

    for (guint i = 0; i < count; i++) {
        credit.sum += MAX(jobs[i].record, 0);
        debt.sum += MAX(-jobs[i].record, 0);
    }
    gint64 target = MIN((gint64)((double)credit.sum * kept), MIN(credit.sum, debt.sum));
    credit.total = credit.sum - target;
    debt.total = debt.sum - target;
    for (guint i = 0; i < count; i++) {
        if (jobs[i].record > 0)
            jobs[i].record -= qos_split_next(&credit, jobs[i].record);
        else
            jobs[i].record += qos_split_next(&debt, -jobs[i].record);
    }
}

void qos_fair_write_off(QosFairJob *jobs, guint count)
{
    shrink_records(jobs, count, 1);
}

/* Books what a job gave (> 0) or took (< 0). */
static void book(QosFairJob *job, gint64 flow)
{
    qos_share_totals_book(&job->totals, job->record, flow);
    job->record += flow;
    job->flow = flow;
}

/* What the job was entitled to in the period that ends. */
static gint64 entitled(const QosFairJob *job, QosTime period, QosTime elapsed)
{
    return scaled(job->entitlement, elapsed, period);
}

/* What the job left of its entitlement because it did not want it or had to repay, as far as its
 * record may grow. A job that wanted its entitlement, and was served one request less than another,
 * has lent nothing. */
static gint64 left(const QosFairJob *job, QosTime period, QosTime elapsed)
{
    double bound = (double)job->entitlement * (double)RECORD_BOUND / (double)period;
    double room = CLAMP(bound - (double)job->record, 0, (double)QOS_FAIR_UNITS_MAX);
    gint64 part = entitled(job, period, elapsed);
    gint64 payment = scaled(MAX(job->filling - job->allocation, 0), elapsed, period);
    gint64 unwanted = MAX(part - job->served - job->waiting, 0);

    return MIN(MIN(MAX(part - job->served, 0), unwanted + payment), (gint64)room);
}

/* A job that was served beyond its entitlement borrowed from the jobs that left theirs unused. */
static void settle(QosFairJob *jobs, guint count, QosTime period, QosTime elapsed)
{
    QosSplit lent = {0};
    QosSplit borrowed = {0};

    for (guint i = 0; i < count; i++) {
        gint64 excess = jobs[i].served - entitled(&jobs[i], period, elapsed);
        jobs[i].part = excess > 0 ? -excess : left(&jobs[i], period, elapsed);
        lent.sum += MAX(jobs[i].part, 0);
        borrowed.sum += MAX(-jobs[i].part, 0);
    }
    lent.total = borrowed.total = MIN(lent.sum, borrowed.sum);
    for (guint i = 0; i < count; i++) {
        gint64 part = jobs[i].part;
        book(&jobs[i], part > 0 ? qos_split_next(&lent, part) : -qos_split_next(&borrowed, -part));
    }
}

/* --- repayment --- */

/* What repayment takes from a job in a period, or gives it, at most. */
static gint64 instalment(const QosFairJob *job)
{
    return job->entitlement / REPAID_FRACTION;
}

/* What a lender may get back in a period: no more than it lent, and than it waits for. */
static gint64 claim(const QosFairJob *job)
{
    return MIN(MIN(MAX(job->record, 0), MAX(job->demand - job->allocation, 0)), instalment(job));
}

static gint64 kept_entitlement(const QosFairJob *job)
{
    return job->entitlement - instalment(job);
}

/* What a borrower may pay: no more than it owes, and nine tenths of its entitlement stay. */
static gint64 payable(const QosFairJob *job)
{
    return MIN(MAX(-job->record, 0), MAX(job->allocation - kept_entitlement(job), 0));
}

/* Also beside jobs that wake up within the period, a borrower is not held below what it keeps. */
static gint64 scaled_rate(const QosFairJob *job)
{
    gint64 rate = job->entitlement;

    if (job->filling > 0 && job->allocation != job->filling)
        rate = MAX(scaled(rate, job->allocation, job->filling), kept_entitlement(job));
    return MAX(rate, 1);
}

/* Moves allocation from borrowers to the lenders that want more, and sets the rates. */
static void repay(QosFairJob *jobs, guint count)
{
    QosSplit claims = {0};
    QosSplit payments = {0};

    for (guint i = 0; i < count; i++) {
        claims.sum += claim(&jobs[i]);
        payments.sum += payable(&jobs[i]);
    }
    claims.total = payments.total = MIN(claims.sum, payments.sum);
    for (guint i = 0; i < count; i++) {
        QosFairJob *job = &jobs[i];
        job->allocation += job->record > 0 ? qos_split_next(&claims, claim(job))
                                           : -qos_split_next(&payments, payable(job));
        job->rate = scaled_rate(job);
    }
}

/* --- the step --- */

#ifndef NDEBUG
static void assert_sums(const QosFairJob *jobs, guint count, gint64 capacity)
{
    gint64 entitlements = 0;
    gint64 allocations = 0;
    gint64 records = 0;

    for (guint i = 0; i < count; i++) {
        g_assert(jobs[i].entitlement >= 0 && jobs[i].allocation >= 0 && jobs[i].rate > 0);
        if (jobs[i].demand >= jobs[i].entitlement) /* less the rounding */
            g_assert(jobs[i].allocation >= kept_entitlement(&jobs[i]) - 2);
        entitlements += jobs[i].entitlement;
        allocations += jobs[i].allocation;
        records += jobs[i].record;
    }
    g_assert(entitlements == capacity && allocations == capacity && records == 0);
}
#else
static void assert_sums(G_GNUC_UNUSED const QosFairJob *jobs, G_GNUC_UNUSED guint count,
                        G_GNUC_UNUSED gint64 capacity)
{
}
#endif

void qos_fair_step(QosFairJob *jobs, guint count, gint64 capacity, QosTime period, QosTime elapsed)
{
    if (count == 0)
        return;
    settle(jobs, count, period, elapsed);
    shrink_records(jobs, count, exp(-(double)elapsed / (double)RECORD_DECAY));
    set_entitlements(jobs, count, capacity);
    fill_demands(jobs, count, capacity, period, elapsed);
    repay(jobs, count);
    assert_sums(jobs, count, capacity);
}
