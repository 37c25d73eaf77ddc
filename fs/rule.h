/*
 * Rules: which requests belong to which class, and what the class may do. Lustre's command language
 * (seed 000, section 3; for administrators: docs/reference/rules.md) with bytes, depth and more.
 *
 *     command := ["reg"] action
 *     action  := "start" NAME EXPR OPTION*  |  "change" NAME OPTION+  |  "stop" NAME
 *     NAME    := [A-Za-z0-9_]{1,15}
 *     EXPR    := CONJ ("," CONJ)*                       # or
 *     CONJ    := TERM ("&" TERM)*                       # and
 *     TERM    := FIELD "={" VALUE (SPACE VALUE)* "}"    # any of the values
 *     FIELD   := "jobid" | "host"     values: patterns (base/pattern.h)
 *              | "uid" | "gid"        values: N, LOW-HIGH, [LOW-HIGH], *
 *              | "opcode"             values: names, "data", "meta", * (base/opcode.h)
 *     OPTION  := rate=N|none | bps=BYTES|none | depth=OPS|auto[:BYTES|auto] | per=CLASS | rank=RULE
 *              | weight=N|none | min=N|none | expire=DURATION|none | dryrun[=0|1]
 *              | passthrough[=0|1] | scope=mount|cluster
 *              | share=fair|hard | floor=N% | away=floor|open|stop     # scope=cluster alone
 *     CLASS   := jobid | uid | gid | rule | jobid+opcode
 *
 * A command is UTF-8; blanks around it and around "&" and "," do not matter, other control
 * characters are errors. `none` takes a bound back; 0 is no value for one, because it could as well
 * mean "stop".
 *
 * A QosRules is an immutable list, newest first. It always holds `default`, which has no conditions
 * and governs what no other rule does, wherever it stands. A command makes a new list out of an old
 * one or fails as a whole, so it is atomic by construction. A thread that has a reference to the
 * old list may go on reading it. Rules are shared between lists, by reference count.
 *
 * There are two kinds of lists. A mount's own list has rules for what this mount lets through. The
 * cluster's list has rules for the sum of all mounts (scope=cluster); the lock server keeps it, and
 * each mount has a copy. A request is matched against both, and needs tokens of both.
 */
#pragma once

#include "base/opcode.h"
#include "base/time.h"

#define QOS_RULE_NAME_MAX     15
#define QOS_RULE_DEFAULT_NAME "default"
/* Of the cluster's list at mounts, by which jobs divide what the store can do (adapt=fair of the
 * lock server); the server lets no administrator start a rule of that name. */
#define QOS_RULE_SHARING_NAME "adapt"
#define QOS_RULES_MAX         10000 /* rules in a list, `default` included; ENOSPC beyond */
#define QOS_VALUE_MAX         255   /* bytes of one value of a condition */

#define QOS_RATE_MAX          999999 /* op/s; Lustre's bound, exclusive 1,000,000 */
#define QOS_RATE_DEFAULT      10000  /* op/s, where `start` gives no bound; Lustre's tbf_rate */
#define QOS_BPS_MAX           (G_GINT64_CONSTANT(1) << 50) /* bytes/s: 1 PiB/s */
#define QOS_DEPTH_MAX         1000000                      /* operations */
#define QOS_DEPTH_BYTES_MAX   (G_GINT64_CONSTANT(1) << 50)
#define QOS_WEIGHT_MAX        10000 /* as in the cgroups of Linux */
#define QOS_FLOOR_DEFAULT     10    /* percent */
#define QOS_FLOOR_MAX         50

/* Ids of rules of the cluster's list begin here, so that they differ from those of a mount's. */
#define QOS_RULE_CLUSTER_ID (G_GUINT64_CONSTANT(1) << 48)

/* How the requests that a rule matches are divided into classes, each with a bucket of its own. */
typedef enum {
    QOS_PER_JOBID, /* the default, as in Lustre */
    QOS_PER_UID,
    QOS_PER_GID,
    QOS_PER_RULE, /* one bucket for all that match */
    QOS_PER_JOBID_OPCODE,
} QosPer;

/* "jobid+opcode", ...; a static string. */
const char *qos_per_name(QosPer per);

/* For what a rule's rates hold. */
typedef enum { QOS_SCOPE_MOUNT, QOS_SCOPE_CLUSTER } QosScope;

/* How a cluster rule's rate is divided among the mounts. */
typedef enum {
    QOS_RULE_FAIR, /* all of it is lent, and an overshoot is paid back */
    QOS_RULE_HARD, /* at every instant the mounts' rates together are at most the rule's */
} QosRuleShare;

/* What a mount may use of a cluster rule's rate while it has no lock server. */
typedef enum { QOS_RULE_AWAY_FLOOR, QOS_RULE_AWAY_OPEN, QOS_RULE_AWAY_STOP } QosRuleAway;

/* The fields of a request that decide its class, as a bit set. */
typedef enum {
    QOS_FIELD_JOBID = 1 << 0,
    QOS_FIELD_UID = 1 << 1,
    QOS_FIELD_GID = 1 << 2,
    QOS_FIELD_OPCODE = 1 << 3,
    QOS_FIELD_HOST = 1 << 4,
} QosField;

typedef struct QosRules QosRules;
typedef struct QosCondition QosCondition; /* a parsed EXPR; private to rule_condition.c */

/* One rule. Read-only once it is in a list. */
typedef struct {
    guint64 id; /* never reused on a mount; kept by `change`, so that buckets outlive it */
    char name[QOS_RULE_NAME_MAX + 1];
    gint64 rate;        /* op/s, 0 = no bound */
    gint64 bps;         /* bytes/s, 0 = no bound */
    gint64 depth_ops;   /* what a bucket saves up, in operations; 0 = the scheduler's default */
    gint64 depth_bytes; /* likewise in bytes */
    QosPer per;
    gint64 weight;        /* 0 = not given; for adaptive sharing */
    gint64 minimum;       /* reserved op/s, 0 = none; for adaptive sharing */
    QosTime expires;      /* QOS_NEVER, or when the rule goes by itself */
    gboolean dryrun;      /* count what would wait, let it pass */
    gboolean passthrough; /* the kernel reads and writes by itself (fs/store/passthrough.h) */
    QosScope scope;       /* as its list; the next three are for QOS_SCOPE_CLUSTER */
    QosRuleShare share;
    guint
        floor; /* percent of the rates that all mounts together have at once; 0 to QOS_FLOOR_MAX */
    QosRuleAway away;
    QosCondition *condition; /* NULL for `default` */
} QosRule;

/* What a rule's conditions are compared with. Strings are borrowed for the call. */
typedef struct {
    const char *job;
    const char *host;
    guint32 uid;
    guint32 gid;
    QosOpcode opcode;
} QosRuleSubject;

/* A mount's own list that holds `default` alone, unlimited. Owned by the caller. */
QosRules *qos_rules_new(void);
/* The same of the cluster; its `default` bounds nothing and cannot be changed: what no cluster rule
 * matches is left to the mounts. Its rules have scope=cluster, whether a command says so or not. */
QosRules *qos_rules_new_cluster(void);

/* A rule of a whole list that somebody else keeps. */
typedef struct {
    guint64 id;          /* above QOS_RULE_CLUSTER_ID; no other rule's */
    QosTime left;        /* until it expires; QOS_NEVER. Goes before an expire= of the command */
    const char *command; /* "start ...", without rank= */
} QosRuleStart;

/* The cluster's list of these rules, in their order of matching, and its `default`, whose id is
 * QOS_RULE_CLUSTER_ID. NULL with an error as of qos_rules_apply(), if one of them cannot be in such
 * a list; the message names the rule. */
QosRules *qos_rules_new_cluster_of(const QosRuleStart *starts, guint count, QosTime now,
                                   GError **error);
QosScope qos_rules_scope(const QosRules *rules);
QosRules *qos_rules_ref(QosRules *rules);
void qos_rules_unref(QosRules *rules); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosRules, qos_rules_unref)

/*
 * The list after `command`; `rules` stays as it is. `now` starts `expire=`.
 *
 * A `start` with none of rate=, bps=, weight=, min= and passthrough gets QOS_RATE_DEFAULT. Without
 * rank= it goes to the top. `change` sets the options that are given and leaves the others; rank=
 * moves the rule to just before another, before itself is where it is. `default` takes every option
 * but expire= and dryrun=.
 *
 * Errors (QOS_ERROR, the errno of Lustre; the message has the offending text and what is allowed):
 *     EINVAL        unknown verb, field, option or opcode, or an option twice
 *     EINVAL        no conditions, bad braces, a bad name, value or rate, min= above rate=
 *     EINVAL        passthrough with rate=, bps= or dryrun, or in the cluster's list
 *     EINVAL        scope= that is not the list's; share=, floor= or away= in a mount's own list;
 *                   share=hard with away=open
 *     EINVAL        `change` without option, `stop` with one
 *     ENAMETOOLONG  a name of 16 characters or more
 *     EEXIST        `start` of a name that exists, `default` included
 *     ENOENT        `change`, `stop` or rank= of a rule that does not exist
 *     EPERM         `stop default`; `change default` in the cluster's list
 *     ENOSPC        more than QOS_RULES_MAX rules
 */
QosRules *qos_rules_apply(QosRules *rules, const char *command, QosTime now, GError **error);

/* The list without the rules that have expired by `now`, or NULL if none has. */
QosRules *qos_rules_expire(QosRules *rules, QosTime now);
/* When the next rule expires, or QOS_NEVER. */
QosTime qos_rules_next_expiry(const QosRules *rules);

/*
 * The rule that governs `subject`: the first that matches and is no dry run (never NULL), and in
 * *ret_dryrun the first dry run that stands before it, or NULL. Both belong to the list.
 */
const QosRule *qos_rules_match(const QosRules *rules, const QosRuleSubject *subject,
                               const QosRule **ret_dryrun);
/* TRUE where a rule with `passthrough` governs the subject in each of `opcodes`, of which there is
 * one at least; `subject->opcode` does not matter. Cheap where no rule has it. */
gboolean qos_rules_pass_through(const QosRules *rules, const QosRuleSubject *subject,
                                QosOpcodeSet opcodes);
/* The fields (QosField) that some rule's conditions or `per` look at; others cannot change a match
 * or a class. */
guint qos_rules_fields(const QosRules *rules);

guint qos_rules_count(const QosRules *rules);
/* In order of matching. */
const QosRule *qos_rules_get(const QosRules *rules, guint index);
/* NULL where there is none. */
const QosRule *qos_rules_by_id(const QosRules *rules, guint64 id);
const QosRule *qos_rules_by_name(const QosRules *rules, const char *name);

/* The conditions as text, "*" for `default`; free with g_free. */
char *qos_rule_conditions(const QosRule *rule);
/* Its rates ("rate=none" where it has none) and the other options that differ from their default,
 * e.g. "rate=100 bps=10M per=uid"; without expire=. Free with g_free. */
char *qos_rule_options(const QosRule *rule);
/* The command that makes the rule again ("start ..."; "change default ..."), without expire= and
 * rank=. NULL for a `default` that is as in a new list. Free with g_free. */
char *qos_rule_command(const QosRule *rule);
