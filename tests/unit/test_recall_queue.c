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

static void add(QosRecallQueue *queue, guint64 number, QosRecallKind kind)
{
    const QosResource resource = group(number);
    QosCredit credit = qos_credit_span(0, 7, TRUE);

    qos_recall_queue_add(queue, &resource, &credit, kind);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &credit);
}

/* The next are these and no others, in this order. */
static void take(QosRecallQueue *queue, guint64 first, guint count, QosRecallKind kind)
{
    GArray *taken = qos_recall_queue_take(queue);

    g_assert_nonnull(taken);
    g_assert_cmpuint(taken->len, ==, count);
    for (guint i = 0; i < count; i++) {
        const QosRecall *loss = &g_array_index(taken, QosRecall, i);
        const QosResource resource = group(first + i);

        g_assert_true(qos_resource_equal(&loss->resource, &resource));
        g_assert_cmpint(loss->kind, ==, kind);
        g_assert_cmpuint(loss->credit.spans[0].last, ==, 7);
    }
    qos_recall_queue_free(taken);
}

/* What others wait for does not wait for what the cache gives up. */
static void test_order(void)
{
    const QosResource last = group(99);
    QosRecallQueue queue;

    qos_recall_queue_init(&queue);
    for (guint64 i = 0; i < 100; i++)
        add(&queue, i, QOS_RECALL_SHRINK);
    add(&queue, 200, QOS_RECALL_WANTED);
    add(&queue, 201, QOS_RECALL_WANTED);
    take(&queue, 200, 2, QOS_RECALL_WANTED);
    take(&queue, 0, QOS_RECALL_SLICE, QOS_RECALL_SHRINK);
    qos_recall_queue_make_urgent(&queue, &last);
    take(&queue, 99, 1, QOS_RECALL_SHRINK);
    add(&queue, 202, QOS_RECALL_LOST);
    take(&queue, 202, 1, QOS_RECALL_LOST);
    qos_recall_queue_make_urgent(&queue, &last); /* it was taken */
    for (guint64 i = QOS_RECALL_SLICE; i < 96; i += QOS_RECALL_SLICE)
        take(&queue, i, QOS_RECALL_SLICE, QOS_RECALL_SHRINK);
    take(&queue, 96, 3, QOS_RECALL_SHRINK);
    g_assert_null(qos_recall_queue_take(&queue));
    add(&queue, 1, QOS_RECALL_SHRINK);
    add(&queue, 2, QOS_RECALL_LOST);
    qos_recall_queue_clear(&queue);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/recall-queue/order", test_order);
    return g_test_run();
}
