/*
 * The coordinators of all budgets: for each class of a cluster rule and each unit one QosBudget
 * (core/budget.h), with the mounts that have reported as its members.
 *
 *     BUDGET_REPORT of a mount -> report -> QosBudget -- its epoch ends: tick --> BUDGET_GRANT
 *
 * A server that has a parent has combiners instead: they report upwards what their members report,
 * and hand down what they are granted (core/budget_tree.c).
 *
 * A class's epoch ends when all members that it waits for have reported, but not sooner than half
 * an epoch after the one before, and when E has passed. A class is made by the first report of it
 * and freed when no mount can have a rate of it any more. Mounts say nothing before a class is
 * used, so floors are reserved as a whole (core/budget.c).
 *
 * Some rules may be of another kind: their rate is what the store can do, and their classes are
 * jobs that divide it. These have one epoch together (server/sharing.h).
 *
 * Bounds: what a hostile client reports cannot fill the memory. Beyond QOS_SERVER_BUDGETS_MAX
 * classes, or QOS_SERVER_BUDGETS_CLIENT_MAX that one client's reports have made and that are there
 * still, reports of new classes are passed over and counted. Those mounts stay at their floors.
 *
 * Pure: time is an argument. One thread, the main loop's.
 */
#pragma once

#include "core/wire_cluster.h"
#include "server/sharing.h"

/* Classes with their units: some 1,000 bytes each with a member, 300 for each further one. */
#define QOS_SERVER_BUDGETS_MAX        200000
#define QOS_SERVER_BUDGETS_CLIENT_MAX 10000

#define QOS_SERVER_BUDGETS_PARENT     0 /* no client has this id */

typedef struct QosServerBudgets QosServerBudgets;

/* What a rule says of its classes. */
typedef struct {
    guint64 id;                    /* on the wire; > 0 */
    const char *name;              /* of the rule; borrowed for the call */
    guint64 limit[QOS_WIRE_UNITS]; /* rates, in thousandths of a unit a second; 0: no bound */
    QosBudgetShare share;
    QosBudgetAway away;
    guint floor;         /* percent */
    gboolean is_divided; /* its classes are jobs, which divide the limit (server/sharing.h) with
                            those of all such rules. These have the same limit, of operations alone,
                            and FAIR */
    guint weight;        /* if so: of its jobs, beside what each weighs; at least 1 */
} QosServerBudgetRule;

/* Mounts may have rates of a former life of the server until `grace`; 0: none can have. */
QosServerBudgets *qos_server_budgets_new(QosTime grace);
/*
 * Combiners (core/budget_tree.c) instead, of a server that has a parent: each epoch it reports to
 * QOS_SERVER_BUDGETS_PARENT what its clients report, as one member, and tells them what the parent
 * grants. `incarnation` > 0 grows with each start.
 */
QosServerBudgets *qos_server_budgets_new_combiner(guint32 incarnation);
/* NULL is allowed. */
void qos_server_budgets_free(QosServerBudgets *budgets);

/* How a job weighs where jobs divide a rate; NULL: by its mounts, as at the start. */
void qos_server_budgets_set_weigher(QosServerBudgets *budgets, QosServerWeigher weigher,
                                    gpointer arg);

/* The rules in force, with the epoch, the lease and in how many parts floors are divided (the
 * weight of all mounts, `registered`; > 0). Classes of rules that are gone are freed. */
void qos_server_budgets_set_rules(QosServerBudgets *budgets, const QosServerBudgetRule *rules,
                                  guint count, QosTime epoch, QosTime lease, guint parts,
                                  QosTime now);

/* The client is a combiner that has so many parts of the floors, > 0: the sum of the mounts behind
 * it. 1, unless it is told, and again after it has left. */
void qos_server_budgets_set_weight(QosServerBudgets *budgets, QosOwnerId client, guint weight);
/* Of a combiner: how many of all the parts its parent has lent it. To be followed by set_rules. 0:
 * none so far, and reports are passed over. */
void qos_server_budgets_set_lent(QosServerBudgets *budgets, guint lent);

/* The payload of a BUDGET_REPORT. FALSE: it is broken. Items of rules that are gone, and reports
 * that the law refuses, are passed over and counted. */
gboolean qos_server_budgets_report(QosServerBudgets *budgets, QosOwnerId client,
                                   const guint8 *payload, gsize length, QosTime now);
/* To a combiner: the payload of a BUDGET_GRANT of its parent's. FALSE: it is broken, or this is no
 * combiner. Grants that answer no open report are passed over and counted. Answers go with the next
 * tick. */
gboolean qos_server_budgets_grant(QosServerBudgets *budgets, const guint8 *payload, gsize length,
                                  QosTime now);
/* The client is known no more: it can use nothing of any class. */
void qos_server_budgets_leave(QosServerBudgets *budgets, QosOwnerId client, QosTime now);

/* Whole frames of BUDGET_GRANT for one client, or of BUDGET_REPORT for QOS_SERVER_BUDGETS_PARENT.
 * The bytes are the budgets'. No function of these budgets may be called meanwhile. */
typedef void (*QosServerBudgetsSend)(QosOwnerId client, const GByteArray *frames, gpointer arg);
/* Ends the epochs that are due, and answers. Returns when to call it again; QOS_NEVER: after the
 * next report. To be called after reports, too, and after set_rules and leave. */
QosTime qos_server_budgets_tick(QosServerBudgets *budgets, QosTime now, QosServerBudgetsSend send,
                                gpointer arg);

/* A class, for status, `jobs` and `why`. Rates are in thousandths of a unit a second. */
typedef struct {
    guint64 rule;
    const char *rule_name, *class_name;
    guint unit;
    guint64 limit;
    guint64 demand, served; /* of all mounts, in the latest epoch */
    gboolean is_divided;    /* a job that divides a rate: `limit` is what it was given of that, */
    guint64 entitlement;    /* this its part by weight, among the jobs that want anything */
    guint64 weight;
    QosBudgetState state;
} QosServerBudgetsClass;
typedef void (*QosServerBudgetsFunc)(const QosServerBudgetsClass *item, gpointer arg);
void qos_server_budgets_each(const QosServerBudgets *budgets, QosServerBudgetsFunc func,
                             gpointer arg, QosTime now);

/* A mount in a class, by its latest report. */
typedef struct {
    QosOwnerId client;
    guint64 demand, held, bound; /* rates; `bound`: the most that it may use now */
    gboolean is_silent;          /* its lease runs, and it has not reported in the latest epoch */
} QosServerBudgetsMember;
typedef void (*QosServerBudgetsMemberFunc)(const QosServerBudgetsMember *member, gpointer arg);
/* The members of the class of that rule, name and unit; none where there is no such class. */
void qos_server_budgets_each_member(const QosServerBudgets *budgets, guint64 rule,
                                    const char *class_name, guint unit,
                                    QosServerBudgetsMemberFunc func, gpointer arg, QosTime now);
/* How many reports were passed over since the start. */
guint64 qos_server_budgets_passed_over(const QosServerBudgets *budgets);
