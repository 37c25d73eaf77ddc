/*
 * The history of the jobs: what each did in each slice of time, as differences of its totals.
 *
 * This file makes slices of QOS_HISTORY_STEP; db/db_history.c keeps them, and turns old ones into
 * coarser ones. All series are sums over the slice, so that slices and jobs can be added up. In a
 * sample the QOS_HISTORY_JOBS largest jobs have rows of their own. The other jobs share one row
 * with an empty id; a job that did nothing has no row. Pure: time is an argument.
 */
#pragma once

#include "fs/jobs.h"

#define QOS_HISTORY_STEP     10  /* s */
#define QOS_HISTORY_DAY_STEP 300 /* s; of slices older than an hour. Older than a day: an hour */
#define QOS_HISTORY_JOBS     256 /* that a sample tells apart */
/* Bytes that make a job as large as an operation. */
#define QOS_HISTORY_BYTES_UNIT 65536

typedef enum {
    QOS_HISTORY_OPERATIONS,
    QOS_HISTORY_READ_BYTES,
    QOS_HISTORY_WRITE_BYTES,
    QOS_HISTORY_WAITS,
    QOS_HISTORY_WAITED, /* ns */
    QOS_HISTORY_LENT,   /* this and what follows: of the adaptive sharing, in QOS_COST_UNIT */
    QOS_HISTORY_RETURNED,
    QOS_HISTORY_BORROWED,
    QOS_HISTORY_REPAID,
    QOS_HISTORY_COUNT,
} QosHistorySeries;

typedef struct {
    gint64 begin;                /* of the slice, s since 1970 */
    gint64 step;                 /* its length, s */
    char id[QOS_JOB_ID_MAX + 1]; /* "": the jobs that are not told apart */
    gint64 value[QOS_HISTORY_COUNT];
} QosHistoryRow;

typedef struct {
    GHashTable *totals; /* id -> gint64[QOS_HISTORY_COUNT] as of `wall` */
    QosTime wall;       /* ns since 1970; 0: nothing was sampled yet */
} QosHistory;

void qos_history_init(QosHistory *history);
void qos_history_clear(QosHistory *history);

/*
 * What the jobs (of QosJob) did since the last sample, as rows (of QosHistoryRow; the caller's)
 * of the slice that holds the middle of that time; all that they ever did where there was none.
 * Totals that shrank were cleared in between, and count whole.
 */
GArray *qos_history_sample(QosHistory *history, const GPtrArray *jobs, QosTime wall);
