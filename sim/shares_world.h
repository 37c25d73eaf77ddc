/*
 * Jobs that share one store over many mounts, in virtual time: the server's side is
 * core/budget_shares.h, a mount's that of core/budget.h, and what programs want is
 * sim/budget_load.h. A third of the jobs is hungry all the time, a third wants little, and a third
 * comes and goes. The same seed gives the same run.
 *
 * What comes out is set against the ideal: at each instant the weighted max-min division of C among
 * the jobs by what their programs want.
 */
#pragma once

#include "core/budget_shares.h"

typedef struct {
    guint mounts, jobs;
    guint most;           /* mounts of a job: 1 to so many */
    double store;         /* what the store can do, as a part of C; 0: no bound. C is then found, */
    double start;         /* from so much of that on */
    gboolean is_halved;   /* the store can do half of that from 30 s to 90 s */
    gboolean is_stalling; /* it does nothing for 200 ms of 5 s */
    gboolean is_noisy;  /* mounts see an epoch late that the store is full; a fifth does not see it,
                           a fifth sees it where it is not */
    gboolean is_silent; /* a tenth of the mounts says nothing for 2 s of 10 */
    guint32 seed;
} QosSharesWorldConfig;

typedef struct {
    guint mounts; /* of the job */
    guint64 weight;
    double served, ideal; /* amounts */
    gboolean is_hungry;   /* all the time */
} QosSharesWorldJob;

typedef struct {
    double estimate_low, estimate_high; /* C as it was found, of what the store can do; 1 s after a
                                           change of that, and 10 s later, do not count */
    double store_used; /* served, of what the store could do, where enough was wanted */
    double used;       /* served / min(C, what is wanted); over the whole run */
    double over;       /* the most that was served in a second, of C, less 1 */
    guint count;
    QosSharesWorldJob *jobs; /* owned */
} QosSharesWorldResult;

#define QOS_SHARES_WORLD_LIMIT (G_GUINT64_CONSTANT(1000000000) * QOS_BUDGET_UNIT) /* C */

/* Runs for so many seconds, the first ten of which do not count. */
QosSharesWorldResult qos_shares_world_run(const QosSharesWorldConfig *config, guint seconds);
void qos_shares_world_result_clear(QosSharesWorldResult *result);
