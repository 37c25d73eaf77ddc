/*
 * A min-heap in which each element has four children, so it is half as deep as a binary heap.
 *
 * Most of the time of a large heap is spent on cache misses: each of 10,000 nodes lies in a cache
 * line of its own. Therefore the array `entries` holds the sort key itself (the caller's key and a
 * serial number), and sifting reads no node. Nor does it write to a node: a node keeps a small id
 * while it is in the heap, and `places` maps the id to the node's index in `entries`. With that
 * index a node in the middle can be moved or removed by sifting from there.
 *
 * The serial number makes the order total, so nodes with equal keys keep their order of entry.
 *
 * A processor cannot predict which of four children is the least, so keys are compared as 128-bit
 * numbers, without a branch.
 */
#include "base/heap.h"

#define CHILDREN 4

typedef struct {
    gint64 key;
    guint64 serial; /* breaks ties: order of entry */
    guint id;       /* of the node, less one */
} Entry;

void qos_heap_init(QosHeap *heap)
{
    heap->entries = g_array_new(FALSE, FALSE, sizeof(Entry));
    heap->nodes = g_ptr_array_new();
    heap->places = g_array_new(FALSE, FALSE, sizeof(guint));
    heap->unused = 0;
    heap->serial = 0;
}

static Entry *entries_of(const QosHeap *heap)
{
    return (Entry *)(void *)heap->entries->data;
}

static guint *places_of(const QosHeap *heap)
{
    return (guint *)(void *)heap->places->data;
}

static QosHeapNode *node_of(const QosHeap *heap, const Entry *entry)
{
    return heap->nodes->pdata[entry->id];
}

void qos_heap_clear(QosHeap *heap)
{
    for (guint i = 0; i < heap->entries->len; i++)
        node_of(heap, &entries_of(heap)[i])->id = 0;
    g_clear_pointer(&heap->entries, g_array_unref);
    g_clear_pointer(&heap->nodes, g_ptr_array_unref);
    g_clear_pointer(&heap->places, g_array_unref);
}

/* --- ids --- */

static void take_id(QosHeap *heap, QosHeapNode *node)
{
    if (heap->unused == 0) {
        g_ptr_array_add(heap->nodes, node);
        g_array_set_size(heap->places, heap->nodes->len);
        node->id = heap->nodes->len;
        return;
    }
    node->id = heap->unused;
    heap->unused = places_of(heap)[node->id - 1];
    heap->nodes->pdata[node->id - 1] = node;
}

static void give_id_back(QosHeap *heap, QosHeapNode *node)
{
    places_of(heap)[node->id - 1] = heap->unused;
    heap->unused = node->id;
    node->id = 0;
}

/* --- order --- */

static __int128 order_of(const Entry *entry)
{
    return (__int128)entry->key * ((__int128)1 << 64) | entry->serial; /* keys may be < 0 */
}

static guint goes_before(const Entry *a, const Entry *b)
{
    return order_of(a) < order_of(b);
}

static void put(Entry *entries, guint *places, guint place, Entry entry)
{
    entries[place] = entry;
    places[entry.id] = place;
}

/* Puts `entry` into the free `place`, or above it, where those it goes before stand. Returns where.
 */
static guint sift_up(const QosHeap *heap, guint place, Entry entry)
{
    Entry *entries = entries_of(heap);
    guint *places = places_of(heap);

    while (place > 0 && goes_before(&entry, &entries[(place - 1) / CHILDREN])) {
        put(entries, places, place, entries[(place - 1) / CHILDREN]);
        place = (place - 1) / CHILDREN;
    }
    put(entries, places, place, entry);
    return place;
}

/* Where the first of the children of `place` is among `count`; beyond them where it has none. */
static inline guint least_child(const Entry *entries, guint count, guint place)
{
    guint first = CHILDREN * place + 1;
    guint least = first;

    if (first + CHILDREN <= count) {
        guint left = first + goes_before(&entries[first + 1], &entries[first]);
        guint right = first + 2 + goes_before(&entries[first + 3], &entries[first + 2]);
        return goes_before(&entries[right], &entries[left]) ? right : left;
    }
    for (guint child = first + 1; child < count; child++)
        least = goes_before(&entries[child], &entries[least]) ? child : least;
    return least;
}

/* Moves the entry at `place` down, below those that go before it. */
static void sift_down(const QosHeap *heap, guint place)
{
    Entry *entries = entries_of(heap);
    guint *places = places_of(heap);
    guint count = heap->entries->len;
    Entry entry = entries[place];

    for (guint child = least_child(entries, count, place);
         child < count && goes_before(&entries[child], &entry);
         child = least_child(entries, count, place)) {
        put(entries, places, place, entries[child]);
        place = child;
    }
    put(entries, places, place, entry);
}

/* --- calls --- */

void qos_heap_push(QosHeap *heap, QosHeapNode *node, gint64 key)
{
    g_return_if_fail(!qos_heap_contains(node));
    node->key = key;
    take_id(heap, node);
    g_array_set_size(heap->entries, heap->entries->len + 1);
    sift_up(heap, heap->entries->len - 1,
            (Entry){.key = key, .serial = heap->serial++, .id = node->id - 1});
}

void qos_heap_update(QosHeap *heap, QosHeapNode *node, gint64 key)
{
    g_return_if_fail(qos_heap_contains(node));
    guint place = places_of(heap)[node->id - 1];
    Entry entry = entries_of(heap)[place];
    node->key = entry.key = key;
    sift_down(heap, sift_up(heap, place, entry));
}

void qos_heap_remove(QosHeap *heap, QosHeapNode *node)
{
    if (!qos_heap_contains(node))
        return;
    guint place = places_of(heap)[node->id - 1];
    Entry last = entries_of(heap)[heap->entries->len - 1];
    g_array_set_size(heap->entries, heap->entries->len - 1);
    if (last.id != node->id - 1)
        sift_down(heap, sift_up(heap, place, last));
    give_id_back(heap, node);
}

void qos_heap_rekey(QosHeap *heap, QosHeapKeyFunc key_of, gpointer arg)
{
    Entry *entries = entries_of(heap);

    for (guint i = 0; i < heap->entries->len; i++) {
        QosHeapNode *node = node_of(heap, &entries[i]);
        node->key = entries[i].key = key_of(node, arg);
    }
    for (guint i = heap->entries->len / CHILDREN + 1; i-- > 0;) {
        if (i < heap->entries->len)
            sift_down(heap, i);
    }
}

QosHeapNode *qos_heap_peek(const QosHeap *heap)
{
    return heap->entries->len > 0 ? node_of(heap, entries_of(heap)) : NULL;
}
