/*
 * A binary min-heap over a GPtrArray. Each node knows its place, so that one in the middle is moved
 * or removed by sifting from there. The order is (key, serial): the serial makes it total, hence
 * stable for equal keys.
 */
#include "base/heap.h"

void qos_heap_init(QosHeap *heap)
{
    heap->nodes = g_ptr_array_new();
    heap->serial = 0;
}

void qos_heap_clear(QosHeap *heap)
{
    while (qos_heap_size(heap) > 0)
        qos_heap_remove(heap, g_ptr_array_index(heap->nodes, heap->nodes->len - 1));
    g_clear_pointer(&heap->nodes, g_ptr_array_unref);
}

static gboolean goes_before(const QosHeapNode *a, const QosHeapNode *b)
{
    return a->key != b->key ? a->key < b->key : a->serial < b->serial;
}

static QosHeapNode *node_at(const QosHeap *heap, guint place)
{
    return g_ptr_array_index(heap->nodes, place);
}

static void put(QosHeap *heap, guint place, QosHeapNode *node)
{
    heap->nodes->pdata[place] = node;
    node->index = place + 1;
}

static void sift_up(QosHeap *heap, QosHeapNode *node)
{
    guint place = node->index - 1;

    while (place > 0 && goes_before(node, node_at(heap, (place - 1) / 2))) {
        put(heap, place, node_at(heap, (place - 1) / 2));
        place = (place - 1) / 2;
    }
    put(heap, place, node);
}

static void sift_down(QosHeap *heap, QosHeapNode *node)
{
    guint place = node->index - 1;

    for (;;) {
        guint child = 2 * place + 1;

        if (child >= heap->nodes->len)
            break;
        if (child + 1 < heap->nodes->len &&
            goes_before(node_at(heap, child + 1), node_at(heap, child)))
            child++;
        if (!goes_before(node_at(heap, child), node))
            break;
        put(heap, place, node_at(heap, child));
        place = child;
    }
    put(heap, place, node);
}

void qos_heap_push(QosHeap *heap, QosHeapNode *node, gint64 key)
{
    g_return_if_fail(!qos_heap_contains(node));
    node->key = key;
    node->serial = heap->serial++;
    g_ptr_array_add(heap->nodes, node);
    node->index = heap->nodes->len;
    sift_up(heap, node);
}

void qos_heap_update(QosHeap *heap, QosHeapNode *node, gint64 key)
{
    g_return_if_fail(qos_heap_contains(node));
    node->key = key;
    sift_up(heap, node);
    sift_down(heap, node);
}

void qos_heap_remove(QosHeap *heap, QosHeapNode *node)
{
    QosHeapNode *last;

    if (!qos_heap_contains(node))
        return;
    last = g_ptr_array_steal_index(heap->nodes, heap->nodes->len - 1);
    if (last != node) {
        put(heap, node->index - 1, last);
        sift_up(heap, last);
        sift_down(heap, last);
    }
    node->index = 0;
}

QosHeapNode *qos_heap_peek(const QosHeap *heap)
{
    return heap->nodes->len > 0 ? node_at(heap, 0) : NULL;
}

guint qos_heap_size(const QosHeap *heap)
{
    return heap->nodes->len;
}
