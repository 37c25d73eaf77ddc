/*
 * The closer. fs/store/closer.h has the contract.
 *
 * Descriptors mostly come many at a time, as when a tree is removed. So a thread that is called
 * waits a moment for more of them, because a call for each would cost more than the close. The
 * newest are closed first.
 */
#include "fs/store/closer.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/mutex.h"

#define GATHERING_US 1000
#define BATCH        16 /* that a thread takes: the rest is for others, if it hangs */

typedef struct {
    guint64 device;
    GArray *descriptors; /* of int: to be closed */
    guint servers;       /* threads */
} Queue;

struct QosCloser {
    gint count;    /* atomic */
    QosMutex lock; /* everything below */
    pthread_cond_t called;
    pthread_cond_t fewer; /* for threads that wait for closes */
    GPtrArray *queues;    /* of Queue: not empty, or being served */
    GArray *threads;      /* of pthread_t */
    guint awake;          /* threads that look for a queue, or are about to */
    guint resting;
    guint calls; /* to resting threads, not yet heard */
    gboolean is_stopping;
};

QosCloser *qos_closer_new(void)
{
    QosCloser *closer = g_new0(QosCloser, 1);

    qos_mutex_init(&closer->lock, QOS_MUTEX_CLOSER);
    pthread_cond_init(&closer->fewer, NULL);
    pthread_cond_init(&closer->called, NULL);
    closer->queues = g_ptr_array_new();
    closer->threads = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    return closer;
}

guint qos_closer_count(QosCloser *closer)
{
    return (guint)g_atomic_int_get(&closer->count);
}

static void *work(void *arg);

/* Has a thread look for a queue. If none can be made, the existing threads look later; so they do
 * at the end, when they are being joined. */
static void call_locked(QosCloser *closer)
{
    pthread_t thread;

    if (closer->awake > 0)
        return;
    if (closer->resting > 0) {
        closer->resting--;
        closer->awake++;
        closer->calls++;
        pthread_cond_signal(&closer->called);
    } else if (!closer->is_stopping && closer->threads->len < QOS_CLOSERS &&
               pthread_create(&thread, NULL, work, closer) == 0) {
        closer->awake++;
        g_array_append_val(closer->threads, thread);
    }
}

/* A queue that wants another thread, or NULL. */
static Queue *find_work_locked(const QosCloser *closer)
{
    for (guint i = 0; i < closer->queues->len; i++) {
        Queue *queue = closer->queues->pdata[i];
        guint most = queue->descriptors->len > QOS_CLOSERS_BACKLOG ? QOS_CLOSERS_DEVICE : 1;
        if (queue->descriptors->len > 0 && queue->servers < most)
            return queue;
    }
    return NULL;
}

static void close_some(QosCloser *closer, const int *descriptors, guint count)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    for (guint i = 0; i < count; i++) {
        close(descriptors[i]);
        g_atomic_int_add(&closer->count, -1);
    }
}

static void serve_locked(QosCloser *closer, Queue *queue)
{
    int batch[BATCH];
    guint count = MIN(queue->descriptors->len, BATCH);
    guint rest = queue->descriptors->len - count;

    memcpy(batch, (int *)(gpointer)queue->descriptors->data + rest, count * sizeof(int));
    g_array_set_size(queue->descriptors, rest);
    queue->servers++;
    closer->awake--;
    if (find_work_locked(closer) != NULL)
        call_locked(closer);
    qos_mutex_unlock(&closer->lock);
    close_some(closer, batch, count);
    qos_mutex_lock(&closer->lock);
    pthread_cond_broadcast(&closer->fewer);
    closer->awake++;
    queue->servers--;
    if (queue->servers > 0 || queue->descriptors->len > 0)
        return;
    g_ptr_array_remove_fast(closer->queues, queue);
    g_array_unref(queue->descriptors);
    g_free(queue);
}

static void rest_locked(QosCloser *closer)
{
    closer->awake--;
    closer->resting++;
    while (closer->calls == 0)
        qos_condition_wait(&closer->called, &closer->lock);
    closer->calls--;
}

static void *work(void *arg)
{
    QosCloser *closer = arg;
    Queue *queue;

    pthread_setname_np(pthread_self(), "closer");
    qos_mutex_lock(&closer->lock);
    while ((queue = find_work_locked(closer)) != NULL || !closer->is_stopping) {
        if (queue != NULL) {
            serve_locked(closer, queue);
            continue;
        }
        rest_locked(closer);
        qos_mutex_unlock(&closer->lock);
        g_usleep(GATHERING_US);
        qos_mutex_lock(&closer->lock);
    }
    closer->awake--;
    qos_mutex_unlock(&closer->lock);
    return NULL;
}

static Queue *queue_of_locked(QosCloser *closer, guint64 device)
{
    for (guint i = 0; i < closer->queues->len; i++) {
        Queue *queue = closer->queues->pdata[i];
        if (queue->device == device)
            return queue;
    }
    Queue *queue = g_new0(Queue, 1);
    queue->device = device;
    queue->descriptors = g_array_new(FALSE, FALSE, sizeof(int));
    g_ptr_array_add(closer->queues, queue);
    return queue;
}

void qos_closer_give(QosCloser *closer, guint64 device, int fd)
{
    qos_mutex_lock(&closer->lock);
    g_array_append_val(queue_of_locked(closer, device)->descriptors, fd);
    g_atomic_int_inc(&closer->count);
    if (find_work_locked(closer) != NULL)
        call_locked(closer);
    qos_mutex_unlock(&closer->lock);
}

gboolean qos_closer_wait(QosCloser *closer, guint most)
{
    gboolean are_fewer;

    if (qos_closer_count(closer) < most)
        return TRUE;
    const QosTime until = qos_clock_now() + QOS_CLOSER_PATIENCE;

    qos_mutex_lock(&closer->lock);
    while (qos_closer_count(closer) >= most &&
           qos_condition_wait_until(&closer->fewer, &closer->lock, until)) {
        /* some are closed */
    }
    are_fewer = qos_closer_count(closer) < most;
    qos_mutex_unlock(&closer->lock);
    return are_fewer;
}

void qos_closer_free(QosCloser *closer)
{
    if (closer == NULL)
        return;
    qos_mutex_lock(&closer->lock);
    closer->is_stopping = TRUE;
    closer->calls += closer->resting;
    closer->awake += closer->resting;
    closer->resting = 0;
    pthread_cond_broadcast(&closer->called);
    qos_mutex_unlock(&closer->lock);
    for (guint i = 0; i < closer->threads->len; i++)
        pthread_join(g_array_index(closer->threads, pthread_t, i), NULL);
    g_array_unref(closer->threads);
    g_ptr_array_unref(closer->queues);
    pthread_cond_destroy(&closer->fewer);
    pthread_cond_destroy(&closer->called);
    qos_mutex_destroy(&closer->lock);
    g_free(closer);
}
