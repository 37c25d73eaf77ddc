/*
 * What the benchmarks of one process share: CPU time, and medians.
 */
#pragma once

#include <glib.h>
#include <stdlib.h>
#include <time.h>

/* CPU time of this thread, in ns. */
static inline double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int compare_doubles(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static inline void sort(double *values, guint count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
}

/* Sorts them. */
static inline double median(double *values, guint count)
{
    sort(values, count);
    return values[count / 2];
}
