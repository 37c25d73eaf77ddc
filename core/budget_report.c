/*
 * What mounts want and have, as a sparse histogram that adds up: reports, their sum, and the level
 * of that sum.
 *
 * The problem: a coordinator of 10,000 mounts must not learn of each one. The level at which mounts
 * with demand d and weight w fill a budget B is max-min fairness with weights (Bertsekas and
 * Gallager, Data Networks, 2nd ed., 6.5.2; the fluid model of Demers, Keshav and Shenker 1989, eq.
 * 1), and it needs the distribution of d/w:
 *
 *     sum min(d, level w) = B                                                       (water-filling)
 *
 * So combiners add up a histogram of d/w, whose steps are 2^(1/8) wide. In a step with the sums D
 * and W
 *
 *     sum min(d, level w) <= min(D, level W)                              (min is concave: Jensen),
 *
 * with equality in all steps but the one in which the level lies. Solving for min(D, level W)
 * therefore never hands out more than B, whatever the step hides; it hands out less by 1.1 % at
 * most of what the members in that one step get.
 *
 * All sums are whole numbers that stop at 2^64 - 1, so adding is associative and commutative to the
 * last digit, which floating point would not be.
 *
 * A sum of demands that has stopped is above every budget, which is 2^60 at most, so that it makes
 * no difference to the level.
 */
#include <math.h>

#include "base/bytes.h"
#include "core/budget.h"

#define STEPS_PER_OCTAVE 8
#define GUARD            1e-12 /* relative: more than what adding 512 doubles may lose */
#define BISECTIONS       100

static guint64 add(guint64 a, guint64 b)
{
    return a > G_MAXUINT64 - b ? G_MAXUINT64 : a + b;
}

/* --- one report --- */

void qos_budget_report_clear(QosBudgetReport *report)
{
    g_clear_pointer(&report->steps, g_free);
    *report = (QosBudgetReport){0};
}

static void reserve(QosBudgetReport *report, guint count)
{
    if (report->allocated >= count)
        return;
    report->allocated = MAX(count, 2 * report->allocated);
    report->steps = g_renew(QosBudgetStep, report->steps, report->allocated);
}

void qos_budget_report_copy(QosBudgetReport *to, const QosBudgetReport *from)
{
    if (to == from)
        return;
    reserve(to, from->count);
    if (from->count > 0)
        memcpy(to->steps, from->steps, from->count * sizeof(QosBudgetStep));
    to->ticket = from->ticket;
    to->held = from->held;
    to->served = from->served;
    to->count = from->count;
}

static gboolean steps_equal(const QosBudgetStep *a, const QosBudgetStep *b)
{
    return a->step == b->step && a->demand == b->demand && a->weight == b->weight &&
           a->held == b->held && a->held_weight == b->held_weight;
}

gboolean qos_budget_report_equal(const QosBudgetReport *a, const QosBudgetReport *b)
{
    if (a->ticket != b->ticket || a->held != b->held || a->served != b->served ||
        a->count != b->count)
        return FALSE;
    for (guint i = 0; i < a->count; i++) {
        if (!steps_equal(&a->steps[i], &b->steps[i]))
            return FALSE;
    }
    return TRUE;
}

guint qos_budget_step(guint64 rate, guint64 weight)
{
    double level = (double)rate / (double)weight;

    if (level <= 1)
        return 0;
    return MIN((guint)(log2(level) * STEPS_PER_OCTAVE), QOS_BUDGET_STEPS_MAX - 1);
}

void qos_budget_report_set(QosBudgetReport *report, guint64 demand, guint64 held, guint64 weight)
{
    const guint64 wanted = MIN(demand, QOS_BUDGET_RATE_MAX);
    QosBudgetStep want = {.demand = wanted, .weight = weight};
    QosBudgetStep have = {.held = held, .held_weight = weight};

    want.step = qos_budget_step(wanted, weight);
    have.step = qos_budget_step(held, weight);
    reserve(report, 2);
    report->held = held;
    report->count = 1;
    if (want.step == have.step) {
        want.held = held;
        want.held_weight = weight;
        report->steps[0] = want;
        return;
    }
    report->count = 2;
    report->steps[want.step > have.step] = want;
    report->steps[want.step < have.step] = have;
}

/* --- the sum of reports --- */

static void step_add(QosBudgetStep *step, const QosBudgetStep *other)
{
    step->demand = add(step->demand, other->demand);
    step->weight = add(step->weight, other->weight);
    step->held = add(step->held, other->held);
    step->held_weight = add(step->held_weight, other->held_weight);
}

/* How many steps of `other` are none of `report`. */
static guint count_new(const QosBudgetReport *report, const QosBudgetReport *other)
{
    guint count = other->count;

    for (guint i = 0, j = 0; i < report->count && j < other->count;) {
        const guint32 a = report->steps[i].step, b = other->steps[j].step;
        count -= a == b;
        i += a <= b;
        j += b <= a;
    }
    return count;
}

/* Merges from the end, so that it needs no second array. */
static void add_steps(QosBudgetReport *report, const QosBudgetReport *other)
{
    const guint total = report->count + count_new(report, other);
    guint i = report->count, j = other->count, to = total;

    reserve(report, total);
    while (j > 0) {
        const QosBudgetStep *from = &other->steps[j - 1];
        if (i > 0 && report->steps[i - 1].step > from->step) {
            report->steps[--to] = report->steps[--i];
            continue;
        }
        QosBudgetStep sum = *from;
        if (i > 0 && report->steps[i - 1].step == from->step)
            step_add(&sum, &report->steps[--i]);
        report->steps[--to] = sum;
        j--;
    }
    report->count = total;
}

void qos_budget_report_add(QosBudgetReport *report, const QosBudgetReport *other)
{
    add_steps(report, other);
    report->held = add(report->held, other->held);
    report->served = add(report->served, other->served);
}

/* --- levels --- */

double qos_budget_take(const QosBudgetReport *report, double level)
{
    double sum = 0;

    for (guint i = 0; i < report->count; i++) {
        const QosBudgetStep *step = &report->steps[i];
        sum += MIN((double)step->demand, level * (double)step->weight);
    }
    return sum;
}

/* Between 0 and a level that is too high. */
static double bisect(const QosBudgetReport *report, double budget, double high)
{
    double low = 0;

    for (guint i = 0; i < BISECTIONS; i++) {
        double middle = low + (high - low) / 2;
        if (qos_budget_take(report, middle) <= budget)
            low = middle;
        else
            high = middle;
    }
    return low;
}

double qos_budget_level(const QosBudgetReport *report, double budget)
{
    double left = budget;
    double weight = 0;
    double level = G_MAXDOUBLE;

    if (qos_budget_take(report, G_MAXDOUBLE) <= budget)
        return G_MAXDOUBLE;
    if (budget <= 0)
        return 0;
    for (guint i = 0; i < report->count; i++)
        weight += (double)report->steps[i].weight;
    for (guint i = 0; i < report->count && weight > 0; i++) {
        const QosBudgetStep *step = &report->steps[i];
        if (step->weight > 0 && (double)step->demand * weight >= left * (double)step->weight) {
            level = left / weight;
            break;
        }
        left -= (double)step->demand;
        weight -= (double)step->weight;
    }
    level = MIN(level, budget) * (1 - GUARD); /* no weight is below 1 */
    /* Steps that do not grow, since a sum stopped or a peer says what cannot be. */
    if (qos_budget_take(report, level) > budget)
        level = bisect(report, budget, level);
    return level;
}

/* --- what may be raised --- */

static double excess(double level, guint64 weight, guint64 rate)
{
    return MAX(level * (double)weight - (double)rate, 0);
}

guint64 qos_budget_allotment(const QosBudgetReport *report, double raise, double raise_rest)
{
    double sum = 0;

    for (guint i = 0; i < report->count; i++) {
        const QosBudgetStep *step = &report->steps[i];
        if (raise < G_MAXDOUBLE)
            sum += excess(raise, step->held_weight, step->held) -
                   excess(raise, step->weight, step->demand);
        else
            sum += (double)step->demand + raise_rest * (double)step->weight - (double)step->held;
    }
    sum *= 1 - GUARD;
    if (!(sum > 0))
        return 0;
    return sum < (double)QOS_BUDGET_RATE_MAX ? (guint64)sum : QOS_BUDGET_RATE_MAX;
}

/* --- bytes: whole numbers in groups of seven bits, the lowest first; doubles as eight bytes --- */

static void put_number(GByteArray *bytes, guint64 number)
{
    while (number >= 0x80) {
        qos_bytes_put_u8(bytes, (guint8)(number | 0x80));
        number >>= 7;
    }
    qos_bytes_put_u8(bytes, (guint8)number);
}

/* In the shortest form alone. */
static gboolean take_number(const guint8 **bytes, gsize *length, guint64 *ret_number)
{
    guint64 number = 0;
    guint8 byte;

    for (guint shift = 0; shift < 64; shift += 7) {
        if (!qos_bytes_take_u8(bytes, length, &byte) || (shift == 63 && byte > 1))
            return FALSE;
        number |= (guint64)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_number = number;
            return byte != 0 || shift == 0;
        }
    }
    return FALSE;
}

void qos_budget_report_encode(const QosBudgetReport *report, GByteArray *bytes)
{
    guint32 after = 0;

    put_number(bytes, report->ticket);
    put_number(bytes, report->held);
    put_number(bytes, report->served);
    put_number(bytes, report->count);
    for (guint i = 0; i < report->count; i++) {
        const QosBudgetStep *step = &report->steps[i];
        put_number(bytes, step->step - after);
        put_number(bytes, step->demand);
        put_number(bytes, step->weight);
        put_number(bytes, step->held);
        put_number(bytes, step->held_weight);
        after = step->step + 1;
    }
}

static gboolean take_step(const guint8 **bytes, gsize *length, QosBudgetStep *step)
{
    guint64 gap;

    if (!take_number(bytes, length, &gap) || !take_number(bytes, length, &step->demand) ||
        !take_number(bytes, length, &step->weight) || !take_number(bytes, length, &step->held) ||
        !take_number(bytes, length, &step->held_weight))
        return FALSE;
    step->step = (guint32)MIN(gap, QOS_BUDGET_STEPS_MAX);
    return (step->weight > 0 || step->demand == 0) && (step->held_weight > 0 || step->held == 0) &&
           (step->weight > 0 || step->held_weight > 0);
}

static gboolean take_steps(const guint8 **bytes, gsize *length, QosBudgetReport *report,
                           guint64 count)
{
    guint32 after = 0;
    guint64 held = 0;

    if (count > QOS_BUDGET_STEPS_MAX || count > *length)
        return FALSE;
    reserve(report, (guint)count);
    for (guint i = 0; i < count; i++) {
        QosBudgetStep *step = &report->steps[i];
        if (!take_step(bytes, length, step))
            return FALSE;
        step->step += after;
        if (step->step >= QOS_BUDGET_STEPS_MAX)
            return FALSE;
        after = step->step + 1;
        held = add(held, step->held);
    }
    report->count = (guint)count;
    return held <= report->held && *length == 0;
}

gboolean qos_budget_report_decode(const guint8 *bytes, gsize length, QosBudgetReport *ret_report)
{
    guint64 count;

    ret_report->count = 0;
    if (take_number(&bytes, &length, &ret_report->ticket) &&
        take_number(&bytes, &length, &ret_report->held) &&
        take_number(&bytes, &length, &ret_report->served) && take_number(&bytes, &length, &count) &&
        take_steps(&bytes, &length, ret_report, count))
        return TRUE;
    qos_budget_report_clear(ret_report);
    return FALSE;
}

static void put_double(GByteArray *bytes, double number)
{
    guint64 bits;

    memcpy(&bits, &number, sizeof(bits));
    qos_bytes_put_u64(bytes, bits);
}

static gboolean take_double(const guint8 **bytes, gsize *length, double *ret_number)
{
    guint64 bits;

    if (!qos_bytes_take_u64(bytes, length, &bits))
        return FALSE;
    memcpy(ret_number, &bits, sizeof(bits));
    return *ret_number >= 0 && *ret_number <= G_MAXDOUBLE && !signbit(*ret_number);
}

void qos_budget_grant_encode(const QosBudgetGrant *grant, GByteArray *bytes)
{
    put_number(bytes, grant->ticket);
    put_double(bytes, grant->level);
    put_double(bytes, grant->rest);
    put_double(bytes, grant->raise);
    put_double(bytes, grant->raise_rest);
    put_number(bytes, (guint64)grant->lease);
}

void qos_budget_grant_set_ticket(GByteArray *bytes, guint64 ticket)
{
    guint8 digits[(64 + 6) / 7];
    guint old = 0, count = 0;

    while (bytes->data[old++] >= 0x80)
        continue;
    for (; ticket >= 0x80; ticket >>= 7)
        digits[count++] = (guint8)(ticket | 0x80);
    digits[count++] = (guint8)ticket;
    if (count > old)
        g_byte_array_prepend(bytes, digits, count - old);
    else if (count < old)
        g_byte_array_remove_range(bytes, 0, old - count);
    memcpy(bytes->data, digits, count);
}

gboolean qos_budget_grant_decode(const guint8 *bytes, gsize length, QosBudgetGrant *ret_grant)
{
    QosBudgetGrant grant;
    guint64 lease;

    if (!take_number(&bytes, &length, &grant.ticket) ||
        !take_double(&bytes, &length, &grant.level) || !take_double(&bytes, &length, &grant.rest) ||
        !take_double(&bytes, &length, &grant.raise) ||
        !take_double(&bytes, &length, &grant.raise_rest) || !take_number(&bytes, &length, &lease) ||
        length > 0)
        return FALSE;
    if (lease == 0 || lease > G_MAXINT64 || grant.raise > grant.level ||
        grant.raise_rest > grant.rest)
        return FALSE;
    grant.lease = (QosTime)lease;
    *ret_grant = grant;
    return TRUE;
}
