/*
 * Decides which turn is taken next; fs/poll_turns.h has the rules.
 *
 * Due turns stand in queues, on three levels: a turn in its job's queue, the job's queue in its
 * user's, and the user's queue in the queue of all. A queue stands in the queue above for as long
 * as it has something due. A turn that is taken leaves its queue, and each queue on the way to it
 * steps behind the others of the queue above. Turns that are not due yet are in a heap.
 */
#include "fs/poll_turns.h"

#define AT_A_TIME (QOS_POLL_TURNS_LOOKS * QOS_POLL_TURNS_ROUND / QOS_SECOND)

enum { NEW, AGAIN, KINDS };

struct QosPollQueue {
    QosPollQueue *above; /* NULL: it is that of all */
    gconstpointer owner; /* QosJob or QosUser; its key there */
    GHashTable *below;   /* owner -> QosPollQueue, owned; empty in a job's */
    guint turns;         /* in a job's, due or not */
    GQueue due[KINDS];   /* of QosPollQueue, or in a job's of QosPollTurn */
    GList link[KINDS];   /* in the queue above */
};

struct QosPollTurns {
    QosPollQueue *all;
    QosHeap later;
    QosTime round_end;
    guint left;         /* of AGAIN, in this round */
    gboolean was_again; /* the last that was taken */
    QosPollTurn *taken;
};

/* --- queues --- */

static void free_queue(gpointer data)
{
    QosPollQueue *queue = data;

    g_hash_table_unref(queue->below);
    g_free(queue);
}

static QosPollQueue *new_queue(QosPollQueue *above, gconstpointer owner)
{
    QosPollQueue *queue = g_new0(QosPollQueue, 1);

    queue->above = above;
    queue->owner = owner;
    queue->below = g_hash_table_new_full(NULL, NULL, NULL, free_queue);
    for (guint kind = 0; kind < KINDS; kind++)
        queue->link[kind].data = queue;
    return queue;
}

static QosPollQueue *queue_of(QosPollQueue *above, gconstpointer owner)
{
    QosPollQueue *queue = g_hash_table_lookup(above->below, owner);

    if (queue == NULL) {
        queue = new_queue(above, owner);
        g_hash_table_insert(above->below, (gpointer)owner, queue);
    }
    return queue;
}

/* Frees the queue if it is unused, and each queue above that is unused then. */
static void drop_unused(QosPollQueue *queue)
{
    while (queue->above != NULL && queue->turns == 0 && g_hash_table_size(queue->below) == 0) {
        QosPollQueue *above = queue->above;

        g_hash_table_remove(above->below, queue->owner);
        queue = above;
    }
}

static void stand_in(QosPollQueue *queue, GList *link, guint kind)
{
    while (queue != NULL) {
        g_queue_push_tail_link(&queue->due[kind], link);
        if (queue->due[kind].length > 1)
            return;
        link = &queue->link[kind];
        queue = queue->above;
    }
}

static void leave(QosPollQueue *queue, GList *link, guint kind)
{
    while (queue != NULL) {
        g_queue_unlink(&queue->due[kind], link);
        if (queue->due[kind].length > 0)
            return;
        link = &queue->link[kind];
        queue = queue->above;
    }
}

static guint kind_of(const QosPollTurn *turn)
{
    return turn->place == QOS_POLL_TURN_NEW ? NEW : AGAIN;
}

static void leave_place(QosPollTurns *turns, QosPollTurn *turn)
{
    if (turn->place == QOS_POLL_TURN_LATER)
        qos_heap_remove(&turns->later, &turn->later);
    else if (turn->place != QOS_POLL_TURN_NONE)
        leave(turn->queue, &turn->link, kind_of(turn));
    turn->place = QOS_POLL_TURN_NONE;
}

static void become_due(QosPollTurn *turn, QosPollTurnState place)
{
    turn->place = place;
    turn->link.data = turn;
    stand_in(turn->queue, &turn->link, kind_of(turn));
}

/* --- adding and removing --- */

void qos_poll_turns_add(QosPollTurns *turns, QosPollTurn *turn, QosJob *job, QosUser *user)
{
    QosPollQueue *above = user == NULL ? turns->all : queue_of(turns->all, user);

    turn->queue = queue_of(above, job);
    turn->queue->turns++;
    turn->job = qos_job_ref(job);
}

void qos_poll_turns_remove(QosPollTurns *turns, QosPollTurn *turn)
{
    if (turn->queue == NULL)
        return;
    if (turns->taken == turn)
        turns->taken = NULL;
    leave_place(turns, turn);
    turn->queue->turns--;
    drop_unused(turn->queue);
    turn->queue = NULL;
    g_clear_pointer(&turn->job, qos_job_unref);
}

void qos_poll_turns_at_once(QosPollTurns *turns, QosPollTurn *turn)
{
    leave_place(turns, turn);
    become_due(turn, QOS_POLL_TURN_NEW);
}

void qos_poll_turns_at(QosPollTurns *turns, QosPollTurn *turn, QosTime when)
{
    leave_place(turns, turn);
    turn->place = QOS_POLL_TURN_LATER;
    qos_heap_push(&turns->later, &turn->later, when);
}

/* --- the next turn --- */

static void take_due(QosPollTurns *turns, QosTime now)
{
    QosHeapNode *first;

    while ((first = qos_heap_peek(&turns->later)) != NULL && first->key <= now) {
        qos_heap_remove(&turns->later, first);
        become_due((QosPollTurn *)((char *)first - G_STRUCT_OFFSET(QosPollTurn, later)),
                   QOS_POLL_TURN_AGAIN);
    }
}

static QosPollTurn *take(QosPollTurns *turns, guint kind)
{
    gpointer next = turns->all;
    QosPollQueue *queue;

    do {
        queue = next;
        GList *link = g_queue_pop_head_link(&queue->due[kind]);
        g_queue_push_tail_link(&queue->due[kind], link);
        next = link->data;
    } while (queue->turns == 0);
    leave_place(turns, next);
    return next;
}

static gboolean has_due(const QosPollTurns *turns, guint kind)
{
    return turns->all->due[kind].length > 0;
}

QosPollTurn *qos_poll_turns_next(QosPollTurns *turns, QosTime now, QosTime *ret_wake)
{
    const QosHeapNode *first;

    take_due(turns, now);
    if (now >= turns->round_end) {
        turns->round_end = now + QOS_POLL_TURNS_ROUND;
        turns->left = AT_A_TIME;
    }
    const gboolean may_again = has_due(turns, AGAIN) && turns->left > 0;
    if (may_again || has_due(turns, NEW)) {
        turns->was_again = may_again && !(turns->was_again && has_due(turns, NEW));
        turns->left -= turns->was_again;
        turns->taken = take(turns, turns->was_again ? AGAIN : NEW);
        return turns->taken;
    }
    first = qos_heap_peek(&turns->later);
    *ret_wake = first == NULL ? QOS_NEVER : first->key;
    if (has_due(turns, AGAIN))
        *ret_wake = MIN(*ret_wake, turns->round_end);
    return NULL;
}

QosPollTurn *qos_poll_turns_taken(const QosPollTurns *turns)
{
    return turns->taken;
}

void qos_poll_turns_pay(QosPollTurns *turns)
{
    turns->left += QOS_POLL_TURNS_PAID;
}

QosPollTurns *qos_poll_turns_new(void)
{
    QosPollTurns *turns = g_new0(QosPollTurns, 1);

    turns->all = new_queue(NULL, NULL);
    qos_heap_init(&turns->later);
    return turns;
}

void qos_poll_turns_free(QosPollTurns *turns)
{
    if (turns == NULL)
        return;
    g_assert(g_hash_table_size(turns->all->below) == 0);
    free_queue(turns->all);
    qos_heap_clear(&turns->later);
    g_free(turns);
}
