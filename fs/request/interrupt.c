/*
 * The watch over interrupted requests. fs/request/interrupt.h says why there must be one.
 *
 * The call-back of an interrupt only puts the request on the list and wakes the thread. The thread
 * takes one request after another, as fs/poll_turns.h says. It reads the pending signals of the
 * caller without the lock. If a signal is to end the request, it takes the request back through the
 * gate. An operation leaves the list, under the lock, before it is freed. So what is on the list is
 * alive, and after a look the thread sees whether the operation has left meanwhile.
 *
 * Requests in the background are kept beside the list, by their processes
 * (fs/request/background.h).
 *
 * Where interrupts may be lost, each parked request is on the list for one look. It stays there if
 * a signal is pending by then. Most requests run before that look.
 */
#include "fs/request/interrupt.h"

#include <errno.h>
#include <unistd.h>

#include "fs/caller/signals.h"
#include "fs/request/background.h"
#include "fs/request/fs.h"
#include "sys/service_thread.h"

#define LOOK_AGAIN (50 * QOS_MILLISECOND) /* a kill shows within 100 ms */
/* At what a killed program had waiting for a lock: one comes as the other is answered. */
#define LOOK_ON QOS_MILLISECOND
/* At a process, after its request came and after it was found. */
#define LOOK_BEHIND (25 * QOS_MILLISECOND)
/* How many requests of a killed process are answered at a time, so that others do not wait for the
 * answers. */
#define ANSWERS 32

/* What is looked at. */
enum { WATCHED, GROUP };

/* A request on the list. */
typedef struct {
    QosPollTurn turn; /* first */
    QosOp *op;
    gboolean is_interrupted; /* FALSE: that may have been lost */
} Watched;

struct QosInterrupts {
    QosGate *gate;
    QosInterruptTable *table;
    gboolean may_be_lost; /* the kernel passes on no signal that came before its request */
    QosServiceThread thread;
    QosMutex lock; /* everything below, and `background` of all operations */
    QosPollTurns *turns;
    GHashTable *watching; /* QosOp, parked or about to be -> Watched, owned */
    QosBackground *background;
    QosTime wake;   /* when the thread means to look next */
    QosTime killed; /* when one was last found to be */
};

/* --- the list --- */

static void look_at_once_locked(QosInterrupts *interrupts, QosPollTurn *turn)
{
    qos_poll_turns_at_once(interrupts->turns, turn);
    qos_service_thread_wake_locked(&interrupts->thread);
}

static void look_after_locked(QosInterrupts *interrupts, QosPollTurn *turn, QosTime pause)
{
    const QosTime when = qos_clock_now() + pause;

    qos_poll_turns_at(interrupts->turns, turn, when);
    if (when < interrupts->wake)
        qos_service_thread_wake_locked(&interrupts->thread);
}

static Watched *watch_locked(QosInterrupts *interrupts, QosOp *op)
{
    const QosRequest *request = &op->entry.request;
    Watched *watched = g_hash_table_lookup(interrupts->watching, op);

    if (watched != NULL)
        return watched;
    watched = g_new0(Watched, 1);
    watched->op = op;
    watched->turn.kind = WATCHED;
    g_hash_table_insert(interrupts->watching, op, watched);
    qos_poll_turns_add(interrupts->turns, &watched->turn, request->job, request->user);
    return watched;
}

static void unwatch_locked(QosInterrupts *interrupts, const QosOp *op)
{
    Watched *watched = g_hash_table_lookup(interrupts->watching, op);

    if (watched == NULL)
        return;
    qos_poll_turns_remove(interrupts->turns, &watched->turn);
    g_hash_table_remove(interrupts->watching, op);
}

static void add_interrupted(gpointer data)
{
    QosOp *op = data;
    QosInterrupts *interrupts = op->fs->interrupts;

    qos_mutex_lock(&interrupts->lock);
    Watched *watched = watch_locked(interrupts, op);
    watched->is_interrupted = TRUE;
    look_at_once_locked(interrupts, &watched->turn);
    qos_mutex_unlock(&interrupts->lock);
}

static void add_new_locked(QosInterrupts *interrupts, QosOp *op)
{
    const gboolean is_near_a_kill = qos_clock_now() - interrupts->killed < LOOK_AGAIN;

    look_after_locked(interrupts, &watch_locked(interrupts, op)->turn,
                      is_near_a_kill ? LOOK_ON : LOOK_AGAIN);
}

/* A group that was just made. */
static void begin_group_locked(QosInterrupts *interrupts, QosBackgroundGroup *group)
{
    if (group->turn.place == QOS_POLL_TURN_NONE)
        look_after_locked(interrupts, &group->turn, LOOK_BEHIND);
}

/* Takes `descriptor`, or closes it. */
static void keep_descriptor_locked(QosInterrupts *interrupts, QosBackgroundGroup *group,
                                   int descriptor)
{
    if (descriptor >= 0 &&
        (group == NULL || !qos_background_keep(interrupts->background, group, descriptor)))
        close(descriptor);
}

static void add_untold_locked(QosInterrupts *interrupts, QosOp *op)
{
    QosBackgroundGroup *group;
    int descriptor = -1;

    qos_background_remove(interrupts->background, op);
    group = qos_background_find(interrupts->background, op);
    if (group == NULL) {
        descriptor = qos_signals_open_thread(fuse_req_ctx(op->fuse)->pid);
        group = qos_background_find_process(interrupts->background, descriptor);
    }
    group = qos_background_add(interrupts->background, op, group);
    begin_group_locked(interrupts, group);
    if (qos_background_knows(interrupts->background, group))
        group = NULL;
    keep_descriptor_locked(interrupts, group, descriptor);
}

void qos_interrupts_watch(QosInterrupts *interrupts, QosOp *op, gboolean (*withdraw)(QosOp *op))
{
    qos_mutex_lock(&interrupts->lock);
    op->wait.withdraw = withdraw;
    if (op->target.is_untold)
        add_untold_locked(interrupts, op);
    if (interrupts->may_be_lost)
        add_new_locked(interrupts, op);
    qos_mutex_unlock(&interrupts->lock);
    qos_interrupt_table_listen(interrupts->table, op->number, add_interrupted, op);
}

void qos_interrupts_unwatch(QosInterrupts *interrupts, QosOp *op)
{
    qos_interrupt_table_ignore(interrupts->table, op->number);
    qos_mutex_lock(&interrupts->lock);
    unwatch_locked(interrupts, op);
    qos_background_remove(interrupts->background, op);
    qos_mutex_unlock(&interrupts->lock);
}

/* --- the thread --- */

static void note_kill_locked(QosInterrupts *interrupts)
{
    interrupts->killed = qos_clock_now();
    qos_poll_turns_pay(interrupts->turns);
}

/* The lock is released meanwhile. */
static void answer_locked(QosInterrupts *interrupts, QosOp *op)
{
    qos_mutex_unlock(&interrupts->lock);
    op->entry.cancelled(&op->entry, EINTR); /* removes it */
    qos_mutex_lock(&interrupts->lock);
}

/* From where it waits in the gate's turn. */
static gboolean withdraw_locked(QosOp *op)
{
    return op->wait.withdraw != NULL && op->wait.withdraw(op);
}

/* Takes it off the list where it need not be on it. */
static void judge_locked(QosInterrupts *interrupts, Watched *watched, const QosSignals *signals)
{
    QosOp *op = watched->op;
    const gboolean is_killed = signals->is_killed || (signals->is_gone && watched->is_interrupted);

    if (is_killed && qos_gate_cancel(interrupts->gate, &op->entry)) {
        note_kill_locked(interrupts);
        unwatch_locked(interrupts, op);
        answer_locked(interrupts, op);
    } else if (signals->is_killed && withdraw_locked(op)) {
        note_kill_locked(interrupts);
        unwatch_locked(interrupts, op); /* a worker answers it */
    } else if (!watched->is_interrupted && !signals->is_signaled) {
        unwatch_locked(interrupts, op);
    } else if (watched->turn.place == QOS_POLL_TURN_NONE) { /* no interrupt came meanwhile */
        look_after_locked(interrupts, &watched->turn, LOOK_AGAIN);
    }
}

static void look_at_request_locked(QosInterrupts *interrupts, Watched *watched)
{
    const pid_t thread = fuse_req_ctx(watched->op->fuse)->pid;

    qos_mutex_unlock(&interrupts->lock);
    const QosSignals signals = qos_signals_of(thread);
    qos_mutex_lock(&interrupts->lock);
    if (qos_poll_turns_taken(interrupts->turns) == &watched->turn)
        judge_locked(interrupts, watched, &signals);
}

/* Finds the process of a group. The lock is released meanwhile, so `group` may go, and its
 * descriptor be another's; then the caller forgets what this found. Returns a pidfd if the process
 * has no group yet, to tell how it ends; else -1. */
static int find_process_of_locked(QosInterrupts *interrupts, const QosBackgroundGroup *group,
                                  QosProcessId *ret_process)
{
    const pid_t thread = group->id.pid;
    const int kept = group->descriptor;
    int descriptor = -1;

    qos_mutex_unlock(&interrupts->lock);
    qos_signals_process(thread, ret_process);
    if (ret_process->start == 0)
        qos_signals_process_of(kept, ret_process);
    qos_mutex_lock(&interrupts->lock);
    if (ret_process->start != 0 && qos_background_is_new(interrupts->background, ret_process)) {
        qos_mutex_unlock(&interrupts->lock);
        descriptor = qos_signals_open(ret_process);
        qos_mutex_lock(&interrupts->lock);
    }
    return descriptor;
}

static void find_process_locked(QosInterrupts *interrupts, QosBackgroundGroup *group)
{
    QosProcessId process;
    const int descriptor = find_process_of_locked(interrupts, group, &process);

    if (qos_poll_turns_taken(interrupts->turns) == &group->turn)
        group = qos_background_found(interrupts->background, group, &process);
    else
        group = NULL;
    keep_descriptor_locked(interrupts, group, descriptor);
    if (group != NULL)
        begin_group_locked(interrupts, group);
}

/* TRUE if the operation must be served although its process has gone. If nothing tells how that
 * ended, only its reads are taken back, because it may want its writes. */
static gboolean is_wanted(const QosBackgroundGroup *group, const QosOp *op)
{
    return group->end == QOS_END_UNKNOWN && op->entry.request.opcode != QOS_OP_READ;
}

/* Takes back some operations of the group. Those that are neither parked nor waiting in their turn
 * stay. The lock is released for the answers. FALSE: there was none to take back. */
static gboolean take_some_back_locked(QosInterrupts *interrupts, QosBackgroundGroup *group)
{
    const guint count = MIN(group->ops.length, ANSWERS);
    gboolean were_any = FALSE;

    for (guint i = 0; i < count; i++) {
        QosOp *op = group->ops.head->data;

        g_queue_push_tail_link(&group->ops, g_queue_pop_head_link(&group->ops));
        if (is_wanted(group, op))
            continue;
        if (qos_gate_cancel(interrupts->gate, &op->entry))
            answer_locked(interrupts, op);
        else if (withdraw_locked(op))
            qos_background_remove(interrupts->background, op); /* a worker answers it */
        else /* it is about to run, or to be parked */
            continue;
        were_any = TRUE;
        if (qos_poll_turns_taken(interrupts->turns) != &group->turn)
            break;
    }
    return were_any;
}

static void look_at_process_locked(QosInterrupts *interrupts, QosBackgroundGroup *group)
{
    const QosProcessId process = group->id;

    if (group->end == QOS_END_NONE) {
        qos_mutex_unlock(&interrupts->lock);
        const QosEnd end = qos_signals_end(&process);
        qos_mutex_lock(&interrupts->lock);
        if (qos_poll_turns_taken(interrupts->turns) != &group->turn)
            return;
        group->end = end == QOS_END_UNKNOWN ? qos_signals_end_of_gone(group->descriptor) : end;
    }
    const gboolean were_any =
        group->end != QOS_END_NONE && take_some_back_locked(interrupts, group);
    if (were_any)
        note_kill_locked(interrupts);
    if (qos_poll_turns_taken(interrupts->turns) != &group->turn)
        return;
    if (were_any)
        look_at_once_locked(interrupts, &group->turn);
    else
        look_after_locked(interrupts, &group->turn, LOOK_AGAIN);
}

/* A thread, but for one of which it is known that it was killed. */
static gboolean is_to_be_found(const QosBackgroundGroup *group)
{
    return group->id.start == 0 && group->end == QOS_END_NONE;
}

static void look_at_locked(QosInterrupts *interrupts, QosPollTurn *turn)
{
    if (turn->kind == WATCHED)
        look_at_request_locked(interrupts, (Watched *)turn);
    else if (is_to_be_found((QosBackgroundGroup *)turn))
        find_process_locked(interrupts, (QosBackgroundGroup *)turn);
    else
        look_at_process_locked(interrupts, (QosBackgroundGroup *)turn);
}

static QosTime watch(gpointer data)
{
    QosInterrupts *interrupts = data;
    QosPollTurn *turn = qos_poll_turns_next(interrupts->turns, qos_clock_now(), &interrupts->wake);

    if (turn == NULL)
        return interrupts->wake;
    look_at_locked(interrupts, turn);
    return 0;
}

static void free_parts(QosInterrupts *interrupts)
{
    g_hash_table_unref(interrupts->watching);
    qos_background_free(interrupts->background);
    qos_poll_turns_free(interrupts->turns);
    qos_mutex_destroy(&interrupts->lock);
    g_free(interrupts);
}

QosInterrupts *qos_interrupts_new(QosGate *gate, QosInterruptTable *table, gboolean may_be_lost)
{
    QosInterrupts *interrupts = g_new0(QosInterrupts, 1);

    interrupts->gate = gate;
    interrupts->table = table;
    interrupts->may_be_lost = may_be_lost;
    interrupts->killed = -QOS_SECOND;
    interrupts->turns = qos_poll_turns_new();
    interrupts->watching = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    interrupts->background = qos_background_new(interrupts->turns, GROUP);
    qos_mutex_init(&interrupts->lock, QOS_MUTEX_INTERRUPTS);
    if (!qos_service_thread_start(&interrupts->thread, "interrupts", &interrupts->lock, watch,
                                  interrupts, NULL)) {
        free_parts(interrupts);
        return NULL;
    }
    return interrupts;
}

gboolean qos_interrupts_may_be_lost(const QosInterrupts *interrupts)
{
    return interrupts->may_be_lost;
}

void qos_interrupts_stop(QosInterrupts *interrupts)
{
    if (interrupts != NULL)
        qos_service_thread_stop(&interrupts->thread);
}

void qos_interrupts_free(QosInterrupts *interrupts)
{
    if (interrupts != NULL)
        free_parts(interrupts);
}
