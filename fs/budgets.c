/*
 * The table of a mount's budgets: its rules, its connection and the server's answers. Its classes
 * are visited in fs/budgets_walk.c; fs/budgets_private.h has what both know.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "fs/budgets_private.h"

/* --- lifetimes --- */

static guint entry_hash(gconstpointer data)
{
    const QosBudgetsEntry *entry = data;

    return g_str_hash(entry->name) ^ (guint)(entry->rule_id * 2654435761u);
}

static gboolean entry_equal(gconstpointer a, gconstpointer b)
{
    const QosBudgetsEntry *left = a, *right = b;

    return left->rule_id == right->rule_id && strcmp(left->name, right->name) == 0;
}

static void entry_free(QosBudgetsEntry *entry)
{
    g_free(entry->name);
    g_free(entry);
}

QosBudgets *qos_budgets_new(guint32 incarnation)
{
    QosBudgets *budgets = g_new0(QosBudgets, 1);

    budgets->incarnation = incarnation;
    budgets->ticket = (guint64)incarnation << QOS_BUDGET_TICKET_BITS;
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

/* Takes the list over, which may be NULL. */
static void adopt(QosBudgets *budgets, QosSched *sched, QosRules *rules, QosTime now)
{
    const double part = budgets->terms.parts > 0 ? 1.0 / budgets->terms.parts : 0;
    QosRules *old = budgets->rules;
    const guint count = rules != NULL ? qos_rules_count(rules) : 0;
    GHashTableIter iter;
    QosBudgetsEntry *entry;

    budgets->rules = count > 1 ? qos_rules_ref(rules) : NULL; /* there is more than `default` */
    budgets->terms.rules = count > 1 ? count - 1 : 0;
    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        const QosRule *rule = qos_budgets_rule(budgets, entry->rule_id);

        if (rule == NULL) {
            qos_budgets_remove(budgets, &iter, entry);
            continue;
        }
        for (guint unit = 0; unit < QOS_UNITS; unit++)
            qos_budgets_unit_set_rule(budgets, &entry->units[unit], unit, rule);
    }
    qos_sched_set_budget_waker(sched, budgets->rules ? class_woken : NULL, budgets);
    qos_sched_set_cluster_rules(sched, budgets->rules, part, now);
    qos_rules_unref(old);
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
        qos_budgets_walk(budgets, sched, now, NULL);
    budgets->next = budgets->rules != NULL ? now : QOS_NEVER;
}

void qos_budgets_set_connected(QosBudgets *budgets, gboolean is_connected, QosTime now)
{
    GHashTableIter iter;
    QosBudgetsEntry *entry;

    if (budgets->terms.is_connected == is_connected)
        return;
    budgets->terms.is_connected = is_connected;
    budgets->terms.since = now;
    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        for (guint i = 0; i < QOS_UNITS; i++) {
            QosBudgetsUnit *unit = &entry->units[i];

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

void qos_budgets_slept(QosBudgets *budgets, QosSched *sched, QosTime now)
{
    GHashTableIter iter;
    QosBudgetsEntry *entry;

    g_hash_table_iter_init(&iter, budgets->by_name);
    while (g_hash_table_iter_next(&iter, (gpointer *)&entry, NULL)) {
        for (guint i = 0; i < QOS_UNITS; i++) {
            QosBudgetsUnit *unit = &entry->units[i];

            if (!unit->is_bound)
                continue;
            qos_budget_mount_end_lease(&unit->mount, now);
            budgets->ticket = MAX(budgets->ticket, unit->mount.ticket);
            unit->due = now;
            qos_budgets_apply(entry, i, sched, now);
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
    budgets->next = qos_budgets_walk(budgets, sched, now, frames);
    budgets->next = MIN(budgets->next, qos_rules_next_expiry(budgets->rules));
    return budgets->next;
}

/* The answer to a unit's report. */
static void take_grant(QosBudgets *budgets, QosSched *sched, QosBudgetsEntry *entry, QosUnit which,
                       const QosBudgetGrant *grant, QosTime now)
{
    QosBudgetsUnit *unit = &entry->units[which];

    if (!unit->is_bound || !unit->is_heard || !qos_budget_mount_grant(&unit->mount, grant, now))
        return;
    qos_budgets_apply(entry, which, sched, now);
    unit->due = MAX(qos_time_add(unit->mount.sent, budgets->terms.epoch), now);
    budgets->next = MIN(budgets->next, unit->due);
    budgets->next = MIN(budgets->next, qos_budgets_change(&unit->mount, now));
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
        const QosBudgetsEntry key = {.rule_id = QOS_RULE_CLUSTER_ID + item.rule,
                                     .name = item.class};
        QosBudgetsEntry *entry = g_hash_table_lookup(budgets->by_name, &key);
        if (entry != NULL)
            take_grant(budgets, sched, entry, item.unit, &grant, now);
    }
    return TRUE;
}
