/*
 * What rule.c, rule_condition.c and rule_parse.c share: a command in parts.
 */
#pragma once

#include "fs/rule.h"

typedef enum { QOS_RULE_START, QOS_RULE_CHANGE, QOS_RULE_STOP } QosRuleVerb;

/* The options that a command gives, as a bit set. */
typedef enum {
    QOS_OPTION_RATE = 1 << 0,
    QOS_OPTION_BPS = 1 << 1,
    QOS_OPTION_DEPTH = 1 << 2,
    QOS_OPTION_DEPTH_BYTES = 1 << 3,
    QOS_OPTION_PER = 1 << 4,
    QOS_OPTION_RANK = 1 << 5,
    QOS_OPTION_WEIGHT = 1 << 6,
    QOS_OPTION_MINIMUM = 1 << 7,
    QOS_OPTION_EXPIRE = 1 << 8,
    QOS_OPTION_DRYRUN = 1 << 9,
    QOS_OPTION_PASSTHROUGH = 1 << 10,
    QOS_OPTION_SCOPE = 1 << 11,
    QOS_OPTION_SHARE = 1 << 12,
    QOS_OPTION_FLOOR = 1 << 13,
    QOS_OPTION_AWAY = 1 << 14,
} QosRuleOption;

/* A parsed command; nothing in it was held against a list yet. */
typedef struct {
    QosRuleVerb verb;
    char name[QOS_RULE_NAME_MAX + 1];
    QosCondition *condition; /* of a start, else NULL; owned */
    guint given;             /* QosRuleOption: which of the options below count */
    QosRule options;         /* `expires` is a duration here */
    char rank[QOS_RULE_NAME_MAX + 1];
} QosRuleCommand;

/* --- rule_parse.c --- */

/* As a command spells them; static strings. */
extern const char *const qos_rule_scopes[], *const qos_rule_shares[], *const qos_rule_aways[];

/* FALSE with an error as for qos_rules_apply(). Cleared with qos_rule_command_clear() in either
 * case. */
gboolean qos_rule_command_parse(QosRuleCommand *command, const char *text, GError **error);
void qos_rule_command_clear(QosRuleCommand *command);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QosRuleCommand, qos_rule_command_clear)

/* --- rule_condition.c --- */

/* The EXPR at *at, which is moved past it. NULL with EINVAL. */
QosCondition *qos_condition_parse(const char **at, GError **error);
QosCondition *qos_condition_ref(QosCondition *condition);
void qos_condition_unref(QosCondition *condition); /* NULL is allowed */
/* As text in its normal form; owned by the condition. */
const char *qos_condition_text(const QosCondition *condition);
/* The fields (QosField) that it looks at. */
guint qos_condition_fields(const QosCondition *condition);
gboolean qos_condition_matches(const QosCondition *condition, const QosRuleSubject *subject);
/* Where it can only match certain job ids: those, each maybe several times, as strings of the
 * condition; else NULL. Free with g_ptr_array_unref. */
GPtrArray *qos_condition_exact_jobs(const QosCondition *condition);
