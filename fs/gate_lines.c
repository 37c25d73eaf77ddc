/*
 * Where requests are parked: in lines, by the lock that the kernel holds for them, so that who
 * comes to want that lock finds those that hold it. What keeps pages of a file locked has a line of
 * its own, for who comes to wait for pages alone.
 *
 * The first call for a lock lets them go, as far as their class may owe for it. What it lets go,
 * or what came when others wanted the lock already, nobody can hurry any more: it stands with all
 * that hold nothing, and no later call looks at it. What waits because its class owes too much
 * stands in its line on, among the `wanted`, for who comes to wait for pages.
 *
 * A line may be as long as the kernel's room for requests in the background. So it is walked in
 * batches, and others have the gate in between. Meanwhile some of it may go, or be taken back, or
 * come: who comes calls for himself, so that no more are looked at than there were at first.
 */
#include "fs/gate_private.h"

#define BATCH 128 /* keeps the lock for up to 60 us */

static GQueue *queue_of(const QosEntry *entry)
{
    return entry->request.holds_lock ? &entry->line->wanted : &entry->line->alone;
}

/* A lock's line of what keeps pages, and that of what does not; never 0. */
static guint64 line_id(guint64 lock, gboolean keeps_pages)
{
    return lock << 1 | (guint64)keeps_pages;
}

static QosGateLine *find_locked(QosGate *gate, guint64 id)
{
    return g_hash_table_lookup(gate->parked, &id);
}

static QosGateLine *add_line_locked(QosGate *gate, guint64 id)
{
    QosGateLine *line = g_new0(QosGateLine, 1);

    line->id = id;
    line->link.data = line;
    g_hash_table_add(gate->parked, line);
    g_atomic_int_add(&gate->locked_lines, id != 0);
    g_queue_push_tail_link(&gate->lines, &line->link);
    return line;
}

static void join_locked(QosGate *gate, QosEntry *entry, guint64 id)
{
    entry->line = find_locked(gate, id) ?: add_line_locked(gate, id);
    entry->parked = (GList){.data = entry};
    g_queue_push_tail_link(queue_of(entry), &entry->parked);
}

static void drop_if_empty_locked(QosGate *gate, QosGateLine *line)
{
    if (line->alone.length + line->wanted.length > 0)
        return;
    g_atomic_int_add(&gate->locked_lines, -(line->id != 0));
    g_queue_unlink(&gate->lines, &line->link);
    g_hash_table_remove(gate->parked, line);
}

void qos_gate_join_line_locked(QosGate *gate, QosEntry *entry)
{
    const QosRequest *request = &entry->request;
    const gboolean can_be_let_go = request->lock != 0 && !request->holds_lock;

    join_locked(gate, entry, can_be_let_go ? line_id(request->lock, request->keeps_pages) : 0);
}

void qos_gate_leave_line_locked(QosGate *gate, QosEntry *entry)
{
    g_queue_unlink(queue_of(entry), &entry->parked);
    drop_if_empty_locked(gate, entry->line);
}

static QosEntry *first_of(const QosGateLine *line)
{
    return (line->alone.head ?: line->wanted.head)->data;
}

QosEntry *qos_gate_any_parked_locked(QosGate *gate)
{
    const QosGateLine *line = g_queue_peek_head(&gate->lines);

    return line != NULL ? first_of(line) : NULL;
}

/* --- who wants a lock --- */

typedef struct {
    guint64 line;
    const QosJob *job; /* who wants it, NULL: any */
    QosTime max_debt;  /* as for qos_sched_release(); QOS_NEVER: the `wanted` are released too */
} Want;

/* How many of the line there are to look at. */
static guint count(const QosGateLine *line, const Want *want)
{
    if (line == NULL)
        return 0;
    return line->alone.length + (want->max_debt == QOS_NEVER ? line->wanted.length : 0);
}

/* What is let go leaves the line; its own job's go to the end of it. Others must never see a line
 * end that does not. */
static void release_one_locked(QosGate *gate, QosEntry *entry, const Want *want, QosTime now)
{
    QosGateLine *line = entry->line;
    QosRequest *request = &entry->request;
    const gboolean is_own = request->job == want->job;

    g_queue_unlink(queue_of(entry), &entry->parked);
    if (!is_own)
        qos_sched_release(gate->sched, request, want->max_debt, now);
    const gboolean stays = is_own || request->state == QOS_REQUEST_QUEUED;
    join_locked(gate, entry, stays ? line->id : 0);
    drop_if_empty_locked(gate, line);
}

/* Looks at up to `left` of them. Returns how many are left for the next time. */
static guint release_some_locked(QosGate *gate, const Want *want, guint left)
{
    const QosTime now = qos_gate_now();

    for (guint i = 0; i < BATCH; i++) {
        const QosGateLine *line = find_locked(gate, want->line);
        left = MIN(left, count(line, want)); /* some may have gone meanwhile */
        if (left == 0)
            break;
        release_one_locked(gate, first_of(line), want, now);
        left--;
    }
    qos_gate_wake_leader_locked(gate, now);
    return left;
}

/* Who lets go of the lock and takes it again at once is before all who have to wake up for it: with
 * 50,000 to release they waited for 1 to 3 ms. */
static void let_others_in_locked(QosGate *gate)
{
    qos_mutex_unlock(&gate->lock);
    g_usleep(1);
    qos_mutex_lock(&gate->lock);
}

static void release(QosGate *gate, const Want *want)
{
    if (g_atomic_int_get(&gate->locked_lines) == 0)
        return;
    qos_mutex_lock(&gate->lock);
    guint left = count(find_locked(gate, want->line), want);
    while (left > 0) {
        left = release_some_locked(gate, want, left);
        if (left > 0)
            let_others_in_locked(gate);
    }
    qos_mutex_unlock(&gate->lock);
}

/* Each open comes here. Who waits was counted before he looked whether others have the file open,
 * and who opens it has told that before he comes. */
void qos_gate_release(QosGate *gate, guint64 lock, const QosJob *job)
{
    release(gate, &(Want){line_id(lock, TRUE), job, QOS_DEBT_MAX});
    release(gate, &(Want){line_id(lock, FALSE), job, QOS_DEBT_MAX});
}

void qos_gate_release_pages(QosGate *gate, guint64 lock)
{
    release(gate, &(Want){line_id(lock, TRUE), NULL, QOS_NEVER});
}

QosGateHolder qos_gate_holder(QosGate *gate, guint64 lock, const QosJob *job)
{
    QosGateHolder holder = QOS_GATE_NOBODY;

    if (g_atomic_int_get(&gate->locked_lines) == 0)
        return holder;
    qos_mutex_lock(&gate->lock);
    const QosGateLine *line =
        find_locked(gate, line_id(lock, TRUE)) ?: find_locked(gate, line_id(lock, FALSE));
    if (line != NULL)
        holder = first_of(line)->request.job == job ? QOS_GATE_THE_JOB : QOS_GATE_ANOTHER;
    qos_mutex_unlock(&gate->lock);
    return holder;
}
