/*
 * The heap against a plain list that is searched for its smallest element. GLib prints the seed of
 * the random operations; --seed repeats them.
 */
#include "base/heap.h"

typedef struct {
    QosHeapNode node;
    gint64 key;     /* as the reference knows it */
    guint64 serial; /* order of entry */
} Item;

static Item *smallest(GPtrArray *items)
{
    Item *best = NULL;

    for (guint i = 0; i < items->len; i++) {
        Item *item = items->pdata[i];

        if (best == NULL || item->key < best->key ||
            (item->key == best->key && item->serial < best->serial))
            best = item;
    }
    return best;
}

static Item *any(GPtrArray *items)
{
    return items->pdata[g_test_rand_int_range(0, (gint)items->len)];
}

static void push(QosHeap *heap, GPtrArray *items, gint64 key, guint64 serial)
{
    Item *item = g_new0(Item, 1);

    item->key = key;
    item->serial = serial;
    qos_heap_push(heap, &item->node, key);
    g_ptr_array_add(items, item);
}

/* Some other key, the same for equals. */
static gint64 other_key(QosHeapNode *node, gpointer arg)
{
    Item *item = (Item *)node; /* its first member */

    item->key = item->key * GPOINTER_TO_INT(arg) % 17;
    return item->key;
}

static void test_random(void)
{
    g_autoptr(GPtrArray) items = g_ptr_array_new_with_free_func(g_free);
    QosHeap heap;

    qos_heap_init(&heap);
    for (guint64 step = 0; step < 30000; step++) {
        /* Few keys, so that many are equal; long phases of growing and of shrinking. */
        gint64 key = g_test_rand_int_range(-20, 20);
        int growing = step / 3000 % 2 == 0 ? 60 : 20;
        int choice = g_test_rand_int_range(0, 100);

        if (items->len == 0 || choice < growing) {
            push(&heap, items, key, step);
        } else if (choice < 75) {
            Item *item = any(items);

            item->key = key;
            qos_heap_update(&heap, &item->node, key);
        } else {
            Item *item = choice < 85 ? any(items) : smallest(items);

            qos_heap_remove(&heap, &item->node);
            g_assert_false(qos_heap_contains(&item->node));
            qos_heap_remove(&heap, &item->node); /* not in it: nothing happens */
            g_ptr_array_remove_fast(items, item);
        }
        if (step % 100 == 0)
            qos_heap_rekey(&heap, other_key, GINT_TO_POINTER(g_test_rand_int_range(-9, 9)));
        const Item *first = smallest(items);
        g_assert_true((gpointer)qos_heap_peek(&heap) == (gpointer)first);
    }
    qos_heap_clear(&heap);
    for (guint i = 0; i < items->len; i++)
        g_assert_false(qos_heap_contains(items->pdata[i]));
}

static void test_equal_keys_leave_in_order_of_entry(void)
{
    QosHeapNode nodes[100] = {0};
    QosHeap heap;

    qos_heap_init(&heap);
    for (guint i = 0; i < G_N_ELEMENTS(nodes); i++)
        qos_heap_push(&heap, &nodes[i], i % 2);
    for (guint i = 0; i < G_N_ELEMENTS(nodes); i++) {
        QosHeapNode *node = qos_heap_peek(&heap);

        g_assert_true(node == &nodes[i < 50 ? 2 * i : 2 * (i - 50) + 1]);
        qos_heap_remove(&heap, node);
    }
    qos_heap_clear(&heap);
}

static void test_extreme_keys(void)
{
    QosHeapNode late = {0}, early = {0}, middle = {0};
    QosHeap heap;

    qos_heap_init(&heap);
    g_assert_null(qos_heap_peek(&heap));
    qos_heap_push(&heap, &late, G_MAXINT64);
    qos_heap_push(&heap, &middle, 0);
    qos_heap_push(&heap, &early, G_MININT64);
    g_assert_true(qos_heap_peek(&heap) == &early);
    qos_heap_update(&heap, &early, G_MAXINT64);
    g_assert_true(qos_heap_peek(&heap) == &middle);
    qos_heap_remove(&heap, &middle);
    g_assert_true(qos_heap_peek(&heap) == &late);
    qos_heap_push(&heap, &middle, -1); /* a node may come again */
    g_assert_true(qos_heap_peek(&heap) == &middle);
    qos_heap_clear(&heap);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/heap/random", test_random);
    g_test_add_func("/heap/equal-keys", test_equal_keys_leave_in_order_of_entry);
    g_test_add_func("/heap/extreme-keys", test_extreme_keys);
    return g_test_run();
}
