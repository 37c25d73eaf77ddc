/*
 * What the parts of the credit trial share: the owners and their tree (trial_credit.c), their users
 * (credit_users.c), and the store (credit_store.c).
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
    gboolean is_flat;      /* no servers: the mounts borrow from the root */
    gboolean renames;      /* of inodes, users take two, one after the other */
    gboolean is_quiet;     /* no faults: no request waits because of one */
} QosCreditWorld;

/* The rule is broken on purpose. */
gboolean qos_credit_world_is_broken(const QosCluster *cluster, const char *rule);

#define QOS_CREDIT_USERS 2 /* of each owner */

typedef enum {
    QOS_USER_IDLE,
    QOS_USER_WAITING,
    QOS_USER_CONVERTING,
    QOS_USER_HOLDING,
} QosCreditUserState;

typedef struct {
    QosHold hold;
    QosHold before; /* of a rename: the first of two, which it has meanwhile, */
    guint next;     /* and the place of the second, until it asks for that */
    QosCreditUserState state;
    guint resource;     /* the observer's number of it */
    gboolean is_wanted; /* by another: to be put */
    QosCredit want;     /* of a conversion that waits, */
    QosTime since;      /* by the cluster's time */
    QosTime due;
} QosCreditUser;

/* Of a node that is an owner: its state. */
typedef struct {
    QosOwner *owner;
    QosCreditUser users[QOS_CREDIT_USERS];
    guint lent;   /* as the owner tells, */
    gint64 bytes; /* and so many of spans */
    /* With caches, what others want of each resource, and when it is to be dropped. */
    QosCredit wanted[QOS_OBSERVED];
    QosTime drop[QOS_OBSERVED];
} QosCreditNode;

/* By the node's clock, within so many milliseconds. */
QosTime qos_credit_soon(const QosNode *node, guint milliseconds);
/* What the user does next: it is due. */
void qos_credit_user_act(QosNode *node, QosCreditUser *user);
/* A request of the user's has ended, at once or later. */
void qos_credit_user_settle(QosNode *node, QosCreditUser *user, QosCreditVerdict verdict,
                            QosTime delay);

/* The store: it knows no owner, and never forgets which tokens it has seen. */
extern const QosNodeClass qos_credit_store_class;
