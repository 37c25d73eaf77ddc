/*
 * What client.c and client_api.c share.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "fs/lockclient/client.h"
#include "fs/lockclient/link.h"
#include "fs/lockengine/engine.h"
#include "sys/memory_pressure.h"
#include "sys/mutex.h"

/* Which thread works, or was woken to work. It looks at all of the engine before it stops. */
typedef enum {
    QOS_LOCKCLIENT_NOBODY,
    QOS_LOCKCLIENT_THREAD,
    QOS_LOCKCLIENT_LEADER
} QosLockclientWorker;

struct QosLockclient {
    QosLockclientConfig config; /* strings owned */
    GMainContext *context;      /* the thread's */
    QosLink *link;              /* the thread's */
    int timer;                  /* a timerfd */
    int alarm;                  /* another, for `due` */
    int poke;                   /* an eventfd, likewise */
    QosPressure *pressure;      /* the thread's */
    _Atomic QosTime until;      /* of the engine, for qos_lockclient_valid() */
    _Atomic guint losses;       /* not behind `until` */
    _Atomic guint grants;       /* not behind what is had */
    _Atomic guint group;
    atomic_bool ends;
    pthread_t thread;
    gboolean has_thread;
    QosFastpaths *fastpaths; /* the engine's */

    QosMutex lock; /* the rest */
    QosLockengine *engine;
    GByteArray *urgent; /* frames that go before those of the engine; NULL: none */
    QosTime armed;      /* for when the timer is */
    QosTime due;        /* for when the alarm is */
    QosLockclientWorker worker;
    gboolean is_open, is_refused;
    gboolean is_tried;    /* the first attempt has ended; ... */
    pthread_cond_t tried; /* ... for threads that wait for that */
    char reason[256];     /* of the last failure; "": none since it was open */
    guint64 opened;       /* how often */
};

void qos_lockclient_lock(QosLockclient *client);
/* Sends what there is to send, and leaves the rest to the thread that works. */
void qos_lockclient_unlock(QosLockclient *client);

/* There is something that the thread alone does. */
void qos_lockclient_call_thread(QosLockclient *client);

/* Called by the leader (fs/lockclient/receive.h): reads until the use's wait is over, and works
 * meanwhile. If the thread works, it may tell what came before that: then there would be nothing to
 * read. */
void qos_lockclient_lead(QosLockclient *client, const QosLockUse *use, QosTime patience);
