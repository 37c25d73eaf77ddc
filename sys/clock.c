/*
 * The monotonic clock (sys/clock.h).
 */
#include "sys/clock.h"

#include <time.h>

QosTime qos_clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * QOS_SECOND + now.tv_nsec;
}
