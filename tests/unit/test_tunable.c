/*
 * What a tunable may be set to, how it is printed then, and what adaptive sharing makes of its own.
 */
#include "fs/control/tunable.h"

#include <errno.h>

static void assert_check(QosTunable tunable, const char *text, const char *canonical, int code)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *checked = NULL;
    QosTunables tunables;

    qos_tunables_init(&tunables);
    checked = qos_tunables_check(&tunables, tunable, text, &error);
    g_assert_cmpstr(checked, ==, canonical);
    g_assert_cmpint(error ? error->code : 0, ==, code);
    qos_tunables_clear(&tunables);
}

static void test_tunables(void)
{
    QosTunable found;

    for (guint i = 0; i < QOS_TUNABLE_COUNT; i++) {
        g_assert_true(qos_tunable_find(qos_tunable_names[i], &found));
        g_assert_cmpuint(found, ==, i);
    }
    g_assert_null(qos_tunable_names[QOS_TUNABLE_COUNT]);
    g_assert_false(qos_tunable_find("slot", &found));

    assert_check(QOS_TUNABLE_SLOTS, "8", "8", 0);
    assert_check(QOS_TUNABLE_SLOTS, "0", NULL, ERANGE);
    assert_check(QOS_TUNABLE_SLOTS, "65537", NULL, ERANGE);
    assert_check(QOS_TUNABLE_SLOTS, "8 ", NULL, EINVAL);
    assert_check(QOS_TUNABLE_SLOTS, "", NULL, EINVAL);
    assert_check(QOS_TUNABLE_JOB_CLEANUP_INTERVAL, "0", "0", 0);
    assert_check(QOS_TUNABLE_JOB_CLEANUP_INTERVAL, "-1", NULL, ERANGE);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "tbf", "tbf", 0);
    assert_check(QOS_TUNABLE_NRS_POLICIES, " reg  tbf jobid", "tbf", 0);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "fifo reg", "fifo", 0);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "jrr", "jrr", 0);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "tbf nid", NULL, EINVAL);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "jrr jobid", NULL, EINVAL);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "tbf jrr", NULL, EINVAL);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "hp tbf", NULL, EINVAL);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "crrn", NULL, EINVAL);
    assert_check(QOS_TUNABLE_NRS_POLICIES, "", NULL, EINVAL);
    assert_check(QOS_TUNABLE_JOBID_VAR, "MY_JOB", "MY_JOB", 0);
    assert_check(QOS_TUNABLE_JOBID_VAR, "cgroup:(", NULL, EINVAL);
    assert_check(QOS_TUNABLE_JOBID_NAME, "%e.%H", "%e.%H", 0);
    assert_check(QOS_TUNABLE_JOBID_NAME, "%y", NULL, EINVAL);
}

static void test_adapt_tunables(void)
{
    assert_check(QOS_TUNABLE_ADAPT, "fair", "fair", 0);
    assert_check(QOS_TUNABLE_ADAPT, "paper", "paper", 0);
    assert_check(QOS_TUNABLE_ADAPT, "off", "off", 0);
    assert_check(QOS_TUNABLE_ADAPT, "on", NULL, EINVAL);
    assert_check(QOS_TUNABLE_ADAPT, "", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "auto", "auto", 0);
    assert_check(QOS_TUNABLE_CAPACITY, "5000", "5000", 0);
    assert_check(QOS_TUNABLE_CAPACITY, "5000op/s", "5000", 0);
    assert_check(QOS_TUNABLE_CAPACITY, "5000 op/s", "5000", 0); /* as reports have it */
    assert_check(QOS_TUNABLE_CAPACITY, "0 op/s", NULL, ERANGE);
    assert_check(QOS_TUNABLE_CAPACITY, "5000  op/s", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "5000 ", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "5K op/s", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "op/s", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "0", NULL, ERANGE);
    assert_check(QOS_TUNABLE_CAPACITY, "-5", NULL, ERANGE);
    assert_check(QOS_TUNABLE_CAPACITY, "100000001", NULL, ERANGE);
    assert_check(QOS_TUNABLE_CAPACITY, "200MB/s", "200MB/s", 0);
    assert_check(QOS_TUNABLE_CAPACITY, "1.5G/s", "1536MB/s", 0);
    assert_check(QOS_TUNABLE_CAPACITY, "1048577/s", "1048577B/s", 0);
    assert_check(QOS_TUNABLE_CAPACITY, "0MB/s", NULL, ERANGE);
    assert_check(QOS_TUNABLE_CAPACITY, "99999P/s", NULL, ERANGE);
    assert_check(QOS_TUNABLE_CAPACITY, "-1M/s", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "/s", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "10K", NULL, EINVAL);
    assert_check(QOS_TUNABLE_CAPACITY, "", NULL, EINVAL);
    assert_check(QOS_TUNABLE_ADAPT_PERIOD, "5ms", "5ms", 0);
    assert_check(QOS_TUNABLE_ADAPT_PERIOD, "10", "10000ms", 0);
    assert_check(QOS_TUNABLE_ADAPT_PERIOD, "4ms", NULL, ERANGE);
    assert_check(QOS_TUNABLE_ADAPT_PERIOD, "10001ms", NULL, ERANGE);
    assert_check(QOS_TUNABLE_ADAPT_PERIOD, "-1", NULL, EINVAL);
    assert_check(QOS_TUNABLE_ADAPT_BYTES, "0", "0", 0);
    assert_check(QOS_TUNABLE_ADAPT_BYTES, "65536", "64K", 0);
    assert_check(QOS_TUNABLE_ADAPT_BYTES, "2T", NULL, ERANGE);
    assert_check(QOS_TUNABLE_ADAPT_BYTES, "x", NULL, EINVAL);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "0.50", "0.5", 0);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "1000", "1000", 0);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "0", NULL, ERANGE);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "1001", NULL, ERANGE);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "99999999999999999999999", NULL, ERANGE);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "-1", NULL, EINVAL);
    assert_check(QOS_TUNABLE_ADAPT_METADATA, "", NULL, EINVAL);
}

static QosAdaptConfig adapt_of(const char *mode, const char *capacity, const char *bytes)
{
    QosTunables tunables;

    qos_tunables_init(&tunables);
    qos_tunables_take(&tunables, QOS_TUNABLE_ADAPT, g_strdup(mode));
    qos_tunables_take(&tunables, QOS_TUNABLE_CAPACITY, g_strdup(capacity));
    qos_tunables_take(&tunables, QOS_TUNABLE_ADAPT_BYTES, g_strdup(bytes));
    qos_tunables_take(&tunables, QOS_TUNABLE_ADAPT_PERIOD, g_strdup("20ms"));
    QosAdaptConfig config = qos_tunables_adapt(&tunables);
    qos_tunables_clear(&tunables);
    return config;
}

/* Bytes a second are those of requests of 1 MiB, whatever a byte costs. */
static void test_adapt_config(void)
{
    QosAdaptConfig config = adapt_of("fair", "auto", "64K");

    g_assert_cmpint(config.mode, ==, QOS_ADAPT_FAIR);
    g_assert_cmpint(config.metadata_cost, ==, QOS_COST_UNIT);
    g_assert_cmpint(config.capacity, ==, 0);
    g_assert_cmpint(config.period, ==, 20 * QOS_MILLISECOND);
    g_assert_cmpint(config.bytes_per_cost, ==, 65536);
    g_assert_cmpint(adapt_of("fair", "500", "64K").capacity, ==, 500);
    g_assert_cmpint(adapt_of("fair", "200M/s", "64K").capacity, ==, 200 * 17);
    g_assert_cmpint(adapt_of("fair", "200M/s", "0").capacity, ==, 200);
    g_assert_cmpint(adapt_of("paper", "200M/s", "64K").capacity, ==, 200); /* counts requests */
    g_assert_cmpint(adapt_of("fair", "95T/s", "512").capacity, ==, QOS_ADAPT_CAPACITY_MAX);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tunable/check", test_tunables);
    g_test_add_func("/tunable/check-adapt", test_adapt_tunables);
    g_test_add_func("/tunable/adapt-config", test_adapt_config);
    return g_test_run();
}
