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

/* Who works, or was woken to: he looks at all of the engine before he ceases to. */
typedef enum {
    QOS_LOCKCLIENT_NOBODY,
    QOS_LOCKCLIENT_THREAD,
    QOS_LOCKCLIENT_ATTENDANT
} QosLockclientWorker;

struct QosLockclient {
    QosLockclientConfig config; /* strings owned */
    GMainContext *context;      /* the thread's */
    QosLocklink *link;          /* the thread's */
    int timer;                  /* a timerfd */
    QosPressure *pressure;      /* the thread's */
    _Atomic QosTime until;      /* of the engine, for qos_lockclient_valid() */
    _Atomic guint losses;       /* not behind `until` */
    _Atomic guint grants;       /* not behind what is had */
    _Atomic guint group;
    atomic_bool ends;
    pthread_t thread;
    gboolean has_thread;
    QosLockgrips *grips; /* the engine's */

    QosMutex lock; /* the rest */
    QosLockengine *engine;
    QosTime armed; /* for when the timer is */
    QosLockclientWorker worker;
    gboolean is_open, is_refused;
    gboolean is_tried;    /* the first attempt has ended; ... */
    pthread_cond_t tried; /* ... for threads that wait for that */
    char reason[256];     /* of the last failure; "": none since it was open */
    guint64 opened;       /* how often */
};

QosTime qos_lockclient_now(void);
void qos_lockclient_lock(QosLockclient *client);
/* Sends what there is to send, and leaves the rest to who works. */
void qos_lockclient_unlock(QosLockclient *client);

/* By who has taken over to read: reads until the use's wait is over, and works meanwhile. What came
 * before he took over may be told by the thread, which works then: nothing would be there to read.
 */
void qos_lockclient_attend(QosLockclient *client, const QosLockUse *use, QosTime patience);
