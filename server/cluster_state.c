/*
 * What all files of the cluster need of its state: the timer, and what is known (server/cluster.h).
 */
#include "server/cluster_private.h"

void qos_cluster_arm(QosCluster *cluster, QosTime due)
{
    if (cluster->armed != 0 && due >= cluster->armed)
        return; /* early enough: it looks again then, and to set it would wake the loop */
    cluster->armed = due;
    g_source_set_ready_time(cluster->timer,
                            due == QOS_NEVER ? -1 : (due + QOS_MICROSECOND - 1) / QOS_MICROSECOND);
}

guint64 qos_cluster_job_weight(const QosCluster *cluster, const char *job, guint mounts)
{
    const QosServerJob *told = qos_server_jobs_find(cluster->jobs, job);

    return told != NULL ? (guint64)told->nodes * told->weight : MAX(mounts, 1);
}

void qos_cluster_state(const QosCluster *cluster, QosClusterState *ret_state)
{
    const QosClusterMounts *mounts = cluster->mounts;

    *ret_state = (QosClusterState){
        .version = qos_cluster_rules_version(cluster->rules),
        .rules = qos_rules_count(qos_cluster_rules_list(cluster->rules)) - 1,
        .epoch = cluster->epoch,
        .lease = cluster->lease,
        .parts = qos_cluster_mounts_parts(mounts),
        .known = qos_cluster_mounts_known(mounts),
        .connected = qos_cluster_mounts_connected_count(mounts),
        .behind = qos_cluster_mounts_behind(mounts),
        .jobs = qos_server_jobs_count(cluster->jobs),
        .passed_over = qos_server_budgets_passed_over(cluster->budgets),
        .refused = cluster->refused,
    };
}

const QosServerBudgets *qos_cluster_budgets(const QosCluster *cluster)
{
    return cluster->budgets;
}
