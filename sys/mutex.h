/*
 * Mutexes that know their rank in the order of docs/design/locking.md, and waits for conditions.
 *
 * A debug build (buildtype=debug, or a sanitizer) records the mutexes that each thread holds. It
 * checks the record when the thread takes a mutex, when it waits, and before a call that may block
 * others. A violation of the order is a defect of the code, whatever input led to it: it ends the
 * program with a message that names both mutexes. In all other builds a QosMutex is a
 * pthread_mutex_t, and these functions are pthread's.
 */
#pragma once

#include <pthread.h>
#include <time.h>

#include "base/time.h"

/* All mutexes, from the outside in: rank, kind, and the name in docs/design/locking.md. Its table
 * says the same, which tests/docs/locks.py checks. Two mutexes of one rank are not held
 * together. */
#define QOS_MUTEXES(MUTEX)                                                                         \
    MUTEX(1, INTERRUPT_TABLE, "QosInterruptTable.lock")                                            \
    MUTEX(2, INTERRUPTS, "QosInterrupts.lock")                                                     \
    MUTEX(3, SETTING, "QosControl.setting")                                                        \
    MUTEX(3, CREDIT_WAITERS, "QosCreditWaiters.lock")                                              \
    MUTEX(4, DB, "QosDb.lock")                                                                     \
    MUTEX(4, CONTROL, "QosControl.lock")                                                           \
    MUTEX(4, DB_QUEUE, "QosDb.queue_lock")                                                         \
    MUTEX(4, FILELOCKS, "QosFileLocks.lock")                                                       \
    MUTEX(4, PAGES, "QosPages.lock")                                                               \
    MUTEX(4, INVALIDATOR, "QosInvalidator.lock")                                                   \
    MUTEX(5, INODES, "QosInodes.lock")                                                             \
    MUTEX(6, CHANGES, "QosFileChanges.lock")                                                       \
    MUTEX(6, MOUNTS, "QosMounts.lock")                                                             \
    MUTEX(6, OPEN_FILES, "QosOpenFiles.lock")                                                      \
    MUTEX(6, PASSTHROUGHS, "QosPassthroughs.lock")                                                 \
    MUTEX(6, OPEN_JOBS, "QosOpenJobs.lock")                                                        \
    MUTEX(6, PAY_POINTS, "QosPayPoints.lock")                                                      \
    MUTEX(6, READDIRPLUS, "QosReaddirplus.lock")                                                   \
    MUTEX(6, RESOLVER, "QosResolver.lock")                                                         \
    MUTEX(6, MOUNT_FLAGS, "QosMountFlags.lock")                                                    \
    MUTEX(7, CALLERS, "QosCallers.lock")                                                           \
    MUTEX(7, RING_QUEUE, "QosRingQueue.lock")                                                      \
    MUTEX(7, ROOT_ATTR, "QosRootAttr.lock")                                                        \
    MUTEX(7, LINK, "QosLink.sending")                                                              \
    MUTEX(8, RING_LAST, "QosRing.last_lock")                                                       \
    MUTEX(8, COHERENCE, "QosCoherence.names_lock")                                                 \
    MUTEX(8, READERS, "QosReaders.lock")                                                           \
    MUTEX(8, DIR_STREAMS, "QosDirStreams.lock")                                                    \
    MUTEX(8, CLOSER, "QosCloser.lock")                                                             \
    MUTEX(8, RECEIVE, "QosReceiver.lock")                                                          \
    MUTEX(8, LOCKCLIENT, "QosLockclient.lock")                                                     \
    MUTEX(8, ADMIN, "QosAdmin.lock")                                                               \
    MUTEX(8, GATE, "QosGate.lock")                                                                 \
    MUTEX(8, SERVER_DB, "QosServerDb.lock")

#define QOS_MUTEX_KIND(rank, kind, name) QOS_MUTEX_##kind,
typedef enum { QOS_MUTEXES(QOS_MUTEX_KIND) } QosMutexKind;

/* Calls across which none is held, but for what sys/mutex.c lists. */
typedef enum {
    QOS_MUTEX_CALL_STORE,
    QOS_MUTEX_CALL_KERNEL, /* a reply or a notification */
    QOS_MUTEX_CALL_SOCKET,
    QOS_MUTEX_CALL_SQLITE,
} QosMutexCall;

typedef struct {
    pthread_mutex_t mutex;
#if QOS_DEBUG_LOCKS
    QosMutexKind kind;
#endif
} QosMutex;

/* The thread's account, of debug builds alone: each ends the program where it is broken. */
void qos_mutex_note_lock(QosMutexKind kind);   /* about to be taken */
void qos_mutex_note_unlock(QosMutexKind kind); /* about to be let go */
void qos_mutex_note_wait(QosMutexKind kind);   /* about to be let go until a condition is met */
void qos_mutex_note_call(QosMutexCall call);

static inline void qos_mutex_init(QosMutex *mutex, QosMutexKind kind G_GNUC_UNUSED)
{
    pthread_mutex_init(&mutex->mutex, NULL);
#if QOS_DEBUG_LOCKS
    mutex->kind = kind;
#endif
}

/* A thread that finds the mutex taken spins for a moment before it sleeps. For mutexes that are
 * held for less time than a sleep takes. */
static inline void qos_mutex_init_adaptive(QosMutex *mutex, QosMutexKind kind G_GNUC_UNUSED)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&mutex->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
#if QOS_DEBUG_LOCKS
    mutex->kind = kind;
#endif
}

static inline void qos_mutex_destroy(QosMutex *mutex)
{
    pthread_mutex_destroy(&mutex->mutex);
}

static inline void qos_mutex_lock(QosMutex *mutex)
{
#if QOS_DEBUG_LOCKS
    qos_mutex_note_lock(mutex->kind);
#endif
    pthread_mutex_lock(&mutex->mutex);
}

static inline void qos_mutex_unlock(QosMutex *mutex)
{
#if QOS_DEBUG_LOCKS
    qos_mutex_note_unlock(mutex->kind);
#endif
    pthread_mutex_unlock(&mutex->mutex);
}

/* To be called ahead of such a call. */
static inline void qos_mutex_assert_call(QosMutexCall call G_GNUC_UNUSED)
{
#if QOS_DEBUG_LOCKS
    qos_mutex_note_call(call);
#endif
}

/* As pthread_cond_wait(), including spurious wake-ups. */
static inline int qos_condition_wait(pthread_cond_t *condition, QosMutex *mutex)
{
#if QOS_DEBUG_LOCKS
    qos_mutex_note_wait(mutex->kind);
#endif
    return pthread_cond_wait(condition, &mutex->mutex);
}

/* The same until a time of the monotonic clock (sys/clock.h), so that setting the wall clock moves
 * no wait. FALSE: `until` has come; QOS_NEVER never does. */
static inline gboolean qos_condition_wait_until(pthread_cond_t *condition, QosMutex *mutex,
                                                QosTime until)
{
    const struct timespec time = {.tv_sec = until / QOS_SECOND, .tv_nsec = until % QOS_SECOND};

    if (until == QOS_NEVER)
        return qos_condition_wait(condition, mutex) == 0;
#if QOS_DEBUG_LOCKS
    qos_mutex_note_wait(mutex->kind);
#endif
    return pthread_cond_clockwait(condition, &mutex->mutex, CLOCK_MONOTONIC, &time) == 0;
}
