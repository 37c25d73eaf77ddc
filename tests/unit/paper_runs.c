/*
 * Random runs of adapt=paper, a line each, for paper_oracle.py: paper_runs SEED COUNT
 *
 *     TOKENS JOBS PERIODS, then of each job NODES RECORD, then in each period of each job
 *     DEMAND ALLOCATION RECORD REMAINDER; a demand of -1: it is not active
 */
#include <stdio.h>
#include <stdlib.h>

#include "fs/adapt_paper.h"

#define JOBS_MAX    12
#define PERIODS_MAX 6

static gint64 demand_of(GRand *random)
{
    static const int most[] = {1, 4, 40, 400, 30000};
    const int kind = g_rand_int_range(random, 0, 7);

    if (kind == 0)
        return -1;
    return kind == 1 ? 0 : g_rand_int_range(random, 0, most[kind - 2] + 1);
}

static void step(QosPaperJob *jobs, guint count, gint64 tokens, GRand *random)
{
    QosPaperJob active[JOBS_MAX];
    gint64 demands[JOBS_MAX];
    guint active_count = 0;

    for (guint i = 0; i < count; i++) {
        demands[i] = jobs[i].demand = demand_of(random);
        if (demands[i] >= 0)
            active[active_count++] = jobs[i];
        else
            jobs[i].allocation = 0;
    }
    qos_paper_allocate(active, active_count, tokens);
    active_count = 0;
    for (guint i = 0; i < count; i++) {
        if (demands[i] >= 0)
            jobs[i] = active[active_count++];
        printf(" %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %.12f", demands[i],
               jobs[i].allocation, jobs[i].record, jobs[i].remainder);
    }
}

static void run(GRand *random)
{
    QosPaperJob jobs[JOBS_MAX] = {0};
    const gint64 tokens = g_rand_int_range(random, 0, g_rand_boolean(random) ? 20 : 1000);
    const guint count = (guint)g_rand_int_range(random, 1, JOBS_MAX + 1);
    const guint periods = (guint)g_rand_int_range(random, 1, PERIODS_MAX + 1);

    printf("%" G_GINT64_FORMAT " %u %u", tokens, count, periods);
    for (guint i = 0; i < count; i++) {
        jobs[i].nodes = g_rand_int_range(random, 1, g_rand_boolean(random) ? 5 : 5000);
        if (i % 2 == 1) { /* of this and the one before */
            jobs[i].record = g_rand_int_range(random, -200, 201);
            jobs[i - 1].record = -jobs[i].record;
        }
    }
    for (guint i = 0; i < count; i++)
        printf(" %" G_GINT64_FORMAT " %" G_GINT64_FORMAT, jobs[i].nodes, jobs[i].record);
    for (guint i = 0; i < periods; i++)
        step(jobs, count, tokens, random);
    printf("\n");
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    GRand *random = g_rand_new_with_seed((guint32)atoi(argv[1]));
    for (int i = 0; i < atoi(argv[2]); i++)
        run(random);
    g_rand_free(random);
    return 0;
}
