/*
 * The engine: decides what a mount does with the credits that it has borrowed.
 * fs/lockclient/client.h says what uses, drops and losses are.
 *
 * The engine joins an owner of credits (core/credit.h) to the cache that says what to give back
 * (fs/lockcache.h). It counts, and hands out the messages to be sent and the events to be told.
 *
 * Pure: time is an argument. The caller locks, and takes the bytes and the events after any
 * function below. Time is CLOCK_BOOTTIME's, because a lease goes on while the machine sleeps.
 *
 * There is one drop of a resource at a time, so that a release answers just that one. A drop is
 * void
 *
 *     if the resource was lost meanwhile, because what was forgotten is not what is had now;
 *     if any of it was used meanwhile, where the cache shrinks, because what was cached then was
 *     not forgotten.
 *
 * Where another mount waits for the drop, no new use begins. But a part may have gone to that mount
 * before, have come back, and be in use. That part stays, and the rest goes. Of a group, more goes
 * than another mount waits for (fs/lockengine/recall.h); what goes beside is void by itself where
 * it was used.
 */
#pragma once

#include "core/wire.h"
#include "fs/lockengine/fastpath.h"
#include "fs/lockengine/use.h"

/* How many servers, each with another id, may follow one another in the life of a mount. */
#define QOS_LOCKENGINE_SERVERS 256

typedef struct QosLockengine QosLockengine;

typedef enum {
    QOS_LOCKEVENT_DONE, /* call use->done(use, verdict) */
    QOS_LOCKEVENT_DROP, /* the configuration's callbacks of these names */
    QOS_LOCKEVENT_WANTED,
    QOS_LOCKEVENT_LOST,
    QOS_LOCKEVENT_CHANGED,
} QosLockeventKind;

typedef struct {
    QosLockeventKind kind;
    QosLockUse *use;
    QosCreditVerdict verdict;
    gboolean is_up;
    gboolean is_wanted; /* DROP */
    QosResource resource;
    QosCredit credit; /* cleared by the caller that takes the event */
} QosLockevent;

/* A mount's identity: see QosLockclientConfig. `incarnation` < 2^24. */
QosLockengine *qos_lockengine_new(QosOwnerId id, guint32 incarnation);
/* Forgets all; what is held and waits is left as it is. NULL is allowed. */
void qos_lockengine_free(QosLockengine *engine);

/* For HELLO; grows each time that another server is met. */
guint32 qos_lockengine_incarnation(const QosLockengine *engine);
/* The server has welcomed the mount on a new connection. FALSE, with *error (QOS_ERROR): it is not
 * the server that lent what the mount still has, or it is one server too many. The link is to try
 * again when the lease is over. */
gboolean qos_lockengine_connected(QosLockengine *engine, const QosWireWelcome *welcome, QosTime now,
                                  GError **error);
/* From now on nothing can be sent; what was not, comes again after the next connection. */
void qos_lockengine_disconnected(QosLockengine *engine, QosTime now);
/* The payload of a frame of CREDITS. FALSE: it is broken, or the server ends all sessions at once;
 * it is to be connected to anew. */
gboolean qos_lockengine_receive(QosLockengine *engine, const guint8 *payload, gsize length,
                                QosTime now);
void qos_lockengine_tick(QosLockengine *engine, QosTime now);
/* When to call it: QOS_NEVER if there is nothing to wait for. */
QosTime qos_lockengine_next(const QosLockengine *engine);
/* Frames for the server, or NULL; free with g_byte_array_unref(). */
GByteArray *qos_lockengine_take_bytes(QosLockengine *engine);
/* Whether there are any. */
gboolean qos_lockengine_has_bytes(const QosLockengine *engine);
/* FALSE: there is none. */
gboolean qos_lockengine_take_event(QosLockengine *engine, QosLockevent *ret_event);
gboolean qos_lockengine_has_events(const QosLockengine *engine);

/* As qos_lockclient_...() */
QosCreditVerdict qos_lockengine_get(QosLockengine *engine, const QosResource *resource,
                                    const QosCredit *want, guint flags, QosLockUse *use,
                                    QosTime now);
QosCreditVerdict qos_lockengine_convert(QosLockengine *engine, const QosCredit *want, guint flags,
                                        QosLockUse *use, QosTime now);
QosCreditVerdict qos_lockengine_retry(QosLockengine *engine, QosLockUse *use,
                                      QosCreditVerdict verdict, QosTime *since, QosTime now);
void qos_lockengine_put(QosLockengine *engine, QosLockUse *use, QosTime now);
gboolean qos_lockengine_withdraw(QosLockengine *engine, QosLockUse *use, QosTime now);
void qos_lockengine_release(QosLockengine *engine, const QosResource *resource,
                            const QosCredit *credit, QosTime now);
gboolean qos_lockengine_keep(QosLockengine *engine, const QosResource *resource,
                             const QosCredit *credit);
gboolean qos_lockengine_spare(QosLockengine *engine, const QosResource *resource, guint times,
                              QosTime now);
void qos_lockengine_shrink(QosLockengine *engine, double part, QosTime now);
/* For uses without the lock (fs/lockengine/fastpath.h). Lives as long as the engine; takes no lock.
 */
QosFastpaths *qos_lockengine_fastpaths(QosLockengine *engine);
/* After a use of an inode of the group `resource`: opens its fast path if the mount has all of it.
 */
void qos_lockengine_open_fastpath(QosLockengine *engine, const QosResource *resource, QosTime now);
/* A use has ended by a fast path that is closed: less is held. */
void qos_lockengine_unpin(QosLockengine *engine, QosFastpath *path, QosTime now);
/* A process that has file locks waits for another; it waits no more
 * (fs/lockengine/wait_reports.h). */
void qos_lockengine_set_wait(QosLockengine *engine, const QosWireWait *wait);
void qos_lockengine_end_wait(QosLockengine *engine, guint64 id);
/* The mount ends: all goes back at once. */
void qos_lockengine_leave(QosLockengine *engine, QosTime now);

/* Until when what is cached may be used; 0: not at all. */
QosTime qos_lockengine_until(const QosLockengine *engine);
/* How often all that was had was lost. */
guint64 qos_lockengine_losses(const QosLockengine *engine);
/* How often credits on inodes have come, whether an operation still waits for them or not. */
guint64 qos_lockengine_grants(const QosLockengine *engine);
guint qos_lockengine_group(const QosLockengine *engine);
/* Fills in what the engine knows; the rest stays as it is. */
void qos_lockengine_status(const QosLockengine *engine, QosLockclientStatus *status, QosTime now);
