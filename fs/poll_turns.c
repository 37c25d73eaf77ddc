/*
 * Decides which turn is taken next; fs/poll_turns.h has the rules.
 *
 * Due turns stand in lines, on three levels: a turn in its job's line, the job's line in its
 * user's, and the user's line in the line of all. A line stands in the line above for as long as it
 * has something due. A turn that is taken leaves its line, and each line on the way to it steps
 * behind the others of the line above. Turns that are not due yet are in a heap.
 */
#include "fs/poll_turns.h"

#define AT_A_TIME (QOS_TURNS_LOOKS * QOS_TURNS_ROUND / QOS_SECOND)

enum { NEW, AGAIN, KINDS };

struct QosTurnLine {
    QosTurnLine *above;  /* NULL: it is that of all */
    gconstpointer owner; /* QosJob or QosUser; its key there */
    GHashTable *below;   /* owner -> QosTurnLine, owned; empty in a job's */
    guint turns;         /* in a job's, due or not */
    GQueue due[KINDS];   /* of QosTurnLine, or in a job's of QosTurn */
    GList link[KINDS];   /* in the line above */
};

struct QosTurns {
    QosTurnLine *all;
    QosHeap later;
    QosTime round_end;
    guint left;         /* of AGAIN, in this round */
    gboolean was_again; /* the last that was taken */
    QosTurn *taken;
};

/* --- lines --- */

static void free_line(gpointer data)
{
    QosTurnLine *line = data;

    g_hash_table_unref(line->below);
    g_free(line);
}

static QosTurnLine *new_line(QosTurnLine *above, gconstpointer owner)
{
    QosTurnLine *line = g_new0(QosTurnLine, 1);

    line->above = above;
    line->owner = owner;
    line->below = g_hash_table_new_full(NULL, NULL, NULL, free_line);
    for (guint kind = 0; kind < KINDS; kind++)
        line->link[kind].data = line;
    return line;
}

static QosTurnLine *line_of(QosTurnLine *above, gconstpointer owner)
{
    QosTurnLine *line = g_hash_table_lookup(above->below, owner);

    if (line == NULL) {
        line = new_line(above, owner);
        g_hash_table_insert(above->below, (gpointer)owner, line);
    }
    return line;
}

/* Frees the line if it is unused, and each line above that is unused then. */
static void drop_unused(QosTurnLine *line)
{
    while (line->above != NULL && line->turns == 0 && g_hash_table_size(line->below) == 0) {
        QosTurnLine *above = line->above;

        g_hash_table_remove(above->below, line->owner);
        line = above;
    }
}

static void stand_in(QosTurnLine *line, GList *link, guint kind)
{
    while (line != NULL) {
        g_queue_push_tail_link(&line->due[kind], link);
        if (line->due[kind].length > 1)
            return;
        link = &line->link[kind];
        line = line->above;
    }
}

static void leave(QosTurnLine *line, GList *link, guint kind)
{
    while (line != NULL) {
        g_queue_unlink(&line->due[kind], link);
        if (line->due[kind].length > 0)
            return;
        link = &line->link[kind];
        line = line->above;
    }
}

static guint kind_of(const QosTurn *turn)
{
    return turn->place == QOS_TURN_NEW ? NEW : AGAIN;
}

static void leave_place(QosTurns *turns, QosTurn *turn)
{
    if (turn->place == QOS_TURN_LATER)
        qos_heap_remove(&turns->later, &turn->later);
    else if (turn->place != QOS_TURN_NONE)
        leave(turn->line, &turn->link, kind_of(turn));
    turn->place = QOS_TURN_NONE;
}

static void become_due(QosTurn *turn, QosTurnPlace place)
{
    turn->place = place;
    turn->link.data = turn;
    stand_in(turn->line, &turn->link, kind_of(turn));
}

/* --- adding and removing --- */

void qos_turns_add(QosTurns *turns, QosTurn *turn, QosJob *job, QosUser *user)
{
    QosTurnLine *above = user == NULL ? turns->all : line_of(turns->all, user);

    turn->line = line_of(above, job);
    turn->line->turns++;
    turn->job = qos_job_ref(job);
}

void qos_turns_remove(QosTurns *turns, QosTurn *turn)
{
    if (turn->line == NULL)
        return;
    if (turns->taken == turn)
        turns->taken = NULL;
    leave_place(turns, turn);
    turn->line->turns--;
    drop_unused(turn->line);
    turn->line = NULL;
    g_clear_pointer(&turn->job, qos_job_unref);
}

void qos_turns_at_once(QosTurns *turns, QosTurn *turn)
{
    leave_place(turns, turn);
    become_due(turn, QOS_TURN_NEW);
}

void qos_turns_at(QosTurns *turns, QosTurn *turn, QosTime when)
{
    leave_place(turns, turn);
    turn->place = QOS_TURN_LATER;
    qos_heap_push(&turns->later, &turn->later, when);
}

/* --- the next turn --- */

static void take_due(QosTurns *turns, QosTime now)
{
    QosHeapNode *first;

    while ((first = qos_heap_peek(&turns->later)) != NULL && first->key <= now) {
        qos_heap_remove(&turns->later, first);
        become_due((QosTurn *)((char *)first - G_STRUCT_OFFSET(QosTurn, later)), QOS_TURN_AGAIN);
    }
}

static QosTurn *take(QosTurns *turns, guint kind)
{
    gpointer next = turns->all;
    QosTurnLine *line;

    do {
        line = next;
        GList *link = g_queue_pop_head_link(&line->due[kind]);
        g_queue_push_tail_link(&line->due[kind], link);
        next = link->data;
    } while (line->turns == 0);
    leave_place(turns, next);
    return next;
}

static gboolean has_due(const QosTurns *turns, guint kind)
{
    return turns->all->due[kind].length > 0;
}

QosTurn *qos_turns_next(QosTurns *turns, QosTime now, QosTime *ret_wake)
{
    const QosHeapNode *first;

    take_due(turns, now);
    if (now >= turns->round_end) {
        turns->round_end = now + QOS_TURNS_ROUND;
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

QosTurn *qos_turns_taken(const QosTurns *turns)
{
    return turns->taken;
}

void qos_turns_pay(QosTurns *turns)
{
    turns->left += QOS_TURNS_PAID;
}

QosTurns *qos_turns_new(void)
{
    QosTurns *turns = g_new0(QosTurns, 1);

    turns->all = new_line(NULL, NULL);
    qos_heap_init(&turns->later);
    return turns;
}

void qos_turns_free(QosTurns *turns)
{
    if (turns == NULL)
        return;
    g_assert(g_hash_table_size(turns->all->below) == 0);
    free_line(turns->all);
    qos_heap_clear(&turns->later);
    g_free(turns);
}
