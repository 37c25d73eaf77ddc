/*
 * The queue of requests with unnamed callers. fs/caller/resolver_queue.h has the contract.
 */
#include "fs/caller/resolver_queue.h"

struct QosResolverUser {
    guint32 uid;
    GQueue waiting; /* of QosResolverWait, the longest first */
    guint reading;
    guint late;        /* of these */
    GList link;        /* in the ring, */
    gboolean has_turn; /* where the user is in it */
};

void qos_resolver_queue_init(QosResolverQueue *queue)
{
    *queue = (QosResolverQueue){.users = g_hash_table_new_full(NULL, NULL, NULL, g_free)};
}

void qos_resolver_queue_clear(QosResolverQueue *queue)
{
    g_hash_table_unref(queue->users);
}

static QosResolverUser *user_of(QosResolverQueue *queue, guint32 uid)
{
    QosResolverUser *user = g_hash_table_lookup(queue->users, GUINT_TO_POINTER(uid));

    if (user == NULL) {
        user = g_new0(QosResolverUser, 1);
        user->uid = uid;
        user->link.data = user;
        g_hash_table_insert(queue->users, GUINT_TO_POINTER(uid), user);
    }
    return user;
}

/* To be called when something of the user has changed: gives the user a turn, or takes it away. A
 * user without requests is forgotten. */
static void settle(QosResolverQueue *queue, QosResolverUser *user)
{
    const gboolean is_full = user->reading >= QOS_NAMING_USER && user->late < user->reading;
    const gboolean has_turn = user->waiting.length > 0 && !is_full;

    if (has_turn && !user->has_turn)
        g_queue_push_tail_link(&queue->ring, &user->link);
    else if (!has_turn && user->has_turn)
        g_queue_unlink(&queue->ring, &user->link);
    user->has_turn = has_turn;
    if (user->waiting.length == 0 && user->reading == 0)
        g_hash_table_remove(queue->users, GUINT_TO_POINTER(user->uid));
}

void qos_resolver_queue_add(QosResolverQueue *queue, QosResolverWait *wait, guint32 uid,
                            QosTime now)
{
    QosResolverUser *user = user_of(queue, uid);

    *wait =
        (QosResolverWait){.since = now, .user = user, .link.data = wait, .user_link.data = wait};
    g_queue_push_tail_link(&queue->waiting, &wait->link);
    g_queue_push_tail_link(&user->waiting, &wait->user_link);
    settle(queue, user);
}

static void stop_waiting(QosResolverQueue *queue, QosResolverWait *wait)
{
    g_queue_unlink(&queue->waiting, &wait->link);
    g_queue_unlink(&wait->user->waiting, &wait->user_link);
}

static void begin(QosResolverQueue *queue, QosResolverWait *wait, QosResolverReading *reading)
{
    *reading = (QosResolverReading){.wait = wait, .user = wait->user, .link.data = reading};
    g_queue_push_tail_link(&queue->reading, &reading->link);
    wait->user->reading++;
}

QosResolverWait *qos_resolver_queue_end(QosResolverQueue *queue, QosResolverReading *reading)
{
    g_queue_unlink(&queue->reading, &reading->link);
    reading->user->reading--;
    if (reading->wait == NULL) {
        reading->user->late--;
        queue->late--;
    }
    settle(queue, reading->user);
    return reading->wait;
}

/* --- the next turn --- */

static gboolean is_late(const QosResolverWait *wait, QosTime now)
{
    return wait != NULL && now - wait->since >= QOS_NAMING_TIME;
}

static QosResolverWait *take_late(QosResolverQueue *queue, QosTime now)
{
    QosResolverWait *wait = g_queue_peek_head(&queue->waiting);

    for (GList *link = queue->reading.head; link != NULL; link = link->next) {
        QosResolverReading *reading = link->data;

        if (is_late(reading->wait, now)) {
            wait = g_steal_pointer(&reading->wait);
            wait->user->late++;
            queue->late++;
            settle(queue, wait->user);
            return wait;
        }
    }
    if (!is_late(wait, now))
        return NULL;
    stop_waiting(queue, wait);
    settle(queue, wait->user);
    return wait;
}

gboolean qos_resolver_queue_may_take(const QosResolverQueue *queue)
{
    const gboolean is_full =
        queue->reading.length >= QOS_NAMING_ALL && queue->late < queue->reading.length;

    return queue->ring.length > 0 && !is_full;
}

/* As the next in the ring. Where so many are read as may be, these are all late. */
static QosResolverWait *take_next(QosResolverQueue *queue, QosResolverReading *reading,
                                  gboolean *ret_is_late)
{
    QosResolverUser *user = g_queue_pop_head_link(&queue->ring)->data;
    QosResolverWait *wait = g_queue_peek_head(&user->waiting);

    user->has_turn = FALSE;
    stop_waiting(queue, wait);
    *ret_is_late = user->reading >= QOS_NAMING_USER || queue->reading.length >= QOS_NAMING_ALL;
    if (!*ret_is_late)
        begin(queue, wait, reading);
    settle(queue, user);
    return wait;
}

QosResolverWait *qos_resolver_queue_take(QosResolverQueue *queue, QosTime now,
                                         QosResolverReading *reading, gboolean *ret_is_late)
{
    QosResolverWait *wait = take_late(queue, now);

    if (wait != NULL)
        *ret_is_late = TRUE;
    else if (qos_resolver_queue_may_take(queue))
        wait = take_next(queue, reading, ret_is_late);
    return wait;
}
