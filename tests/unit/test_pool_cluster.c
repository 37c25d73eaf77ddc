/*
 * A pool and the caches of its clients, as sim/pool_cluster.h runs them: after any step of load
 * that the clients can follow, G is within 5 % of L within 60 T, and stays.
 */
#include <math.h>

#include "sim/pool_cluster.h"

#define SIZE  400   /* bytes of a credit */
#define L     10000 /* credits */
#define BAND  0.05  /* of L */
#define STEPS 60    /* T until G is within it, and for how long it is looked at then */

static const QosPoolConfig usual = {.limit = L * SIZE, .hard_limit = 4 * L * SIZE};

static void run(QosPoolCluster *cluster, guint steps)
{
    qos_pool_cluster_run(cluster, steps * QOS_POOL_STEP);
}

static double share(const QosPoolCluster *cluster)
{
    return (double)cluster->pool.granted / (double)cluster->pool.config.limit;
}

/* How far G is from L at most, after the time it has to come there. */
static double deviation(QosPoolCluster *cluster)
{
    double most = 0;
    run(cluster, STEPS);
    for (guint i = 0; i < STEPS; i++) {
        run(cluster, 1);
        most = MAX(most, fabs(share(cluster) - 1));
    }
    return most;
}

static void assert_settles(QosPoolCluster *cluster)
{
    double most = deviation(cluster);
    g_test_message("%u clients: G is %.1f %% off at most", cluster->members->len, 100 * most);
    g_assert_cmpfloat(most, <=, BAND);
}

static void set_scan(QosPoolCluster *cluster, guint first, guint count, double scan)
{
    for (guint i = first; i < first + count; i++)
        qos_pool_cluster_member(cluster, i)->load.scan = scan;
}

/* --- steps of load --- */

static void test_steps_of_load(void)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    qos_pool_cluster_add(cluster, 10, &(QosPoolLoad){.visits = 100, .files = 2000});
    assert_settles(cluster);
    qos_pool_cluster_add(cluster, 990, &(QosPoolLoad){.scan = 1});
    assert_settles(cluster);
    set_scan(cluster, 0, 1, 1000);
    assert_settles(cluster);
    set_scan(cluster, 0, 1, 0);
    assert_settles(cluster);
    set_scan(cluster, 500, 500, 0);
    assert_settles(cluster);
    qos_pool_cluster_remove(cluster, 900);
    assert_settles(cluster);
}

/* Any load that can fill L in 20 s, and turns it over not faster than in 3 s. */
static void load_anyhow(QosPoolCluster *cluster)
{
    double limit = (double)cluster->pool.config.limit / SIZE;
    double speed = limit / g_rand_double_range(cluster->random, 3, 20);
    double sum = 0;
    for (guint i = 0; i < cluster->members->len; i++) {
        QosPoolMember *member = qos_pool_cluster_member(cluster, i);
        gboolean is_idle = g_rand_int_range(cluster->random, 0, 3) == 0;
        gboolean is_scan = g_rand_int_range(cluster->random, 0, 50) == 0;
        double weight = g_rand_double_range(cluster->random, 0.1, 1);
        member->load.scan = is_idle && i > 0 ? 0 : weight * (is_scan ? 30 : 1);
        sum += member->load.scan;
    }
    for (guint i = 0; i < cluster->members->len; i++)
        qos_pool_cluster_member(cluster, i)->load.scan *= speed / sum;
}

/* As many clients as any number from 10 to 1,000; some have files of their own, and come back. */
static void resize(QosPoolCluster *cluster)
{
    guint count = (guint)pow(10, g_rand_double_range(cluster->random, 1, 3));
    double visits = 0.1 * L / count;
    if (count < cluster->members->len)
        qos_pool_cluster_remove(cluster, cluster->members->len - count);
    while (cluster->members->len < count) {
        guint files = (guint)g_rand_int_range(cluster->random, 1, L) / count + 1;
        gboolean has_own = g_rand_boolean(cluster->random);
        qos_pool_cluster_add(cluster, 1,
                             &(QosPoolLoad){.visits = has_own ? visits : 0, .files = files});
    }
}

static void test_any_load(void)
{
    for (guint seed = 1; seed <= 20; seed++) {
        g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, seed);
        g_test_message("seed %u", seed);
        for (guint i = 0; i < 4; i++) {
            if (i != 2)
                resize(cluster);
            load_anyhow(cluster);
            assert_settles(cluster);
        }
    }
}

/* What the default law is there for. */
static void test_published_law_does_not_settle(void)
{
    QosPoolConfig config = usual;
    config.law = QOS_POOL_HLD;
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&config, SIZE, 1);
    qos_pool_cluster_add(cluster, 10, &(QosPoolLoad){.scan = 100});
    g_assert_cmpfloat(deviation(cluster), >, 0.5);
    qos_pool_cluster_add(cluster, 990, &(QosPoolLoad){.scan = 1});
    g_assert_cmpfloat(deviation(cluster), >, 0.5);
}

/* --- L --- */

static void test_limit_changes(void)
{
    static const guint tenths[] = {5, 40, 10, 2, 20, 1, 10};
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    qos_pool_cluster_add(cluster, 100, &(QosPoolLoad){.scan = 10});
    assert_settles(cluster);
    for (guint i = 0; i < G_N_ELEMENTS(tenths); i++) {
        QosPoolConfig config = usual;
        config.limit = usual.limit * tenths[i] / 10;
        qos_pool_configure(&cluster->pool, &config);
        set_scan(cluster, 0, 100, tenths[i] / 1.5);
        assert_settles(cluster);
    }
}

static double mean_granted(QosPoolCluster *cluster, guint steps)
{
    double sum = 0;
    for (guint i = 0; i < 10 * steps; i++) {
        qos_pool_cluster_run(cluster, QOS_POOL_TICK);
        sum += (double)cluster->pool.granted;
    }
    return sum / (10 * steps);
}

/* The smallest pool: one credit of one byte, and a client that wants another every second. */
static void test_limit_of_one(void)
{
    QosPoolConfig config = {.limit = 1, .hard_limit = 1000};
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&config, 1, 1);
    qos_pool_cluster_add(cluster, 1, &(QosPoolLoad){.scan = 1});
    run(cluster, STEPS);
    g_assert_cmpfloat_with_epsilon(mean_granted(cluster, STEPS), 1, 0.5);
    /* Twenty more want one, and keep it for the hold time; it is said that this does not fit. */
    qos_pool_cluster_add(cluster, 20, &(QosPoolLoad){.scan = 1});
    run(cluster, 2 * STEPS);
    g_assert_cmpfloat(mean_granted(cluster, STEPS), >, 10);
    g_assert_cmpint(qos_pool_signal(&cluster->pool).rate, ==, 1);
    g_autofree char *advice = qos_pool_advice(&cluster->pool);
    g_assert_nonnull(advice);
    qos_pool_cluster_remove(cluster, 20);
    run(cluster, STEPS);
    g_assert_cmpfloat_with_epsilon(mean_granted(cluster, STEPS), 1, 0.5);
    g_assert_null(qos_pool_advice(&cluster->pool));
}

/* Far too much for a while drives SLR to its floor; back to normal it leaves it in time. */
static void test_leaves_the_floor(void)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    qos_pool_cluster_add(cluster, 100, &(QosPoolLoad){.scan = 300});
    run(cluster, 2 * STEPS);
    g_assert_cmpfloat(cluster->pool.rate, ==, (double)usual.limit / 100);
    g_autofree char *advice = qos_pool_advice(&cluster->pool);
    g_assert_nonnull(advice);
    set_scan(cluster, 0, 100, 10);
    assert_settles(cluster);
    g_assert_null(qos_pool_advice(&cluster->pool));
}

/* --- clients --- */

/* Caches of equal clients, each averaged over a while, are within 10 % of each other. */
static void assert_equal(QosPoolCluster *cluster, guint first, guint count)
{
    g_autofree double *sums = g_new0(double, count);
    double least = INFINITY;
    double most = 0;
    for (guint i = 0; i < STEPS; i++) {
        run(cluster, 1);
        for (guint k = 0; k < count; k++)
            sums[k] += (double)qos_pool_cluster_member(cluster, first + k)->session.granted;
    }
    for (guint i = 0; i < count; i++) {
        least = MIN(least, sums[i]);
        most = MAX(most, sums[i]);
    }
    g_test_message("the largest of %u equal clients is %.3f of the smallest", count, most / least);
    g_assert_cmpfloat(most / least, <=, 1.1);
}

static void test_equal_clients(void)
{
    QosPoolConfig config = {.limit = 10 * usual.limit, .hard_limit = 10 * usual.hard_limit};
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&config, SIZE, 1);
    qos_pool_cluster_add(cluster, 10, &(QosPoolLoad){.scan = 1000});
    run(cluster, STEPS);
    assert_equal(cluster, 0, 10);
    /* One has all that there is, and others come (seed 001, 5.3.3). */
    set_scan(cluster, 1, 9, 0);
    run(cluster, STEPS);
    set_scan(cluster, 1, 9, 1000);
    run(cluster, STEPS);
    assert_equal(cluster, 0, 10);
    qos_pool_cluster_add(cluster, 990, &(QosPoolLoad){.scan = 10});
    run(cluster, STEPS);
    assert_equal(cluster, 10, 990);
}

static double hit_ratio(QosPoolCluster *cluster, guint index, guint steps)
{
    QosPoolMember *member = qos_pool_cluster_member(cluster, index);
    guint64 visits = member->visits;
    guint64 hits = member->hits;
    run(cluster, steps);
    return (double)(member->hits - hits) / (double)(member->visits - visits);
}

/* A client that comes back to 4,000 files begins to scan: with a single queue it would miss a
 * fifth. */
static void test_scan_resistance(void)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    qos_pool_cluster_add(cluster, 1, &(QosPoolLoad){.visits = 1000, .files = 4000});
    run(cluster, STEPS);
    g_assert_cmpfloat(hit_ratio(cluster, 0, STEPS), ==, 1);
    set_scan(cluster, 0, 1, 1000);
    assert_settles(cluster);
    double hits = hit_ratio(cluster, 0, STEPS);
    g_test_message("%.4f of the visits have their credit", hits);
    g_assert_cmpfloat(hits, >, 0.98);
}

/* Above HL nothing is granted, however many come. Those that are told to come back get theirs, and
 * the time in which all had to wait is soon over. */
static void test_hard_limit(void)
{
    static const guint percents[] = {105, 110, 125, 200};
    for (guint i = 0; i < G_N_ELEMENTS(percents); i++) {
        QosPoolConfig config = usual;
        config.hard_limit = usual.limit / 100 * percents[i];
        g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&config, SIZE, 1);
        qos_pool_cluster_add(cluster, 10, &(QosPoolLoad){.scan = 100});
        run(cluster, STEPS);
        qos_pool_cluster_add(cluster, 990, &(QosPoolLoad){.scan = 5});
        assert_settles(cluster);
        g_assert_cmpuint(cluster->pool.refused, >, 0);
        g_assert_cmpint(cluster->most, <=, config.hard_limit);
        guint64 refused = cluster->pool.refused;
        run(cluster, STEPS);
        g_assert_cmpuint(cluster->pool.refused, ==, refused);
        for (guint k = 0; k < cluster->members->len; k++)
            g_assert_cmpuint(qos_pool_cluster_member(cluster, k)->cancels, >, 0);
    }
}

static void test_cap(void)
{
    QosPoolConfig config = usual;
    config.cap = usual.limit / 10;
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&config, SIZE, 1);
    qos_pool_cluster_add(cluster, 2, &(QosPoolLoad){.scan = 500});
    run(cluster, STEPS);
    for (guint i = 0; i < 2; i++) {
        QosPoolMember *member = qos_pool_cluster_member(cluster, i);
        guint64 before = member->cancels;
        run(cluster, 10);
        g_assert_cmpuint(member->cancels - before, >=, 4500); /* it goes on, with what it has */
        g_assert_cmpint(member->session.granted, <=, config.cap);
        g_assert_cmpint(member->session.granted, >, config.cap - 2 * SIZE);
    }
}

/* What an idle client may keep in any case it keeps. */
static void test_floor(void)
{
    QosPoolConfig config = usual;
    config.floor = 50 * SIZE;
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&config, SIZE, 1);
    qos_pool_cluster_add(cluster, 1, &(QosPoolLoad){.visits = 100, .files = 500});
    qos_pool_cluster_add(cluster, 50, &(QosPoolLoad){.scan = 40});
    run(cluster, STEPS);
    QosPoolMember *idle = qos_pool_cluster_member(cluster, 0);
    idle->load.visits = 0;
    run(cluster, 5 * STEPS);
    g_assert_cmpint(idle->session.granted, >=, config.floor);
    g_assert_cmpint(idle->session.granted, <, config.floor + 2 * SIZE);
}

/* --- signals --- */

/* Signals that are four steps late still make no cycle. */
static void test_late_signals(void)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    cluster->delay = 4;
    qos_pool_cluster_add(cluster, 100, &(QosPoolLoad){.scan = 10});
    run(cluster, STEPS);
    qos_pool_cluster_add(cluster, 100, &(QosPoolLoad){.scan = 10});
    run(cluster, 2 * STEPS);
    assert_settles(cluster);
}

/* Nor do those that overtake each other. */
static void test_reordered_signals(void)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    cluster->is_reordered = TRUE;
    qos_pool_cluster_add(cluster, 100, &(QosPoolLoad){.scan = 10});
    assert_settles(cluster);
    qos_pool_cluster_add(cluster, 900, &(QosPoolLoad){.scan = 1});
    assert_settles(cluster);
    for (guint i = 0; i < cluster->members->len; i++) {
        const QosPoolMember *member = qos_pool_cluster_member(cluster, i);
        g_assert_cmpuint(member->cache.signal.sequence + 2, >=, cluster->pool.sequence);
    }
}

/* Five hours in which nobody did anything: all credits are old, and the pool fills anew. */
static void test_jump(void)
{
    g_autoptr(QosPoolCluster) cluster = qos_pool_cluster_new(&usual, SIZE, 1);
    qos_pool_cluster_add(cluster, 100, &(QosPoolLoad){.scan = 10});
    assert_settles(cluster);
    cluster->now += 5 * 3600 * QOS_SECOND;
    run(cluster, 1);
    g_assert_cmpfloat(share(cluster), <, 0.2);
    assert_settles(cluster);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pool-cluster/steps-of-load", test_steps_of_load);
    g_test_add_func("/pool-cluster/any-load", test_any_load);
    g_test_add_func("/pool-cluster/published-law-does-not-settle",
                    test_published_law_does_not_settle);
    g_test_add_func("/pool-cluster/limit-changes", test_limit_changes);
    g_test_add_func("/pool-cluster/limit-of-one", test_limit_of_one);
    g_test_add_func("/pool-cluster/leaves-the-floor", test_leaves_the_floor);
    g_test_add_func("/pool-cluster/equal-clients", test_equal_clients);
    g_test_add_func("/pool-cluster/scan-resistance", test_scan_resistance);
    g_test_add_func("/pool-cluster/hard-limit", test_hard_limit);
    g_test_add_func("/pool-cluster/cap", test_cap);
    g_test_add_func("/pool-cluster/floor", test_floor);
    g_test_add_func("/pool-cluster/late-signals", test_late_signals);
    g_test_add_func("/pool-cluster/reordered-signals", test_reordered_signals);
    g_test_add_func("/pool-cluster/jump", test_jump);
    return g_test_run();
}
