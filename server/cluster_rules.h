/*
 * The rules that hold for all mounts together, as the server keeps them.
 *
 * Problem: a command changes what a thousand mounts enforce, and the server may be killed at any
 * moment. Constraint: a mount that has seen version N must never meet another list with that
 * number, and nobody may learn of a list that a restart would forget. Solution: a list is saved
 * first, together with its version and an entry of the log, and is in force once that is durable.
 * One save is under way at a time; further commands wait, in order. Limit: every change travels to
 * every mount as the whole list, so this is for rules that change every second, not every
 * millisecond.
 *
 * The grammar is that of the cluster's list (fs/rule.h). Its `default` bounds nothing, and is no
 * part of what mounts are told.
 *
 * With adapt=fair (server/tunable.h) what mounts are told ends with one more rule, by which jobs
 * divide what the store can do. It is a setting's, not an administrator's: it is in no list here,
 * and is not saved. Mounts need to know nothing of it that they do not know of any rule.
 *
 * No sockets and no clock: commands are arguments, and times are of the wall clock in ns. One
 * thread, the main loop's.
 */
#pragma once

#include "core/wire_cluster.h"
#include "db/db_server.h"
#include "fs/rule.h"
#include "server/admins.h"

/* Commands that wait for the one that is being saved; EBUSY beyond. */
#define QOS_CLUSTER_RULES_WAITING_MAX 64
/* Bytes of a command in the log; of a longer one that is the beginning. */
#define QOS_CLUSTER_RULES_LOGGED_MAX 1000

/* What the rule of adapt=fair (QOS_RULE_SHARING_NAME) goes by on the wire: no version comes to it,
 * and JSON's numbers have it exactly. */
#define QOS_CLUSTER_SHARING_ID (G_GUINT64_CONSTANT(1) << 52)

typedef struct QosClusterRules QosClusterRules;

typedef struct {
    gpointer arg;
    /* qos_server_db_save_rules(), or another engine's: `done` is called later. */
    void (*save)(QosServerDbRules *rules, const QosServerDbLogEntry *entry,
                 QosServerDbRulesSaved done, gpointer done_arg, gpointer arg);
    /* Another list is in force, to be told to the mounts: a new version, or another capacity. */
    void (*changed)(gpointer arg);
} QosClusterRulesCalls;

/* How a command ended: NULL: it is in force; else (QOS_ERROR) nothing has changed. */
typedef void (*QosClusterRulesDone)(const GError *error, gpointer arg);

/* `saved` and `log` (of QosServerDbLogEntry) are what was saved last; they are copied. A saved rule
 * that cannot be read is an error that names it; NULL then. */
QosClusterRules *qos_cluster_rules_new(const QosServerDbRules *saved, const GPtrArray *log,
                                       const QosClusterRulesCalls *calls, GError **error);
/* No save comes back any more. Commands that wait are forgotten. NULL is allowed. */
void qos_cluster_rules_free(QosClusterRules *rules);

/*
 * Applies a command of `asker`. `done` is called once: within this call where the command is
 * refused at once, else later. It may give further commands.
 *
 * Errors: those of qos_rules_apply(), and
 *     EPERM   the asker may not (server/admins.h); the log of rules has no entry of that, so that
 *             nobody can push out others' entries: the caller logs it where it bounds how often
 *     EBUSY   too many commands wait
 *     EINVAL  it is not UTF-8
 *     E2BIG   the rule, or the whole list, is too long to be told to mounts
 *     EEXIST  the name is that of the rule of adapt=fair
 *     those of the store: it could not be saved
 */
void qos_cluster_rules_command(QosClusterRules *rules, const QosServerOptions *options,
                               const QosAsker *asker, const char *command, QosTime wall,
                               QosClusterRulesDone done, gpointer arg);
/* The asker is gone: its commands go on, and `done` is not called with that argument any more. */
void qos_cluster_rules_forget(QosClusterRules *rules, gconstpointer arg);

/*
 * What the store can do, in operations a second, for jobs to divide; 0: they do not. It is in force
 * within this call, and `changed` is called unless it was so before. Afterwards the log has it too,
 * as a new version of a list that is the same, unless its latest entry of the kind says so.
 */
void qos_cluster_rules_set_sharing(QosClusterRules *rules, guint capacity, QosTime wall);
guint qos_cluster_rules_sharing(const QosClusterRules *rules);
/* Whether the rule, of the list, bounds nothing, and says how its jobs weigh in that sharing.
 * Mounts are told it with the rate of all. */
gboolean qos_cluster_rules_is_of_sharing(const QosClusterRules *rules, const QosRule *rule);

/* Takes expired rules off. To be called at the start, after each change, and at the time that it
 * returns (QOS_NEVER: not by itself). */
QosTime qos_cluster_rules_tick(QosClusterRules *rules, QosTime wall);

/* Of the list in force; 0: none was ever set. */
guint64 qos_cluster_rules_version(const QosClusterRules *rules);
/* Borrowed, until the next change; its ids are not those of the wire. */
const QosRules *qos_cluster_rules_list(const QosClusterRules *rules);
/* What a rule of the list goes by on the wire; 0: there is none of that name. */
guint64 qos_cluster_rules_id(const QosClusterRules *rules, const char *name);
/* The list for mounts; its epoch, lease and parts are the caller's to set. Clear it with
 * qos_wire_rules_clear(). */
QosWireRules qos_cluster_rules_describe(const QosClusterRules *rules, QosTime wall);
/* Of QosServerDbLogEntry, the oldest first: what is durable. Borrowed, until the next change. */
const GPtrArray *qos_cluster_rules_log(const QosClusterRules *rules);
