/*
 * What the tests of rules share: applying commands that must succeed, and looking at lists.
 */
#pragma once

#include "fs/rule.h"

#include <string.h>

#include "base/error.h"

#define NOW (7 * QOS_SECOND)

/* The whole list as text, without the times of expiry. */
static inline char *dump(const QosRules *rules)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < qos_rules_count(rules); i++) {
        const QosRule *rule = qos_rules_get(rules, i);
        g_autofree char *conditions = qos_rule_conditions(rule);
        g_autofree char *options = qos_rule_options(rule);

        g_string_append_printf(text, "%s %s %s\n", rule->name, conditions, options);
    }
    return g_string_free(text, FALSE);
}

static inline void expect_list(const QosRules *rules, const char *expected)
{
    g_autofree char *text = dump(rules);

    g_assert_cmpstr(text, ==, expected);
}

/* Replaces *rules. */
static inline void apply(QosRules **rules, const char *command)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *before = dump(*rules);
    QosRules *changed = qos_rules_apply(*rules, command, NOW, &error);

    g_assert_no_error(error);
    g_assert_nonnull(changed);
    expect_list(*rules, before); /* the old list stays as it is */
    qos_rules_unref(*rules);
    *rules = changed;
}

/* The message tells of `words`, and nothing is changed. */
static inline void refuse(QosRules *rules, const char *command, int code, const char *words)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *before = dump(rules);

    g_assert_null(qos_rules_apply(rules, command, NOW, &error));
    g_assert_error(error, QOS_ERROR, code);
    g_assert_true(g_utf8_validate(error->message, -1, NULL));
    g_assert_cmpuint(strlen(error->message), <, 1000);
    if (strstr(error->message, words) == NULL)
        g_error("\"%s\" does not mention \"%s\"", error->message, words);
    expect_list(rules, before);
    g_assert_null(qos_rules_apply(rules, command, NOW, NULL));
}

/* The rule that governs a request of `job`. */
static inline const QosRule *match(const QosRules *rules, const char *job)
{
    QosRuleSubject subject = {.job = job, .host = "node1", .opcode = QOS_OP_READ};
    const QosRule *dryrun;

    return qos_rules_match(rules, &subject, &dryrun);
}
