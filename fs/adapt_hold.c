/* The hold (fs/adapt_hold.h). */
#include "fs/adapt_hold.h"

#include "fs/jobs.h"

/* After a reply its job's next request is expected for a quarter of what the store took, at most.
 */
#define PATIENCE       4
#define GRACE_PART     4
#define GRACE_MAX      (5 * QOS_MILLISECOND)
#define TOOK_MAX       QOS_SECOND
#define GAIN_PART      0.67
#define WINDOW         (100 * QOS_MILLISECOND)
#define WINDOW_REPLIES 16
#define SLOW_WINDOW    QOS_SECOND
/* Windows of hold between two without, which tell what it costs. */
#define HOLD_WINDOWS 32
/* Windows without, after so many failures one after the other: 4, 8, ... */
#define PAUSE_MIN    4
#define FAILURES_MAX 6

static QosHoldJob *find(QosHold *hold, const QosJob *job)
{
    for (guint i = 0; i < hold->count; i++) {
        if (hold->jobs[i].job == job)
            return &hold->jobs[i];
    }
    return NULL;
}

void qos_hold_went(QosHold *hold, QosJob *job, QosTime now)
{
    QosHoldJob *entry = find(hold, job);
    if (entry == NULL && hold->count == QOS_HOLD_JOBS) {
        hold->is_crowded = TRUE;
        return;
    }
    if (entry == NULL) {
        entry = &hold->jobs[hold->count++];
        *entry = (QosHoldJob){.job = job};
    }
    entry->has_gone = TRUE;
    entry->until = now + PATIENCE * entry->took;
}

void qos_hold_forget(QosHold *hold, const QosJob *job)
{
    QosHoldJob *entry = find(hold, job);

    if (entry != NULL)
        *entry = hold->jobs[--hold->count];
}

gboolean qos_hold_keeps(QosHold *hold, const QosJob *job, gint64 start, QosTime now,
                        QosTime *ret_wake)
{
    gboolean keeps = FALSE;

    if (!hold->is_holding)
        return FALSE;
    for (guint i = 0; i < hold->count; i++) {
        const QosHoldJob *entry = &hold->jobs[i];
        if (entry->job == job || qos_heap_contains(&entry->job->share.order) ||
            now >= entry->until || entry->job->share.finish >= start)
            continue;
        keeps = TRUE;
        *ret_wake = MIN(*ret_wake, entry->until);
    }
    hold->has_held |= keeps;
    return keeps;
}

/* --- windows --- */

static void begin_window(QosHold *hold, QosTime now)
{
    hold->start = now;
    hold->replies = 0;
    hold->has_held = hold->is_crowded = FALSE;
    for (guint i = 0; i < hold->count; i++)
        hold->jobs[i].units = 0;
}

static void switch_to(QosHold *hold, gboolean is_holding, guint windows)
{
    hold->is_holding = is_holding;
    hold->windows = windows;
}

static double rate_of(const QosHoldJob *entry, QosTime length)
{
    return (double)entry->units * (double)QOS_SECOND / (double)length;
}

/* TRUE where the hold of this window has given to some jobs most of what it took from others. */
static gboolean is_worth_it(const QosHold *hold, QosTime length)
{
    double gain = 0, loss = 0;

    for (guint i = 0; i < hold->count; i++) {
        const double change = rate_of(&hold->jobs[i], length) - hold->jobs[i].base;
        gain += MAX(change, 0);
        loss += MAX(-change, 0);
    }
    return gain >= GAIN_PART * loss;
}

static void end_window(QosHold *hold, QosTime length)
{
    if (!hold->is_holding) {
        for (guint i = 0; i < hold->count; i++)
            hold->jobs[i].base = rate_of(&hold->jobs[i], length);
        if (hold->windows > 0)
            hold->windows--;
        if (hold->windows == 0 && !hold->is_crowded && hold->count > 1)
            switch_to(hold, TRUE, HOLD_WINDOWS);
    } else if (hold->is_crowded || (hold->has_held && !is_worth_it(hold, length))) {
        switch_to(hold, FALSE, PAUSE_MIN << hold->failures);
        hold->failures = MIN(hold->failures + 1, FAILURES_MAX);
    } else if (--hold->windows == 0) {
        hold->failures = 0;
        switch_to(hold, FALSE, 1);
    }
}

/* Jobs that are no longer at work make room. */
static void sweep(QosHold *hold, QosTime now)
{
    for (guint i = hold->count; i > 0; i--) {
        QosHoldJob *entry = &hold->jobs[i - 1];
        if (!entry->has_gone && now >= entry->until)
            *entry = hold->jobs[--hold->count];
        else
            entry->has_gone = FALSE;
    }
}

void qos_hold_replied(QosHold *hold, const QosJob *job, gint64 units, QosTime took, QosTime now)
{
    QosHoldJob *entry = find(hold, job);

    if (entry != NULL) {
        const QosTime until = now + MIN(took / GRACE_PART, GRACE_MAX);
        entry->until = job->sched.use.running > 0 ? MAX(entry->until, until) : until;
        entry->took = MIN(took, TOOK_MAX);
        entry->units += units;
    }
    hold->replies++;
    const QosTime length = now - hold->start;
    if (length < WINDOW || (hold->replies < WINDOW_REPLIES && length < SLOW_WINDOW))
        return;
    end_window(hold, length);
    sweep(hold, now);
    begin_window(hold, now);
}
