/*
 * N mounts under one budget in virtual time: the mounts' and the servers' side are those of
 * core/budget.h, with one coordinator or a tree of two levels. Between them is a network with a
 * latency, and losses. The same seed gives the same run.
 */
#pragma once

#include "base/heap.h"
#include "core/budget.h"
#include "sim/budget_load.h"

typedef enum {
    QOS_BUDGET_LAW_SHARED,  /* core/budget.h */
    QOS_BUDGET_LAW_EQUAL,   /* each mount has R / N, as Storage Scale's MaxMounts */
    QOS_BUDGET_LAW_DMCLOCK, /* each takes R x its part of what was served in the epoch before; one
                               that was served nothing, R: rho and delta of dmClock, E late */
} QosBudgetLaw;

typedef struct {
    QosBudgetLaw law;
    QosBudgetShare share;
    guint mounts;
    guint fan; /* mounts of a combiner; 0: one coordinator */
    QosTime epoch;
    QosTime latency;    /* of a message, one way */
    guint loss;         /* of messages, per thousand */
    guint floor;        /* percent */
    gboolean is_steady; /* all want five times their part, all the time */
    guint32 seed;
} QosBudgetWorldConfig;

typedef struct QosBudgetWorld QosBudgetWorld;

/* What has been so far; amounts and rates. */
typedef struct {
    double served, offered; /* amounts */
    double waiting;         /* an amount, now */
    double in_force;        /* the sum of the rates now */
    guint64 messages;
    guint64 active; /* mounts that had something to do, summed over the epochs */
    guint64 epochs;
    double factor; /* a, now */
    double debt;
} QosBudgetWorldState;

#define QOS_BUDGET_WORLD_LIMIT (G_GUINT64_CONSTANT(10000000000) * QOS_BUDGET_UNIT) /* R */

/* Free with qos_budget_world_free(). */
QosBudgetWorld *qos_budget_world_new(const QosBudgetWorldConfig *config);
void qos_budget_world_free(QosBudgetWorld *world);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosBudgetWorld, qos_budget_world_free)

void qos_budget_world_run(QosBudgetWorld *world, QosTime until);
QosBudgetWorldState qos_budget_world_state(QosBudgetWorld *world);
/* The rate of one mount that is in force; and whether its programs want anything. */
double qos_budget_world_rate(const QosBudgetWorld *world, guint mount);
void qos_budget_world_turn(QosBudgetWorld *world, guint mount, gboolean is_on);
/* Its machine has lost power; or hears and says nothing until then. */
void qos_budget_world_kill(QosBudgetWorld *world, guint mount);
void qos_budget_world_silence(QosBudgetWorld *world, guint mount, QosTime until);
