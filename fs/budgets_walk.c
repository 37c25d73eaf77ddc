/*
 * A look at all classes of cluster rules: which reports are due, and which rates are in force.
 * fs/budgets.h has the table's place between the scheduler and the server.
 *
 * A class of a cluster rule has an entry, found by the class's id in the scheduler, or by what both
 * sides know: the rule and the class's name. An entry has a unit for each rate of its rule, and a
 * unit is one QosBudgetMount:
 *
 *     resting -- used --> active: reports when `due` -- idle for an epoch, and said so --> resting
 *
 * When it is due. A report that follows its answer at the pace of an epoch keeps step with the
 * server by itself: E after the report before, but not before its answer, because a report makes
 * the answer to the one before void. Where none comes, after 3/2 E. A class that wakes has 1/4 E to
 * show what it wants: the law was measured so (sim/budget_world.c). Reports that are due within 1/8
 * E go together.
 *
 * What a report counts as served begins anew whenever a class wakes or the server is found again,
 * because the server may have forgotten the class, and would take all of it for one epoch's.
 * Tickets never do: an entry that is made anew begins above all that were used before.
 *
 * Without a connection every unit asks in vain, so that the law of core/budget_member.c puts away=
 * in force; nothing is sent, and classes that are new are judged by when the server was lost.
 *
 * Dry runs are asked for like others, so that what they count is what the rule would do. A dry run
 * lets everything pass, so what it tells as served is no more than its rate.
 */
#include "fs/budgets_private.h"

#define NEWCOMER_PART 4 /* of an epoch: from waking to the first report */
#define SLACK_PART    8 /* of an epoch: reports that go together */

/* A visit of all classes. */
typedef struct {
    QosBudgets *budgets;
    QosTime now;
    GByteArray *frames; /* NULL: nothing is reported */
    gsize batch;
    QosBudgetReport report;
    GByteArray *bytes;
    GArray *resting; /* of guint64: ids of classes that are to rest */
    guint seen;
} Walk;

/* --- one unit --- */

/* An amount by the second. */
static guint64 by_second(guint64 amount, QosTime period)
{
    const unsigned __int128 rate = (unsigned __int128)amount * QOS_SECOND / (guint64)period;

    return (guint64)MIN(rate, QOS_BUDGET_RATE_MAX);
}

/* What waits for the rate: the amounts of requests, or what the class lacks for the first of them,
 * if that is more. A request of no bytes, such as an fsync, waits for the debt of a write. */
static guint64 backlog_of(const QosClassBudget *budget, QosUnit which)
{
    return MAX(budget->units[which].waiting, budget->units[which].lacking);
}

/* What the class of `budget` wants: what came in since the report before, and its backlog, in an
 * epoch. 0: it was idle. */
static guint64 demand_of(const QosBudgets *budgets, const QosBudgetsUnit *unit,
                         const QosClassBudget *budget, QosUnit which, QosTime now)
{
    const guint64 served = budget->units[which].served, waiting = budget->units[which].waiting;
    const guint64 backlog = backlog_of(budget, which);
    const QosTime epoch = budgets->terms.epoch;
    const QosTime elapsed = MAX(now - unit->since, MAX(epoch / NEWCOMER_PART, 1));
    const gint64 came =
        (gint64)(served - unit->seen_served) + (gint64)(waiting - unit->seen_waiting);

    if (served == unit->seen_served && backlog == 0)
        return 0;
    return MAX(by_second((guint64)MAX(came, 0), elapsed) + by_second(backlog, epoch), 1);
}

/* Notes what was served, for the server: of a dry run no more than the rate. */
static void count_served(QosBudgetsUnit *unit, guint64 served, gboolean is_dryrun, QosTime now)
{
    const gint64 went = (gint64)(served - unit->seen_served);
    guint64 amount = (guint64)MAX(went, 0);

    if (is_dryrun && unit->is_told && unit->told != QOS_BUDGET_NO_BOUND) {
        const QosTime elapsed = MAX(now - unit->since, 0);
        const unsigned __int128 most = (unsigned __int128)unit->told * (guint64)elapsed;
        amount = (guint64)MIN(amount, most / QOS_SECOND);
    }
    unit->served += amount;
}

static void put_report(Walk *walk, const QosBudgetsEntry *entry, QosUnit which)
{
    QosWireBudget item = {.rule = entry->rule_id - QOS_RULE_CLUSTER_ID, .unit = which};

    g_byte_array_set_size(walk->bytes, 0);
    qos_budget_report_encode(&walk->report, walk->bytes);
    g_strlcpy(item.class, entry->name, sizeof(item.class));
    item.bytes = walk->bytes->data;
    item.length = walk->bytes->len;
    qos_wire_put_budget(walk->frames, &walk->batch, QOS_WIRE_BUDGET_REPORT, &item);
}

/* Reports; `demand` 0: it is idle, which is said once. */
static void report(Walk *walk, QosBudgetsEntry *entry, QosUnit which, guint64 demand)
{
    QosBudgets *budgets = walk->budgets;
    QosBudgetsUnit *unit = &entry->units[which];

    qos_budget_mount_report(&unit->mount, demand, unit->served, walk->now, &walk->report);
    put_report(walk, entry, which);
    budgets->ticket = MAX(budgets->ticket, unit->mount.ticket);
    unit->is_heard = demand > 0;
    unit->due = qos_time_add(walk->now, budgets->terms.epoch * 3 / 2);
}

/* The unit is due. */
static void turn(Walk *walk, QosBudgetsEntry *entry, QosUnit which, const QosClassBudget *budget)
{
    const QosBudgets *budgets = walk->budgets;
    const guint64 served = budget->units[which].served, waiting = budget->units[which].waiting;
    QosBudgetsUnit *unit = &entry->units[which];
    const guint64 demand = demand_of(budgets, unit, budget, which, walk->now);

    count_served(unit, served, budget->is_dryrun, walk->now);
    unit->seen_served = served;
    unit->seen_waiting = waiting;
    unit->since = walk->now;
    unit->due = qos_time_add(walk->now, budgets->terms.epoch);
    unit->is_active = demand > 0;
    if (budgets->terms.is_connected && (demand > 0 || unit->is_heard))
        report(walk, entry, which, demand);
}

/* Looks at a unit: whether it is used, and due. */
static void look(Walk *walk, QosBudgetsEntry *entry, QosUnit which, const QosClassBudget *budget)
{
    const QosBudgets *budgets = walk->budgets;
    const QosTime epoch = budgets->terms.epoch;
    QosBudgetsUnit *unit = &entry->units[which];

    if (!unit->is_active &&
        (budget->units[which].served != unit->seen_served || backlog_of(budget, which) > 0)) {
        unit->is_active = TRUE;
        unit->served = 0;
        unit->since = walk->now;
        unit->due = qos_time_add(walk->now, epoch / NEWCOMER_PART);
    }
    if (unit->is_active && unit->due <= qos_time_add(walk->now, epoch / SLACK_PART))
        turn(walk, entry, which, budget);
}

/* --- all classes --- */

static QosBudgetsEntry *entry_for(QosBudgets *budgets, const QosClassBudget *budget,
                                  const QosRule *rule)
{
    const QosBudgetsEntry key = {.rule_id = budget->rule_id, .name = (char *)budget->name};
    QosBudgetsEntry *entry = g_hash_table_lookup(budgets->by_class, &budget->id);

    if (entry != NULL)
        return entry;
    entry = g_hash_table_lookup(budgets->by_name, &key);
    if (entry == NULL) {
        entry = g_new0(QosBudgetsEntry, 1);
        entry->rule_id = budget->rule_id;
        entry->name = g_strdup(budget->name);
        for (guint unit = 0; unit < QOS_UNITS; unit++)
            qos_budgets_unit_set_rule(budgets, &entry->units[unit], unit, rule);
        g_hash_table_add(budgets->by_name, entry);
    } else if (entry->class > budget->id) {
        return NULL; /* the class of the rule as it was before a change of per= */
    } else {
        g_hash_table_remove(budgets->by_class, &entry->class);
    }
    entry->class = budget->id; /* it counts from 0 */
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        entry->units[unit].is_told = FALSE;
        entry->units[unit].seen_served = entry->units[unit].seen_waiting = 0;
    }
    g_hash_table_insert(budgets->by_class, &entry->class, entry);
    return entry;
}

static void visit(const QosClassBudget *budget, void *arg)
{
    Walk *walk = arg;
    const QosRule *rule = qos_budgets_rule(walk->budgets, budget->rule_id);
    QosBudgetsEntry *entry = rule != NULL ? entry_for(walk->budgets, budget, rule) : NULL;
    gboolean is_active = FALSE;

    if (entry == NULL)
        return;
    walk->seen++;
    entry->walk = walk->budgets->walk;
    for (guint unit = 0; walk->frames != NULL && unit < QOS_UNITS; unit++) {
        if (entry->units[unit].is_bound)
            look(walk, entry, unit, budget);
        is_active |= entry->units[unit].is_active;
    }
    if (walk->frames != NULL && !is_active && !budget->is_resting)
        g_array_append_val(walk->resting, budget->id);
}

/* The class is gone: the server learns that it is idle. */
static void say_farewell(Walk *walk, QosBudgetsEntry *entry)
{
    for (guint unit = 0; unit < QOS_UNITS; unit++) {
        if (entry->units[unit].is_heard && walk->budgets->terms.is_connected)
            report(walk, entry, unit, 0);
    }
}

/* Forgets the entries whose classes are gone, and puts the rates of all others in force. Returns
 * when that is to be done again. */
static QosTime settle(Walk *walk, QosSched *sched)
{
    QosBudgets *budgets = walk->budgets;
    QosTime next = QOS_NEVER;
    GHashTableIter iter;
    QosBudgetsEntry *entry;

    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        if (entry->walk != budgets->walk && walk->frames != NULL) {
            say_farewell(walk, entry);
            qos_budgets_remove(budgets, &iter, entry);
            continue;
        }
        for (guint unit = 0; unit < QOS_UNITS; unit++) {
            const QosBudgetsUnit *at = &entry->units[unit];

            if (!at->is_bound)
                continue;
            qos_budgets_apply(entry, unit, sched, walk->now);
            next = MIN(next, qos_budgets_change(&at->mount, walk->now));
            if (at->is_active)
                next = MIN(next, at->due);
        }
    }
    return next;
}

QosTime qos_budgets_walk(QosBudgets *budgets, QosSched *sched, QosTime now, GByteArray *frames)
{
    Walk walk = {.budgets = budgets,
                 .now = now,
                 .frames = frames,
                 .batch = QOS_WIRE_NO_BATCH,
                 .bytes = g_byte_array_new(),
                 .resting = g_array_new(FALSE, FALSE, sizeof(guint64))};
    QosTime next;

    budgets->walk++;
    qos_sched_each_budget(sched, visit, &walk);
    for (guint i = 0; i < walk.resting->len; i++)
        qos_sched_rest_budget(sched, g_array_index(walk.resting, guint64, i));
    next = settle(&walk, sched);
    qos_budget_report_clear(&walk.report);
    g_byte_array_unref(walk.bytes);
    g_array_unref(walk.resting);
    return next;
}
