/*
 * How much of a group a mount gives up beside what is wanted.
 */
#include "fs/lockengine/recall.h"

static char *beside(const QosCredit *owned, guint64 first, guint64 last, gboolean writes,
                    guint calls)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit wanted = qos_credit_span(first, last, writes);
    QosCredit more = qos_recalls_beside(owned, &wanted, calls);
    char *text = qos_credit_text(type, &more);

    qos_credit_clear(type, &wanted);
    qos_credit_clear(type, &more);
    return text;
}

#define ASSERT_BESIDE(expected, ...)                                                               \
    do {                                                                                           \
        g_autofree char *text = beside(__VA_ARGS__);                                               \
        g_assert_cmpstr(text, ==, expected);                                                       \
    } while (0)

static void test_doubles(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit all = qos_credit_span(0, 1023, TRUE);

    ASSERT_BESIDE("-", &all, 5, 5, TRUE, 0);
    ASSERT_BESIDE("4-4w", &all, 5, 5, TRUE, 1);
    ASSERT_BESIDE("4-4w,6-7w", &all, 5, 5, TRUE, 2);
    ASSERT_BESIDE("0-4r,6-7r", &all, 5, 5, FALSE, 3);
    ASSERT_BESIDE("0-4w,6-511w", &all, 5, 5, TRUE, 9);
    ASSERT_BESIDE("0-4w,6-1023w", &all, 5, 5, TRUE, 10);
    ASSERT_BESIDE("0-4w,6-1023w", &all, 5, 5, TRUE, 255);
    ASSERT_BESIDE("4-4w,9-9w", &all, 5, 8, TRUE, 1);
    qos_credit_clear(type, &all);
}

/* Just what is had, whichever way, and of the kind that is wanted. */
static void test_what_is_had(void)
{
    const QosResourceType *type = qos_resource_type(QOS_RESOURCE_INODES);
    QosCredit owned = qos_credit_span(2, 3, FALSE);
    QosCredit more = qos_credit_span(6, 9, TRUE);

    type->join(&owned, &more);
    ASSERT_BESIDE("2-3w,6-7w", &owned, 5, 5, TRUE, 3);
    ASSERT_BESIDE("2-3r,7-7r", &owned, 6, 6, FALSE, 3);
    ASSERT_BESIDE("-", &(const QosCredit){0}, 6, 6, FALSE, 10);
    qos_credit_clear(type, &more);
    qos_credit_clear(type, &owned);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/recall/doubles", test_doubles);
    g_test_add_func("/lockengine/recall/what-is-had", test_what_is_had);
    return g_test_run();
}
