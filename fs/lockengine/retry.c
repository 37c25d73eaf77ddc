/*
 * Uses that were refused and wait to ask again. fs/lockengine/retry.h has the contract.
 */
#include "fs/lockengine/retry.h"

/* Where the server names no time: more than a round trip, and nothing that one would notice. */
#define PAUSE (100 * QOS_MILLISECOND)

void qos_lockpatience_init(QosLockpatience *patience)
{
    *patience = (QosLockpatience){0};
    qos_heap_init(&patience->waiting);
}

void qos_lockpatience_clear(QosLockpatience *patience)
{
    qos_heap_clear(&patience->waiting);
}

static QosLockUse *use_of(QosHeapNode *node)
{
    return (QosLockUse *)((char *)node - G_STRUCT_OFFSET(QosLockUse, due));
}

/* When to ask again; QOS_NEVER: not any more. */
static QosTime due_without_lender(QosLockpatience *patience, gboolean is_up, QosTime now)
{
    if (is_up)
        return now;
    if (patience->away == 0)
        patience->away = now;
    const QosTime end = patience->away + QOS_LOCKCLIENT_AWAY;
    return now < end ? end : QOS_NEVER;
}

static QosTime due_when_full(QosTime delay, QosTime since, QosTime now)
{
    const QosTime end = since + QOS_LOCKCLIENT_FULL;
    const QosTime again = qos_time_add(now, MAX(delay, PAUSE));

    return now < end ? MIN(again, end) : QOS_NEVER;
}

QosCreditVerdict qos_lockpatience_begin(QosLockpatience *patience, QosLockUse *use,
                                        QosCreditVerdict verdict, QosTime *since, gboolean is_up,
                                        QosTime now)
{
    if (*since == 0)
        *since = now;
    use->waits_for_lender = verdict == QOS_CREDIT_ERROR;
    const QosTime due = use->waits_for_lender ? due_without_lender(patience, is_up, now)
                                              : due_when_full(use->delay, *since, now);
    if (due == QOS_NEVER)
        return verdict;
    qos_heap_push(&patience->waiting, &use->due, due);
    return QOS_CREDIT_WAITING;
}

gboolean qos_lockpatience_remove(QosLockpatience *patience, QosLockUse *use)
{
    const gboolean waits = qos_heap_contains(&use->due);

    qos_heap_remove(&patience->waiting, &use->due);
    return waits;
}

/* The uses that wait for a lender are due now. */
static gint64 due_with_lender(QosHeapNode *node, gpointer now)
{
    return use_of(node)->waits_for_lender ? *(const QosTime *)now : node->key;
}

void qos_lockpatience_wake(QosLockpatience *patience, QosTime now)
{
    patience->away = 0;
    qos_heap_rekey(&patience->waiting, due_with_lender, &now);
}

QosLockUse *qos_lockpatience_take(QosLockpatience *patience, QosTime now)
{
    QosHeapNode *first = qos_heap_peek(&patience->waiting);

    if (first == NULL || first->key > now)
        return NULL;
    qos_heap_remove(&patience->waiting, first);
    return use_of(first);
}

QosTime qos_lockpatience_next(const QosLockpatience *patience)
{
    const QosHeapNode *first = qos_heap_peek(&patience->waiting);

    return first != NULL ? first->key : QOS_NEVER;
}
