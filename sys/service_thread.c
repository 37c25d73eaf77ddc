/*
 * Background threads (sys/service_thread.h).
 */
#include "sys/service_thread.h"

#include "base/error.h"

static void *run(void *arg)
{
    QosServiceThread *thread = arg;

    pthread_setname_np(pthread_self(), thread->name);
    qos_mutex_lock(thread->lock);
    while (!thread->is_stopping) {
        thread->is_woken = FALSE;
        const QosTime due = thread->step(thread->data);
        while (due > 0 && !thread->is_woken && !thread->is_stopping &&
               qos_condition_wait_until(&thread->called, thread->lock, due)) {
            /* called, perhaps for nothing */
        }
    }
    thread->has_ended = TRUE;
    pthread_cond_broadcast(&thread->called);
    qos_mutex_unlock(thread->lock);
    return NULL;
}

gboolean qos_service_thread_start(QosServiceThread *thread, const char *name, QosMutex *lock,
                                  QosServiceStep step, gpointer data, GError **error)
{
    qos_mutex_lock(lock);
    *thread = (QosServiceThread){.lock = lock, .name = name, .step = step, .data = data};
    pthread_cond_init(&thread->called, NULL);
    thread->is_started = pthread_create(&thread->thread, NULL, run, thread) == 0;
    const gboolean is_started = thread->is_started;
    qos_mutex_unlock(lock);
    if (!is_started) {
        pthread_cond_destroy(&thread->called);
        qos_set_thread_error(error);
    }
    return is_started;
}

void qos_service_thread_wake_locked(QosServiceThread *thread)
{
    thread->is_woken = TRUE;
    if (thread->is_started)
        pthread_cond_signal(&thread->called);
}

void qos_service_thread_end_locked(QosServiceThread *thread)
{
    thread->is_stopping = TRUE;
    if (thread->is_started)
        pthread_cond_broadcast(&thread->called);
}

void qos_service_thread_await_end_locked(QosServiceThread *thread, QosTime until)
{
    while (thread->is_started && !thread->has_ended &&
           qos_condition_wait_until(&thread->called, thread->lock, until)) {
        /* not yet */
    }
}

void qos_service_thread_stop(QosServiceThread *thread)
{
    if (!thread->is_started)
        return;
    qos_mutex_lock(thread->lock);
    qos_service_thread_end_locked(thread);
    qos_mutex_unlock(thread->lock);
    pthread_join(thread->thread, NULL);
    qos_mutex_lock(thread->lock);
    thread->is_started = FALSE;
    qos_mutex_unlock(thread->lock);
    pthread_cond_destroy(&thread->called);
}
