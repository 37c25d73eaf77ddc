/*
 * A background thread that serves one subject: it saves totals, or drops pages.
 *
 * Such a thread sleeps most of the time, works on what its subject has queued under a lock, and
 * must end when the subject does, whatever it is doing. The subject brings the lock and a function
 * that does one step of the work. This file has the rest: the sleep until a due time, the wake-up,
 * the stop. No wake-up is lost: if one comes while a step has dropped the lock, another step
 * follows.
 *
 * It serves one thread that waits on a condition. Threads that wait in a system call, and threads
 * that take turns, have loops of their own (sys/README.md).
 *
 * The lock stays the subject's, with its rank, because other threads use what it guards even where
 * there is no such thread. Functions named `..._locked` are called with the lock held.
 */
#pragma once

#include "sys/mutex.h"

/* One step, in the thread, with the lock held; it may drop the lock meanwhile, and has it again
 * when it returns. Returns when the next step is due: 0 is at once, QOS_NEVER only after a wake. */
typedef QosTime (*QosServiceStep)(gpointer data);

/* All zeros: never started. A subject embeds it, and reads two fields. A step that takes long looks
 * at `is_stopping`, under the lock, and returns early. `is_started` is TRUE from the start to the
 * end of the stop. */
typedef struct {
    QosMutex *lock; /* the subject's: guards all below but `thread` */
    const char *name;
    QosServiceStep step;
    gpointer data;
    pthread_t thread;
    pthread_cond_t called; /* to work or to end; it has ended */
    gboolean is_started, is_woken, is_stopping, has_ended;
} QosServiceThread;

/* Starts a thread that makes a first step at once. All are borrowed until it is stopped; `name` has
 * 15 bytes at most. FALSE, with the error, where no thread can be made: `thread` is as before a
 * start. Takes the lock. */
gboolean qos_service_thread_start(QosServiceThread *thread, const char *name, QosMutex *lock,
                                  QosServiceStep step, gpointer data, GError **error);
/* A step is to follow. Without a thread nothing happens: its start makes one. */
void qos_service_thread_wake_locked(QosServiceThread *thread);
/* No further step is to begin; qos_service_thread_stop() is to follow. */
void qos_service_thread_end_locked(QosServiceThread *thread);
/* After the former: waits, no longer than until `until`, for the end of the last step. */
void qos_service_thread_await_end_locked(QosServiceThread *thread, QosTime until);
/* Lets the thread end, after the step that it is at, and joins it. Takes the lock. Does nothing if
 * there is no thread. */
void qos_service_thread_stop(QosServiceThread *thread);
