/*
 * What all mounts have in common: the rules of the cluster, and the budgets behind them.
 *
 *     administrator -- request --> rules (server/cluster_rules.h) -- saved --> RULES to each mount
 *     mount -- RULES_SEEN --> which list and which part of floors it has (server/cluster_mounts.h)
 *     mount -- BUDGET_REPORT --> budgets (server/budgets.h) -- timer --> BUDGET_GRANT
 *     mount -- EPOCH --> epochs of the policy grr (server/epochs.h) --> EPOCH
 *
 * The listener tells of connections and frames. A timer ends epochs, and takes expired rules, jobs
 * and mounts off. It stands before all other work of the loop, and is looked at after each turn of
 * a connection too. So a mount that floods the server delays an epoch by one turn.
 *
 * Times of rules are of the wall clock, those of budgets monotonic. The wall clock is looked at
 * each second, in case it was set.
 *
 * One thread, the main loop's.
 */
#pragma once

#include "db/db_server.h"
#include "server/admins.h"
#include "server/budgets.h"
#include "server/cluster_mounts.h"
#include "server/cluster_rules.h"
#include "server/jobs.h"

/* Bytes of an answer that travels to a mount: what does not fit is left out, and counted. */
#define QOS_CLUSTER_ANSWER_MAX 61440
/* Requests that wait for the database; EBUSY beyond. */
#define QOS_CLUSTER_REQUESTS_MAX 256

typedef struct QosCluster QosCluster;

/* Where output goes; the id is of a client that is connected. */
typedef struct {
    gpointer arg;
    void (*send_urgent)(QosOwnerId id, const guint8 *frames, gsize length, gpointer arg);
    void (*send_bulk)(QosOwnerId id, GBytes *frames, gpointer arg);
} QosClusterOutput;

/* Both are there for as long as the cluster. NULL: *error (QOS_ERROR) says which saved rule cannot
 * be read. */
QosCluster *qos_cluster_new(const QosServerOptions *options, QosServerDb *db,
                            const QosClusterOutput *output, GError **error);
/* Before the database is closed. Requests that wait are not answered. NULL is allowed. */
void qos_cluster_free(QosCluster *cluster);

/* Puts adapt=fair in force, or ends it, as the settings say. */
void qos_cluster_set_sharing(QosCluster *cluster, const QosServerSettings *settings);

/* --- from the listener --- */

/* It has been welcomed; `peer` (its `caller` does not matter) is copied. It may replace a
 * connection of the same id. */
void qos_cluster_connected(QosCluster *cluster, QosOwnerId id, const char *name,
                           const QosAsker *peer);
void qos_cluster_disconnected(QosCluster *cluster, QosOwnerId id);
/* As `frame` of QosConnectionUser. */
const char *qos_cluster_frame(QosCluster *cluster, QosOwnerId id, QosWireType type,
                              const guint8 *payload, gsize length);
/* After each turn of a connection: ends the epochs that are due. */
void qos_cluster_turned(QosCluster *cluster);

/* --- requests (server/cluster_requests.c) --- */

/* `error` is an errno; 0: it was done. `text` is why not, or the answer, and may be empty. */
typedef void (*QosClusterAnswer)(int error, const char *text, gpointer arg);
/*
 * Answers a request, at once or later:
 *
 *     rule start|change|stop ...     a command of fs/rule.h; answered when it is durable
 *     job set ID [nodes=N] [weight=W] [expire=TIME]  |  job clear ID
 *     forget MOUNT                   of a mount that is gone, by its name or id
 *     rules | log | status | jobs | why JOB | job list     JSON; docs/reference has the members
 *
 * Those of the first group are for whom server/admins.h permits. An answer that is not `is_local`
 * is cut to QOS_CLUSTER_ANSWER_MAX.
 *
 * Errors: EPERM, EINVAL, EBUSY, those of qos_cluster_rules_command(), ENOENT, ENOSPC.
 */
void qos_cluster_ask(QosCluster *cluster, const QosAsker *asker, const char *text,
                     gboolean is_local, QosClusterAnswer done, gpointer arg);
/* The asker is gone: `done` is not called with that argument any more. */
void qos_cluster_forget(QosCluster *cluster, gconstpointer arg);

/* How many nodes a job has, times what one weighs, if that was told; else the number of mounts that
 * see the job. At least 1. */
guint64 qos_cluster_job_weight(const QosCluster *cluster, const char *job, guint mounts);

/* --- for reports --- */

typedef struct {
    guint64 version;
    guint rules;
    QosTime epoch, lease;
    guint parts; /* of floors */
    guint known, connected, behind;
    guint jobs;          /* of which the size was told */
    guint64 passed_over; /* reports */
    guint64 refused;     /* requests that were not permitted */
} QosClusterState;

void qos_cluster_state(const QosCluster *cluster, QosClusterState *ret_state);
const QosServerBudgets *qos_cluster_budgets(const QosCluster *cluster);
