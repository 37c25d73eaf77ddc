/*
 * Who comes by a file's name, or is told news of it: the thread that looks at them. When it does,
 * and whom it finds waiting, is fs/comers.h's; ops/approaches.h tells what for.
 */
#include "ops/approaches.h"

#include <pthread.h>

#include "fs/comers.h"
#include "fs/mutex.h"
#include "ops/process.h"

struct QosApproaches {
    QosGate *gate;
    QosLooks *looks;
    pthread_t thread;
    gint waiting;  /* atomic: comers that seem to wait for a lock */
    QosMutex lock; /* everything below */
    pthread_cond_t changed;
    QosComers *comers;
    QosTime wake; /* when the thread means to look next */
    gboolean is_stopping;
};

static void count_waiting_locked(QosApproaches *approaches)
{
    g_atomic_int_set(&approaches->waiting, (gint)qos_comers_waiting(approaches->comers));
}

static void wake_locked(QosApproaches *approaches, QosTime look)
{
    count_waiting_locked(approaches);
    if (look < approaches->wake)
        pthread_cond_signal(&approaches->changed);
}

void qos_approaches_note(QosApproaches *approaches, const QosOp *op, fuse_ino_t ino)
{
    const QosRequest *request = &op->entry.request;
    const pid_t thread = fuse_req_ctx(op->fuse)->pid;

    if (thread == 0)
        return;
    qos_mutex_lock(&approaches->lock);
    wake_locked(approaches, qos_comers_note(approaches->comers, thread, ino, request->job,
                                            request->user, qos_gate_now()));
    qos_mutex_unlock(&approaches->lock);
}

void qos_approaches_tell(QosApproaches *approaches, const QosOp *op, fuse_ino_t ino, gint64 size)
{
    const QosRequest *request = &op->entry.request;
    const pid_t thread = fuse_req_ctx(op->fuse)->pid;

    if (thread == 0)
        return;
    qos_mutex_lock(&approaches->lock);
    wake_locked(approaches,
                qos_comers_tell(approaches->comers, thread, op->number, (QosTold){ino, size},
                                request->job, request->user, qos_gate_now()));
    qos_mutex_unlock(&approaches->lock);
}

gboolean qos_approaches_are_waiting(QosApproaches *approaches, fuse_ino_t ino, const QosJob *job)
{
    if (g_atomic_int_get(&approaches->waiting) == 0)
        return FALSE;
    qos_mutex_lock(&approaches->lock);
    const gboolean are_waiting = qos_comers_wait_for(approaches->comers, ino, job);
    qos_mutex_unlock(&approaches->lock);
    return are_waiting;
}

gboolean qos_approaches_want_pages(QosApproaches *approaches, fuse_ino_t ino, gint64 end,
                                   pid_t thread)
{
    if (g_atomic_int_get(&approaches->waiting) == 0)
        return FALSE;
    qos_mutex_lock(&approaches->lock);
    const gboolean want = qos_comers_wait_for_pages(approaches->comers, ino, end, thread);
    qos_mutex_unlock(&approaches->lock);
    return want;
}

static void let_go(QosApproaches *approaches, const QosComer *comer)
{
    for (guint i = 0; i < QOS_COMER_FILES; i++) {
        if (comer->files[i] != 0)
            qos_gate_release(approaches->gate, comer->files[i], comer->job);
    }
    for (guint i = 0; i < comer->told->len; i++) {
        const QosTold *told = &g_array_index(comer->told, QosTold, i);

        qos_gate_release(approaches->gate, told->file, comer->job);
        if (qos_looks_are_awaited(approaches->looks, told->file, told->size))
            qos_gate_release_pages(approaches->gate, told->file);
    }
}

/* The lock is let go meanwhile. */
static void look_at_locked(QosApproaches *approaches, pid_t thread)
{
    QosComer comer;

    qos_mutex_unlock(&approaches->lock);
    const char state = qos_process_state(thread);
    qos_mutex_lock(&approaches->lock);
    const gboolean waits =
        qos_comers_seen(approaches->comers, thread, state, qos_gate_now(), &comer);
    count_waiting_locked(approaches);
    if (!waits)
        return;
    qos_mutex_unlock(&approaches->lock);
    let_go(approaches, &comer);
    qos_comer_clear(&comer);
    qos_mutex_lock(&approaches->lock);
}

static void *watch(void *arg)
{
    QosApproaches *approaches = arg;

    pthread_setname_np(pthread_self(), "approaches");
    qos_mutex_lock(&approaches->lock);
    while (!approaches->is_stopping) {
        const pid_t thread = qos_comers_next(approaches->comers, qos_gate_now(), &approaches->wake);

        if (thread != 0)
            look_at_locked(approaches, thread);
        else
            qos_condition_wait_until(&approaches->changed, &approaches->lock, approaches->wake);
    }
    qos_mutex_unlock(&approaches->lock);
    return NULL;
}

static void clear(QosApproaches *approaches)
{
    qos_comers_free(approaches->comers);
    pthread_cond_destroy(&approaches->changed);
    qos_mutex_destroy(&approaches->lock);
    g_free(approaches);
}

QosApproaches *qos_approaches_new(QosGate *gate, QosLooks *looks)
{
    QosApproaches *approaches = g_new0(QosApproaches, 1);

    approaches->gate = gate;
    approaches->looks = looks;
    approaches->comers = qos_comers_new();
    qos_mutex_init(&approaches->lock, QOS_MUTEX_APPROACHES);
    pthread_cond_init(&approaches->changed, NULL);
    if (pthread_create(&approaches->thread, NULL, watch, approaches) == 0)
        return approaches;
    clear(approaches);
    return NULL;
}

void qos_approaches_free(QosApproaches *approaches)
{
    if (approaches == NULL)
        return;
    qos_mutex_lock(&approaches->lock);
    approaches->is_stopping = TRUE;
    pthread_cond_signal(&approaches->changed);
    qos_mutex_unlock(&approaches->lock);
    pthread_join(approaches->thread, NULL);
    clear(approaches);
}
