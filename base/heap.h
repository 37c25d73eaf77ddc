/*
 * A min-heap of elements that embed their place in it, so that any element can be moved or removed
 * in O(log n). Elements with equal keys leave in the order in which they entered.
 */
#pragma once

#include <glib.h>

typedef struct {
    gint64 key; /* the order; set by the heap's calls only */
    guint id;   /* in the heap that it is in; 0 = in none */
} QosHeapNode;

/* All heap.c's own; the nodes in it are not owned. */
typedef struct {
    GArray *entries;
    GPtrArray *nodes; /* by id, less one */
    GArray *places;   /* of guint, by id, less one: the index in `entries`; of a free id, the next
                         free id */
    guint unused;     /* the first free id; 0 = there is none */
    guint64 serial;
} QosHeap;

void qos_heap_init(QosHeap *heap);
/* The nodes that are still in it leave it. */
void qos_heap_clear(QosHeap *heap);

/* `node` must be zeroed, or have left the heap. */
void qos_heap_push(QosHeap *heap, QosHeapNode *node, gint64 key);
/* Moves `node`, which is in the heap, to `key`; among equals it keeps its turn of entry. */
void qos_heap_update(QosHeap *heap, QosHeapNode *node, gint64 key);
/* Does nothing where `node` is not in the heap. */
void qos_heap_remove(QosHeap *heap, QosHeapNode *node);
/* Gives each node the key that `key_of` says, in O(n); among equals each keeps its turn of entry.
 */
typedef gint64 (*QosHeapKeyFunc)(QosHeapNode *node, gpointer arg);
void qos_heap_rekey(QosHeap *heap, QosHeapKeyFunc key_of, gpointer arg);
/* The node with the smallest key, or NULL. */
QosHeapNode *qos_heap_peek(const QosHeap *heap);

static inline gboolean qos_heap_contains(const QosHeapNode *node)
{
    return node->id != 0;
}
