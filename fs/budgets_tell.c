/*
 * What reports tell of a mount's budgets.
 */
#include "fs/budgets_private.h"

QosBudgetsTerms qos_budgets_terms(const QosBudgets *budgets)
{
    return budgets->terms;
}

typedef struct {
    const QosBudgets *budgets;
    QosBudgetsFunc func;
    gpointer arg;
    QosTime now;
} Telling;

static void tell_unit(const Telling *telling, const QosClassBudget *budget, QosUnit which,
                      const QosRule *rule, const QosBudgetsEntry *entry)
{
    const QosBudgetConfig config = qos_budgets_config(telling->budgets, rule, which);
    QosBudgetsClass item = {.rule = budget->rule_id,
                            .rule_name = budget->rule_name,
                            .class_name = budget->name,
                            .unit = which,
                            .limit = budget->units[which].limit,
                            .rate = budget->units[which].rate,
                            .floor = qos_budgets_floor(telling->budgets, &config),
                            .waiting = budget->units[which].waiting,
                            .away = config.away};

    if (entry != NULL && entry->class == budget->id && entry->units[which].is_bound) {
        const QosBudgetsUnit *unit = &entry->units[which];

        item.demand = unit->is_active ? unit->mount.demand : 0;
        item.is_away = qos_budget_mount_is_away(&unit->mount, telling->now);
        if (unit->is_told)
            item.rate = unit->told;
    }
    telling->func(&item, telling->arg);
}

static void tell(const QosClassBudget *budget, void *arg)
{
    const Telling *telling = arg;
    const QosRule *rule = qos_budgets_rule(telling->budgets, budget->rule_id);
    const QosBudgetsEntry *entry = g_hash_table_lookup(telling->budgets->by_class, &budget->id);

    for (guint unit = 0; rule != NULL && unit < QOS_UNITS; unit++) {
        if (budget->units[unit].limit != 0)
            tell_unit(telling, budget, unit, rule, entry);
    }
}

void qos_budgets_each(const QosBudgets *budgets, QosSched *sched, QosBudgetsFunc func, gpointer arg,
                      QosTime now)
{
    Telling telling = {.budgets = budgets, .func = func, .arg = arg, .now = now};

    qos_sched_each_budget(sched, tell, &telling);
}
