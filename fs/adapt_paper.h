/*
 * AdapTBF's token allocation as published (seed 004, section III-C, equations 1 to 25), for
 * comparison: fs/adapt_fair.h has the law that is used by default, and why.
 *
 * Pure: one call computes one period.
 */
#pragma once

#include <glib.h>

#include "fs/share_totals.h"

/* One active job on the storage target. The caller keeps it from one period to the next. */
typedef struct {
    gint64 nodes;      /* n_x, 1 to 2^31 */
    gint64 demand;     /* d_x: requests that it issued in the period that ends, >= 0 */
    gint64 allocation; /* alpha_x: of the last period (0 = it had none), then of the next; tokens */
    gint64 record;     /* r_x: tokens lent (> 0) or borrowed (< 0); all records add up to 0 */
    QosShareTotals totals; /* since it is active, tokens */
    double remainder; /* rho_x: the fraction of a token that rounding kept back; 0 for a new job */
    /* Of the computation only. */
    double priority;          /* p_x */
    double utilization;       /* u_x */
    double factor;            /* DF_x, which is RF_x (equation 18) */
    double raw;               /* before rounding */
    gint64 surplus;           /* T_s^x */
    gint64 old_record;        /* r_x before redistribution */
    gint64 kept;              /* tokens that it has beside what the step hands out, >= 0 */
    gint64 part;              /* of what the step hands out; may be negative, down to -kept */
    gboolean is_compensated;  /* x in J+ */
    gboolean is_reclaimed_of; /* x in J- */
} QosPaperJob;

/* Allocates `tokens` (T_i x delta t, >= 0) to the `count` jobs that sent requests in the period.
 * Their allocations add up to `tokens`, and none is negative. */
void qos_paper_allocate(QosPaperJob *jobs, guint count, gint64 tokens);

/* Makes the records add up to 0 again where some of the jobs have gone: the others' claims on them,
 * or debts to them, are written off, each in proportion. */
void qos_paper_write_off(QosPaperJob *jobs, guint count);
