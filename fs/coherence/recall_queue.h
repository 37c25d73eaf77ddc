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
#define QOS_LOSSES_SLICE 16

typedef enum {
    QOS_LOSS_WANTED, /* by another mount, which waits */
    QOS_LOSS_SHRINK, /* only the cache is to shrink */
    QOS_LOSS_LOST,   /* it is gone already */
} QosLossKind;

typedef struct {
    QosResource resource;
    QosCredit credit;
    QosLossKind kind;
    gboolean is_spared; /* its user's */
} QosLoss;

typedef struct {
    GArray *urgent, *shrinks; /* of QosLoss */
} QosLosses;

void qos_losses_init(QosLosses *losses);
void qos_losses_clear(QosLosses *losses);
/* `credit` is copied. */
void qos_losses_add(QosLosses *losses, const QosResource *resource, const QosCredit *credit,
                    QosLossKind kind);
/* Another mount wants what was to shrink the cache: it is urgent too, if it was not taken. */
void qos_losses_hurry(QosLosses *losses, const QosResource *resource);
/* What comes next (of QosLoss), freed by qos_losses_free(); NULL: there is nothing. */
GArray *qos_losses_take(QosLosses *losses);
void qos_losses_free(GArray *taken);
