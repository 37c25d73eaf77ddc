/*
 * The queue of what the kernel is to be told to forget. First comes what another mount waits for,
 * and what is lost. Behind it, in slices, comes what only the cache gives up, so that no other
 * mount waits until this one has cleared up. There is one drop of a resource at a time
 * (fs/lockengine/engine.h).
 *
 * Pure; the caller locks.
 */
#pragma once

#include "core/resource.h"

/* Groups of inodes, some 10 ms where all of them are known. */
#define QOS_RECALL_SLICE 16

typedef enum {
    QOS_RECALL_WANTED, /* by another mount, which waits */
    QOS_RECALL_SHRINK, /* only the cache is to shrink */
    QOS_RECALL_LOST,   /* it is gone already */
} QosRecallKind;

typedef struct {
    QosResource resource;
    QosCredit credit;
    QosRecallKind kind;
    gboolean is_spared; /* its user's */
} QosRecall;

typedef struct {
    GArray *urgent, *shrinks; /* of QosRecall */
} QosRecallQueue;

void qos_recall_queue_init(QosRecallQueue *queue);
void qos_recall_queue_clear(QosRecallQueue *queue);
/* `credit` is copied. */
void qos_recall_queue_add(QosRecallQueue *queue, const QosResource *resource,
                          const QosCredit *credit, QosRecallKind kind);
/* Another mount wants what was to shrink the cache: it is urgent too, if it was not taken. */
void qos_recall_queue_make_urgent(QosRecallQueue *queue, const QosResource *resource);
/* What comes next (of QosRecall), freed by qos_recall_queue_free(); NULL: there is nothing. */
GArray *qos_recall_queue_take(QosRecallQueue *queue);
void qos_recall_queue_free(GArray *taken);
