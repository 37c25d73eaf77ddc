/*
 * What the units engine*.c share.
 */
#pragma once

#include "fs/lockcache.h"
#include "fs/lockengine/engine.h"
#include "fs/lockengine/fastpath.h"
#include "fs/lockengine/outbox.h"
#include "fs/lockengine/recall.h"
#include "fs/lockengine/retry.h"
#include "fs/lockengine/wait_reports.h"

/* What a server counts for a credit, with its resource and one span. */
#define QOS_LOCKENGINE_CREDIT_BYTES 240
/* How often a server in its grace is asked whether that is over, where somebody goes on for it. */
#define QOS_LOCKENGINE_ASK_EVERY QOS_SECOND
/* How often the cache is looked through; so long a grip is open. */
#define QOS_LOCKENGINE_SHRINK_EVERY QOS_SECOND

struct QosLockengine {
    QosOwnerId id;
    guint32 incarnation;
    guint servers;   /* met before this one */
    QosOwner *owner; /* NULL: no server was met */
    QosWireWelcome server;
    guint resets;      /* of sessions, one soon after the other */
    QosTime reset;     /* when the last was */
    gboolean is_reset; /* too often: the next is another server */
    gboolean in_grace; /* the server, as it last said */
    QosTime asked;     /* when it was asked whether it still is */
    GQueue readers;    /* of QosLockUse: those that wait and go on */
    QosLockcache cache;
    QosLockpatience patience;
    guint64 forgotten; /* resources so far: what was found before may be one of them */
    guint64 grants;    /* on inodes so far */
    QosTime shrink_at;
    QosLockdrops drops;
    GQueue events; /* of QosLockevent */
    QosLockoutbox outbox;
    QosLockwaits waits;
    QosLockgrips grips;
    gboolean is_up;
    QosLockclientStatus counts; /* credits, hits, misses, refusals, evictions */
};

/* Something of the resource that `extra` is of is had, and is held or not: it is in the cache or
 * out of it. */
void qos_lockengine_settle(QosLockengine *engine, gpointer extra, QosTime now);
/* The engine's, zeroed but for its kind. */
QosLockevent *qos_lockengine_add_event(QosLockengine *engine, QosLockeventKind kind);
/* Takes all that the owner hands out, and sees whether there still is a lender. */
void qos_lockengine_take_outputs(QosLockengine *engine, QosTime now);

/* The server can grant nothing now. */
gboolean qos_lockengine_is_silent(const QosLockengine *engine);
/* Of one that `goes_on`: it waits. */
void qos_lockengine_note_reader(QosLockengine *engine, QosLockUse *use);
/* It does not any more; of any use. */
void qos_lockengine_forget_reader(QosLockengine *engine, QosLockUse *use);
/* The server has fallen silent: their waits end. */
void qos_lockengine_let_readers_go(QosLockengine *engine, QosTime now);
/* Only what a server says tells that its grace is over, and nobody asks it for a credit. */
void qos_lockengine_ask_for_end_of_grace(QosLockengine *engine, QosTime now);

/* Holds what is here of the resource. FALSE: it is not to be had at once. */
gboolean qos_lockengine_hold(QosLockengine *engine, const QosResource *resource,
                             const QosCredit *want, QosHold *hold, QosTime now);
/* Puts it; of what was lost nothing happens. */
void qos_lockengine_unhold(QosLockengine *engine, QosHold *hold, QosTime now);

/* No use of the resource begins by its grip any more; of none. */
void qos_lockengine_shut_grip(QosLockengine *engine, const QosResource *resource, QosTime now);
void qos_lockengine_shut_grips(QosLockengine *engine, QosTime now);

/* Tells to forget what stands against `credit`, now or after the drop under way. */
void qos_lockengine_begin_drop(QosLockengine *engine, const QosResource *resource,
                               const QosCredit *credit, gboolean is_shrink);

/* Of fs/lockcache.h. */
typedef guint (*QosLockengineChoose)(QosLockcache *cache, QosTime now, QosLockcacheEntry **batch,
                                     guint max);

/* Begins to give back what `choose` takes out of the cache, `max` at most; returns how many. */
guint qos_lockengine_drop(QosLockengine *engine, QosLockengineChoose choose, guint max,
                          QosTime now);
