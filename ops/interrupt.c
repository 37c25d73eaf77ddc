/*
 * The watch over interrupted requests; ops/interrupt.h says why there must be one.
 *
 * The call-back of an interrupt only puts the request on the list and wakes the thread. The thread
 * reads the pending signals of all callers on the list without the lock, and takes back through the
 * gate those that a signal is to end. An operation leaves the list, under the lock, before it is
 * freed; so what is on the list is alive.
 *
 * Requests in the background are kept beside the list, by their processes (ops/background.h).
 *
 * Where interrupts may be lost, each request is on the list from its parking to the next look, and
 * stays there if a signal is pending by then. Most run before.
 */
#include "ops/interrupt.h"

#include <errno.h>
#include <pthread.h>

#include "fs/condition.h"
#include "ops/background.h"
#include "ops/coherence.h"
#include "ops/fs.h"
#include "ops/signals.h"

#define LOOK_AGAIN (50 * QOS_MILLISECOND) /* a kill shows within 100 ms */
#define LOOK_ON    QOS_MILLISECOND        /* for what a killed program had waiting for a lock */
/* Between two looks at the background, lest every interrupt make one. */
#define LOOK_BEHIND (25 * QOS_MILLISECOND)

struct QosInterrupts {
    QosGate *gate;
    QosInterruptTable *table;
    gboolean may_be_lost; /* the kernel passes on no signal that came before its request */
    pthread_t thread;
    pthread_mutex_t lock; /* everything below, and `watch` and `background` of all operations */
    pthread_cond_t changed;
    GHashTable *watching; /* of QosOp, parked or about to be */
    QosBackground *background;
    QosTime behind;     /* when to look at it next, at the earliest */
    gboolean is_urgent; /* one of `watching` was interrupted since the last look */
    gboolean is_stopping;
};

/* --- the list --- */

static gboolean is_empty_locked(const QosInterrupts *interrupts)
{
    return g_hash_table_size(interrupts->watching) == 0 &&
           qos_background_is_empty(interrupts->background);
}

static void add(QosOp *op, QosWatch watch)
{
    QosInterrupts *interrupts = op->fs->interrupts;

    pthread_mutex_lock(&interrupts->lock);
    op->watch = watch;
    interrupts->is_urgent |= watch == QOS_WATCH_INTERRUPTED;
    if (interrupts->is_urgent || is_empty_locked(interrupts))
        pthread_cond_signal(&interrupts->changed);
    g_hash_table_add(interrupts->watching, op);
    pthread_mutex_unlock(&interrupts->lock);
}

static void add_interrupted(gpointer data)
{
    add(data, QOS_WATCH_INTERRUPTED);
}

static void add_background(QosInterrupts *interrupts, QosOp *op)
{
    pthread_mutex_lock(&interrupts->lock);
    if (is_empty_locked(interrupts))
        pthread_cond_signal(&interrupts->changed);
    qos_background_add(interrupts->background, op);
    pthread_mutex_unlock(&interrupts->lock);
}

void qos_interrupts_watch(QosInterrupts *interrupts, QosOp *op)
{
    if (op->is_direct)
        add_background(interrupts, op);
    if (interrupts->may_be_lost)
        add(op, QOS_WATCH_NEW);
    qos_interrupt_table_listen(interrupts->table, op->number, add_interrupted, op);
}

void qos_interrupts_unwatch(QosInterrupts *interrupts, QosOp *op)
{
    qos_interrupt_table_ignore(interrupts->table, op->number);
    pthread_mutex_lock(&interrupts->lock);
    g_hash_table_remove(interrupts->watching, op);
    qos_background_remove(interrupts->background, op);
    pthread_mutex_unlock(&interrupts->lock);
}

/* --- the thread --- */

typedef struct {
    QosOp *op; /* only to be found again on the list */
    pid_t tid;
    QosSignals signals;
} Suspect;

static GArray *list_suspects_locked(QosInterrupts *interrupts)
{
    GArray *suspects = g_array_new(FALSE, FALSE, sizeof(Suspect));
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, interrupts->watching);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        QosOp *op = key;
        Suspect suspect = {.op = op, .tid = fuse_req_ctx(op->fuse)->pid};

        if (op->watch == QOS_WATCH_NEW)
            op->watch = QOS_WATCH_LOOKED_AT;
        g_array_append_val(suspects, suspect);
    }
    return suspects;
}

/* Takes off the list what need not be on it. TRUE: also from the gate, to be answered. */
static gboolean take_back_locked(QosInterrupts *interrupts, const Suspect *suspect)
{
    QosOp *op = suspect->op;
    gboolean is_killed = FALSE;

    if (!g_hash_table_contains(interrupts->watching, op) ||
        fuse_req_ctx(op->fuse)->pid != suspect->tid)
        return FALSE; /* it runs or has left meanwhile */
    if (suspect->signals.is_killed ||
        (suspect->signals.is_gone && op->watch == QOS_WATCH_INTERRUPTED))
        is_killed = qos_gate_cancel(interrupts->gate, &op->entry);
    if (!is_killed && suspect->signals.is_killed && qos_coherence_interrupt(op))
        g_hash_table_remove(interrupts->watching, op); /* a worker answers it */
    else if (is_killed || (op->watch == QOS_WATCH_LOOKED_AT && !suspect->signals.is_signaled))
        g_hash_table_remove(interrupts->watching, op);
    return is_killed;
}

/* Answers the requests whose callers are killed, and says whether there were any. The lock is let
 * go meanwhile. */
static gboolean look_locked(QosInterrupts *interrupts)
{
    g_autoptr(GArray) suspects = list_suspects_locked(interrupts);
    gboolean were_any = FALSE;

    interrupts->is_urgent = FALSE;
    pthread_mutex_unlock(&interrupts->lock);
    for (guint i = 0; i < suspects->len; i++) {
        Suspect *suspect = &g_array_index(suspects, Suspect, i);
        suspect->signals = qos_signals_of(suspect->tid);
    }
    pthread_mutex_lock(&interrupts->lock);

    for (guint i = 0; i < suspects->len; i++) {
        const Suspect *suspect = &g_array_index(suspects, Suspect, i);

        if (!take_back_locked(interrupts, suspect))
            continue;
        pthread_mutex_unlock(&interrupts->lock);
        suspect->op->entry.cancelled(&suspect->op->entry, EINTR);
        were_any = TRUE;
        pthread_mutex_lock(&interrupts->lock);
    }
    return were_any;
}

/* Each of its requests once: what is neither parked nor waits for credits stays. The lock is let go
 * for the answers. */
static void take_back_all_locked(QosInterrupts *interrupts, QosBackgroundProcess *process)
{
    for (guint left = process->ops.length; left > 0 && process->ops.length > 0; left--) {
        QosOp *op = process->ops.head->data;

        if (qos_gate_cancel(interrupts->gate, &op->entry)) {
            pthread_mutex_unlock(&interrupts->lock);
            op->entry.cancelled(&op->entry, EINTR); /* removes it */
            pthread_mutex_lock(&interrupts->lock);
        } else if (qos_coherence_interrupt(op)) {
            qos_background_remove(interrupts->background, op); /* a worker answers it */
        } else { /* it is about to run, or to be parked */
            g_queue_unlink(&process->ops, &op->background);
            g_queue_push_tail_link(&process->ops, &op->background);
        }
    }
}

/* The same for the background. */
static void look_behind_locked(QosInterrupts *interrupts)
{
    QosTime now = qos_gate_now();
    QosBackgroundLook look;

    if (qos_background_is_empty(interrupts->background) || now < interrupts->behind)
        return;
    interrupts->behind = now + LOOK_BEHIND;
    qos_background_begin(interrupts->background, &look);
    pthread_mutex_unlock(&interrupts->lock);
    qos_background_look(&look);
    pthread_mutex_lock(&interrupts->lock);
    qos_background_sort(interrupts->background, &look);
    for (guint i = 0; i < look.processes->len; i++) {
        QosBackgroundProcess *process = look.processes->pdata[i];

        if (process->is_killed)
            take_back_all_locked(interrupts, process);
    }
    qos_background_end(interrupts->background, &look);
}

/* Until something is on the list, and then until it is time to look at it. */
static void wait_locked(QosInterrupts *interrupts, QosTime pause)
{
    while (!interrupts->is_stopping && is_empty_locked(interrupts))
        pthread_cond_wait(&interrupts->changed, &interrupts->lock);

    const QosTime until = qos_gate_now() + pause;
    while (!interrupts->is_stopping && !interrupts->is_urgent &&
           qos_condition_wait_until(&interrupts->changed, &interrupts->lock, until)) {
        /* not yet */
    }
}

static void *watch(void *arg)
{
    QosInterrupts *interrupts = arg;

    pthread_mutex_lock(&interrupts->lock);
    while (!interrupts->is_stopping) {
        QosTime pause = look_locked(interrupts) ? LOOK_ON : LOOK_AGAIN;

        look_behind_locked(interrupts);
        if (!interrupts->is_stopping)
            wait_locked(interrupts, pause);
    }
    pthread_mutex_unlock(&interrupts->lock);
    return NULL;
}

static void free_parts(QosInterrupts *interrupts)
{
    g_hash_table_unref(interrupts->watching);
    qos_background_free(interrupts->background);
    pthread_cond_destroy(&interrupts->changed);
    pthread_mutex_destroy(&interrupts->lock);
    g_free(interrupts);
}

QosInterrupts *qos_interrupts_new(QosGate *gate, QosInterruptTable *table, gboolean may_be_lost)
{
    QosInterrupts *interrupts = g_new0(QosInterrupts, 1);

    interrupts->gate = gate;
    interrupts->table = table;
    interrupts->may_be_lost = may_be_lost;
    interrupts->watching = g_hash_table_new(NULL, NULL);
    interrupts->background = qos_background_new();
    pthread_mutex_init(&interrupts->lock, NULL);
    pthread_cond_init(&interrupts->changed, NULL);
    if (pthread_create(&interrupts->thread, NULL, watch, interrupts) != 0) {
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
    if (interrupts == NULL)
        return;
    pthread_mutex_lock(&interrupts->lock);
    interrupts->is_stopping = TRUE;
    pthread_cond_signal(&interrupts->changed);
    pthread_mutex_unlock(&interrupts->lock);
    pthread_join(interrupts->thread, NULL);
}

void qos_interrupts_free(QosInterrupts *interrupts)
{
    if (interrupts != NULL)
        free_parts(interrupts);
}
