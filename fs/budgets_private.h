/*
 * What the files of a mount's budgets share:
 *
 *     budgets.c       the table: rules, the connection, the server's answers
 *     budgets_tell.c  what reports tell
 *     budgets_unit.c  one rate of one class
 *     budgets_walk.c  a look at all classes: what is due, and what is in force
 */
#pragma once

#include "fs/budgets.h"

/* A rate of a class. */
typedef struct {
    gboolean is_bound;  /* the rule has such a rate; else all zero */
    gboolean is_active; /* it reports */
    gboolean is_heard;  /* the server's latest report of it is not "idle" */
    gboolean is_told;   /* `told` is in force in the scheduler */
    QosBudgetMount mount;
    guint64 told;
    guint64 seen_served, seen_waiting; /* when it reported last, or went to rest */
    guint64 served;                    /* for reports: see budgets_walk.c */
    QosTime since;                     /* when it reported last, or woke */
    QosTime due;                       /* while it is active */
} QosBudgetsUnit;

/* A class. It is its own key in `by_name`: rule and name. */
typedef struct {
    guint64 rule_id;
    char *name;    /* owned */
    guint64 class; /* its id in the scheduler */
    guint64 walk;  /* when it was seen last */
    QosBudgetsUnit units[QOS_UNITS];
} QosBudgetsEntry;

struct QosBudgets {
    guint32 incarnation;
    guint64 ticket;       /* the highest that was used */
    QosRules *rules;      /* owned; NULL: none */
    GHashTable *by_name;  /* QosBudgetsEntry -> itself, owned */
    GHashTable *by_class; /* QosBudgetsEntry.class -> it */
    QosBudgetsTerms terms;
    QosTime next; /* when step has something to do */
    gboolean is_woken;
    void (*waker)(void *arg);
    void *waker_arg;
    guint64 walk;
};

/* --- budgets_unit.c --- */

/* The terms of a rule's rate. */
QosBudgetConfig qos_budgets_config(const QosBudgets *budgets, const QosRule *rule, QosUnit unit);
/* This mount's part of the floors, as the server reckons it (core/budget.c). */
guint64 qos_budgets_floor(const QosBudgets *budgets, const QosBudgetConfig *config);
/* NULL: it is gone. */
const QosRule *qos_budgets_rule(const QosBudgets *budgets, guint64 id);
/* Gives a unit what the rule says: it begins, goes on, or ends. */
void qos_budgets_unit_set_rule(QosBudgets *budgets, QosBudgetsUnit *unit, QosUnit which,
                               const QosRule *rule);
/* Frees the entry at which `iter` of `by_name` is. */
void qos_budgets_remove(QosBudgets *budgets, GHashTableIter *iter, QosBudgetsEntry *entry);
/* Puts the rate in force that holds for the unit by now. */
void qos_budgets_apply(QosBudgetsEntry *entry, QosUnit which, QosSched *sched, QosTime now);
/* When a rate in force changes by itself, after `now`. */
QosTime qos_budgets_change(const QosBudgetMount *mount, QosTime now);

/* --- budgets_walk.c --- */

/* Visits all classes, appends to `frames` the reports that are due (NULL: none), and puts the rates
 * in force. Returns when to do it again. */
QosTime qos_budgets_walk(QosBudgets *budgets, QosSched *sched, QosTime now, GByteArray *frames);
