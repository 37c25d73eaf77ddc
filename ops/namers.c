/*
 * The namers (ops/namers.h).
 *
 * All are alike and take turns: one that has nothing to read either watches, which is to wake now
 * and then and look for what is late, or rests. One that takes a request sees to it that another
 * one watches meanwhile, as it may not come back. While nothing is asked for, nobody watches.
 */
#include "ops/namers.h"

#include <pthread.h>

#include "fs/condition.h"

#define WATCH_INTERVAL (250 * QOS_MILLISECOND)
#define RESTING_MAX    2 /* further ones end */

/* A thread that reads; on its stack. */
typedef struct {
    GList link;
    QosNameless *nameless; /* NULL: it was taken away */
    QosTime since;         /* when the request came */
    uid_t uid;
} Reading;

struct QosNamers {
    QosCallers *callers;
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work;  /* those who rest: something is to be done */
    pthread_cond_t watch; /* the same for the one who watches */
    pthread_cond_t ended; /* a thread has */
    GQueue waiting;       /* of QosNameless, the longest first */
    GQueue reading;       /* of Reading */
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
    pthread_mutex_init(&namers->lock, NULL);
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

/* Somebody who is free is to look; the watcher only where nobody rests. */
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

/* --- what is to be done next --- */

static gboolean is_late(QosTime since, QosTime now)
{
    return now - since >= QOS_NAMING_TIME;
}

/* How many read for `uid`; *ret_late: of these, who have read for too long. */
static guint count_reading_locked(const QosNamers *namers, uid_t uid, QosTime now, guint *ret_late)
{
    guint count = 0;

    *ret_late = 0;
    for (const GList *link = namers->reading.head; link != NULL; link = link->next) {
        const Reading *reading = link->data;
        if (reading->uid != uid && namers->reading.length < QOS_NAMING_ALL)
            continue;
        count++;
        *ret_late += is_late(reading->since, now);
    }
    return count;
}

/* A request whose caller is not to be waited for any longer, or NULL. */
static QosNameless *take_late_locked(QosNamers *namers, QosTime now)
{
    QosNameless *first = g_queue_peek_head(&namers->waiting);

    for (GList *link = namers->reading.head; link != NULL; link = link->next) {
        Reading *reading = link->data;
        if (reading->nameless != NULL && is_late(reading->since, now))
            return g_steal_pointer(&reading->nameless);
    }
    if (first == NULL || !is_late(first->since, now))
        return NULL;
    g_queue_unlink(&namers->waiting, &first->link);
    return first;
}

/* A request whose caller may be read now, or, *ret_late, is not worth to wait for; or NULL. */
static QosNameless *take_waiting_locked(QosNamers *namers, QosTime now, gboolean *ret_late)
{
    for (GList *link = namers->waiting.head; link != NULL; link = link->next) {
        QosNameless *nameless = link->data;
        guint late, count = count_reading_locked(namers, nameless->context->uid, now, &late);
        guint most = namers->reading.length < QOS_NAMING_ALL ? QOS_NAMING_USER : QOS_NAMING_ALL;

        *ret_late = count >= most && late == count;
        if (count < most || *ret_late) {
            g_queue_unlink(&namers->waiting, link);
            return nameless;
        }
    }
    return NULL;
}

/* --- the threads --- */

/* Reads, and goes on with the request, unless that was taken away. */
static void read_locked(QosNamers *namers, QosNameless *nameless)
{
    Reading reading = {
        .nameless = nameless, .since = nameless->since, .uid = nameless->context->uid};
    pid_t tid = nameless->context->pid;
    g_autoptr(QosJobNaming) naming = qos_callers_naming(namers->callers);
    g_auto(QosProcessFacts) facts = {0};

    reading.link.data = &reading;
    g_queue_push_tail_link(&namers->reading, &reading.link);
    pthread_mutex_unlock(&namers->lock);
    qos_process_read(tid, qos_job_naming_wants_environment(naming),
                     qos_job_naming_wants_cgroup(naming), &facts);
    pthread_mutex_lock(&namers->lock);
    g_queue_unlink(&namers->reading, &reading.link);
    nameless = reading.nameless;
    if (nameless == NULL)
        return;
    pthread_mutex_unlock(&namers->lock);
    nameless->named(nameless, qos_callers_name(namers->callers, nameless->context, naming, &facts));
    pthread_mutex_lock(&namers->lock);
}

static void guess_locked(QosNamers *namers, QosNameless *nameless)
{
    pthread_mutex_unlock(&namers->lock);
    nameless->named(nameless, qos_callers_guess(namers->callers, nameless->context));
    pthread_mutex_lock(&namers->lock);
}

/* FALSE where there was nothing to do. */
static gboolean serve_one_locked(QosNamers *namers)
{
    QosTime now = qos_gate_now();
    QosNameless *nameless = take_late_locked(namers, now);
    gboolean late = nameless != NULL;

    if (nameless == NULL)
        nameless = take_waiting_locked(namers, now, &late);
    if (nameless == NULL)
        return FALSE;
    if (!namers->has_watcher || namers->waiting.length > 0)
        call_locked(namers);
    if (late)
        guess_locked(namers, nameless);
    else
        read_locked(namers, nameless);
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
    return namers->was_asked || namers->waiting.length > 0 || namers->reading.length > 0;
}

static void destroy(QosNamers *namers)
{
    pthread_cond_destroy(&namers->ended);
    pthread_cond_destroy(&namers->watch);
    pthread_cond_destroy(&namers->work);
    pthread_mutex_destroy(&namers->lock);
    g_free(namers);
}

static void *name(void *arg)
{
    QosNamers *namers = arg;
    gboolean is_last;

    pthread_setname_np(pthread_self(), "namer"); /* not that of who started it */
    pthread_mutex_lock(&namers->lock);
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
        pthread_cond_wait(&namers->work, &namers->lock);
        namers->resting--;
    }
    namers->threads--;
    pthread_cond_broadcast(&namers->ended);
    is_last = namers->is_abandoned && namers->threads == 0;
    pthread_mutex_unlock(&namers->lock);
    if (is_last)
        destroy(namers);
    return NULL;
}

void qos_namers_ask(QosNamers *namers, QosNameless *nameless)
{
    gboolean is_called;

    nameless->since = qos_gate_now();
    nameless->link = (GList){.data = nameless};
    pthread_mutex_lock(&namers->lock);
    namers->was_asked = TRUE;
    g_queue_push_tail_link(&namers->waiting, &nameless->link);
    is_called = call_locked(namers);
    if (!is_called)
        g_queue_unlink(&namers->waiting, &nameless->link);
    pthread_mutex_unlock(&namers->lock);
    if (!is_called)
        nameless->named(nameless, qos_callers_guess(namers->callers, nameless->context));
}

/* Any request, or NULL. */
static QosNameless *take_any_locked(QosNamers *namers)
{
    GList *link = g_queue_pop_head_link(&namers->waiting);

    return link != NULL ? link->data : take_late_locked(namers, QOS_NEVER);
}

void qos_namers_stop(QosNamers *namers)
{
    QosNameless *nameless;

    if (namers == NULL)
        return;
    pthread_mutex_lock(&namers->lock);
    namers->is_stopping = TRUE;
    pthread_cond_broadcast(&namers->work);
    pthread_cond_broadcast(&namers->watch);
    while ((nameless = take_any_locked(namers)) != NULL) {
        pthread_mutex_unlock(&namers->lock);
        nameless->named(nameless, NULL);
        pthread_mutex_lock(&namers->lock);
    }
    while (namers->threads > namers->reading.length)
        pthread_cond_wait(&namers->ended, &namers->lock);
    pthread_mutex_unlock(&namers->lock);
}

void qos_namers_free(QosNamers *namers)
{
    gboolean is_in_use;

    if (namers == NULL)
        return;
    pthread_mutex_lock(&namers->lock);
    is_in_use = namers->threads > 0; /* some still read */
    namers->is_abandoned = is_in_use;
    pthread_mutex_unlock(&namers->lock);
    if (!is_in_use)
        destroy(namers);
}
