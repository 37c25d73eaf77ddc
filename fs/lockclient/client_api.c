/*
 * The functions that any thread calls. fs/lockclient/client.h has the contract.
 */
#include "fs/lockclient/state.h"

/* Ends a use by a fast path. */
static void unpin(QosLockclient *client, QosLockUse *use)
{
    QosFastpath *path = g_steal_pointer(&use->fastpath);

    if (!qos_fastpath_unpin(path, use->pin))
        return;
    qos_lockclient_lock(client);
    qos_lockengine_unpin(client->engine, path, qos_lockclient_clock());
    qos_lockclient_unlock(client);
}

/* The lease is looked at last, so that a thread that slept before notices its end. */
static gboolean is_open(const QosLockclient *client, const QosResource *resource,
                        const QosCredit *want)
{
    return qos_fastpaths_is_open(client->fastpaths, resource, want) &&
           qos_lockclient_valid(client) > 0;
}

/* Without the lock. FALSE: the engine is to be asked. */
static gboolean try_pin(QosLockclient *client, const QosResource *resource, const QosCredit *want,
                        QosLockUse *use)
{
    use->fastpath = qos_fastpaths_pin(client->fastpaths, resource, want, &use->pin);
    if (use->fastpath == NULL)
        return FALSE;
    if (is_open(client, resource, want))
        return TRUE;
    unpin(client, use);
    return FALSE;
}

/* Asks the engine. If it has the credit, it opens a fast path, because a credit that is here is
 * likely to be used again. */
static QosCreditVerdict get_locked(QosLockclient *client, const QosResource *resource,
                                   const QosCredit *want, guint flags, QosLockUse *use, QosTime now)
{
    const QosCreditVerdict verdict =
        qos_lockengine_get(client->engine, resource, want, flags, use, now);

    if (verdict == QOS_CREDIT_GRANTED && resource->type == QOS_RESOURCE_INODES)
        qos_lockengine_open_fastpath(client->engine, resource, now);
    return verdict;
}

QosCreditVerdict qos_lockclient_get(QosLockclient *client, const QosResource *resource,
                                    const QosCredit *want, guint flags, QosLockUse *use)
{
    if (try_pin(client, resource, want, use))
        return QOS_CREDIT_GRANTED;
    qos_lockclient_lock(client);
    const QosCreditVerdict verdict =
        get_locked(client, resource, want, flags, use, qos_lockclient_clock());
    qos_lockclient_unlock(client);
    return verdict;
}

QosCreditVerdict qos_lockclient_convert(QosLockclient *client, const QosCredit *want, guint flags,
                                        QosLockUse *use)
{
    qos_lockclient_lock(client);
    QosCreditVerdict verdict =
        qos_lockengine_convert(client->engine, want, flags, use, qos_lockclient_clock());
    qos_lockclient_unlock(client);
    return verdict;
}

QosCreditVerdict qos_lockclient_retry(QosLockclient *client, QosLockUse *use,
                                      QosCreditVerdict verdict, QosTime *since)
{
    qos_lockclient_lock(client);
    verdict = qos_lockengine_retry(client->engine, use, verdict, since, qos_lockclient_clock());
    qos_lockclient_unlock(client);
    return verdict;
}

void qos_lockclient_put(QosLockclient *client, QosLockUse *use)
{
    if (use->fastpath != NULL) {
        unpin(client, use);
        return;
    }
    qos_lockclient_lock(client);
    qos_lockengine_put(client->engine, use, qos_lockclient_clock());
    qos_lockclient_unlock(client);
}

gboolean qos_lockclient_is_wanted(QosLockclient *client, const QosLockUse *use)
{
    if (use->fastpath != NULL)
        return qos_fastpath_is_closed(use->fastpath);
    qos_lockclient_lock(client);
    const gboolean is_wanted = qos_hold_is_wanted(&use->hold);
    qos_lockclient_unlock(client);
    return is_wanted;
}

gboolean qos_lockclient_has(QosLockclient *client, const QosResource *resource,
                            const QosCredit *want)
{
    QosLockUse use = {0};

    if (is_open(client, resource, want))
        return TRUE;
    qos_lockclient_lock(client);
    const QosTime now = qos_lockclient_clock();
    gboolean has = get_locked(client, resource, want, QOS_CREDIT_NON_BLOCK_LOCAL, &use, now) ==
                   QOS_CREDIT_GRANTED;
    if (has)
        qos_lockengine_put(client->engine, &use, now);
    qos_lockclient_unlock(client);
    return has;
}

QosCreditVerdict qos_lockclient_await(QosLockclient *client, const QosResource *resource,
                                      const QosCredit *want, guint flags, QosLockUse *use,
                                      QosTime patience)
{
    QosReceiver *receiver = qos_link_receive(client->link);
    /* Before the request is sent: the answer may come before the call returns. */
    const gboolean reads = patience > 0 && qos_receive_lead(receiver);

    g_atomic_int_set(&use->is_over, FALSE);
    const QosCreditVerdict verdict = qos_lockclient_get(client, resource, want, flags, use);
    if (reads && verdict == QOS_CREDIT_WAITING)
        qos_lockclient_lead(client, use, patience);
    if (reads)
        qos_receive_cede(receiver);
    return verdict;
}

gboolean qos_lockclient_withdraw(QosLockclient *client, QosLockUse *use)
{
    qos_lockclient_lock(client);
    gboolean is_withdrawn = qos_lockengine_withdraw(client->engine, use, qos_lockclient_clock());
    if (is_withdrawn)
        g_atomic_int_set(&use->is_over, TRUE);
    qos_lockclient_unlock(client);
    return is_withdrawn;
}

void qos_lockclient_release(QosLockclient *client, const QosResource *resource,
                            const QosCredit *credit)
{
    qos_lockclient_lock(client);
    qos_lockengine_release(client->engine, resource, credit, qos_lockclient_clock());
    qos_lockclient_unlock(client);
}

gboolean qos_lockclient_keep(QosLockclient *client, const QosResource *resource,
                             const QosCredit *credit)
{
    qos_lockclient_lock(client);
    gboolean is_kept = qos_lockengine_keep(client->engine, resource, credit);
    qos_lockclient_unlock(client);
    return is_kept;
}

gboolean qos_lockclient_spare(QosLockclient *client, const QosResource *resource, guint times)
{
    qos_lockclient_lock(client);
    gboolean is_spared =
        qos_lockengine_spare(client->engine, resource, times, qos_lockclient_clock());
    qos_lockclient_unlock(client);
    return is_spared;
}

void qos_lockclient_set_wait(QosLockclient *client, const QosWireWait *wait)
{
    qos_lockclient_lock(client);
    qos_lockengine_set_wait(client->engine, wait);
    qos_lockclient_unlock(client);
}

void qos_lockclient_end_wait(QosLockclient *client, guint64 id)
{
    qos_lockclient_lock(client);
    qos_lockengine_end_wait(client->engine, id);
    qos_lockclient_unlock(client);
}

QosTime qos_lockclient_valid(const QosLockclient *client)
{
    const QosTime until = atomic_load_explicit(&client->until, memory_order_acquire);

    if (until == 0)
        return 0;
    const QosTime left = until - qos_lockclient_clock();
    return MAX(left, 0);
}

guint qos_lockclient_losses(const QosLockclient *client)
{
    return atomic_load_explicit(&client->losses, memory_order_relaxed);
}

guint qos_lockclient_grants(const QosLockclient *client)
{
    return atomic_load_explicit(&client->grants, memory_order_acquire);
}

guint qos_lockclient_group(const QosLockclient *client)
{
    return atomic_load_explicit(&client->group, memory_order_relaxed);
}

void qos_lockclient_status(QosLockclient *client, QosLockclientStatus *ret_status)
{
    QosLockclientStatus status = {.server = client->config.server};

    qos_lockclient_lock(client);
    qos_lockengine_status(client->engine, &status, qos_lockclient_clock());
    status.state = client->is_open      ? QOS_LOCKCLIENT_UP
                   : client->is_refused ? QOS_LOCKCLIENT_REFUSED
                   : status.valid > 0   ? QOS_LOCKCLIENT_RECOVERING
                                        : QOS_LOCKCLIENT_CONNECTING;
    g_strlcpy(status.reason, client->reason, sizeof(status.reason));
    status.reconnects = client->opened > 0 ? client->opened - 1 : 0;
    qos_lockclient_unlock(client);
    *ret_status = status;
}
