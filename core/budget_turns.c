/*
 * Members that report by turns come down to one level, too.
 *
 * The problem: an epoch hands out what the members that are silent in it do not hold. Where the way
 * to a member and back is longer than an epoch, a member reports in every second one. Then of two
 * members one may hold nearly all and the other nothing, for good: the first finds that the silent
 * other holds nothing, and the second that nothing is left.
 *
 * So those that reported lately, and have been answered since, count with what they want:
 *
 *     T = sum of what the members in this epoch would get + sum of what the others hold
 *     the members in this epoch get no more than the level at which all of these divide T
 *
 * What a member gives up so is there for the others in the next epoch. The level only falls by
 * this, so no bound depends on it.
 *
 * Limit: what differs by less than a tenth is left as it is, because the histogram's steps are as
 * coarse; and a member that dies in want holds the others to this level for LATELY epochs.
 */
#include "core/budget_private.h"

#define LATELY  4   /* epochs */
#define CLEARLY 0.9 /* of the level */

static gboolean is_now(const QosBudgetMember *member, gboolean passed_only)
{
    return passed_only ? member->is_passed : member->is_fresh;
}

static gboolean is_lately(const QosBudget *budget, const QosBudgetMember *member, QosTime now)
{
    return member->report.count > 0 && now < member->until &&
           now - member->heard <= LATELY * budget->config.epoch;
}

/* What those in `report` are to have in the end. */
static double given(const QosBudgetReport *report, const QosBudgetGrant *grant)
{
    double sum = qos_budget_take(report, grant->level);

    for (guint i = 0; grant->rest > 0 && i < report->count; i++)
        sum += grant->rest * (double)report->steps[i].weight;
    return sum;
}

void qos_budget_cap_level(QosBudget *budget, gboolean passed_only, QosTime now,
                          QosBudgetGrant *grant)
{
    QosBudgetReport all = {0};
    double total = 0;
    gboolean is_any = FALSE;

    for (guint i = 0; i < budget->members->len; i++)
        is_any |= !is_now(budget->members->pdata[i], passed_only) &&
                  is_lately(budget, budget->members->pdata[i], now);
    if (!is_any)
        return;
    for (guint i = 0; i < budget->members->len; i++) {
        const QosBudgetMember *member = budget->members->pdata[i];
        if (is_now(member, passed_only))
            total += given(&member->report, grant);
        else if (is_lately(budget, member, now))
            total += (double)member->bound;
        else
            continue;
        qos_budget_report_add(&all, &member->report);
    }
    const double level = qos_budget_level(&all, total);
    qos_budget_report_clear(&all);
    if (level >= grant->level * CLEARLY)
        return;
    grant->level = level;
    grant->rest = 0;
}
