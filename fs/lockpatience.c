/*
 * The waits of those that were refused. fs/lockpatience.h has the contract.
 */
#include "fs/lockpatience.h"

/* Where the server names no time: more than a round trip, and nothing that one would notice. */
#define PAUSE (100 * QOS_MILLISECOND)

void qos_lockpatience_init(QosLockpatience *patience)
{
    *patience = (QosLockpatience){.waiting = G_QUEUE_INIT};
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
    use->due = use->waits_for_lender ? due_without_lender(patience, is_up, now)
                                     : due_when_full(use->delay, *since, now);
    if (use->due == QOS_NEVER)
        return verdict;
    use->link.data = use;
    g_queue_push_tail_link(&patience->waiting, &use->link);
    return QOS_CREDIT_WAITING;
}

gboolean qos_lockpatience_remove(QosLockpatience *patience, QosLockUse *use)
{
    if (use->link.data == NULL)
        return FALSE;
    g_queue_unlink(&patience->waiting, &use->link);
    use->link.data = NULL;
    return TRUE;
}

void qos_lockpatience_wake(QosLockpatience *patience, QosTime now)
{
    patience->away = 0;
    for (GList *link = patience->waiting.head; link != NULL; link = link->next) {
        QosLockUse *use = link->data;

        if (use->waits_for_lender)
            use->due = now;
    }
}

QosLockUse *qos_lockpatience_take(QosLockpatience *patience, QosTime now)
{
    for (GList *link = patience->waiting.head; link != NULL; link = link->next) {
        QosLockUse *use = link->data;

        if (use->due > now)
            continue;
        qos_lockpatience_remove(patience, use);
        return use;
    }
    return NULL;
}

QosTime qos_lockpatience_next(const QosLockpatience *patience)
{
    QosTime next = QOS_NEVER;

    for (const GList *link = patience->waiting.head; link != NULL; link = link->next)
        next = MIN(next, ((const QosLockUse *)link->data)->due);
    return next;
}
