/*
 * Uses that were refused, and must not go on without a credit because other mounts may have cached
 * what they are about to change. It says when to ask again, and when there is no more hope.
 *
 *     RETRY, DENIED   the server is full: again after the time that it named, for
 *                     QOS_LOCKCLIENT_FULL in all
 *     ERROR           there is no lender: again when there is one. QOS_LOCKCLIENT_AWAY after the
 *                     first found none, all go on without, until there is one
 *
 * An operation that waits so holds no credit meanwhile: it begins anew each time, in the order of
 * resources. Pure: time is an argument; the caller locks.
 */
#pragma once

#include "fs/lockengine/use.h"

typedef struct {
    QosHeap waiting; /* of QosLockUse, by when they are due */
    QosTime away;    /* when the first found no lender; 0: there is one, or nobody asked since */
} QosRetry;

void qos_retry_init(QosRetry *retry);
/* Uses that still wait are left alone. */
void qos_retry_clear(QosRetry *retry);
/* As qos_lockclient_retry(); is_up: there is a lender. */
QosCreditVerdict qos_retry_begin(QosRetry *retry, QosLockUse *use, QosCreditVerdict verdict,
                                 QosTime *since, gboolean is_up, QosTime now);
/* FALSE: it is not in it. */
gboolean qos_retry_remove(QosRetry *retry, QosLockUse *use);
/* There is a lender again: the uses that wait for one are due. */
void qos_retry_wake(QosRetry *retry, QosTime now);
/* Takes out one that is due; NULL: none is. */
QosLockUse *qos_retry_take(QosRetry *retry, QosTime now);
/* When the next is due; QOS_NEVER: none waits. */
QosTime qos_retry_next(const QosRetry *retry);
