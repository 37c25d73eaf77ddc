/*
 * A combiner: to its parent a member, to its members a coordinator.
 *
 *     members' reports -> one sum -> parent         parent's grant -> the same level -> members
 *
 * The level goes down as it is. A raise is divided anew: the parent's grant allots to the combiner
 * what follows from the combiner's own report (qos_budget_allotment), and the combiner solves for
 * the raise of its members that hands out no more than that. So it knows each of them, and the
 * steps of the histogram cost nothing of HARD's bound.
 *
 * Only those that are in the report which is answered are answered: what another one holds is not
 * in the sum that the parent has, and may not be renewed. What the combiner lends has ended, by the
 * members' clocks, before what it has itself ends.
 *
 * Limit: each level of the tree adds two messages to an epoch, so a lost mount's share is back
 * later by a lease that is the rest of the combiner's.
 */
#include "core/budget_private.h"

gboolean qos_budget_pass_up(QosBudget *budget, QosTime now, QosBudgetReport *report)
{
    qos_budget_sum_up(budget, now);
    if (budget->sum.count == 0 && budget->was_idle && budget->served == 0)
        return FALSE;
    budget->epoch_served = budget->served;
    qos_budget_note_served(budget, now - budget->sent);
    for (guint i = 0; i < budget->members->len; i++) {
        QosBudgetMember *member = budget->members->pdata[i];
        member->is_passed = member->is_fresh;
    }
    if (budget->served > 0) {
        budget->passed_served += (guint64)budget->served;
        budget->served -= (double)(guint64)budget->served;
    }
    qos_budget_report_copy(report, &budget->sum);
    report->ticket = ++budget->ticket;
    report->held = qos_budget_in_force(budget, now);
    report->served = budget->passed_served;
    budget->is_open = report->count > 0;
    budget->was_idle = report->count == 0;
    budget->sent = now;
    return TRUE;
}

gboolean qos_budget_pass_down(QosBudget *budget, const QosBudgetGrant *grant, QosTime now,
                              GArray *answers)
{
    const QosTime end = qos_time_add(budget->sent, grant->lease - QOS_BUDGET_DRIFT(grant->lease));
    QosBudgetGrant own = *grant;

    if (!budget->is_open || grant->ticket != budget->ticket)
        return FALSE;
    budget->is_open = FALSE;
    budget->level = grant->level;
    budget->closed = now;
    if (now >= end)
        return TRUE;
    own.lease = MAX(end - now - QOS_BUDGET_DRIFT(end - now), 1);
    qos_budget_cap_level(budget, TRUE, now, &own);
    own.raise = MIN(own.raise, own.level);
    own.raise_rest = MIN(own.raise_rest, own.rest);
    if (budget->config.share == QOS_BUDGET_HARD) {
        const guint64 allotted =
            qos_budget_allotment(&budget->sum, grant->raise, grant->raise_rest);
        qos_budget_solve_raise(budget, allotted, TRUE, &own);
    }
    for (guint i = 0; i < budget->members->len; i++) {
        QosBudgetMember *member = budget->members->pdata[i];
        if (member->is_passed)
            qos_budget_answer(budget, member, &own, now, answers);
        else
            qos_budget_expect(budget, member, FALSE);
    }
    return TRUE;
}
