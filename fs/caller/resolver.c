/*
 * The namers. fs/caller/resolver.h has the contract.
 *
 * All threads are alike and take turns. A thread with nothing to read rests, or is the watcher. The
 * watcher wakes now and then and looks for late requests. A thread that takes a request first makes
 * sure that another one watches, because reading may block. While no request is waiting or being
 * read, no thread watches.
 */
#include "fs/caller/resolver.h"

#include <pthread.h>

#include "sys/mutex.h"

#define WATCH_INTERVAL (250 * QOS_MILLISECOND)
#define RESTING_MAX    2 /* further ones end */

struct QosNamers {
    QosCallers *callers;
    QosMutex lock;        /* everything below */
    pthread_cond_t work;  /* the threads that rest: there is something to do */
    pthread_cond_t watch; /* the same for the watcher */
    pthread_cond_t ended; /* a thread has */
    QosNameQueue queue;   /* a thread that reads has its QosNameReading on its stack */
    guint threads;
    guint resting;
    gboolean has_watcher;
    gboolean was_asked; /* since the watcher looked */
    gboolean is_stopping;
    gboolean is_abandoned; /* the last thread is to free it */
};

static void *name(void *arg);

QosNamers *qos_namers_new(QosCallers *callers)
{
    QosNamers *namers = g_new0(QosNamers, 1);

    namers->callers = callers;
    qos_namequeue_init(&namers->queue);
    qos_mutex_init(&namers->lock, QOS_MUTEX_NAMERS);
    pthread_cond_init(&namers->work, NULL);
    pthread_cond_init(&namers->ended, NULL);
    pthread_cond_init(&namers->watch, NULL);
    return namers;
}

/* FALSE where there is no thread at all. */
static gboolean start_thread_locked(QosNamers *namers)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, name, namers) == 0)
        namers->threads++;
    pthread_attr_destroy(&attributes);
    return namers->threads > 0;
}

/* Wakes a thread that is free: the watcher only if none rests. FALSE if there is no thread at
 * all. */
static gboolean call_locked(QosNamers *namers)
{
    if (namers->resting > 0)
        pthread_cond_signal(&namers->work);
    else if (namers->has_watcher)
        pthread_cond_signal(&namers->watch);
    else
        return start_thread_locked(namers);
    return TRUE;
}

/* Wakes a thread if a request may be taken, or if no thread watches. A user that has all the
 * readers it may have can add thousands of requests without waking any. FALSE if there is no thread
 * at all. */
static gboolean call_if_needed_locked(QosNamers *namers)
{
    return (namers->has_watcher && !qos_namequeue_may_take(&namers->queue)) || call_locked(namers);
}

/* --- the threads --- */

/* Reads, and goes on with the request, unless that was taken away. */
static void read_locked(QosNamers *namers, QosNameless *nameless, QosNameReading *reading)
{
    pid_t tid = nameless->context->pid;
    g_autoptr(QosJobNaming) naming = qos_callers_naming(namers->callers);
    g_auto(QosProcessFacts) facts = {0};

    qos_mutex_unlock(&namers->lock);
    qos_process_read(tid, qos_job_naming_wants(naming), &facts);
    qos_mutex_lock(&namers->lock);
    nameless = (QosNameless *)qos_namequeue_end(&namers->queue, reading);
    if (nameless == NULL)
        return;
    if (qos_namequeue_may_take(&namers->queue)) /* what waited for this one */
        call_locked(namers);
    qos_mutex_unlock(&namers->lock);
    nameless->named(nameless, qos_callers_name(namers->callers, nameless->context, naming, &facts));
    qos_mutex_lock(&namers->lock);
}

static void guess_locked(QosNamers *namers, QosNameless *nameless)
{
    qos_mutex_unlock(&namers->lock);
    nameless->named(nameless, qos_callers_guess(namers->callers, nameless->context));
    qos_mutex_lock(&namers->lock);
}

/* FALSE where there was nothing to do. */
static gboolean serve_one_locked(QosNamers *namers)
{
    QosNameReading reading;
    gboolean is_late;
    QosNameless *nameless =
        (QosNameless *)qos_namequeue_take(&namers->queue, qos_gate_now(), &reading, &is_late);

    if (nameless == NULL)
        return FALSE;
    call_if_needed_locked(namers);
    if (is_late)
        guess_locked(namers, nameless);
    else
        read_locked(namers, nameless, &reading);
    return TRUE;
}

static void watch_locked(QosNamers *namers)
{
    namers->has_watcher = TRUE;
    namers->was_asked = FALSE;
    qos_condition_wait_until(&namers->watch, &namers->lock, qos_gate_now() + WATCH_INTERVAL);
    namers->has_watcher = FALSE;
}

static gboolean is_busy_locked(const QosNamers *namers)
{
    return namers->was_asked || namers->queue.waiting.length > 0 ||
           namers->queue.reading.length > 0;
}

static void destroy(QosNamers *namers)
{
    qos_namequeue_clear(&namers->queue);
    pthread_cond_destroy(&namers->ended);
    pthread_cond_destroy(&namers->watch);
    pthread_cond_destroy(&namers->work);
    qos_mutex_destroy(&namers->lock);
    g_free(namers);
}

static void *name(void *arg)
{
    QosNamers *namers = arg;
    gboolean is_last;

    pthread_setname_np(pthread_self(), "namer"); /* not that of the thread that started it */
    qos_mutex_lock(&namers->lock);
    while (!namers->is_stopping) {
        if (serve_one_locked(namers))
            continue;
        if (!namers->has_watcher && is_busy_locked(namers)) {
            watch_locked(namers);
            continue;
        }
        if (namers->resting >= RESTING_MAX)
            break;
        namers->resting++;
        qos_condition_wait(&namers->work, &namers->lock);
        namers->resting--;
    }
    namers->threads--;
    pthread_cond_broadcast(&namers->ended);
    is_last = namers->is_abandoned && namers->threads == 0;
    qos_mutex_unlock(&namers->lock);
    if (is_last)
        destroy(namers);
    return NULL;
}

/* Any request, or NULL. */
static QosNameless *take_any_locked(QosNamers *namers)
{
    QosNameReading reading; /* none begins, as all are late */
    gboolean is_late;

    return (QosNameless *)qos_namequeue_take(&namers->queue, QOS_NEVER, &reading, &is_late);
}

void qos_namers_ask(QosNamers *namers, QosNameless *nameless)
{
    qos_mutex_lock(&namers->lock);
    namers->was_asked = TRUE;
    qos_namequeue_add(&namers->queue, &nameless->wait, nameless->context->uid, qos_gate_now());
    /* Without a thread it is alone there. */
    nameless = call_if_needed_locked(namers) ? NULL : take_any_locked(namers);
    qos_mutex_unlock(&namers->lock);
    if (nameless != NULL)
        nameless->named(nameless, qos_callers_guess(namers->callers, nameless->context));
}

void qos_namers_stop(QosNamers *namers)
{
    QosNameless *nameless;

    if (namers == NULL)
        return;
    qos_mutex_lock(&namers->lock);
    namers->is_stopping = TRUE;
    pthread_cond_broadcast(&namers->work);
    pthread_cond_broadcast(&namers->watch);
    while ((nameless = take_any_locked(namers)) != NULL) {
        qos_mutex_unlock(&namers->lock);
        nameless->named(nameless, NULL);
        qos_mutex_lock(&namers->lock);
    }
    while (namers->threads > namers->queue.reading.length)
        qos_condition_wait(&namers->ended, &namers->lock);
    qos_mutex_unlock(&namers->lock);
}

void qos_namers_free(QosNamers *namers)
{
    gboolean is_in_use;

    if (namers == NULL)
        return;
    qos_mutex_lock(&namers->lock);
    is_in_use = namers->threads > 0; /* some still read */
    namers->is_abandoned = is_in_use;
    qos_mutex_unlock(&namers->lock);
    if (!is_in_use)
        destroy(namers);
}
