/*
 * What a job has lent and borrowed since it began. The totals outlive the job's membership in the
 * adaptive sharing, and a remount.
 */
#pragma once

#include <glib.h>

/* In units of the caller's choice, each >= 0; they stop at G_MAXINT64. */
typedef struct {
    gint64 lent;     /* to others, */
    gint64 returned; /* of that, paid back to it, */
    gint64 borrowed; /* from others, */
    gint64 repaid;   /* of that, paid back by it */
} QosShareTotals;

/* The sum of two, neither negative. */
gint64 qos_share_total(gint64 a, gint64 b);
/* Books what a job gave (`flow` > 0) or took (< 0): first against its own debt or claim, which
 * `record` was before (lent > 0, borrowed < 0, and not yet paid back). */
void qos_share_totals_book(QosShareTotals *totals, gint64 record, gint64 flow);
