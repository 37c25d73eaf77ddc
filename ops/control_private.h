/*
 * What control.c and control_saver.c share: the settings of a mount.
 *
 * Order of the locks: setting, lock. Neither is held for a reply.
 */
#pragma once

#include <pthread.h>

#include "ops/control.h"

#define QOS_NOT_SAVED G_MAXUINT64 /* QosShareChanges.others: all is to be saved */

struct QosControl {
    QosFs *fs;
    QosDb *db; /* borrowed; NULL: nothing persists */
    QosTime started;

    pthread_mutex_t setting; /* one command at a time, from parsing to putting in force */
    pthread_mutex_t lock;    /* what is below */
    QosTunables tunables;    /* changed with both held */
    GHashTable *errors;      /* uid -> why the last set of that user failed */
    GHashTable *texts;       /* GBytes of the files of .qosfs that are open */
    gsize texts_size;        /* theirs together */
    pthread_t thread;
    gboolean has_thread;
    pthread_cond_t called; /* for the thread: look at these, and at the tunables */
    gboolean expired;      /* rules have gone by themselves, and are still in the database */
    gboolean ending;
    QosShareChanges saved; /* the thread's own, as the next: what is in the database */
    gboolean shares_fail;  /* saving them does, and that was said */
};

/* ns since 1970 */
static inline QosTime qos_wall_now(void)
{
    return g_get_real_time() * QOS_MICROSECOND;
}
