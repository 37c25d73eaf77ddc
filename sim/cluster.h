/*
 * A cluster in virtual time that fails: nodes with clocks of their own, and a network between them.
 * All randomness comes from one seed, and the same seed gives the same run.
 *
 * A node runs the protocol code of core/, unchanged. The cluster calls a node when a message
 * arrives, and at the time for which the node has asked to be woken. The node sends and saves only
 * through the functions below. So it can crash between any two of these steps: before a message,
 * before its durable write, or after it. A crash loses the node's state, but not what it has saved.
 *
 * A trial is a protocol's cluster, with promises that are checked after each step. Faults disturb
 * the cluster for a while. When the faults have ended and the last late message has arrived, the
 * cluster gets the time that its protocol needs to settle, by the slowest clock.
 */
#pragma once

#include "base/heap.h"
#include "base/time.h"
#include "sim/fault.h"

#define QOS_CLUSTER_TROUBLE (4 * QOS_SECOND)
#define QOS_CLUSTER_LATE    (3 * QOS_SECOND) /* of a message, at most */

typedef struct QosCluster QosCluster;
typedef struct QosNode QosNode;

typedef struct {
    /* Makes node->state, of nothing but node->saved. */
    void (*start)(QosNode *node);
    /* Frees node->state. */
    void (*stop)(QosNode *node);
    void (*receive)(QosNode *node, QosNode *from, GBytes *message);
    /* The time that it asked for has come. */
    void (*wake)(QosNode *node);
    /* A message for the trace; free with g_free. */
    char *(*describe)(GBytes *message);
} QosNodeClass;

struct QosNode {
    QosCluster *cluster;
    const QosNodeClass *class;
    char *name;
    guint number;
    QosNode *parent;     /* NULL: the root */
    gpointer arg;        /* the trial's, freed with the node: what is known of it from outside */
    gpointer state;      /* NULL: down */
    GArray *saved;       /* of guint64, durable: to be changed by qos_node_save() alone */
    guint32 incarnation; /* starts so far */
    gboolean is_dead;    /* it does not start again */

    /* --- the cluster's --- */
    gint64 clock_offset;
    gint64 clock_drift; /* per million */
    QosTime paused_until, slow_until;
    QosTime cut_in_until, cut_out_until;  /* from and to all others */
    QosTime cut_up_until, cut_down_until; /* to and from the parent */
    struct QosEvent *alarm;               /* NULL: not set */
    gint fuse;                            /* steps left until it crashes; -1: it does not */
    gboolean is_doomed;                   /* it crashes when the function under way returns */
};

typedef struct {
    const char *name;
    const char *promise;      /* what is checked, in words */
    const char *const *rules; /* that can be broken on purpose, to see it caught; ended by NULL */
    QosTime settles;          /* by its clocks, from the last late message on */
    /* Adds the nodes. `broken` is one of `rules`, or NULL. */
    void (*build)(QosCluster *cluster, const char *broken);
    void (*clear)(QosCluster *cluster);
    /* After each step of `node`: qos_cluster_fail() where a promise is broken. */
    void (*check)(QosCluster *cluster, QosNode *node);
    /* At the end. */
    void (*settled)(QosCluster *cluster);
} QosTrial;

struct QosCluster {
    const QosTrial *trial;
    gpointer arg; /* the trial's */
    GRand *random;
    QosFaults faults;
    GPtrArray *nodes; /* of QosNode */
    QosNode *victim;  /* every second fault is its; NULL: all are as likely */
    QosTime now;      /* no node of the cluster knows it */
    gboolean is_calm; /* the faults have ended */
    gboolean is_traced;
    guint64 steps;
    guint64 digest; /* of all steps: the same of the same run */
    char *failure;  /* the first; NULL: none */
    QosHeap events;
};

typedef struct {
    const QosTrial *trial;
    guint64 seed;
    const char *broken; /* a rule of the trial, or NULL */
    gboolean is_traced; /* to the standard output */
} QosTrialRun;

typedef struct {
    char *failure; /* NULL: none; free with g_free */
    guint64 steps, digest;
} QosTrialResult;

/* Runs one seed. */
QosTrialResult qos_trial_run(const QosTrialRun *run);

/* --- for trials --- */

/* It starts with the cluster. `name` is a format. */
QosNode *qos_cluster_add(QosCluster *cluster, const QosNodeClass *class, QosNode *parent,
                         const char *name, ...) G_GNUC_PRINTF(4, 5);
void qos_cluster_fail(QosCluster *cluster, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* A line of the trace; `node` may be NULL. */
void qos_cluster_trace(QosCluster *cluster, const QosNode *node, const char *format, ...)
    G_GNUC_PRINTF(3, 4);
/* TRUE with `thousandths` of probability. */
gboolean qos_cluster_chance(QosCluster *cluster, guint thousandths);
/* From 0 to `below` - 1. */
guint qos_cluster_random(QosCluster *cluster, guint below);

/* --- for nodes --- */

/* By its own clock. */
QosTime qos_node_now(const QosNode *node);
/* In place of any time asked for before; QOS_NEVER: not at all. */
void qos_node_wake_at(QosNode *node, QosTime local);
/* The message is taken over. */
void qos_node_send(QosNode *node, QosNode *to, GBytes *message);
/* Durable when it returns, unless the node is doomed then: perhaps it is, perhaps not. */
void qos_node_save(QosNode *node, const guint64 *values, guint count);
