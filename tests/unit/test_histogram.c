/*
 * Bucket limits and totals of the histogram.
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
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/histogram/buckets", test_buckets);
    g_test_add_func("/histogram/bounds", test_every_bound_is_inclusive);
    g_test_add_func("/histogram/last", test_the_last_takes_the_rest);
    return g_test_run();
}
