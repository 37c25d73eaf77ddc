/*
 * The group [rules] of a scenario: what an administrator does to the rules, and when.
 *
 *     NAME=TIME: COMMAND          NAME is free, COMMAND as of docs/reference/rules.md
 *
 * The changes apply only to ways of sharing that have the scenario's rules (paper, fair, rules). No
 * BW has no rules, and Static BW has a set of rules of its own.
 */
#pragma once

#include "fs/sched.h"

typedef struct {
    QosTime time;
    char *command;
} QosRuleChange;

/* An array of QosRuleChange, in order of time, that owns the commands. */
GArray *qos_rule_changes_new(void);
/* Reads the group. Errors (QOS_ERROR): what is wrong with which of its keys. */
gboolean qos_rule_changes_read(GKeyFile *file, GArray *changes, GError **error);
/* Tries all commands, one after the other. They must not ask for the fields (QosField) that are
 * `unknown` of requests. Errors (QOS_ERROR): what is wrong with which of them. */
gboolean qos_rule_changes_check(const GArray *changes, guint unknown, GError **error);
/* When the next has its turn, or a rule expires; QOS_NEVER. `done` are past. */
QosTime qos_rule_changes_next(const GArray *changes, guint done, QosSched *sched);
/* Makes the changes that are due, and drops the rules that have expired. */
void qos_rule_changes_make(const GArray *changes, guint *done, QosSched *sched, QosTime now);
