/*
 * Fetching memory into the caches a while before it is used. Where thousands of jobs take turns,
 * what one of them needs has left the caches when its turn comes, and to wait for a line of it
 * costs as much as hundreds of instructions. Lines that were asked for in time are there.
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
