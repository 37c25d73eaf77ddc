/*
 * Sums of what jobs lent and borrowed. They stop at the limits of 64 bits instead of overflowing.
 */
#include "fs/share_totals.h"

gint64 qos_share_total(gint64 a, gint64 b)
{
    gint64 sum;

    return __builtin_add_overflow(a, b, &sum) ? G_MAXINT64 : sum;
}

void qos_share_totals_book(QosShareTotals *totals, gint64 record, gint64 flow)
{
    const gint64 settled = flow > 0 ? CLAMP(-record, 0, flow) : CLAMP(record, 0, -flow);

    if (flow > 0) {
        totals->repaid = qos_share_total(totals->repaid, settled);
        totals->lent = qos_share_total(totals->lent, flow - settled);
    } else {
        totals->returned = qos_share_total(totals->returned, settled);
        totals->borrowed = qos_share_total(totals->borrowed, -flow - settled);
    }
}
