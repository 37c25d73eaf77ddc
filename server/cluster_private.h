/*
 * What server/cluster.c, server/cluster_requests.c and server/cluster_report.c share.
 */
#pragma once

#include "net/complaint.h"
#include "server/cluster.h"
#include "server/epochs.h"

/* A request that waits for the database. */
typedef struct {
    QosCluster *cluster;
    QosClusterAnswer done; /* NULL: the asker is gone */
    gpointer arg;
    char *asker;    /* for the log */
    char *text;     /* likewise */
    guint64 number; /* of the change that it waits for; 0: for the rules */
    GList link;
} QosClusterRequest;

struct QosCluster {
    const QosServerOptions *options;
    QosServerDb *db;
    QosClusterOutput output;
    QosClusterRules *rules;
    QosClusterMounts *mounts;
    QosServerBudgets *budgets;
    QosServerEpochs *epochs;
    QosServerJobs *jobs;
    GHashTable *peers;   /* QosOwnerId -> the peer of its connection */
    guint64 connections; /* so far: each has a number */
    QosTime epoch, lease;
    guint64 serial; /* of these terms */
    gboolean has_hard;

    GHashTable *pages; /* parts -> GBytes: the frames of RULES */
    guint64 pages_version, pages_serial;
    QosTime pages_made;

    GQueue requests; /* of QosClusterRequest */
    guint64 refused;
    QosComplaints complaints;

    GSource *timer;
    QosTime armed;     /* for when the timer is; 0: it is to be set */
    QosTime frames_at; /* when budgets or epochs are due */
    gboolean is_due;   /* a report or an EPOCH has come */
};

static inline QosTime qos_cluster_now(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

static inline QosTime qos_cluster_wall(void)
{
    return g_get_real_time() * QOS_MICROSECOND;
}

/* The timer is to end at `due`, or before. */
void qos_cluster_arm(QosCluster *cluster, QosTime due);
/* Changes up to that number are durable: answers requests. */
void qos_cluster_requests_durable(QosCluster *cluster, guint64 number);

/* The answers of reading (server/cluster_report.c): one JSON object and a newline, with lists cut
 * to what fits `room` bytes. Free with g_free(). */
char *qos_cluster_report_status(const QosCluster *cluster, gsize room);
char *qos_cluster_report_rules(const QosCluster *cluster, gsize room);
char *qos_cluster_report_log(const QosCluster *cluster, gsize room);
char *qos_cluster_report_classes(const QosCluster *cluster, gsize room);
char *qos_cluster_report_why(const QosCluster *cluster, const char *job, gsize room);
char *qos_cluster_report_jobs(const QosCluster *cluster, gsize room);
