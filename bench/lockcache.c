/*
 * The cost of a cached credit: finding it by its resource, taking it out of the cache and putting
 * it back (fs/lockcache.h), by the number of credits in the cache; and its memory.
 *
 *     build/bench/bench-lockcache [ROUNDS]
 *
 * The cases take turns in each round, so that a noisy machine disturbs all of them alike. The
 * program prints medians of CPU time over the rounds. Credits are used in random order, so with
 * many of them most of the time is spent on cache misses. The table is GLib's, with a 16-byte
 * resource as its key.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"
#include "fs/lockcache.h"

#define USES 1000000

typedef struct {
    guint64 resource[2];
    QosLockcacheEntry entry;
} Credit;

static const guint sizes[] = {1000, 10000, 100000, 1000000};
#define CASES G_N_ELEMENTS(sizes)

static guint hash(gconstpointer key)
{
    const guint64 *resource = key;
    return (guint)((resource[0] ^ resource[1]) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15) >> 32);
}

static gboolean equal(gconstpointer a, gconstpointer b)
{
    const guint64 *one = a;
    const guint64 *other = b;
    return one[0] == other[0] && one[1] == other[1];
}

static guint next(guint64 *state)
{
    *state = *state * G_GUINT64_CONSTANT(6364136223846793005) + 1442695040888963407;
    return (guint)(*state >> 33);
}

static double measure(guint count)
{
    g_autofree Credit *credits = g_new0(Credit, count);
    g_autoptr(GHashTable) table = g_hash_table_new(hash, equal);
    QosLockcache cache;
    guint64 state = 1;
    QosTime now = 1000 * QOS_SECOND;

    qos_lockcache_init(&cache);
    for (guint i = 0; i < count; i++) {
        credits[i].resource[1] = i;
        qos_lockcache_entry_init(&credits[i].entry, 400);
        qos_lockcache_put(&cache, &credits[i].entry, now);
        g_hash_table_add(table, &credits[i]);
    }
    double start = cpu_now();
    for (guint i = 0; i < USES; i++) {
        guint64 resource[2] = {0, next(&state) % count};
        Credit *credit = g_hash_table_lookup(table, resource);
        if (credit == NULL)
            abort();
        qos_lockcache_use(&cache, &credit->entry, now + i);
        qos_lockcache_put(&cache, &credit->entry, now + i);
    }
    return (cpu_now() - start) / USES;
}

int main(int argc, char **argv)
{
    guint rounds = argc > 1 ? (guint)strtoul(argv[1], NULL, 10) : 5;
    if (rounds == 0 || argc > 2) {
        fprintf(stderr, "usage: bench-lockcache [ROUNDS]\n");
        return 2;
    }
    g_autofree double *times = g_new(double, rounds *CASES);
    for (guint round = 0; round < rounds; round++) {
        for (guint i = 0; i < CASES; i++)
            times[i * rounds + round] = measure(sizes[i]);
    }
    printf("an entry has %zu bytes\n\n| credits | ns a use |\n|---|---|\n",
           sizeof(QosLockcacheEntry));
    for (guint i = 0; i < CASES; i++) {
        printf("| %u | %.0f |\n", sizes[i], median(&times[i * rounds], rounds));
    }
    return 0;
}
