/*
 * A mount's side of a budget: what it reports, and the rate that is in force.
 *
 * The rule that makes core/budget.c's sum a bound: between a report and its answer a mount's rate
 * only falls. It rises by an answer alone, once for each report, and by no more than what the
 * coordinator works out from the same report with the same function (qos_budget_allotment). A
 * report that is sent again has a new ticket, so that an answer to the one before is void.
 *
 * A rate has a lease. It counts from when the report was sent, less 1 %; the coordinator counts
 * from when it answered, and 1 % more. So by two clocks that are each 1 % wrong, the mount is at
 * its floor before the coordinator lends the rate on.
 *
 * An answer may come when the lease of what its report held has ended. By then that may be lent on,
 * so the mount goes up from what it has now, not from what it held.
 *
 * A floor that shrinks is lent to others as soon as all mounts have said that theirs did. So a
 * mount gives it up at once, also where it is part of a larger rate that has a lease: else that
 * rate would be counted as the coordinator's share and the floor as another mount's.
 *
 * Limit: the floor is the mount's for good. Only a rule that changes and the durable list of
 * clients take it back.
 */
#include <math.h>

#include "core/budget.h"

void qos_budget_mount_init(QosBudgetMount *mount, const QosBudgetConfig *config, guint64 weight,
                           guint64 floor, guint32 incarnation)
{
    *mount = (QosBudgetMount){
        .share = config->share,
        .away = config->away,
        .weight = weight,
        .floor = floor,
        .lease = config->lease,
        .rate = floor,
        .ticket = (guint64)incarnation << QOS_BUDGET_TICKET_BITS,
        .asking = QOS_NEVER,
    };
}

void qos_budget_mount_configure(QosBudgetMount *mount, const QosBudgetConfig *config, guint64 floor)
{
    const guint64 before = MAX(mount->rate, mount->floor);
    const gboolean is_hard = config->share == QOS_BUDGET_HARD;
    const gboolean is_less = floor < mount->floor;

    mount->rate = MIN(is_hard && is_less ? before - (mount->floor - floor) : before, config->limit);
    if (is_hard && (is_less || mount->share != config->share))
        mount->ticket++;
    mount->share = config->share;
    mount->away = config->away;
    mount->lease = config->lease;
    mount->floor = floor;
}

void qos_budget_mount_ask(QosBudgetMount *mount, QosTime since)
{
    mount->asking = since == QOS_NEVER ? QOS_NEVER : MIN(mount->asking, since);
}

void qos_budget_mount_end_lease(QosBudgetMount *mount, QosTime now)
{
    mount->until = MIN(mount->until, now);
    mount->ticket++;
}

gboolean qos_budget_mount_is_away(const QosBudgetMount *mount, QosTime now)
{
    return mount->asking != QOS_NEVER && now - mount->asking >= mount->lease;
}

/* What the lease leaves. */
static guint64 leased_rate(const QosBudgetMount *mount, QosTime now)
{
    return now < mount->until ? MAX(mount->rate, mount->floor) : mount->floor;
}

guint64 qos_budget_mount_rate(const QosBudgetMount *mount, QosTime now)
{
    if (now < mount->until || !qos_budget_mount_is_away(mount, now))
        return leased_rate(mount, now);
    switch (mount->away) {
    case QOS_BUDGET_AWAY_OPEN:
        return QOS_BUDGET_NO_BOUND;
    case QOS_BUDGET_AWAY_STOP:
        return 0;
    case QOS_BUDGET_AWAY_FLOOR:
        break;
    }
    return mount->floor;
}

/* min(d, level w), or d and a part of the rest; never below the floor. */
static guint64 target(const QosBudgetMount *mount, double level, double rest)
{
    const double weight = (double)mount->weight;
    double rate = (double)mount->demand;

    if (level < G_MAXDOUBLE)
        rate = MIN(rate, level * weight);
    else
        rate += rest * weight;
    rate = MIN(rate, (double)QOS_BUDGET_RATE_MAX);
    return MAX((guint64)rate, mount->floor);
}

void qos_budget_mount_report(QosBudgetMount *mount, guint64 demand, guint64 served, QosTime now,
                             QosBudgetReport *report)
{
    const gboolean is_hard = mount->share == QOS_BUDGET_HARD;

    mount->ticket++;
    mount->rate = leased_rate(mount, now);
    mount->demand = MIN(demand, QOS_BUDGET_RATE_MAX);
    if (is_hard) /* the floor is reserved for the mount: the level has to count it */
        mount->demand = MAX(mount->demand, mount->floor);
    if (demand == 0)
        mount->rate = mount->floor;
    else if (is_hard)
        mount->rate = MIN(mount->rate, target(mount, G_MAXDOUBLE, mount->rest));
    mount->held = mount->rate;
    mount->sent = now;
    if (demand == 0)
        mount->asking = QOS_NEVER;
    else if (mount->asking == QOS_NEVER)
        mount->asking = now;

    qos_budget_report_set(report, mount->demand, mount->held, mount->weight);
    if (demand == 0) {
        report->count = 0;
        report->held = is_hard ? mount->floor : 0; /* FAIR lends the floors of idle mounts on */
    }
    report->ticket = mount->ticket;
    report->served = served;
}

gboolean qos_budget_mount_grant(QosBudgetMount *mount, const QosBudgetGrant *grant, QosTime now)
{
    QosBudgetStep steps[2];
    QosBudgetReport report = {.steps = steps, .allocated = G_N_ELEMENTS(steps)};
    guint64 rate = target(mount, grant->level, grant->rest);

    if (mount->asking == QOS_NEVER || grant->ticket != mount->ticket)
        return FALSE;
    mount->rate = leased_rate(mount, now);
    if (mount->share == QOS_BUDGET_HARD) {
        qos_budget_report_set(&report, mount->demand, mount->held, mount->weight);
        rate = MIN(rate, MIN(mount->held, mount->rate) +
                             qos_budget_allotment(&report, grant->raise, grant->raise_rest));
    }
    mount->rate = rate;
    mount->rest = grant->level < G_MAXDOUBLE ? 0 : grant->rest;
    mount->until = qos_time_add(mount->sent, grant->lease - QOS_BUDGET_DRIFT(grant->lease));
    mount->asking = QOS_NEVER;
    return TRUE;
}
