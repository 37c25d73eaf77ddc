/*
 * Faults by chance: which kinds a seed knows, and how they strike.
 */
#include "sim/fault.h"

#include "sim/cluster.h"

static const char *const names[] = {"crash", "death", "cut", "one-way", "pause", "slow"};

void qos_faults_choose(QosFaults *faults, GRand *random)
{
    const gboolean is_wild = g_rand_int_range(random, 0, 5) == 0;
    const gboolean is_rough = g_rand_int_range(random, 0, 3) == 0;
    const guint32 half = g_rand_int(random), quarter = half & g_rand_int(random);

    *faults = (QosFaults){
        .kinds = (is_rough ? half : quarter) & ((1 << G_N_ELEMENTS(names)) - 1),
        .loss = g_rand_boolean(random) ? (guint)g_rand_int_range(random, 1, 300) : 0,
        .repeat = g_rand_boolean(random) ? (guint)g_rand_int_range(random, 1, 300) : 0,
        .straggle = g_rand_boolean(random) ? (guint)g_rand_int_range(random, 1, 50) : 0,
        .delay = g_rand_int_range(random, 1, 50) * QOS_MILLISECOND,
        .interval = g_rand_int_range(random, 100, 2500) * QOS_MILLISECOND,
        .drift = is_wild ? 40 * QOS_FAULT_DRIFT_BOUND : QOS_FAULT_DRIFT_BOUND,
    };
}

gboolean qos_faults_keep_time(const QosFaults *faults)
{
    return faults->drift <= QOS_FAULT_DRIFT_BOUND;
}

gboolean qos_faults_are_none(const QosFaults *faults)
{
    return faults->kinds == 0 && faults->loss == 0 && faults->straggle == 0;
}

char *qos_faults_text(const QosFaults *faults)
{
    GString *text = g_string_new(NULL);

    g_string_append_printf(text,
                           "loss %u, repeat %u, straggle %u of 1000; delay %d ms, drift %d ppm;",
                           faults->loss, faults->repeat, faults->straggle,
                           (int)(faults->delay / QOS_MILLISECOND), (int)faults->drift);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++)
        if (faults->kinds & (1U << i))
            g_string_append_printf(text, " %s", names[i]);
    return g_string_free(text, FALSE);
}

/* Both of what a node sends and hears, or one of them. */
static void cut(QosCluster *cluster, QosTime until, gboolean one_way, QosTime *out, QosTime *in)
{
    const gboolean first = qos_cluster_chance(cluster, 500);

    if (!one_way || first)
        *out = until;
    if (!one_way || !first)
        *in = until;
}

void qos_fault_strike(QosCluster *cluster)
{
    const QosFaultKind kind = 1 << qos_cluster_random(cluster, G_N_ELEMENTS(names));
    QosNode *node = cluster->nodes->pdata[qos_cluster_random(cluster, cluster->nodes->len)];
    const QosTime until = cluster->now + (1 + qos_cluster_random(cluster, 2000)) * QOS_MILLISECOND;

    if (!(cluster->faults.kinds & kind) || node->is_dead)
        return;
    qos_cluster_trace(cluster, node, "fault %s", names[g_bit_nth_lsf(kind, -1)]);
    switch (kind) {
    case QOS_FAULT_DEATH: /* of few: else there would soon be nothing left to test */
        node->is_dead = qos_cluster_chance(cluster, 200);
        node->fuse = 0;
        break;
    case QOS_FAULT_CRASH:
        node->fuse = (gint)qos_cluster_random(cluster, 4);
        break;
    case QOS_FAULT_CUT:
    case QOS_FAULT_ONE_WAY:
        if (qos_cluster_chance(cluster, 500))
            cut(cluster, until, kind == QOS_FAULT_ONE_WAY, &node->cut_out_until,
                &node->cut_in_until);
        else
            cut(cluster, until, kind == QOS_FAULT_ONE_WAY, &node->cut_up_until,
                &node->cut_down_until);
        break;
    case QOS_FAULT_PAUSE:
        node->paused_until = until;
        break;
    case QOS_FAULT_SLOW:
        node->slow_until = until;
        break;
    }
}
