/*
 * The data that bench/pool-figures draws: the same steps of load under both laws of the pool
 * (core/pool.c).
 *
 *     pool-figures
 *
 * prints a line for each second: law, step of load (from 0), its name, time (s), L, G (bytes), SLR
 * (byte-milliseconds), grants refused in this second, and the cache hit ratio. The hit ratio counts
 * the visits of the first ten clients to their own files that found the credit in the cache.
 */
#include <stdio.h>

#include "sim/pool_cluster.h"

#define CREDIT_BYTES 400
#define L            (G_GINT64_CONSTANT(10000) * CREDIT_BYTES)
#define OLD_CLIENTS  10

static void first_come(QosPoolCluster *cluster)
{
    qos_pool_cluster_add(cluster, OLD_CLIENTS,
                         &(QosPoolLoad){.visits = 10, .files = 300, .scan = 30});
}

static void many_come(QosPoolCluster *cluster)
{
    qos_pool_cluster_add(cluster, 990, &(QosPoolLoad){.scan = 1});
}

static void one_scans(QosPoolCluster *cluster)
{
    qos_pool_cluster_member(cluster, cluster->members->len - 1)->load.scan = 1000;
}

static void half_are_idle(QosPoolCluster *cluster)
{
    for (guint i = cluster->members->len / 2; i < cluster->members->len; i++)
        qos_pool_cluster_member(cluster, i)->load.scan = 0;
}

static void most_leave(QosPoolCluster *cluster)
{
    qos_pool_cluster_remove(cluster, 900);
}

static void set_limit(QosPoolCluster *cluster, gint64 limit)
{
    QosPoolConfig config = cluster->pool.config;

    config.limit = limit;
    qos_pool_configure(&cluster->pool, &config);
}

static void less(QosPoolCluster *cluster)
{
    set_limit(cluster, L / 2);
}

static void more(QosPoolCluster *cluster)
{
    set_limit(cluster, L * 3 / 2);
}

static const struct {
    const char *name;
    guint seconds;
    void (*change)(QosPoolCluster *cluster);
} steps[] = {
    {"10 clients come", 240, first_come},  {"990 more come", 120, many_come},
    {"one of them scans", 120, one_scans}, {"half are idle", 120, half_are_idle},
    {"900 leave", 120, most_leave},        {"L is halved", 120, less},
    {"L is tripled", 120, more},
};

/* The cache hit ratio of the first clients' visits to their own files since the last call. */
static double hit_ratio(const QosPoolCluster *cluster)
{
    guint64 visits = 0;
    guint64 hits = 0;

    for (guint i = 0; i < OLD_CLIENTS; i++) {
        QosPoolMember *member = qos_pool_cluster_member(cluster, i);
        visits += member->visits;
        hits += member->hits;
        member->visits = member->hits = 0;
    }
    return visits > 0 ? (double)hits / (double)visits : 0;
}

static void run(const char *law, const QosPoolConfig *config)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(config, CREDIT_BYTES, 1);

    for (guint i = 0; i < G_N_ELEMENTS(steps); i++) {
        steps[i].change(cluster);
        for (guint second = 0; second < steps[i].seconds; second++) {
            guint64 refused = cluster->pool.refused;
            qos_pool_cluster_run(cluster, QOS_SECOND);
            refused = cluster->pool.refused - refused;
            printf("%s\t%u\t%s\t%g\t%" G_GINT64_FORMAT "\t%" G_GINT64_FORMAT
                   "\t%.6g\t%" G_GUINT64_FORMAT "\t%.4f\n",
                   law, i, steps[i].name, (double)cluster->now / (double)QOS_SECOND,
                   cluster->pool.config.limit, cluster->pool.granted, cluster->pool.rate, refused,
                   hit_ratio(cluster));
        }
    }
}

int main(int argc, char **argv G_GNUC_UNUSED)
{
    QosPoolConfig config = {.limit = L, .hard_limit = 2 * L};

    if (argc != 1) {
        fprintf(stderr, "usage: pool-figures\n");
        return 2;
    }
    config.law = QOS_POOL_HLD;
    run("hld", &config);
    config.law = QOS_POOL_STEADY;
    run("steady", &config);
    return 0;
}
