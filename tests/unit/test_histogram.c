/*
 * Bucket limits, totals and quantiles of the histogram.
 */
#include "base/histogram.h"

static void test_buckets(void)
{
    QosHistogram histogram = {0};

    qos_histogram_add(&histogram, 0);
    qos_histogram_add(&histogram, 1);
    qos_histogram_add(&histogram, 2);
    qos_histogram_add(&histogram, 3);
    qos_histogram_add(&histogram, 4);
    qos_histogram_add(&histogram, 5);
    g_assert_cmpuint(histogram.count[0], ==, 2);
    g_assert_cmpuint(histogram.count[1], ==, 1);
    g_assert_cmpuint(histogram.count[2], ==, 2);
    g_assert_cmpuint(histogram.count[3], ==, 1);
    g_assert_cmpuint(qos_histogram_total(&histogram), ==, 6);
}

static void test_every_bound_is_inclusive(void)
{
    for (guint i = 1; i < QOS_HISTOGRAM_BUCKETS - 1; i++) {
        QosHistogram histogram = {0};

        g_assert_cmpuint(qos_histogram_bound(i), ==, G_GUINT64_CONSTANT(1) << i);
        qos_histogram_add(&histogram, qos_histogram_bound(i));
        qos_histogram_add(&histogram, qos_histogram_bound(i) + 1);
        g_assert_cmpuint(histogram.count[i], ==, 1);
        g_assert_cmpuint(histogram.count[i + 1], ==, 1);
    }
}

static void test_the_last_takes_the_rest(void)
{
    QosHistogram histogram = {0};

    qos_histogram_add(&histogram, G_MAXUINT64);
    qos_histogram_add(&histogram, qos_histogram_bound(QOS_HISTOGRAM_BUCKETS - 1) + 1);
    g_assert_cmpuint(histogram.count[QOS_HISTOGRAM_BUCKETS - 1], ==, 2);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 1), ==,
                     qos_histogram_bound(QOS_HISTOGRAM_BUCKETS - 1));
}

static void test_quantiles(void)
{
    QosHistogram histogram = {0};

    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0.5), ==, 0);
    for (int i = 0; i < 90; i++)
        qos_histogram_add(&histogram, 100);
    for (int i = 0; i < 9; i++)
        qos_histogram_add(&histogram, 1000);
    qos_histogram_add(&histogram, 100000);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0), ==, 128);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0.5), ==, 128);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0.9), ==, 128);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0.91), ==, 1024);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0.99), ==, 1024);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 0.991), ==, 131072);
    g_assert_cmpuint(qos_histogram_quantile(&histogram, 1), ==, 131072);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/histogram/buckets", test_buckets);
    g_test_add_func("/histogram/bounds", test_every_bound_is_inclusive);
    g_test_add_func("/histogram/last", test_the_last_takes_the_rest);
    g_test_add_func("/histogram/quantiles", test_quantiles);
    return g_test_run();
}
