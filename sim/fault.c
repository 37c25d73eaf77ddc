/*
 * Chooses by chance which kinds of fault a seed has. sim/cluster.c makes them happen.
 */
#include "sim/fault.h"

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

const char *qos_fault_name(QosFaultKind kind)
{
    return names[g_bit_nth_lsf(kind, -1)];
}

QosFaultKind qos_fault_choose(GRand *random)
{
    return 1 << g_rand_int_range(random, 0, G_N_ELEMENTS(names));
}
