/*
 * What job programs were started with: found again by their image, bounded, and by user.
 */
#include "fs/caller/origins.h"

#include <string.h>

static QosImage image_of(guint64 place)
{
    return (QosImage){
        .code = place, .stack = place + 1, .environment = place + 2, .environment_end = place + 3};
}

static void check(QosOrigins *origins, const QosImage *image, const char *job, guint nodes)
{
    guint got_nodes = 0;
    g_autofree char *got = qos_origins_find(origins, image, &got_nodes);

    g_assert_cmpstr(got, ==, job);
    g_assert_cmpuint(got_nodes, ==, nodes);
}

static void test_images(void)
{
    QosOrigins *origins = qos_origins_new();
    QosImage one = image_of(1 << 20), other = one, unknown = {0};

    other.start = 4711;
    qos_origins_remember(origins, &one, 1, "one", 3);
    check(origins, &other, NULL, 0);
    qos_origins_remember(origins, &other, 1, "other", 0);
    qos_origins_remember(origins, &unknown, 1, "unknown", 0);
    check(origins, &one, "one", 3);
    check(origins, &other, "other", 0);
    check(origins, &unknown, NULL, 0);
    qos_origins_remember(origins, &one, 2, "again", 4);
    check(origins, &one, "again", 4);
    g_assert_cmpuint(qos_origins_count(origins), ==, 2);
    qos_origins_clear(origins);
    check(origins, &one, NULL, 0);
    g_assert_cmpuint(qos_origins_count(origins), ==, 0);
    qos_origins_free(origins);
}

static void test_a_long_job_is_cut(void)
{
    QosOrigins *origins = qos_origins_new();
    g_autofree char *job = g_strnfill(100000, 'x'), *got = NULL;
    const QosImage image = image_of(7);
    guint nodes;

    qos_origins_remember(origins, &image, 1, job, 0);
    got = qos_origins_find(origins, &image, &nodes);
    g_assert_cmpuint(strlen(got), ==, 256);
    qos_origins_free(origins);
}

/* One user takes nothing of another's; in all, what was not asked for for longest goes. */
static void test_bounded(void)
{
    QosOrigins *origins = qos_origins_new();
    const QosImage guest = image_of(1), first = image_of(1000);

    qos_origins_remember(origins, &guest, 1, "guest", 0);
    for (guint i = 0; i < 3 * QOS_ORIGINS_USER; i++) {
        const QosImage image = image_of(1000 + i);

        qos_origins_remember(origins, &image, 2, "many", 0);
    }
    g_assert_cmpuint(qos_origins_count(origins), ==, QOS_ORIGINS_USER + 1);
    check(origins, &guest, "guest", 0);
    check(origins, &first, NULL, 0);
    for (guint i = 0; i < 2 * QOS_ORIGINS_MAX; i++) {
        const QosImage image = image_of(1000000 + i);

        qos_origins_remember(origins, &image, 0, "root", 0);
        if (i == QOS_ORIGINS_MAX / 2)
            check(origins, &guest, "guest", 0);
    }
    g_assert_cmpuint(qos_origins_count(origins), ==, QOS_ORIGINS_MAX);
    check(origins, &guest, NULL, 0);
    qos_origins_free(origins);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/origins/images", test_images);
    g_test_add_func("/origins/a-long-job-is-cut", test_a_long_job_is_cut);
    g_test_add_func("/origins/bounded", test_bounded);
    return g_test_run();
}
