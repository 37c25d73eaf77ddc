/*
 * Rule commands, hostile ones too: each line of the input is applied to the list that the lines
 * before have made. Whatever comes, a list stays whole: what does not parse changes nothing and
 * says why, every request finds a rule, and each rule's own command makes the same rule again.
 */
#include <glib.h>
#include <string.h>

#include "fs/rule.h"

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size);

static QosRules *apply(QosRules *rules, const char *command)
{
    g_autoptr(GError) error = NULL;
    guint before = qos_rules_count(rules);
    QosRules *changed = qos_rules_apply(rules, command, 0, &error);

    g_assert_cmpuint(qos_rules_count(rules), ==, before);
    if (!changed) {
        g_assert_nonnull(error);
        g_assert_true(error->message[0] != '\0' && error->code > 0);
        return rules;
    }
    g_assert_null(error);
    qos_rules_unref(rules);
    return changed;
}

static void check_command_repeats(const QosRule *rule)
{
    g_autofree char *command = qos_rule_command(rule);

    if (!command)
        return;
    QosRules *rules = apply(qos_rules_new(), command);
    const QosRule *again = qos_rules_by_name(rules, rule->name);
    g_assert_nonnull(again);
    g_autofree char *repeated = qos_rule_command(again);
    g_assert_cmpstr(repeated, ==, command);
    qos_rules_unref(rules);
}

static void check_match(const QosRules *rules, const char *text)
{
    const QosRuleSubject subject = {
        .job = text, .host = text, .uid = 1000, .gid = 100, .opcode = strlen(text) % QOS_OP_COUNT};
    const QosRule *dryrun;

    g_assert_nonnull(qos_rules_match(rules, &subject, &dryrun));
}

int LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
    g_autofree char *text = g_strndup((const char *)data, size);
    g_auto(GStrv) lines = g_strsplit(text, "\n", 64);
    QosRules *rules = qos_rules_new();

    for (char **line = lines; *line; line++)
        rules = apply(rules, *line);
    for (guint i = 0; i < qos_rules_count(rules); i++)
        check_command_repeats(qos_rules_get(rules, i));
    for (char **line = lines; *line; line++)
        check_match(rules, *line);
    qos_rules_unref(rules);
    return 0;
}
