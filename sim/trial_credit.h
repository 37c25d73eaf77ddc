/*
 * The world of the credit trial: what its owners and its store share.
 */
#pragma once

#include "sim/credit_observer.h"

typedef struct {
    QosObserver observer;
    QosNode *store;
    const char *broken;
    gboolean caches;       /* the mounts' users go on using what they have put */
    gboolean is_contended; /* what goes to and fro is soon denied */
    guint first, hot;      /* the resources in use: the fewer, the more conflicts */
    gboolean is_peopled;   /* there are users at the servers and the root too */
    gboolean is_quiet;     /* nothing goes wrong: nobody waits because of a fault */
} QosCreditWorld;

/* The rule is broken on purpose. */
gboolean qos_credit_world_is_broken(const QosCluster *cluster, const char *rule);

/* The store: it knows no owner, and never forgets which tokens it has seen. */
extern const QosNodeClass qos_credit_store_class;
