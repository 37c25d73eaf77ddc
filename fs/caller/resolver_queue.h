/*
 * The queue of requests with callers that must be named first (fs/caller/resolver.h). It says which
 * request is read next, and which is late.
 *
 *     wait --> is read --> named
 *        \            \
 *         `------------`--> late: goes on with what is known without
 *
 * Each user has a queue. The users that have a request which may be read stand in a ring, and each
 * has one turn in a round. So the next request is found without a look at those that must wait,
 * although one user may have thousands of them.
 *
 * A request is late QOS_NAMING_TIME after it came. At most QOS_NAMING_USER requests of one user are
 * read at a time, and QOS_NAMING_ALL in all. If all of these are late, a request that would have to
 * wait for them is late at once.
 *
 * Pure: time is an argument; the caller locks.
 */
#pragma once

#include "base/time.h"

#define QOS_NAMING_TIME QOS_SECOND
#define QOS_NAMING_USER 4
#define QOS_NAMING_ALL  32

typedef struct QosResolverUser QosResolverUser;

/* What waits; the request embeds it. All but `since` is the queue's. */
typedef struct {
    QosTime since;
    QosResolverUser *user;
    GList link;      /* among all that wait */
    GList user_link; /* among the user's */
} QosResolverWait;

/* A request that is being read; the thread that reads embeds this. Written by the queue alone. */
typedef struct {
    QosResolverWait *wait; /* NULL: it was late, and taken away */
    QosResolverUser *user;
    GList link;
} QosResolverReading;

typedef struct {
    GHashTable *users; /* uid -> QosResolverUser, owned: the users that have requests */
    GQueue waiting;    /* of QosResolverWait, the longest first */
    GQueue reading;    /* of QosResolverReading */
    GQueue ring;       /* of QosResolverUser, the next first */
    guint late;        /* of those that are read */
} QosResolverQueue;

void qos_resolver_queue_init(QosResolverQueue *queue);
/* Requests that still wait are left alone. */
void qos_resolver_queue_clear(QosResolverQueue *queue);
void qos_resolver_queue_add(QosResolverQueue *queue, QosResolverWait *wait, guint32 uid,
                            QosTime now);
/* Takes out a request. Either it is to be read, and is `reading` until qos_resolver_queue_end(), or
 * it is late, even if it is being read. NULL: there is none. At QOS_NEVER all are late. */
QosResolverWait *qos_resolver_queue_take(QosResolverQueue *queue, QosTime now,
                                         QosResolverReading *reading, gboolean *ret_is_late);
/* TRUE where there is one to be taken that does not have to become late. */
gboolean qos_resolver_queue_may_take(const QosResolverQueue *queue);
/* It is read: gives it back, or NULL where it was taken away. */
QosResolverWait *qos_resolver_queue_end(QosResolverQueue *queue, QosResolverReading *reading);
