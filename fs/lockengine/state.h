/*
 * What engine.c and session.c share. session.c calls what is declared here; engine.c calls nothing
 * of session.c.
 */
#pragma once

#include "fs/lockcache.h"
#include "fs/lockengine/engine.h"
#include "fs/lockengine/fastpath.h"
#include "fs/lockengine/outbox.h"
#include "fs/lockengine/recall.h"
#include "fs/lockengine/retry.h"
#include "fs/lockengine/wait_reports.h"

/* The memory that a server counts for a credit, with its resource and one span. */
#define QOS_LOCKENGINE_CREDIT_BYTES 240
/* How often a server is asked whether its grace is over, while uses go on without it. */
#define QOS_LOCKENGINE_ASK_EVERY QOS_SECOND
/* How often the cache is looked through, and how long a fast path is open. */
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
    QosRetry retry;
    guint64 forgotten; /* resources so far: what was found before may be one of them */
    guint64 grants;    /* on inodes so far */
    QosTime shrink_at;
    QosRecalls recalls;
    GQueue events; /* of QosLockevent */
    QosOutbox outbox;
    QosWaitReports wait_reports;
    QosFastpaths fastpaths;
    gboolean is_up;
    QosLockclientStatus counts; /* credits, hits, misses, refusals, evictions */
};

/* Puts the resource with the extra bytes `extra` into the cache or takes it out, by whether the
 * mount has something of it and holds nothing of it. */
void qos_lockengine_settle(QosLockengine *engine, gpointer extra, QosTime now);
/* Takes all that the owner hands out, and sees whether there still is a lender. */
void qos_lockengine_take_outputs(QosLockengine *engine, QosTime now);
/* The server has fallen silent: their waits end. */
void qos_lockengine_let_shared_go(QosLockengine *engine, QosTime now);
/* No use of the resource begins by its fast path any more. */
void qos_lockengine_close_fastpath(QosLockengine *engine, const QosResource *resource, QosTime now);
