/*
 * Requests whose callers are to be named (fs/caller/resolver.h): whose turn it is, and who is not
 * waited for any longer.
 *
 *     wait --> is read --> named
 *        \            \
 *         `------------`--> late: goes on with what is known without
 *
 * Each user has a queue of his own. Those of whom one may be taken stand in a ring, and each has
 * one turn in a round. So one is found without a look at those that have to wait, of whom one user
 * may have thousands.
 *
 * A request is late when it came QOS_NAMING_TIME ago, and where it would wait for such as are: at
 * most QOS_NAMING_USER are read of a user, and QOS_NAMING_ALL in all, and if all these are late,
 * what comes is, too.
 *
 * Pure: time is an argument; the caller locks.
 */
#pragma once

#include "base/time.h"

#define QOS_NAMING_TIME QOS_SECOND
#define QOS_NAMING_USER 4
#define QOS_NAMING_ALL  32

typedef struct QosNameUser QosNameUser;

/* What waits; the request embeds it. All but `since` is the queue's. */
typedef struct {
    QosTime since;
    QosNameUser *user;
    GList link;      /* among all that wait */
    GList user_link; /* among his */
} QosNameWait;

/* What is read; who reads embeds it. The queue's. */
typedef struct {
    QosNameWait *wait; /* NULL: it was late, and taken away */
    QosNameUser *user;
    GList link;
} QosNameReading;

typedef struct {
    GHashTable *users; /* uid -> QosNameUser, owned: those who have some that wait or are read */
    GQueue waiting;    /* of QosNameWait, the longest first */
    GQueue reading;    /* of QosNameReading */
    GQueue ring;       /* of QosNameUser, the next first */
    guint late;        /* of those that are read */
} QosNameQueue;

void qos_namequeue_init(QosNameQueue *queue);
/* Who still waits is let alone. */
void qos_namequeue_clear(QosNameQueue *queue);
void qos_namequeue_add(QosNameQueue *queue, QosNameWait *wait, guint32 uid, QosTime now);
/* Takes out one that is to be read, which is `reading` until qos_namequeue_end(), or that is late,
 * also of those that are read; NULL: none is. At QOS_NEVER all are late. */
QosNameWait *qos_namequeue_take(QosNameQueue *queue, QosTime now, QosNameReading *reading,
                                gboolean *ret_is_late);
/* TRUE where there is one to be taken that does not have to become late. */
gboolean qos_namequeue_may_take(const QosNameQueue *queue);
/* It is read: gives it back, or NULL where it was taken away. */
QosNameWait *qos_namequeue_end(QosNameQueue *queue, QosNameReading *reading);
