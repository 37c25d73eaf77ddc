/*
 * The table of a mount's budgets; fs/budgets.h has its place between the scheduler and the server.
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
#include "fs/budgets.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define NEWCOMER_PART 4 /* of an epoch: from waking to the first report */
#define SLACK_PART    8 /* of an epoch: reports that go together */

/* A rate of a class. */
typedef struct {
    gboolean is_bound;  /* the rule has such a rate; else all zero */
    gboolean is_active; /* it reports */
    gboolean is_heard;  /* the server's latest report of it is not "idle" */
    gboolean is_told;   /* `told` is in force in the scheduler */
    QosBudgetMount mount;
    guint64 told;
    guint64 seen_served, seen_waiting; /* when it reported last, or went to rest */
    guint64 served;                    /* for reports: see above */
    QosTime since;                     /* when it reported last, or woke */
    QosTime due;                       /* while it is active */
} Unit;

/* A class. It is its own key in `by_name`: rule and name. */
typedef struct {
    guint64 rule_id;
    char *name;    /* owned */
    guint64 class; /* its id in the scheduler */
    guint64 walk;  /* when it was seen last */
    Unit units[QOS_UNITS];
} Entry;

struct QosBudgets {
    guint32 incarnation;
    guint64 ticket;       /* the highest that was used */
    QosRules *rules;      /* owned; NULL: none */
    GHashTable *by_rule;  /* rule id -> QosRule of `rules` */
    GHashTable *by_name;  /* Entry -> itself, owned */
    GHashTable *by_class; /* Entry.class -> Entry */
    QosBudgetsTerms terms;
    QosTime next; /* when step has something to do */
    gboolean is_woken;
    void (*waker)(void *arg);
    void *waker_arg;
    guint64 walk;
};

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

/* --- lifetimes --- */

static guint entry_hash(gconstpointer data)
{
    const Entry *entry = data;

    return g_str_hash(entry->name) ^ (guint)(entry->rule_id * 2654435761u);
}

static gboolean entry_equal(gconstpointer a, gconstpointer b)
{
    const Entry *left = a, *right = b;

    return left->rule_id == right->rule_id && strcmp(left->name, right->name) == 0;
}

static void entry_free(Entry *entry)
{
    g_free(entry->name);
    g_free(entry);
}

QosBudgets *qos_budgets_new(guint32 incarnation)
{
    QosBudgets *budgets = g_new0(QosBudgets, 1);

    budgets->incarnation = incarnation;
    budgets->ticket = (guint64)incarnation << QOS_BUDGET_TICKET_BITS;
    budgets->by_rule = g_hash_table_new(g_int64_hash, g_int64_equal);
    budgets->by_name = g_hash_table_new_full(entry_hash, entry_equal, NULL,
                                             (GDestroyNotify)(void (*)(void))entry_free);
    budgets->by_class = g_hash_table_new(g_int64_hash, g_int64_equal);
    budgets->next = QOS_NEVER;
    return budgets;
}

void qos_budgets_free(QosBudgets *budgets)
{
    if (budgets == NULL)
        return;
    g_hash_table_unref(budgets->by_class);
    g_hash_table_unref(budgets->by_name);
    g_hash_table_unref(budgets->by_rule);
    qos_rules_unref(budgets->rules);
    g_free(budgets);
}

void qos_budgets_set_waker(QosBudgets *budgets, void (*waker)(void *arg), void *arg)
{
    budgets->waker = waker;
    budgets->waker_arg = arg;
}

/* A class of the scheduler is used that is new, or was resting. */
static void class_woken(void *arg)
{
    QosBudgets *budgets = arg;

    if (budgets->is_woken)
        return;
    budgets->is_woken = TRUE;
    if (budgets->waker != NULL)
        budgets->waker(budgets->waker_arg);
}

/* --- rules --- */

QosRules *qos_budgets_read_rules(const QosWireRules *list, QosTime now, GError **error)
{
    const guint count = list->rules != NULL ? list->rules->len : 0;
    g_autofree QosRuleStart *starts = g_new0(QosRuleStart, count + 1);
    QosRules *rules;

    for (guint i = 0; i < count; i++) {
        const QosWireRule *rule = &g_array_index(list->rules, QosWireRule, i);

        if (rule->id > G_MAXUINT64 - 1 - QOS_RULE_CLUSTER_ID) {
            qos_set_error(error, ERANGE, "the cluster's rules: an id is too large, of \"%s\"",
                          rule->command);
            return NULL;
        }
        starts[i] = (QosRuleStart){
            .id = QOS_RULE_CLUSTER_ID + rule->id, .left = rule->left, .command = rule->command};
    }
    rules = qos_rules_new_cluster_of(starts, count, now, error);
    if (rules == NULL)
        g_prefix_error(error, "the cluster's rules, version %" G_GUINT64_FORMAT ": ",
                       list->version);
    return rules;
}

/* The rule's rate in thousandths of the unit; 0: it has none. */
static guint64 limit_of(const QosRule *rule, QosUnit unit)
{
    const gint64 rate = unit == QOS_UNIT_BYTES ? rule->bps : rule->rate;

    return (guint64)rate * QOS_BUDGET_UNIT;
}

static QosBudgetConfig config_of(const QosBudgets *budgets, const QosRule *rule, QosUnit unit)
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

/* This mount's part of the floors, as the server reckons it (core/budget.c). */
static guint64 floor_of(const QosBudgets *budgets, const QosBudgetConfig *config)
{
    const guint parts = budgets->terms.parts;

    return parts > 0 ? config->limit / 100 * config->floor / parts : 0;
}

/* Gives a unit what the rule says: it begins, goes on, or ends. */
static void unit_set_rule(QosBudgets *budgets, Unit *unit, QosUnit which, const QosRule *rule)
{
    const QosBudgetConfig config = config_of(budgets, rule, which);
    const guint64 floor = floor_of(budgets, &config);

    if (config.limit == 0) {
        *unit = (Unit){0};
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

static const QosRule *rule_of(const QosBudgets *budgets, guint64 id)
{
    return g_hash_table_lookup(budgets->by_rule, &id);
}

static void remove_entry(QosBudgets *budgets, GHashTableIter *iter, Entry *entry)
{
    if (g_hash_table_lookup(budgets->by_class, &entry->class) == entry)
        g_hash_table_remove(budgets->by_class, &entry->class);
    g_hash_table_iter_remove(iter);
}

/* Takes the list over, which may be NULL. */
static void adopt(QosBudgets *budgets, QosSched *sched, QosRules *rules, QosTime now)
{
    const double part = budgets->terms.parts > 0 ? 1.0 / budgets->terms.parts : 0;
    QosRules *old = budgets->rules;
    const guint count = rules != NULL ? qos_rules_count(rules) : 0;
    GHashTableIter iter;
    Entry *entry;

    budgets->rules = count > 1 ? qos_rules_ref(rules) : NULL; /* there is more than `default` */
    g_hash_table_remove_all(budgets->by_rule);
    for (guint i = 0; i + 1 < count; i++) {
        const QosRule *rule = qos_rules_get(rules, i);
        g_hash_table_insert(budgets->by_rule, (gpointer)&rule->id, (gpointer)rule);
    }
    budgets->terms.rules = count > 1 ? count - 1 : 0;
    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        const QosRule *rule = rule_of(budgets, entry->rule_id);

        if (rule == NULL) {
            remove_entry(budgets, &iter, entry);
            continue;
        }
        for (guint unit = 0; unit < QOS_UNITS; unit++)
            unit_set_rule(budgets, &entry->units[unit], unit, rule);
    }
    qos_sched_set_budget_waker(sched, budgets->rules ? class_woken : NULL, budgets);
    qos_sched_set_cluster_rules(sched, budgets->rules, part, now);
    qos_rules_unref(old);
}

/* --- one unit --- */

/* The rate that holds for the unit by now is put in force. */
static void apply(const Entry *entry, QosUnit which, QosSched *sched, QosTime now)
{
    Unit *unit = (Unit *)&entry->units[which];
    const guint64 rate = qos_budget_mount_rate(&unit->mount, now);

    if (!unit->is_bound || (unit->is_told && unit->told == rate))
        return;
    unit->is_told = qos_sched_set_budget(sched, entry->class, which, rate, now);
    unit->told = rate;
}

/* When its rate in force changes by itself, after `now`. */
static QosTime change_of(const QosBudgetMount *mount, QosTime now)
{
    const QosTime away =
        mount->asking == QOS_NEVER ? QOS_NEVER : qos_time_add(mount->asking, mount->lease);
    QosTime next = mount->until > now ? mount->until : QOS_NEVER;

    if (away > now && mount->away != QOS_BUDGET_AWAY_FLOOR)
        next = MIN(next, away);
    return next;
}

/* An amount by the second. */
static guint64 by_second(guint64 amount, QosTime period)
{
    const unsigned __int128 rate = (unsigned __int128)amount * QOS_SECOND / (guint64)period;

    return (guint64)MIN(rate, QOS_BUDGET_RATE_MAX);
}

/* What the class of `budget` wants: what came in since the report before, and what waits, in an
 * epoch. 0: it was idle. */
static guint64 demand_of(const QosBudgets *budgets, const Unit *unit, guint64 served,
                         guint64 waiting, QosTime now)
{
    const QosTime epoch = budgets->terms.epoch;
    const QosTime elapsed = MAX(now - unit->since, MAX(epoch / NEWCOMER_PART, 1));
    const gint64 came =
        (gint64)(served - unit->seen_served) + (gint64)(waiting - unit->seen_waiting);

    if (served == unit->seen_served && waiting == 0)
        return 0;
    return MAX(by_second((guint64)MAX(came, 0), elapsed) + by_second(waiting, epoch), 1);
}

/* Notes what was served, for the server: of a dry run no more than the rate. */
static void count_served(Unit *unit, guint64 served, gboolean is_dryrun, QosTime now)
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

static void put_report(Walk *walk, const Entry *entry, QosUnit which)
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
static void report(Walk *walk, Entry *entry, QosUnit which, guint64 demand)
{
    QosBudgets *budgets = walk->budgets;
    Unit *unit = &entry->units[which];

    qos_budget_mount_report(&unit->mount, demand, unit->served, walk->now, &walk->report);
    put_report(walk, entry, which);
    budgets->ticket = MAX(budgets->ticket, unit->mount.ticket);
    unit->is_heard = demand > 0;
    unit->due = qos_time_add(walk->now, budgets->terms.epoch * 3 / 2);
}

/* The unit is due. */
static void turn(Walk *walk, Entry *entry, QosUnit which, const QosClassBudget *budget)
{
    const QosBudgets *budgets = walk->budgets;
    const guint64 served = budget->units[which].served, waiting = budget->units[which].waiting;
    Unit *unit = &entry->units[which];
    const guint64 demand = demand_of(budgets, unit, served, waiting, walk->now);

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
static void look(Walk *walk, Entry *entry, QosUnit which, const QosClassBudget *budget)
{
    const QosBudgets *budgets = walk->budgets;
    const QosTime epoch = budgets->terms.epoch;
    Unit *unit = &entry->units[which];

    if (!unit->is_active &&
        (budget->units[which].served != unit->seen_served || budget->units[which].waiting > 0)) {
        unit->is_active = TRUE;
        unit->served = 0;
        unit->since = walk->now;
        unit->due = qos_time_add(walk->now, epoch / NEWCOMER_PART);
    }
    if (unit->is_active && unit->due <= qos_time_add(walk->now, epoch / SLACK_PART))
        turn(walk, entry, which, budget);
}

/* --- all classes --- */

static Entry *entry_for(QosBudgets *budgets, const QosClassBudget *budget, const QosRule *rule)
{
    const Entry key = {.rule_id = budget->rule_id, .name = (char *)budget->name};
    Entry *entry = g_hash_table_lookup(budgets->by_class, &budget->id);

    if (entry != NULL)
        return entry;
    entry = g_hash_table_lookup(budgets->by_name, &key);
    if (entry == NULL) {
        entry = g_new0(Entry, 1);
        entry->rule_id = budget->rule_id;
        entry->name = g_strdup(budget->name);
        for (guint unit = 0; unit < QOS_UNITS; unit++)
            unit_set_rule(budgets, &entry->units[unit], unit, rule);
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
    const QosRule *rule = rule_of(walk->budgets, budget->rule_id);
    Entry *entry = rule != NULL ? entry_for(walk->budgets, budget, rule) : NULL;
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
static void say_farewell(Walk *walk, Entry *entry)
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
    Entry *entry;

    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        if (entry->walk != budgets->walk && walk->frames != NULL) {
            say_farewell(walk, entry);
            remove_entry(budgets, &iter, entry);
            continue;
        }
        for (guint unit = 0; unit < QOS_UNITS; unit++) {
            const Unit *at = &entry->units[unit];

            if (!at->is_bound)
                continue;
            apply(entry, unit, sched, walk->now);
            next = MIN(next, change_of(&at->mount, walk->now));
            if (at->is_active)
                next = MIN(next, at->due);
        }
    }
    return next;
}

/* Visits all classes; reports where there are `frames`. */
static QosTime walk_classes(QosBudgets *budgets, QosSched *sched, QosTime now, GByteArray *frames)
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

void qos_budgets_set_rules(QosBudgets *budgets, QosSched *sched, QosRules *rules,
                           const QosWireRules *list, QosTime now)
{
    if (list != NULL) {
        budgets->terms.version = list->version;
        budgets->terms.epoch = list->epoch;
        budgets->terms.lease = list->lease;
        budgets->terms.parts = list->parts;
    } else {
        budgets->terms.version = 0;
    }
    adopt(budgets, sched, rules, now);
    if (budgets->rules != NULL)
        walk_classes(budgets, sched, now, NULL);
    budgets->next = budgets->rules != NULL ? now : QOS_NEVER;
}

void qos_budgets_set_connected(QosBudgets *budgets, gboolean is_connected, QosTime now)
{
    GHashTableIter iter;
    Entry *entry;

    if (budgets->terms.is_connected == is_connected)
        return;
    budgets->terms.is_connected = is_connected;
    budgets->terms.since = now;
    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        for (guint i = 0; i < QOS_UNITS; i++) {
            Unit *unit = &entry->units[i];

            if (!unit->is_bound)
                continue;
            if (!is_connected) {
                qos_budget_mount_ask(&unit->mount, now);
                continue;
            }
            unit->is_active |= unit->is_heard;
            unit->served = 0;
            unit->due = now;
            if (!unit->is_active)
                qos_budget_mount_ask(&unit->mount, QOS_NEVER);
        }
    }
    if (budgets->rules != NULL)
        budgets->next = now;
}

QosTime qos_budgets_step(QosBudgets *budgets, QosSched *sched, QosTime now, GByteArray *frames)
{
    g_autoptr(QosRules) rules = NULL;

    if (budgets->rules == NULL)
        return QOS_NEVER;
    if (now < budgets->next && !budgets->is_woken)
        return budgets->next;
    budgets->is_woken = FALSE;
    rules = qos_rules_expire(budgets->rules, now);
    if (rules != NULL)
        adopt(budgets, sched, rules, now);
    if (budgets->rules == NULL)
        return budgets->next = QOS_NEVER;
    budgets->next = walk_classes(budgets, sched, now, frames);
    budgets->next = MIN(budgets->next, qos_rules_next_expiry(budgets->rules));
    return budgets->next;
}

/* The answer to a unit's report. */
static void take_grant(QosBudgets *budgets, QosSched *sched, Entry *entry, QosUnit which,
                       const QosBudgetGrant *grant, QosTime now)
{
    Unit *unit = &entry->units[which];

    if (!unit->is_bound || !unit->is_heard || !qos_budget_mount_grant(&unit->mount, grant, now))
        return;
    apply(entry, which, sched, now);
    unit->due = MAX(qos_time_add(unit->mount.sent, budgets->terms.epoch), now);
    budgets->next = MIN(budgets->next, unit->due);
    budgets->next = MIN(budgets->next, change_of(&unit->mount, now));
}

gboolean qos_budgets_grant(QosBudgets *budgets, QosSched *sched, const guint8 *payload,
                           gsize length, QosTime now)
{
    while (length > 0) {
        QosWireBudget item;
        QosBudgetGrant grant;

        if (!qos_wire_get_budget(&payload, &length, &item) ||
            !qos_budget_grant_decode(item.bytes, item.length, &grant))
            return FALSE;
        const Entry key = {.rule_id = QOS_RULE_CLUSTER_ID + item.rule, .name = item.class};
        Entry *entry = g_hash_table_lookup(budgets->by_name, &key);
        if (entry != NULL)
            take_grant(budgets, sched, entry, item.unit, &grant, now);
    }
    return TRUE;
}

/* --- for reports --- */

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
                      const QosRule *rule, const Entry *entry)
{
    const QosBudgetConfig config = config_of(telling->budgets, rule, which);
    QosBudgetsClass item = {.rule = budget->rule_id,
                            .rule_name = budget->rule_name,
                            .class_name = budget->name,
                            .unit = which,
                            .limit = budget->units[which].limit,
                            .rate = budget->units[which].rate,
                            .floor = floor_of(telling->budgets, &config),
                            .waiting = budget->units[which].waiting,
                            .away = config.away};

    if (entry != NULL && entry->class == budget->id && entry->units[which].is_bound) {
        const Unit *unit = &entry->units[which];

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
    const QosRule *rule = rule_of(telling->budgets, budget->rule_id);
    const Entry *entry = g_hash_table_lookup(telling->budgets->by_class, &budget->id);

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
