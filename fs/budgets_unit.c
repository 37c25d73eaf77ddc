/*
 * One rate of one class: what the rule says of it, and what is in force.
 */
#include "fs/budgets_private.h"

/* The rule's rate in thousandths of the unit; 0: it has none. */
static guint64 limit_of(const QosRule *rule, QosUnit unit)
{
    const gint64 rate = unit == QOS_UNIT_BYTES ? rule->bps : rule->rate;

    return (guint64)rate * QOS_BUDGET_UNIT;
}

QosBudgetConfig qos_budgets_config(const QosBudgets *budgets, const QosRule *rule, QosUnit unit)
{
    static const QosBudgetAway aways[] = {
        [QOS_RULE_AWAY_FLOOR] = QOS_BUDGET_AWAY_FLOOR,
        [QOS_RULE_AWAY_OPEN] = QOS_BUDGET_AWAY_OPEN,
        [QOS_RULE_AWAY_STOP] = QOS_BUDGET_AWAY_STOP,
    };

    return (QosBudgetConfig){
        .limit = limit_of(rule, unit),
        .share = rule->share == QOS_RULE_HARD ? QOS_BUDGET_HARD : QOS_BUDGET_FAIR,
        .away = aways[rule->away],
        .floor = rule->floor,
        .epoch = budgets->terms.epoch,
        .lease = budgets->terms.lease,
        .registered = MAX(budgets->terms.parts, 1),
    };
}

guint64 qos_budgets_floor(const QosBudgets *budgets, const QosBudgetConfig *config)
{
    const guint parts = budgets->terms.parts;

    return parts > 0 ? config->limit / 100 * config->floor / parts : 0;
}

void qos_budgets_unit_set_rule(QosBudgets *budgets, QosBudgetsUnit *unit, QosUnit which,
                               const QosRule *rule)
{
    const QosBudgetConfig config = qos_budgets_config(budgets, rule, which);
    const guint64 floor = qos_budgets_floor(budgets, &config);

    if (config.limit == 0) {
        *unit = (QosBudgetsUnit){0};
        return;
    }
    unit->is_told = FALSE;
    if (unit->is_bound) {
        qos_budget_mount_configure(&unit->mount, &config, floor);
        return;
    }
    qos_budget_mount_init(&unit->mount, &config, 1, floor, budgets->incarnation);
    unit->mount.ticket = budgets->ticket;
    if (!budgets->terms.is_connected)
        qos_budget_mount_ask(&unit->mount, budgets->terms.since);
    unit->is_bound = TRUE;
}

const QosRule *qos_budgets_rule(const QosBudgets *budgets, guint64 id)
{
    return budgets->rules != NULL ? qos_rules_by_id(budgets->rules, id) : NULL;
}

void qos_budgets_remove(QosBudgets *budgets, GHashTableIter *iter, QosBudgetsEntry *entry)
{
    if (g_hash_table_lookup(budgets->by_class, &entry->class) == entry)
        g_hash_table_remove(budgets->by_class, &entry->class);
    g_hash_table_iter_remove(iter);
}

void qos_budgets_apply(QosBudgetsEntry *entry, QosUnit which, QosSched *sched, QosTime now)
{
    QosBudgetsUnit *unit = &entry->units[which];
    const guint64 rate = qos_budget_mount_rate(&unit->mount, now);

    if (!unit->is_bound || (unit->is_told && unit->told == rate))
        return;
    unit->is_told = qos_sched_set_budget(sched, entry->class, which, rate, now);
    unit->told = rate;
}

QosTime qos_budgets_change(const QosBudgetMount *mount, QosTime now)
{
    const QosTime away =
        mount->asking == QOS_NEVER ? QOS_NEVER : qos_time_add(mount->asking, mount->lease);
    QosTime next = mount->until > now ? mount->until : QOS_NEVER;

    if (away > now && mount->away != QOS_BUDGET_AWAY_FLOOR)
        next = MIN(next, away);
    return next;
}
