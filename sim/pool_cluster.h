/*
 * A pool and the clients that it sizes, in virtual time. Pool and caches are the server's and the
 * mount's own code (core/pool.h, fs/lockcache.h). Replies carry the signal: a client that asks for
 * credits receives it with each tick in which it asks, an idle client with its ping. The same seed
 * gives the same run.
 */
#pragma once

#include "core/pool.h"
#include "fs/lockcache.h"

#define QOS_POOL_TICK (100 * QOS_MILLISECOND)
#define QOS_POOL_PAST 8

/* What a client does. */
typedef struct {
    double visits; /* a second, to files of its own, each as likely as the others, */
    guint files;   /* of which it has so many */
    double scan;   /* files a second that it visits once, and never again */
} QosPoolLoad;

typedef struct {
    QosPoolClient session;
    QosLockcache cache;
    QosPoolLoad load; /* but for `files` it may be changed at any time */
    double visits_due;
    double scan_due;
    guint64 visits;         /* to files of its own */
    guint64 hits;           /* of these, with the credit in the cache */
    guint64 cancels;        /* credits given back */
    QosLockcacheEntry *own; /* load.files of them */
    QosTime heard;
    QosTime retry; /* not before does it ask for a credit */
} QosPoolMember;

typedef struct {
    QosPool pool;
    GPtrArray *members; /* of QosPoolMember */
    GRand *random;
    guint32 credit_bytes;  /* of an average credit; one has half to one and a half of it */
    QosTime ping;          /* how long a client goes without hearing the signal */
    guint delay;           /* steps by which all signals are late, below QOS_POOL_PAST */
    gboolean is_reordered; /* a reply is followed by the one of QOS_POOL_PAST steps ago */
    QosPoolSignal past[QOS_POOL_PAST]; /* of the last steps, the newest first */
    QosTime now;
    gint64 most; /* the largest G there was; the caller may reset it */
} QosPoolCluster;

/* Free with qos_pool_cluster_free(). */
QosPoolCluster *qos_pool_cluster_new(const QosPoolConfig *config, guint32 credit_bytes,
                                     guint32 seed);
void qos_pool_cluster_free(QosPoolCluster *cluster);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosPoolCluster, qos_pool_cluster_free)

void qos_pool_cluster_add(QosPoolCluster *cluster, guint count, const QosPoolLoad *load);
/* The last `count` leave. */
void qos_pool_cluster_remove(QosPoolCluster *cluster, guint count);
QosPoolMember *qos_pool_cluster_member(const QosPoolCluster *cluster, guint index);
/* `duration` is some ticks. */
void qos_pool_cluster_run(QosPoolCluster *cluster, QosTime duration);
