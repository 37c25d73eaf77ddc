/*
 * A mount's budgets: what its classes of cluster rules ask of the lock server, and the rates that
 * are in force for them.
 *
 * The scheduler has the classes and their buckets (fs/tbf_budget.c), core/budget_member.c has the
 * law of one class, and the server divides. This table joins them: a class of a rule and a unit is
 * one QosBudgetMount. Each epoch `step` looks at the classes, appends the reports that are due, and
 * puts those rates in force that change by themselves, because a lease has ended or the server is
 * away. `grant` puts in force what the server allows.
 *
 *     scheduler -- served, waiting --> step -- BUDGET_REPORT --> server
 *     scheduler <-- rate ------------- grant <-- BUDGET_GRANT -- server
 *
 * A class that was idle for an epoch says so once, and then nothing. A mount without classes of
 * cluster rules does nothing.
 *
 * Pure: time is an argument. The caller has the lock of the scheduler.
 */
#pragma once

#include "core/budget.h"
#include "core/wire_cluster.h"
#include "fs/sched.h"

typedef struct QosBudgets QosBudgets;

/* `incarnation` > 0 grows with each start of the mount. */
QosBudgets *qos_budgets_new(guint32 incarnation);
/* NULL is allowed. A scheduler that has rules of it must be freed before, or get others. */
void qos_budgets_free(QosBudgets *budgets);

/*
 * `waker` is called when `step` is to be called at once, before the time that it returned: a class
 * is used that is new, or was resting. It is called within qos_sched_enter() and the like, so under
 * the lock of the scheduler: it must not block, nor call the scheduler or this table; to write to
 * an eventfd is right. Until the next `step` it is called once. Requests that no cluster rule
 * matches do not come here.
 */
void qos_budgets_set_waker(QosBudgets *budgets, void (*waker)(void *arg), void *arg);

/*
 * The rules of a whole list as they hold from `now` on: a rule's id is QOS_RULE_CLUSTER_ID and its
 * id on the wire, so that a rule that was changed keeps its classes. NULL, with *error (QOS_ERROR)
 * that names the rule: one cannot be read. Needs no lock. Free with qos_rules_unref().
 */
QosRules *qos_budgets_read_rules(const QosWireRules *list, QosTime now, GError **error);
/* Puts the rules, which were read from `list`, in force with its epoch, lease and floor parts: from
 * then on no class has more than that as its floor, so RULES_SEEN may be sent. Both NULL: there are
 * none; so before the list of another server, whose ids mean other rules. `step` is next. */
void qos_budgets_set_rules(QosBudgets *budgets, QosSched *sched, QosRules *rules,
                           const QosWireRules *list, QosTime now);

/* There is a connection to the server, or none any more: reports are made only with one. The mount
 * asks in vain meanwhile, so what away= says holds when its leases have ended. */
void qos_budgets_set_connected(QosBudgets *budgets, gboolean is_connected, QosTime now);

/* The clock of `now` stood still while the machine slept: all leases end, and reports are due. */
void qos_budgets_slept(QosBudgets *budgets, QosSched *sched, QosTime now);

/* Appends frames of BUDGET_REPORT that are due, takes off rules that have expired, and puts rates
 * in force that changed by themselves. Returns when to call it again; QOS_NEVER where all classes
 * are idle, until the waker is called. It is also to be called after each of the other calls, which
 * may make something due; if nothing is, it costs nothing. qos_sched_next() is to be asked
 * afterwards. */
QosTime qos_budgets_step(QosBudgets *budgets, QosSched *sched, QosTime now, GByteArray *frames);
/* The payload of a BUDGET_GRANT; qos_sched_next() is to be asked afterwards. FALSE: it is broken;
 * what was read before that is in force. Items of classes that are gone, and answers to no open
 * report, are passed over. */
gboolean qos_budgets_grant(QosBudgets *budgets, QosSched *sched, const guint8 *payload,
                           gsize length, QosTime now);

/* What reports tell of all of them. */
typedef struct {
    guint64 version; /* of the list in force; 0: none came yet */
    guint rules;     /* of the list, less those that have expired */
    guint parts;     /* of the floors; 0: the mount has none */
    QosTime epoch, lease;
    gboolean is_connected;
    QosTime since; /* when this began; 0: it was never connected */
} QosBudgetsTerms;
QosBudgetsTerms qos_budgets_terms(const QosBudgets *budgets);

/* What reports and `why` tell of a class. Rates are in thousandths of a unit a second. */
typedef struct {
    guint64 rule; /* QosRule.id */
    const char *rule_name, *class_name;
    QosUnit unit;
    guint64 limit;   /* of all mounts together */
    guint64 demand;  /* of the latest report */
    guint64 rate;    /* in force here; QOS_BUDGET_NO_BOUND */
    guint64 floor;   /* the mount's */
    guint64 waiting; /* thousandths of a unit that wait */
    QosBudgetAway away;
    gboolean is_away; /* the server is away: `away` is in force */
} QosBudgetsClass;
typedef void (*QosBudgetsFunc)(const QosBudgetsClass *item, gpointer arg);
/* Calls `func` for each class that was used lately. */
void qos_budgets_each(const QosBudgets *budgets, QosSched *sched, QosBudgetsFunc func, gpointer arg,
                      QosTime now);
