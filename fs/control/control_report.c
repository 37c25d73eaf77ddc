/*
 * The report of a mount as of now, with its wall clock, and the question which users may set. Both
 * the settings (control.c) and the texts (control_texts.c) need these, and this file needs neither
 * of them.
 */
#include "fs/control/state.h"

#define CLOCK_APART QOS_MILLISECOND        /* between two clocks that were read together */
#define CLOCK_STEP  (50 * QOS_MILLISECOND) /* by which the wall clock was set, not read late */
#define CLOCK_TRIES 10

gboolean qos_control_may_set(fuse_req_t request)
{
    uid_t uid = fuse_req_ctx(request)->uid;

    return uid == 0 || uid == qos_fs(request)->owner;
}

/* The wall clock's offset from the gate's. The two are read one after the other. A thread that
 * loses its CPU between them reads again. */
static QosTime read_clock_offset(void)
{
    QosTime before, wall;
    guint tries = 0;

    do {
        before = qos_clock_now();
        wall = qos_wall_now();
    } while (qos_clock_now() - before > CLOCK_APART && ++tries < CLOCK_TRIES);
    return wall - before;
}

/* A moment has one date in all reports, unless the wall clock was set in between. */
static void date(QosControl *control, QosReport *report)
{
    QosTime offset = read_clock_offset();

    qos_mutex_lock(&control->lock);
    if (ABS(offset - control->clock_offset) > CLOCK_STEP)
        control->clock_offset = offset;
    report->wall = report->now + control->clock_offset;
    qos_mutex_unlock(&control->lock);
}

QosReport *qos_control_report(QosControl *control, QosReportJobs jobs)
{
    QosTunables tunables;
    QosReport *report;

    qos_mutex_lock(&control->lock);
    qos_tunables_copy(&tunables, &control->tunables);
    qos_mutex_unlock(&control->lock);
    report = qos_report_new(control->fs, &tunables, control->started, jobs);
    qos_tunables_clear(&tunables);
    date(control, report);
    return report;
}
