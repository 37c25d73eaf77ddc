/*
 * The simulated pool of sim/pool_cluster.h. Using a credit takes no time: the credit is taken out
 * of the cache, or granted, and put into the cache again.
 */
#include "sim/pool_cluster.h"

QosPoolCluster *qos_pool_cluster_new(const QosPoolConfig *config, guint32 credit_bytes,
                                     guint32 seed)
{
    QosPoolCluster *cluster = g_new0(QosPoolCluster, 1);

    qos_pool_init(&cluster->pool, config, 1, 0);
    cluster->members = g_ptr_array_new();
    cluster->random = g_rand_new_with_seed(seed);
    cluster->credit_bytes = credit_bytes;
    cluster->ping = QOS_SECOND;
    cluster->past[0] = qos_pool_signal(&cluster->pool);
    return cluster;
}

QosPoolMember *qos_pool_cluster_member(const QosPoolCluster *cluster, guint index)
{
    return cluster->members->pdata[index];
}

void qos_pool_cluster_add(QosPoolCluster *cluster, guint count, const QosPoolLoad *load)
{
    for (guint i = 0; i < count; i++) {
        QosPoolMember *member = g_new0(QosPoolMember, 1);
        member->load = *load;
        member->own = g_new0(QosLockcacheEntry, load->files);
        /* Clients do not beat time. */
        member->visits_due = g_rand_double(cluster->random);
        member->scan_due = g_rand_double(cluster->random);
        member->heard =
            cluster->now - (QosTime)(g_rand_double(cluster->random) * (double)cluster->ping);
        qos_lockcache_init(&member->cache);
        qos_pool_join(&cluster->pool, &member->session);
        g_ptr_array_add(cluster->members, member);
    }
}

static gboolean is_own(const QosPoolMember *member, const QosLockcacheEntry *entry)
{
    return entry >= member->own && entry < member->own + member->load.files;
}

static void free_member(QosPoolCluster *cluster, QosPoolMember *member)
{
    QosLockcacheEntry *entry;

    qos_pool_leave(&cluster->pool, &member->session);
    while (qos_lockcache_evict(&member->cache, cluster->now, &entry, 1) == 1) {
        if (!is_own(member, entry))
            g_free(entry);
    }
    g_free(member->own);
    g_free(member);
}

void qos_pool_cluster_remove(QosPoolCluster *cluster, guint count)
{
    for (guint i = 0; i < count; i++)
        free_member(cluster, g_ptr_array_steal_index(cluster->members, cluster->members->len - 1));
}

void qos_pool_cluster_free(QosPoolCluster *cluster)
{
    qos_pool_cluster_remove(cluster, cluster->members->len);
    g_ptr_array_unref(cluster->members);
    g_rand_free(cluster->random);
    g_free(cluster);
}

/* --- a client --- */

static void give_back(QosPoolCluster *cluster, QosPoolMember *member, QosLockcacheEntry **batch,
                      guint count)
{
    for (guint i = 0; i < count; i++) {
        qos_pool_cancel(&cluster->pool, &member->session, batch[i]->bytes);
        if (!is_own(member, batch[i]))
            g_free(batch[i]);
    }
    member->cancels += count;
}

static void shrink(QosPoolCluster *cluster, QosPoolMember *member)
{
    QosLockcacheEntry *batch[QOS_LOCKCACHE_BATCH];
    guint count;

    do {
        count = qos_lockcache_shrink(&member->cache, cluster->now, batch, QOS_LOCKCACHE_BATCH);
        give_back(cluster, member, batch, count);
    } while (count == QOS_LOCKCACHE_BATCH);
}

/* At its cap a client gives something of its own back with the request. */
static gboolean is_granted(QosPoolCluster *cluster, QosPoolMember *member, guint32 bytes)
{
    QosPoolVerdict verdict;
    QosLockcacheEntry *entry;
    QosTime wait = 0;

    if (cluster->now < member->retry)
        return FALSE;
    for (;;) {
        verdict = qos_pool_grant(&cluster->pool, &member->session, bytes, cluster->now, &wait);
        if (verdict != QOS_POOL_CAPPED ||
            qos_lockcache_evict(&member->cache, cluster->now, &entry, 1) == 0)
            break;
        give_back(cluster, member, &entry, 1);
    }
    member->retry = cluster->now + wait;
    cluster->most = MAX(cluster->most, cluster->pool.granted);
    return verdict == QOS_POOL_GRANTED;
}

static guint32 any_size(const QosPoolCluster *cluster)
{
    guint32 half = cluster->credit_bytes / 2;

    return (guint32)g_rand_int_range(cluster->random, (gint32)(cluster->credit_bytes - half),
                                     (gint32)(cluster->credit_bytes + half + 1));
}

static void visit_own(QosPoolCluster *cluster, QosPoolMember *member)
{
    gint32 files = (gint32)member->load.files;
    QosLockcacheEntry *entry = &member->own[g_rand_int_range(cluster->random, 0, files)];

    member->visits++;
    if (entry->place != 0) {
        member->hits++;
        qos_lockcache_use(&member->cache, entry, cluster->now);
    } else {
        qos_lockcache_entry_init(entry, any_size(cluster));
        if (!is_granted(cluster, member, entry->bytes))
            return;
    }
    qos_lockcache_put(&member->cache, entry, cluster->now);
}

static void visit_new(QosPoolCluster *cluster, QosPoolMember *member)
{
    guint32 bytes = any_size(cluster);

    if (!is_granted(cluster, member, bytes))
        return;
    QosLockcacheEntry *entry = g_new(QosLockcacheEntry, 1);
    qos_lockcache_entry_init(entry, bytes);
    qos_lockcache_put(&member->cache, entry, cluster->now);
}

static guint whole(double *due)
{
    guint count = (guint)*due;

    *due -= count;
    return count;
}

static void hear(const QosPoolCluster *cluster, QosPoolMember *member)
{
    qos_lockcache_heed(&member->cache, cluster->past[cluster->delay]);
    if (cluster->is_reordered)
        qos_lockcache_heed(&member->cache, cluster->past[QOS_POOL_PAST - 1]);
    member->heard = cluster->now;
}

static void act(QosPoolCluster *cluster, QosPoolMember *member)
{
    double seconds = (double)QOS_POOL_TICK / (double)QOS_SECOND;
    guint64 misses = member->visits - member->hits;

    member->visits_due += member->load.visits * seconds;
    member->scan_due += member->load.scan * seconds;
    for (guint count = whole(&member->visits_due); count > 0; count--)
        visit_own(cluster, member);
    guint scanned = whole(&member->scan_due);
    for (guint i = 0; i < scanned; i++)
        visit_new(cluster, member);
    gboolean has_asked = scanned > 0 || member->visits - member->hits > misses;
    if (has_asked || cluster->now - member->heard >= cluster->ping) {
        hear(cluster, member);
    }
    shrink(cluster, member);
}

static void step(QosPoolCluster *cluster)
{
    if (qos_pool_step(&cluster->pool, cluster->now) < cluster->now + QOS_POOL_STEP)
        return;
    memmove(cluster->past + 1, cluster->past, sizeof cluster->past - sizeof cluster->past[0]);
    cluster->past[0] = qos_pool_signal(&cluster->pool);
}

void qos_pool_cluster_run(QosPoolCluster *cluster, QosTime duration)
{
    for (QosTime end = cluster->now + duration; cluster->now < end;) {
        cluster->now += QOS_POOL_TICK;
        for (guint i = 0; i < cluster->members->len; i++)
            act(cluster, qos_pool_cluster_member(cluster, i));
        step(cluster);
    }
}
