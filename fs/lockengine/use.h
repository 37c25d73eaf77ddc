/*
 * What the users of the lock client share with the engine: a use of a credit, how long a refused
 * use waits, and the state for reports. fs/lockclient/client.h has the functions.
 */
#pragma once

#include "base/heap.h"
#include "core/wire.h"

/*
 * Embedded in whatever waits for it; zeroed but for `done` and what is the caller's of `hold`
 * (`user`; `after`: a use that the caller has already, for the order of resources) and `goes_on`.
 * From get to put it stays where it is. A lost use is put like any other.
 */
typedef struct QosLockUse {
    QosHold hold; /* credit and token: what was granted */
    /* A get or convert that was QOS_CREDIT_WAITING ended: QOS_CREDIT_GRANTED, or as below. As the
     * callbacks of QosLockclientConfig. */
    void (*done)(struct QosLockUse *use, QosCreditVerdict verdict);
    gboolean goes_on; /* rather than wait for a server that is away, or in its grace: DENIED */
    /* --- the client's --- */
    GList reader; /* in the engine's list while it waits and goes on; data: it, else NULL */
    /* NULL, or by what it holds, without `hold` (fs/lockengine/fastpath.h). */
    struct QosFastpath *fastpath;
    guint pin;
    gint is_over; /* atomic: `done` was called, or is being; or it was withdrawn */
    /* where it is to be retried */
    QosTime delay;
    gboolean waits_for_lender;
    QosHeapNode due; /* in the heap while it is; key: when it is to ask again */
} QosLockUse;

/* How long a change waits for a server that is full, or denies; ... */
#define QOS_LOCKCLIENT_FULL (30 * QOS_SECOND)
/* ... and for one that is away, from when the first found none: a mount that was stopped, or cut
 * off, has found it again by then. A request for a file lock that is not to wait gives up then
 * too. */
#define QOS_LOCKCLIENT_AWAY (10 * QOS_SECOND)

typedef enum {
    QOS_LOCKCLIENT_CONNECTING, /* no server yet, or not any more: nothing is cached */
    QOS_LOCKCLIENT_RECOVERING, /* likewise, but the lease still runs */
    QOS_LOCKCLIENT_REFUSED,    /* the server is there and will not have us: `reason` */
    QOS_LOCKCLIENT_UP,
} QosLockclientState;

typedef struct {
    const char *server; /* as given; the client's */
    QosLockclientState state;
    char reason[256];     /* of the last failure, for people; "": none since it is up */
    QosOwnerId id;        /* ours */
    QosOwnerId server_id; /* 0: none yet */
    guint32 server_incarnation;
    QosTime lease; /* as granted; a duration */
    QosTime valid; /* what is left of it */
    guint group;
    guint64 credits;    /* resources of which something is had */
    gint64 bytes;       /* cached, of the server's memory (core/pool.h) */
    gint64 rate, floor; /* SLR, and what may be kept whatever it is; 0: none heard */
    guint64 hits;       /* gets that asked nobody, ... */
    guint64 misses;     /* ... that asked the server, or waited, ... */
    guint64 refusals;   /* ... and that went on without a credit */
    guint64 enqueues; /* messages sent by kind; cancels: credits given back, in whatever message */
    guint64 cancels;
    guint64 cancel_messages; /* sent for nothing but cancels */
    guint64 revocations;     /* callbacks of the server */
    guint64 evictions;       /* how often all that was had was lost at once */
    guint64 reconnects;
} QosLockclientStatus;
