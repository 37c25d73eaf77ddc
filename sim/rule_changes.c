/* The rules of a scenario change (sim/rule_changes.h). */
#include "sim/rule_changes.h"

#include <string.h>

#include "base/error.h"
#include "base/units.h"

static void change_clear(gpointer change)
{
    g_free(((QosRuleChange *)change)->command);
}

GArray *qos_rule_changes_new(void)
{
    GArray *changes = g_array_new(FALSE, FALSE, sizeof(QosRuleChange));

    g_array_set_clear_func(changes, change_clear);
    return changes;
}

static const QosRuleChange *change_at(const GArray *changes, guint index)
{
    return &g_array_index(changes, QosRuleChange, index);
}

/* "TIME: COMMAND"; among changes of the same time it comes last. */
static gboolean add_change(GArray *changes, const char *text, GError **error)
{
    g_auto(GStrv) parts = g_strsplit(text, ":", 2);
    QosRuleChange change;
    guint place = changes->len;

    if (parts[0] == NULL || parts[1] == NULL) {
        qos_set_error(error, EINVAL, "\"%s\" is no TIME: COMMAND, such as 10s: stop big", text);
        return FALSE;
    }
    if (!qos_parse_duration(g_strstrip(parts[0]), &change.time, error))
        return FALSE;
    change.command = g_strdup(g_strstrip(parts[1]));
    while (place > 0 && change_at(changes, place - 1)->time > change.time)
        place--;
    g_array_insert_val(changes, place, change);
    return TRUE;
}

static gboolean check_fields(const QosRules *rules, guint unknown, GError **error)
{
    if ((qos_rules_fields(rules) & unknown) == 0)
        return TRUE;
    qos_set_error(error, EINVAL,
                  unknown & QOS_FIELD_OPCODE
                      ? "a history tells neither opcode, uid, gid nor host of a request, so that a "
                        "rule cannot ask for them; job_stats tells the opcode"
                      : "job_stats tells neither uid, gid nor host of a request, so that a rule "
                        "cannot ask for them");
    return FALSE;
}

gboolean qos_rule_changes_check(const GArray *changes, guint unknown, GError **error)
{
    g_autoptr(QosRules) rules = qos_rules_new();

    for (guint i = 0; i < changes->len; i++) {
        const QosRuleChange *change = change_at(changes, i);
        QosRules *rest = qos_rules_expire(rules, change->time);
        if (rest != NULL) {
            qos_rules_unref(rules);
            rules = rest;
        }
        QosRules *next = qos_rules_apply(rules, change->command, change->time, error);
        if (next != NULL) {
            qos_rules_unref(rules);
            rules = next;
        }
        if (next == NULL || !check_fields(rules, unknown, error)) {
            g_prefix_error(error, "[rules] \"%s\": ", change->command);
            return FALSE;
        }
    }
    return TRUE;
}

gboolean qos_rule_changes_read(GKeyFile *file, GArray *changes, GError **error)
{
    g_auto(GStrv) names = g_key_file_get_keys(file, "rules", NULL, NULL);

    for (guint i = 0; names != NULL && names[i] != NULL; i++) {
        g_autofree char *text = g_key_file_get_string(file, "rules", names[i], NULL);
        if (text == NULL) {
            qos_set_error(error, EINVAL, "[rules] %s: not valid text", names[i]);
            return FALSE;
        }
        if (!add_change(changes, text, error)) {
            g_prefix_error(error, "[rules] %s: ", names[i]);
            return FALSE;
        }
    }
    return TRUE;
}

QosTime qos_rule_changes_next(const GArray *changes, guint done, QosSched *sched)
{
    QosTime next = qos_rules_next_expiry(qos_sched_rules(sched));

    return done < changes->len ? MIN(next, change_at(changes, done)->time) : next;
}

/* Takes `rules`. */
static void put_in_force(QosSched *sched, QosRules *rules, QosTime now)
{
    qos_sched_set_rules(sched, rules, now);
    qos_rules_unref(rules);
}

void qos_rule_changes_make(const GArray *changes, guint *done, QosSched *sched, QosTime now)
{
    QosRules *rest = qos_rules_expire(qos_sched_rules(sched), now);

    if (rest != NULL)
        put_in_force(sched, rest, now);
    for (; *done < changes->len && change_at(changes, *done)->time <= now; (*done)++) {
        QosRules *next =
            qos_rules_apply(qos_sched_rules(sched), change_at(changes, *done)->command, now, NULL);
        g_assert(next != NULL); /* they were tried */
        put_in_force(sched, next, now);
    }
}
