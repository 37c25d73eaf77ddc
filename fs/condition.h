/*
 * Waiting for a condition until a time. The clock is that of qos_gate_now(): who sets the wall's
 * clock moves no wait.
 */
#pragma once

#include <pthread.h>
#include <time.h>

#include "base/time.h"

/* As pthread_cond_wait(), and as that perhaps for nothing. FALSE: `until` has come; QOS_NEVER never
 * does. */
static inline gboolean qos_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock,
                                                QosTime until)
{
    const struct timespec time = {.tv_sec = until / QOS_SECOND, .tv_nsec = until % QOS_SECOND};

    if (until == QOS_NEVER)
        return pthread_cond_wait(condition, lock) == 0;
    return pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &time) == 0;
}
