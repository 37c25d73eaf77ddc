/*
 * Sees all owners of a simulated cluster at once, and checks that they keep the promises of
 * core/credit.h.
 */
#pragma once

#include "core/credit.h"
#include "sim/cluster.h"

#define QOS_OBSERVED        7 /* resources */
#define QOS_OBSERVED_NODES  8
#define QOS_OBSERVED_AMOUNT 1000 /* of the quantity, in all */

/* What a node had or did, and under which token. */
typedef struct {
    const QosNode *node;
    QosToken token;
    QosCredit credit; /* owned */
} QosObservation;

typedef struct {
    QosResource resources[QOS_OBSERVED];
    QosCredit usable[QOS_OBSERVED_NODES][QOS_OBSERVED]; /* as of the node's last step */
    GArray *grants[QOS_OBSERVED];                       /* of QosObservation */
    GArray *uses[QOS_OBSERVED];                         /* that the store took */
    QosToken newest;                                    /* of the root */
    /* The owner of a node, NULL: it is down, or has none. */
    const QosOwner *(*owner)(const QosNode *node);
} QosObserver;

void qos_observer_init(QosObserver *observer, const QosOwner *(*owner)(const QosNode *node));
void qos_observer_clear(QosObserver *observer);

/* `node` may use `credit` now. */
void qos_observer_granted(QosObserver *observer, const QosNode *node, guint resource,
                          const QosCredit *credit, QosToken token);
/* TRUE: the store has taken a use that conflicts with this one, under a later token. */
gboolean qos_observer_is_late(const QosObserver *observer, const QosNode *node, guint resource,
                              const QosCredit *credit, QosToken token);
/* The store has taken it. */
void qos_observer_used(QosObserver *observer, const QosNode *node, guint resource,
                       const QosCredit *credit, QosToken token);
/* After a step of `node`: no other node may use what conflicts with what `node` may use. */
void qos_observer_check(QosObserver *observer, const QosNode *node);
/* At the end: what an owner has, its lender has lent to it. */
void qos_observer_check_books(QosObserver *observer, QosCluster *cluster);

const QosResourceType *qos_observer_type(const QosObserver *observer, guint resource);
