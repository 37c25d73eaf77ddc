/*
 * The resolver. fs/caller/resolver.h has the contract.
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

struct QosResolver {
    QosCallers *callers;
    QosMutex lock;          /* everything below */
    pthread_cond_t work;    /* the threads that rest: there is something to do */
    pthread_cond_t watch;   /* the same for the watcher */
    pthread_cond_t ended;   /* a thread has */
    QosResolverQueue queue; /* a thread that reads has its QosResolverReading on its stack */
    guint threads;
    guint resting;
    gboolean has_watcher;
    gboolean was_asked; /* since the watcher looked */
    gboolean is_stopping;
    gboolean is_abandoned; /* the last thread is to free it */
};

static void *name(void *arg);

QosResolver *qos_resolver_new(QosCallers *callers)
{
    QosResolver *resolver = g_new0(QosResolver, 1);

    resolver->callers = callers;
    qos_resolver_queue_init(&resolver->queue);
    qos_mutex_init(&resolver->lock, QOS_MUTEX_RESOLVER);
    pthread_cond_init(&resolver->work, NULL);
    pthread_cond_init(&resolver->ended, NULL);
    pthread_cond_init(&resolver->watch, NULL);
    return resolver;
}

/* FALSE where there is no thread at all. */
static gboolean start_thread_locked(QosResolver *resolver)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, name, resolver) == 0)
        resolver->threads++;
    pthread_attr_destroy(&attributes);
    return resolver->threads > 0;
}

/* Wakes a thread that is free: the watcher only if none rests. FALSE if there is no thread at
 * all. */
static gboolean call_locked(QosResolver *resolver)
{
    if (resolver->resting > 0)
        pthread_cond_signal(&resolver->work);
    else if (resolver->has_watcher)
        pthread_cond_signal(&resolver->watch);
    else
        return start_thread_locked(resolver);
    return TRUE;
}

/* Wakes a thread if a request may be taken, or if no thread watches. A user that has all the
 * readers it may have can add thousands of requests without waking any. FALSE if there is no thread
 * at all. */
static gboolean call_if_needed_locked(QosResolver *resolver)
{
    return (resolver->has_watcher && !qos_resolver_queue_may_take(&resolver->queue)) ||
           call_locked(resolver);
}

/* --- the threads --- */

/* Reads, and goes on with the request, unless that was taken away. */
static void read_locked(QosResolver *resolver, QosUnresolved *unresolved,
                        QosResolverReading *reading)
{
    pid_t tid = unresolved->context->pid;
    g_autoptr(QosJobNaming) naming = qos_callers_naming(resolver->callers);
    g_auto(QosProcFacts) facts = {0};

    qos_mutex_unlock(&resolver->lock);
    qos_proc_read(tid, qos_job_naming_wants(naming), &facts);
    qos_mutex_lock(&resolver->lock);
    unresolved = (QosUnresolved *)qos_resolver_queue_end(&resolver->queue, reading);
    if (unresolved == NULL)
        return;
    if (qos_resolver_queue_may_take(&resolver->queue)) /* what waited for this one */
        call_locked(resolver);
    qos_mutex_unlock(&resolver->lock);
    unresolved->named(unresolved,
                      qos_callers_name(resolver->callers, unresolved->context, naming, &facts));
    qos_mutex_lock(&resolver->lock);
}

static void guess_locked(QosResolver *resolver, QosUnresolved *unresolved)
{
    qos_mutex_unlock(&resolver->lock);
    unresolved->named(unresolved, qos_callers_guess(resolver->callers, unresolved->context));
    qos_mutex_lock(&resolver->lock);
}

/* FALSE where there was nothing to do. */
static gboolean serve_one_locked(QosResolver *resolver)
{
    QosResolverReading reading;
    gboolean is_late;
    QosUnresolved *unresolved = (QosUnresolved *)qos_resolver_queue_take(
        &resolver->queue, qos_clock_now(), &reading, &is_late);

    if (unresolved == NULL)
        return FALSE;
    call_if_needed_locked(resolver);
    if (is_late)
        guess_locked(resolver, unresolved);
    else
        read_locked(resolver, unresolved, &reading);
    return TRUE;
}

static void watch_locked(QosResolver *resolver)
{
    resolver->has_watcher = TRUE;
    resolver->was_asked = FALSE;
    qos_condition_wait_until(&resolver->watch, &resolver->lock, qos_clock_now() + WATCH_INTERVAL);
    resolver->has_watcher = FALSE;
}

static gboolean is_busy_locked(const QosResolver *resolver)
{
    return resolver->was_asked || resolver->queue.waiting.length > 0 ||
           resolver->queue.reading.length > 0;
}

static void destroy(QosResolver *resolver)
{
    qos_resolver_queue_clear(&resolver->queue);
    pthread_cond_destroy(&resolver->ended);
    pthread_cond_destroy(&resolver->watch);
    pthread_cond_destroy(&resolver->work);
    qos_mutex_destroy(&resolver->lock);
    g_free(resolver);
}

static void *name(void *arg)
{
    QosResolver *resolver = arg;
    gboolean is_last;

    pthread_setname_np(pthread_self(), "resolver"); /* not that of the thread that started it */
    qos_mutex_lock(&resolver->lock);
    while (!resolver->is_stopping) {
        if (serve_one_locked(resolver))
            continue;
        if (!resolver->has_watcher && is_busy_locked(resolver)) {
            watch_locked(resolver);
            continue;
        }
        if (resolver->resting >= RESTING_MAX)
            break;
        resolver->resting++;
        qos_condition_wait(&resolver->work, &resolver->lock);
        resolver->resting--;
    }
    resolver->threads--;
    pthread_cond_broadcast(&resolver->ended);
    is_last = resolver->is_abandoned && resolver->threads == 0;
    qos_mutex_unlock(&resolver->lock);
    if (is_last)
        destroy(resolver);
    return NULL;
}

/* Any request, or NULL. */
static QosUnresolved *take_any_locked(QosResolver *resolver)
{
    QosResolverReading reading; /* none begins, as all are late */
    gboolean is_late;

    return (QosUnresolved *)qos_resolver_queue_take(&resolver->queue, QOS_NEVER, &reading,
                                                    &is_late);
}

void qos_resolver_ask(QosResolver *resolver, QosUnresolved *unresolved)
{
    qos_mutex_lock(&resolver->lock);
    resolver->was_asked = TRUE;
    qos_resolver_queue_add(&resolver->queue, &unresolved->wait, unresolved->context->uid,
                           qos_clock_now());
    /* Without a thread it is alone there. */
    unresolved = call_if_needed_locked(resolver) ? NULL : take_any_locked(resolver);
    qos_mutex_unlock(&resolver->lock);
    if (unresolved != NULL)
        unresolved->named(unresolved, qos_callers_guess(resolver->callers, unresolved->context));
}

void qos_resolver_stop(QosResolver *resolver)
{
    QosUnresolved *unresolved;

    if (resolver == NULL)
        return;
    qos_mutex_lock(&resolver->lock);
    resolver->is_stopping = TRUE;
    pthread_cond_broadcast(&resolver->work);
    pthread_cond_broadcast(&resolver->watch);
    while ((unresolved = take_any_locked(resolver)) != NULL) {
        qos_mutex_unlock(&resolver->lock);
        unresolved->named(unresolved, NULL);
        qos_mutex_lock(&resolver->lock);
    }
    while (resolver->threads > resolver->queue.reading.length)
        qos_condition_wait(&resolver->ended, &resolver->lock);
    qos_mutex_unlock(&resolver->lock);
}

void qos_resolver_free(QosResolver *resolver)
{
    gboolean is_in_use;

    if (resolver == NULL)
        return;
    qos_mutex_lock(&resolver->lock);
    is_in_use = resolver->threads > 0; /* some still read */
    resolver->is_abandoned = is_in_use;
    qos_mutex_unlock(&resolver->lock);
    if (!is_in_use)
        destroy(resolver);
}
