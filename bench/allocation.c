/*
 * The cost of one step of adaptive sharing (fs/adapt_fair.h), by the number of jobs. The jobs have
 * random weights, a third of them has waiting requests, and each step has new demands.
 *
 *     build/bench/bench-allocation
 *
 * It prints the median CPU time of a step.
 */
#include <stdio.h>

#include "bench/measure.h"
#include "fs/adapt_fair.h"

#define STEPS  201
#define UNIT   1000000
#define PERIOD (100 * QOS_MILLISECOND)

static double measure(guint count)
{
    g_autofree QosFairJob *jobs = g_new0(QosFairJob, count);
    g_autofree double *times = g_new(double, STEPS);
    GRand *random = g_rand_new_with_seed(1);

    for (guint i = 0; i < count; i++)
        jobs[i].weight = g_rand_int_range(random, 1, 100);
    for (guint step = 0; step < STEPS; step++) {
        for (guint i = 0; i < count; i++) {
            jobs[i].served = g_rand_int_range(random, 0, 2 * UNIT);
            jobs[i].waiting =
                g_rand_int_range(random, 0, 3) == 0 ? g_rand_int_range(random, 0, 20 * UNIT) : 0;
        }
        double start = cpu_now();
        qos_fair_step(jobs, count, (gint64)UNIT * count, PERIOD, PERIOD);
        times[step] = cpu_now() - start;
    }
    g_rand_free(random);
    return median(times, STEPS);
}

int main(void)
{
    printf("| jobs | us a step | ns a job |\n|---|---|---|\n");
    for (guint count = 10; count <= 10000; count *= 10) {
        double time = measure(count);
        printf("| %u | %.1f | %.0f |\n", count, time / 1000, time / count);
    }
    return 0;
}
