/*
 * The cache of credits: what goes, in which order, and what never does.
 */
#include "fs/lockcache.h"

#define SIZE 10

typedef struct {
    QosLockcache cache;
    QosLockcacheEntry entries[100];
    QosLockcacheEntry *batch[100];
    QosTime now;
} Fixture;

/* `count` credits that were used for the first time, a second after one another; the last now. */
static void start(Fixture *f, guint count, guint32 bytes)
{
    qos_lockcache_init(&f->cache);
    f->now = 1000 * QOS_SECOND;
    for (guint i = 0; i < count; i++) {
        f->now += QOS_SECOND;
        qos_lockcache_entry_init(&f->entries[i], bytes);
        qos_lockcache_put(&f->cache, &f->entries[i], f->now);
    }
}

static void use(Fixture *f, guint index)
{
    qos_lockcache_use(&f->cache, &f->entries[index], f->now);
    qos_lockcache_put(&f->cache, &f->entries[index], f->now);
}

static void hear(Fixture *f, guint64 sequence, gint64 rate, gint64 least)
{
    g_assert_true(qos_lockcache_heed(
        &f->cache, (QosPoolSignal){.sequence = sequence, .rate = rate, .floor = least}));
}

static guint shrink(Fixture *f)
{
    return qos_lockcache_shrink(&f->cache, f->now, f->batch, G_N_ELEMENTS(f->batch));
}

static gint64 rate(const Fixture *f, guint index)
{
    return qos_lockcache_rate(&f->cache, &f->entries[index], f->now);
}

static void test_rate(void)
{
    Fixture f;
    start(&f, 10, SIZE);
    g_assert_cmpint(f.cache.bytes, ==, 10 * SIZE);
    g_assert_cmpint(rate(&f, 0), ==, 4 * 10 * SIZE * 9000); /* fresh ones count four times */
    g_assert_cmpint(rate(&f, 9), ==, 0);
    use(&f, 3);
    f.now += 2 * QOS_SECOND;
    g_assert_cmpint(rate(&f, 3), ==, 10 * SIZE * 2000);
    f.now -= 100 * QOS_SECOND; /* a clock that went back */
    g_assert_cmpint(rate(&f, 0), ==, 0);
    f.now = QOS_NEVER;
    qos_lockcache_entry_init(&f.entries[10], G_MAXUINT32);
    qos_lockcache_put(&f.cache, &f.entries[10], 0);
    g_assert_cmpint(rate(&f, 10), ==, G_MAXINT64);
}

/* The oldest go first, and no more than it takes: CLR falls with the bytes. */
static void test_shrinks_to_the_signal(void)
{
    Fixture f;
    start(&f, 10, SIZE);
    hear(&f, 1, 4 * 10 * SIZE * 9000, 0);
    g_assert_cmpuint(shrink(&f), ==, 0); /* equal is not above */
    hear(&f, 2, 4 * 10 * SIZE * 9000 - 1, 0);
    g_assert_cmpuint(shrink(&f), ==, 1);
    g_assert_true(f.batch[0] == &f.entries[0]);
    g_assert_cmpint(f.batch[0]->place, ==, 0);
    g_assert_cmpint(f.cache.bytes, ==, 9 * SIZE);
    /* The i-th of those left is 9 - i s old, with i of them before it gone: 7 x 6 s > 40 s. */
    hear(&f, 3, 4 * SIZE * 41999, 0);
    g_assert_cmpuint(shrink(&f), ==, 3);
    for (guint i = 0; i < 3; i++)
        g_assert_true(f.batch[i] == &f.entries[i + 1]);
    g_assert_cmpint(f.cache.bytes, ==, 6 * SIZE);
}

static void test_batches(void)
{
    Fixture f;
    start(&f, 100, SIZE);
    hear(&f, 1, 1, 0);
    f.now += QOS_SECOND;
    g_assert_cmpuint(qos_lockcache_shrink(&f.cache, f.now, f.batch, 60), ==, 60);
    g_assert_cmpuint(qos_lockcache_shrink(&f.cache, f.now, f.batch, 60), ==, 40);
    g_assert_true(f.batch[39] == &f.entries[99]);
    g_assert_cmpuint(qos_lockcache_shrink(&f.cache, f.now, f.batch, 60), ==, 0);
    g_assert_cmpint(f.cache.bytes, ==, 0);
}

/* "Unknown" is no value of SLR, and a late signal turns nothing back. */
static void test_signals(void)
{
    Fixture f;
    start(&f, 10, SIZE);
    f.now += 10000 * QOS_SECOND;
    g_assert_cmpuint(shrink(&f), ==, 0);
    g_assert_false(qos_lockcache_heed(&f.cache, (QosPoolSignal){.sequence = 0, .rate = 1}));
    g_assert_cmpuint(shrink(&f), ==, 0);
    hear(&f, 7, G_MAXINT64, 0);
    g_assert_false(qos_lockcache_heed(&f.cache, (QosPoolSignal){.sequence = 6, .rate = 1}));
    g_assert_false(qos_lockcache_heed(&f.cache, (QosPoolSignal){.sequence = 7, .rate = 1}));
    g_assert_cmpuint(shrink(&f), ==, 0);
    hear(&f, 8, 1, 0);
    qos_lockcache_forget_signal(&f.cache);
    g_assert_cmpuint(shrink(&f), ==, 0);
    hear(&f, 3, 1, 0); /* the other server's */
    g_assert_cmpuint(shrink(&f), ==, 10);
}

static void test_hold_time(void)
{
    Fixture f;
    start(&f, 1, SIZE);
    hear(&f, 1, 1, 0);
    f.now += QOS_LOCKCACHE_HOLD - 1;
    g_assert_cmpuint(shrink(&f), ==, 0);
    f.now++;
    g_assert_cmpuint(shrink(&f), ==, 1);
}

static void test_floor(void)
{
    Fixture f;
    start(&f, 10, SIZE);
    hear(&f, 1, 1, 4 * SIZE - 5);
    f.now += QOS_SECOND;
    g_assert_cmpuint(shrink(&f), ==, 6);
    g_assert_cmpint(f.cache.bytes, ==, 4 * SIZE);
}

/* What is in use, or gone, is in neither queue. */
static void test_use_and_drop(void)
{
    Fixture f;
    start(&f, 10, SIZE);
    hear(&f, 1, 1, 0);
    qos_lockcache_use(&f.cache, &f.entries[0], f.now);
    qos_lockcache_use(&f.cache, &f.entries[0], f.now);
    qos_lockcache_drop(&f.cache, &f.entries[5]);
    qos_lockcache_drop(&f.cache, &f.entries[5]);
    g_assert_cmpint(f.cache.bytes, ==, 8 * SIZE);
    f.now += QOS_SECOND;
    g_assert_cmpuint(shrink(&f), ==, 8);
    for (guint i = 0; i < 8; i++)
        g_assert_true(f.batch[i] != &f.entries[0] && f.batch[i] != &f.entries[5]);
    g_assert_cmpuint(qos_lockcache_evict(&f.cache, f.now, f.batch, 100), ==, 0);
    qos_lockcache_put(&f.cache, &f.entries[0], f.now);
    qos_lockcache_put(&f.cache, &f.entries[0], f.now); /* twice is once */
    g_assert_cmpint(f.cache.bytes, ==, SIZE);
    f.now += QOS_SECOND;
    g_assert_cmpuint(shrink(&f), ==, 1);
}

/* What was come back to outlives four times its age in fresh ones; a burst of uses is one visit. */
static void test_scan_resistance(void)
{
    Fixture f;
    start(&f, 100, SIZE);
    f.now += QOS_LOCKCACHE_HOLD - 1;
    use(&f, 99); /* the same visit still */
    g_assert_false(f.entries[99].is_proven);
    for (guint i = 0; i < 10; i++)
        use(&f, i);
    g_assert_true(f.entries[0].is_proven);
    f.now += 40 * QOS_SECOND;
    /* The proven are 40 s old, as fresh ones of 10 s; the fresh 40 s to 129 s. */
    hear(&f, 1, 10 * SIZE * 40000, 0);
    g_assert_cmpuint(shrink(&f), ==, 90);
    for (guint i = 0; i < 10; i++)
        g_assert_cmpint(f.entries[i].place, !=, 0);
    f.now++;
    f.now += QOS_MILLISECOND;
    g_assert_cmpuint(shrink(&f), ==, 1);
    g_assert_true(f.batch[0] == &f.entries[0]);
}

/* Memory pressure: whatever SLR, floor and hold time, in the order of CLR. */
static void test_evict(void)
{
    Fixture f;
    start(&f, 10, SIZE);
    hear(&f, 1, G_MAXINT64, 100 * SIZE);
    use(&f, 0);
    use(&f, 1);
    g_assert_cmpuint(qos_lockcache_evict(&f.cache, f.now, f.batch, 3), ==, 3);
    for (guint i = 0; i < 3; i++)
        g_assert_true(f.batch[i] == &f.entries[i + 2]);
    g_assert_cmpuint(qos_lockcache_evict(&f.cache, f.now, f.batch, 100), ==, 7);
    g_assert_cmpuint(qos_lockcache_evict(&f.cache, f.now, f.batch, 100), ==, 0);
    g_assert_cmpint(f.cache.bytes, ==, 0);
}

/* --- any sequence of calls --- */

typedef struct {
    Fixture f;
    gboolean is_cached[100];
    GRand *random;
} Model;

static void check_taken(Model *m, guint count)
{
    for (guint i = 0; i < count; i++) {
        gsize index = (gsize)(m->f.batch[i] - m->f.entries);
        g_assert_true(m->is_cached[index]);
        m->is_cached[index] = FALSE;
    }
}

static void do_anything(Model *m)
{
    Fixture *f = &m->f;
    guint index = (guint)g_rand_int_range(m->random, 0, G_N_ELEMENTS(f->entries));
    switch (g_rand_int_range(m->random, 0, 20)) {
    case 0:
        qos_lockcache_drop(&f->cache, &f->entries[index]);
        m->is_cached[index] = FALSE;
        break;
    case 1:
        check_taken(m, qos_lockcache_evict(&f->cache, f->now, f->batch, 5));
        break;
    case 2:
        hear(f, f->cache.signal.sequence + 1, g_rand_int_range(m->random, 1, 1000000), 50);
        break;
    case 3:
        check_taken(m, qos_lockcache_shrink(&f->cache, f->now, f->batch, 20));
        break;
    case 4:
        qos_lockcache_use(&f->cache, &f->entries[index], f->now);
        m->is_cached[index] = FALSE;
        break;
    default:
        qos_lockcache_put(&f->cache, &f->entries[index], f->now);
        m->is_cached[index] = TRUE;
    }
}

static void check_model(const Model *m)
{
    gint64 bytes = 0;
    guint count = 0;
    for (guint i = 0; i < G_N_ELEMENTS(m->is_cached); i++) {
        g_assert_cmpint(m->is_cached[i], ==, m->f.entries[i].place != 0);
        bytes += m->is_cached[i] ? m->f.entries[i].bytes : 0;
        count += m->is_cached[i];
    }
    g_assert_cmpint(m->f.cache.bytes, ==, bytes);
    g_assert_cmpuint(m->f.cache.fresh.length + m->f.cache.proven.length, ==, count);
}

/* After a shrink that was not cut short, nothing with a CLR above SLR is left, but for the hold
 * time and the floor. */
static void check_shrunk(const Model *m)
{
    const Fixture *f = &m->f;
    for (guint i = 0; i < G_N_ELEMENTS(m->is_cached); i++) {
        if (m->is_cached[i] && f->now - f->entries[i].used >= 4 * QOS_LOCKCACHE_HOLD &&
            f->cache.bytes - 20 >= f->cache.signal.floor)
            g_assert_cmpint(rate(f, i), <=, f->cache.signal.rate);
    }
}

static void test_anything(void)
{
    for (guint seed = 1; seed <= 100; seed++) {
        Model m = {.random = g_rand_new_with_seed(seed)};
        g_test_message("seed %u", seed);
        start(&m.f, 0, 0);
        for (guint i = 0; i < G_N_ELEMENTS(m.f.entries); i++)
            qos_lockcache_entry_init(&m.f.entries[i], (guint32)g_rand_int_range(m.random, 1, 21));
        for (guint i = 0; i < 2000; i++) {
            do_anything(&m);
            m.f.now += g_rand_int_range(m.random, 0, 100) * QOS_MILLISECOND;
            check_model(&m);
        }
        hear(&m.f, m.f.cache.signal.sequence + 1, 100000, 50);
        check_taken(&m, shrink(&m.f));
        check_shrunk(&m);
        g_rand_free(m.random);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockcache/rate", test_rate);
    g_test_add_func("/lockcache/shrinks-to-the-signal", test_shrinks_to_the_signal);
    g_test_add_func("/lockcache/batches", test_batches);
    g_test_add_func("/lockcache/signals", test_signals);
    g_test_add_func("/lockcache/hold-time", test_hold_time);
    g_test_add_func("/lockcache/floor", test_floor);
    g_test_add_func("/lockcache/use-and-drop", test_use_and_drop);
    g_test_add_func("/lockcache/scan-resistance", test_scan_resistance);
    g_test_add_func("/lockcache/evict", test_evict);
    g_test_add_func("/lockcache/anything", test_anything);
    return g_test_run();
}
