/*
 * What a mount forgets first.
 */
#include "fs/coherence/recall_queue.h"

static QosResource group(guint64 number)
{
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, &number, sizeof(number));
    return resource;
}

static void add(QosLosses *losses, guint64 number, QosLossKind kind)
{
    const QosResource resource = group(number);
    QosCredit credit = qos_credit_span(0, 7, TRUE);

    qos_losses_add(losses, &resource, &credit, kind);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &credit);
}

/* The next are these and no others, in this order. */
static void take(QosLosses *losses, guint64 first, guint count, QosLossKind kind)
{
    GArray *taken = qos_losses_take(losses);

    g_assert_nonnull(taken);
    g_assert_cmpuint(taken->len, ==, count);
    for (guint i = 0; i < count; i++) {
        const QosLoss *loss = &g_array_index(taken, QosLoss, i);
        const QosResource resource = group(first + i);

        g_assert_true(qos_resource_equal(&loss->resource, &resource));
        g_assert_cmpint(loss->kind, ==, kind);
        g_assert_cmpuint(loss->credit.spans[0].last, ==, 7);
    }
    qos_losses_free(taken);
}

/* What others wait for does not wait for what the cache gives up. */
static void test_order(void)
{
    const QosResource last = group(99);
    QosLosses losses;

    qos_losses_init(&losses);
    for (guint64 i = 0; i < 100; i++)
        add(&losses, i, QOS_LOSS_SHRINK);
    add(&losses, 200, QOS_LOSS_WANTED);
    add(&losses, 201, QOS_LOSS_WANTED);
    take(&losses, 200, 2, QOS_LOSS_WANTED);
    take(&losses, 0, QOS_LOSSES_SLICE, QOS_LOSS_SHRINK);
    qos_losses_hurry(&losses, &last);
    take(&losses, 99, 1, QOS_LOSS_SHRINK);
    add(&losses, 202, QOS_LOSS_LOST);
    take(&losses, 202, 1, QOS_LOSS_LOST);
    qos_losses_hurry(&losses, &last); /* it was taken */
    for (guint64 i = QOS_LOSSES_SLICE; i < 96; i += QOS_LOSSES_SLICE)
        take(&losses, i, QOS_LOSSES_SLICE, QOS_LOSS_SHRINK);
    take(&losses, 96, 3, QOS_LOSS_SHRINK);
    g_assert_null(qos_losses_take(&losses));
    add(&losses, 1, QOS_LOSS_SHRINK);
    add(&losses, 2, QOS_LOSS_LOST);
    qos_losses_clear(&losses);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/recall-queue/order", test_order);
    return g_test_run();
}
