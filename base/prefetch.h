/*
 * Fetches memory into the CPU's caches before it is used.
 *
 * Where thousands of jobs take turns, the data of one job has left the caches by the time of its
 * next turn. Waiting for a single cache line then costs as much as hundreds of instructions. A line
 * that was requested in time is already there.
 */
#pragma once

#include <glib.h>

#define QOS_CACHE_LINE 64 /* bytes */

/* Begins to fetch `size` bytes that are to be changed. The address need not be a line's. */
static inline void qos_prefetch(const void *address, gsize size)
{
    const char *end = (const char *)address + size;
    const char *line = (const char *)address - (gsize)address % QOS_CACHE_LINE;

    for (; line < end; line += QOS_CACHE_LINE)
        __builtin_prefetch(line, 1);
}
