/*
 * Uses that were refused and wait to ask again. fs/lockengine/retry.h has the contract.
 */
#include "fs/lockengine/retry.h"

/* Where the server names no time: more than a round trip, and nothing that one would notice. */
#define PAUSE (100 * QOS_MILLISECOND)

void qos_retry_init(QosRetry *retry)
{
    *retry = (QosRetry){0};
    qos_heap_init(&retry->waiting);
}

void qos_retry_clear(QosRetry *retry)
{
    qos_heap_clear(&retry->waiting);
}

static QosLockUse *use_of(QosHeapNode *node)
{
    return (QosLockUse *)((char *)node - G_STRUCT_OFFSET(QosLockUse, due));
}

/* When to ask again; QOS_NEVER: not any more. */
static QosTime due_without_lender(QosRetry *retry, gboolean is_up, QosTime now)
{
    if (is_up)
        return now;
    if (retry->away == 0)
        retry->away = now;
    const QosTime end = retry->away + QOS_LOCKCLIENT_AWAY;
    return now < end ? end : QOS_NEVER;
}

static QosTime due_when_full(QosTime delay, QosTime since, QosTime now)
{
    const QosTime end = since + QOS_LOCKCLIENT_FULL;
    const QosTime again = qos_time_add(now, MAX(delay, PAUSE));

    return now < end ? MIN(again, end) : QOS_NEVER;
}

QosCreditVerdict qos_retry_begin(QosRetry *retry, QosLockUse *use, QosCreditVerdict verdict,
                                 QosTime *since, gboolean is_up, QosTime now)
{
    if (*since == 0)
        *since = now;
    use->waits_for_lender = verdict == QOS_CREDIT_ERROR;
    const QosTime due = use->waits_for_lender ? due_without_lender(retry, is_up, now)
                                              : due_when_full(use->delay, *since, now);
    if (due == QOS_NEVER)
        return verdict;
    qos_heap_push(&retry->waiting, &use->due, due);
    return QOS_CREDIT_WAITING;
}

gboolean qos_retry_remove(QosRetry *retry, QosLockUse *use)
{
    const gboolean waits = qos_heap_contains(&use->due);

    qos_heap_remove(&retry->waiting, &use->due);
    return waits;
}

/* The uses that wait for a lender are due now. */
static gint64 due_with_lender(QosHeapNode *node, gpointer now)
{
    return use_of(node)->waits_for_lender ? *(const QosTime *)now : node->key;
}

void qos_retry_wake(QosRetry *retry, QosTime now)
{
    retry->away = 0;
    qos_heap_rekey(&retry->waiting, due_with_lender, &now);
}

QosLockUse *qos_retry_take(QosRetry *retry, QosTime now)
{
    QosHeapNode *first = qos_heap_peek(&retry->waiting);

    if (first == NULL || first->key > now)
        return NULL;
    qos_heap_remove(&retry->waiting, first);
    return use_of(first);
}

QosTime qos_retry_next(const QosRetry *retry)
{
    const QosHeapNode *first = qos_heap_peek(&retry->waiting);

    return first != NULL ? first->key : QOS_NEVER;
}
