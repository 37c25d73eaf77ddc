/*
 * The watch over interrupted requests; ops/interrupt.h says why there must be one.
 *
 * libfuse's call-back only puts the request on the list and wakes the thread. The thread reads the
 * pending signals of all callers on the list without the lock, and takes back through the gate
 * those that a signal is to end. An operation leaves the list, under the lock, before it is freed;
 * so what is on the list is alive.
 */
#include "ops/interrupt.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ops/fs.h"

#define LOOK_AGAIN  (50 * QOS_MILLISECOND) /* a kill shows within 100 ms */

#define BIT(signal) (G_GUINT64_CONSTANT(1) << ((signal)-1))

/* What a signal does to a process that has not said otherwise, signal(7): all but these end it. */
#define HARMLESS                                                                                   \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) |     \
     BIT(SIGURG) | BIT(SIGWINCH))

struct QosInterrupts {
    QosGate *gate;
    pthread_t thread;
    pthread_mutex_t lock; /* everything below, and `watch`, `watched` of all operations */
    pthread_cond_t changed;
    GQueue watching; /* of QosOp, interrupted and parked, or about to be */
    gboolean is_stopping;
};

/* --- which signals end a process --- */

/* Reads a mask such as "SigPnd:\t0000000000000100" into the sum of `mask`. */
static void read_mask(const char *line, const char *name, guint64 *mask)
{
    guint64 value;
    gsize length = strlen(name);
    if (strncmp(line, name, length) == 0 && sscanf(line + length, " %" SCNx64, &value) == 1)
        *mask |= value;
}

/* TRUE where a pending signal is to end the call of this thread, or the thread is gone. */
static gboolean is_killed(pid_t tid)
{
    char path[32], line[256];
    guint64 pending = 0, blocked = 0, handled = 0;

    if (tid == 0)
        return FALSE; /* in a pid namespace that this daemon cannot see: it stays parked */
    g_snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    FILE *status = fopen(path, "re");
    if (status == NULL)
        return errno == ENOENT || errno == ESRCH;
    while (fgets(line, sizeof(line), status) != NULL) {
        read_mask(line, "SigPnd:", &pending);
        read_mask(line, "ShdPnd:", &pending);
        read_mask(line, "SigBlk:", &blocked);
        read_mask(line, "SigIgn:", &handled);
        read_mask(line, "SigCgt:", &handled);
    }
    fclose(status);

    guint64 ends = ~(handled | HARMLESS) | BIT(SIGTERM);
    return (pending & BIT(SIGKILL)) != 0 || (pending & ~blocked & ends) != 0;
}

/* --- the list --- */

static void add_to_list(fuse_req_t request G_GNUC_UNUSED, void *data)
{
    QosOp *op = data;
    QosInterrupts *interrupts = op->fs->interrupts;

    pthread_mutex_lock(&interrupts->lock);
    if (!op->watched) {
        op->watched = TRUE;
        op->watch = (GList){.data = op};
        g_queue_push_tail_link(&interrupts->watching, &op->watch);
        pthread_cond_signal(&interrupts->changed);
    }
    pthread_mutex_unlock(&interrupts->lock);
}

static void remove_locked(QosInterrupts *interrupts, QosOp *op)
{
    if (op->watched)
        g_queue_unlink(&interrupts->watching, &op->watch);
    op->watched = FALSE;
}

void qos_interrupts_watch(QosInterrupts *interrupts G_GNUC_UNUSED, QosOp *op)
{
    fuse_req_interrupt_func(op->fuse, add_to_list, op);
}

void qos_interrupts_unwatch(QosInterrupts *interrupts, QosOp *op)
{
    /* Waits for a call-back under way; none follows. */
    fuse_req_interrupt_func(op->fuse, NULL, NULL);
    pthread_mutex_lock(&interrupts->lock);
    remove_locked(interrupts, op);
    pthread_mutex_unlock(&interrupts->lock);
}

/* --- the thread --- */

typedef struct {
    QosOp *op; /* only to be found again on the list */
    pid_t tid;
    gboolean killed;
} Suspect;

static GArray *list_suspects_locked(QosInterrupts *interrupts)
{
    GArray *suspects = g_array_new(FALSE, FALSE, sizeof(Suspect));
    for (GList *link = interrupts->watching.head; link != NULL; link = link->next) {
        QosOp *op = link->data;
        Suspect suspect = {.op = op, .tid = fuse_req_ctx(op->fuse)->pid};
        g_array_append_val(suspects, suspect);
    }
    return suspects;
}

/* The operation of a killed suspect, taken back; NULL where it runs or has left meanwhile. */
static QosOp *take_back_locked(QosInterrupts *interrupts, const Suspect *suspect)
{
    GList *link = g_queue_find(&interrupts->watching, suspect->op);
    if (link == NULL || fuse_req_ctx(suspect->op->fuse)->pid != suspect->tid ||
        !qos_gate_cancel(interrupts->gate, &suspect->op->entry))
        return NULL;
    remove_locked(interrupts, suspect->op);
    return suspect->op;
}

/* Answers the requests whose callers are killed. The lock is let go meanwhile. */
static void look_locked(QosInterrupts *interrupts)
{
    g_autoptr(GArray) suspects = list_suspects_locked(interrupts);

    pthread_mutex_unlock(&interrupts->lock);
    for (guint i = 0; i < suspects->len; i++) {
        Suspect *suspect = &g_array_index(suspects, Suspect, i);
        suspect->killed = is_killed(suspect->tid);
    }
    pthread_mutex_lock(&interrupts->lock);

    for (guint i = 0; i < suspects->len; i++) {
        const Suspect *suspect = &g_array_index(suspects, Suspect, i);
        QosOp *op = suspect->killed ? take_back_locked(interrupts, suspect) : NULL;
        if (op == NULL)
            continue;
        pthread_mutex_unlock(&interrupts->lock);
        op->entry.cancelled(&op->entry, EINTR);
        pthread_mutex_lock(&interrupts->lock);
    }
}

static void wait_locked(QosInterrupts *interrupts)
{
    if (interrupts->watching.length == 0) {
        pthread_cond_wait(&interrupts->changed, &interrupts->lock);
        return;
    }
    QosTime until = qos_gate_now() + LOOK_AGAIN;
    struct timespec time = {.tv_sec = until / QOS_SECOND, .tv_nsec = until % QOS_SECOND};
    pthread_cond_timedwait(&interrupts->changed, &interrupts->lock, &time);
}

static void *watch(void *arg)
{
    QosInterrupts *interrupts = arg;

    pthread_mutex_lock(&interrupts->lock);
    while (!interrupts->is_stopping) {
        look_locked(interrupts);
        if (!interrupts->is_stopping)
            wait_locked(interrupts);
    }
    pthread_mutex_unlock(&interrupts->lock);
    return NULL;
}

QosInterrupts *qos_interrupts_new(QosGate *gate)
{
    QosInterrupts *interrupts = g_new0(QosInterrupts, 1);
    pthread_condattr_t attributes;

    interrupts->gate = gate;
    pthread_mutex_init(&interrupts->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&interrupts->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&interrupts->thread, NULL, watch, interrupts) != 0) {
        pthread_cond_destroy(&interrupts->changed);
        pthread_mutex_destroy(&interrupts->lock);
        g_clear_pointer(&interrupts, g_free);
    }
    return interrupts;
}

void qos_interrupts_free(QosInterrupts *interrupts)
{
    if (interrupts == NULL)
        return;
    pthread_mutex_lock(&interrupts->lock);
    interrupts->is_stopping = TRUE;
    pthread_cond_signal(&interrupts->changed);
    pthread_mutex_unlock(&interrupts->lock);
    pthread_join(interrupts->thread, NULL);
    pthread_cond_destroy(&interrupts->changed);
    pthread_mutex_destroy(&interrupts->lock);
    g_free(interrupts);
}
