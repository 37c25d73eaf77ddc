/* The hold (fs/adapt_anticipation.h). */
#include "fs/adapt_anticipation.h"

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
/* Windows with anticipation between two without, which tell what it costs. */
#define TRIAL_WINDOWS 32
/* Windows without, after so many failures one after the other: 4, 8, ... */
#define PAUSE_MIN    4
#define FAILURES_MAX 6

static QosAnticipatedJob *find(QosAnticipation *anticipation, const QosJob *job)
{
    for (guint i = 0; i < anticipation->count; i++) {
        if (anticipation->jobs[i].job == job)
            return &anticipation->jobs[i];
    }
    return NULL;
}

void qos_anticipation_note_start(QosAnticipation *anticipation, QosJob *job, QosTime now)
{
    QosAnticipatedJob *entry = find(anticipation, job);
    if (entry == NULL && anticipation->count == QOS_ANTICIPATION_JOBS) {
        anticipation->is_crowded = TRUE;
        return;
    }
    if (entry == NULL) {
        entry = &anticipation->jobs[anticipation->count++];
        *entry = (QosAnticipatedJob){.job = job};
    }
    entry->has_gone = TRUE;
    entry->until = now + PATIENCE * entry->took;
}

void qos_anticipation_forget(QosAnticipation *anticipation, const QosJob *job)
{
    QosAnticipatedJob *entry = find(anticipation, job);

    if (entry != NULL)
        *entry = anticipation->jobs[--anticipation->count];
}

gboolean qos_anticipation_waits(QosAnticipation *anticipation, const QosJob *job, gint64 start,
                                QosTime now, QosTime *ret_wake)
{
    gboolean keeps = FALSE;

    if (!anticipation->is_anticipating)
        return FALSE;
    for (guint i = 0; i < anticipation->count; i++) {
        const QosAnticipatedJob *entry = &anticipation->jobs[i];
        if (entry->job == job || qos_heap_contains(&entry->job->share.order) ||
            now >= entry->until || entry->job->share.finish >= start)
            continue;
        keeps = TRUE;
        *ret_wake = MIN(*ret_wake, entry->until);
    }
    anticipation->has_waited |= keeps;
    return keeps;
}

/* --- windows --- */

static void begin_window(QosAnticipation *anticipation, QosTime now)
{
    anticipation->start = now;
    anticipation->replies = 0;
    anticipation->has_waited = anticipation->is_crowded = FALSE;
    for (guint i = 0; i < anticipation->count; i++)
        anticipation->jobs[i].units = 0;
}

static void switch_to(QosAnticipation *anticipation, gboolean is_anticipating, guint windows)
{
    anticipation->is_anticipating = is_anticipating;
    anticipation->windows = windows;
}

static double rate_of(const QosAnticipatedJob *entry, QosTime length)
{
    return (double)entry->units * (double)QOS_SECOND / (double)length;
}

/* TRUE where anticipation in this window has given to some jobs most of what it took from others.
 */
static gboolean is_worth_it(const QosAnticipation *anticipation, QosTime length)
{
    double gain = 0, loss = 0;

    for (guint i = 0; i < anticipation->count; i++) {
        const double change = rate_of(&anticipation->jobs[i], length) - anticipation->jobs[i].base;
        gain += MAX(change, 0);
        loss += MAX(-change, 0);
    }
    return gain >= GAIN_PART * loss;
}

static void end_window(QosAnticipation *anticipation, QosTime length)
{
    if (!anticipation->is_anticipating) {
        for (guint i = 0; i < anticipation->count; i++)
            anticipation->jobs[i].base = rate_of(&anticipation->jobs[i], length);
        if (anticipation->windows > 0)
            anticipation->windows--;
        if (anticipation->windows == 0 && !anticipation->is_crowded && anticipation->count > 1)
            switch_to(anticipation, TRUE, TRIAL_WINDOWS);
    } else if (anticipation->is_crowded ||
               (anticipation->has_waited && !is_worth_it(anticipation, length))) {
        switch_to(anticipation, FALSE, PAUSE_MIN << anticipation->failures);
        anticipation->failures = MIN(anticipation->failures + 1, FAILURES_MAX);
    } else if (--anticipation->windows == 0) {
        anticipation->failures = 0;
        switch_to(anticipation, FALSE, 1);
    }
}

/* Jobs that are no longer at work make room. */
static void sweep(QosAnticipation *anticipation, QosTime now)
{
    for (guint i = anticipation->count; i > 0; i--) {
        QosAnticipatedJob *entry = &anticipation->jobs[i - 1];
        if (!entry->has_gone && now >= entry->until)
            *entry = anticipation->jobs[--anticipation->count];
        else
            entry->has_gone = FALSE;
    }
}

void qos_anticipation_note_reply(QosAnticipation *anticipation, const QosJob *job, gint64 units,
                                 QosTime took, QosTime now)
{
    QosAnticipatedJob *entry = find(anticipation, job);

    if (entry != NULL) {
        const QosTime until = now + MIN(took / GRACE_PART, GRACE_MAX);
        entry->until = job->sched.use.running > 0 ? MAX(entry->until, until) : until;
        entry->took = MIN(took, TOOK_MAX);
        entry->units += units;
    }
    anticipation->replies++;
    const QosTime length = now - anticipation->start;
    if (length < WINDOW || (anticipation->replies < WINDOW_REPLIES && length < SLOW_WINDOW))
        return;
    end_window(anticipation, length);
    sweep(anticipation, now);
    begin_window(anticipation, now);
}
