/*
 * The token bucket: exact sums over millions of steps, debt, overflow and hour-long jumps.
 */
#include "fs/bucket.h"

#define HOUR (3600 * QOS_SECOND)

/* Looking at a bucket often must not lose a fraction of a token. */
static void test_no_residue_is_lost(void)
{
    static const gint64 rates[] = {1, 3, 7, 10, 999, 9973, 999999};
    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        QosBucket bucket;
        qos_bucket_init(&bucket, rates[i], G_MAXINT64 / 4, 0);
        qos_bucket_take(&bucket, G_MAXINT64 / 4, 0); /* empty, never full again */
        QosTime now = 0;
        GRand *random = g_rand_new_with_seed(i);
        for (guint step = 0; step < 1000000; step++) {
            now += g_rand_int_range(random, 1, 100003);
            qos_bucket_fill(&bucket, now);
        }
        g_rand_free(random);
        g_assert_cmpint(bucket.tokens, ==, (gint64)((__int128)now * rates[i] / QOS_SECOND));
        g_assert_cmpint(bucket.carry, ==, (gint64)((__int128)now * rates[i] % QOS_SECOND));
    }
}

/* A greedy client that always comes exactly when due gets rate x time, to the token. */
static void test_greedy_client_gets_the_rate(void)
{
    static const gint64 rates[] = {1, 3, 10, 1000, 5000, 333333};
    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        QosBucket bucket;
        qos_bucket_init(&bucket, rates[i], 3, 0);
        QosTime now = 0;
        gint64 served = 0;
        while (now <= 10 * QOS_SECOND) {
            qos_bucket_take(&bucket, 1, now);
            served++;
            qos_bucket_fill(&bucket, now);
            now = qos_bucket_due(&bucket, now);
        }
        g_assert_cmpint(served, ==, 3 + 10 * rates[i]);
    }
}

/* A look that is late by less than the depth's worth loses nothing: Lustre's lost a third of it. */
static void test_late_wake_ups_are_made_good(void)
{
    const gint64 rate = 10000;
    QosBucket bucket;
    qos_bucket_init(&bucket, rate, qos_bucket_default_depth(rate, 3), 0);
    QosTime now = 0;
    gint64 served = 0;
    while (now < 10 * QOS_SECOND) {
        qos_bucket_take(&bucket, 1, now);
        served++;
        qos_bucket_fill(&bucket, now);
        QosTime due = qos_bucket_due(&bucket, now);
        now = due > now ? due + 50 * QOS_MICROSECOND : now;
    }
    g_assert_cmpint(served, >=, 10 * rate);
    g_assert_cmpint(served, <=, 10 * rate + bucket.depth);
}

static void test_large_request_leaves_debt(void)
{
    QosBucket bucket;
    qos_bucket_init(&bucket, 1000, 10, 0);
    qos_bucket_take(&bucket, 5010, 0);
    g_assert_cmpint(bucket.tokens, ==, -5000);
    g_assert_cmpint(qos_bucket_due(&bucket, 0), ==, 5001 * QOS_MILLISECOND);
    qos_bucket_fill(&bucket, 5001 * QOS_MILLISECOND - 1);
    g_assert_cmpint(bucket.tokens, ==, 0);
    qos_bucket_fill(&bucket, 5001 * QOS_MILLISECOND);
    g_assert_cmpint(bucket.tokens, ==, 1);
    g_assert_cmpint(bucket.carry, ==, 0);
}

/* A third of a second is no whole number of ns: due is when the token is there, and not before.
 * What is left of it where the bucket was full is not saved. */
static void test_due_is_not_early(void)
{
    QosBucket bucket;
    qos_bucket_init(&bucket, 3, 1, 0);
    qos_bucket_take(&bucket, 1, 0);
    QosTime due = qos_bucket_due(&bucket, 0);
    g_assert_cmpint(due, ==, 333333334);
    qos_bucket_fill(&bucket, due - 1);
    g_assert_cmpint(bucket.tokens, ==, 0);
    qos_bucket_fill(&bucket, due);
    g_assert_cmpint(bucket.tokens, ==, 1);
    qos_bucket_take(&bucket, 1, HOUR);
    g_assert_cmpint(qos_bucket_due(&bucket, HOUR), ==, HOUR + 333333334);
}

/* The same bytes in blocks of any size take the same time. */
static void test_block_size_does_not_matter(void)
{
    static const gint64 blocks[] = {1, 4096, 65536, 1048576, 16777216};
    const gint64 rate = 10485760;
    for (guint i = 0; i < G_N_ELEMENTS(blocks); i++) {
        QosBucket bucket;
        qos_bucket_init(&bucket, rate, 4096, 0);
        QosTime now = 0;
        gint64 moved = 0;
        while (moved < 3 * 16777216) {
            now = qos_bucket_due(&bucket, now);
            qos_bucket_take(&bucket, blocks[i], now);
            moved += blocks[i];
        }
        /* The debt of the last block is what remains to be paid. */
        QosTime paid = qos_bucket_due(&bucket, now);
        gint64 exact = (gint64)((__int128)(3 * 16777216 - 4096 + 1) * QOS_SECOND / rate);
        g_assert_cmpint(ABS(paid - exact), <=, QOS_SECOND / rate + 1);
    }
}

static void test_refund(void)
{
    QosBucket bucket;
    qos_bucket_init(&bucket, 1000, 100, 0);
    qos_bucket_take(&bucket, 1000, 0);
    qos_bucket_take(&bucket, -950, 0);
    g_assert_cmpint(bucket.tokens, ==, 50);
    qos_bucket_take(&bucket, -950, 0);
    g_assert_cmpint(bucket.tokens, ==, 100); /* never above the depth */
}

static void test_jumps_and_overflow(void)
{
    QosBucket bucket;
    qos_bucket_init(&bucket, G_MAXINT64, G_MAXINT64, 0);
    qos_bucket_take(&bucket, G_MAXINT64, 0);
    qos_bucket_fill(&bucket, 1);
    g_assert_cmpint(bucket.tokens, ==, G_MAXINT64 / QOS_SECOND);
    qos_bucket_fill(&bucket, 100000 * HOUR);
    g_assert_cmpint(bucket.tokens, ==, G_MAXINT64);

    qos_bucket_init(&bucket, 1, 1, 0);
    for (guint i = 0; i < 100; i++)
        qos_bucket_take(&bucket, G_MAXINT64, 0);
    g_assert_cmpint(bucket.tokens, ==, -(G_MAXINT64 / 2));
    QosTime due = qos_bucket_due(&bucket, HOUR);
    g_assert_cmpint(due, ==, QOS_NEVER - 1);
    qos_bucket_take(&bucket, -G_MAXINT64, HOUR);
    g_assert_cmpint(bucket.tokens, ==, 1);
}

static void test_time_that_stands_or_goes_back(void)
{
    QosBucket bucket;
    qos_bucket_init(&bucket, 10, 3, HOUR);
    qos_bucket_take(&bucket, 3, HOUR);
    qos_bucket_fill(&bucket, HOUR);
    qos_bucket_fill(&bucket, 0);
    g_assert_cmpint(bucket.tokens, ==, 0);
    g_assert_cmpint(qos_bucket_due(&bucket, HOUR), ==, HOUR + 100 * QOS_MILLISECOND);
}

static void test_change_keeps_what_was_saved(void)
{
    QosBucket bucket;
    qos_bucket_init(&bucket, 10, 100, 0);
    qos_bucket_take(&bucket, 100, 0);
    qos_bucket_change(&bucket, 1000, 5, QOS_SECOND); /* 10 tokens came at the old rate */
    g_assert_cmpint(bucket.tokens, ==, 5);
    qos_bucket_take(&bucket, 6, QOS_SECOND);
    g_assert_cmpint(qos_bucket_due(&bucket, QOS_SECOND), ==, QOS_SECOND + 2 * QOS_MILLISECOND);
    g_assert_false(qos_bucket_is_full(&bucket, QOS_SECOND + 5 * QOS_MILLISECOND));
    g_assert_true(qos_bucket_is_full(&bucket, QOS_SECOND + 6 * QOS_MILLISECOND));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/bucket/no-residue-is-lost", test_no_residue_is_lost);
    g_test_add_func("/bucket/due-is-not-early", test_due_is_not_early);
    g_test_add_func("/bucket/greedy-client-gets-the-rate", test_greedy_client_gets_the_rate);
    g_test_add_func("/bucket/late-wake-ups-are-made-good", test_late_wake_ups_are_made_good);
    g_test_add_func("/bucket/large-request-leaves-debt", test_large_request_leaves_debt);
    g_test_add_func("/bucket/block-size-does-not-matter", test_block_size_does_not_matter);
    g_test_add_func("/bucket/refund", test_refund);
    g_test_add_func("/bucket/jumps-and-overflow", test_jumps_and_overflow);
    g_test_add_func("/bucket/time-that-stands-or-goes-back", test_time_that_stands_or_goes_back);
    g_test_add_func("/bucket/change-keeps-what-was-saved", test_change_keeps_what_was_saved);
    return g_test_run();
}
