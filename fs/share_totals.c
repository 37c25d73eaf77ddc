#include "fs/share_totals.h"

void qos_share_totals_book(QosShareTotals *totals, gint64 record, gint64 flow)
{
    const gint64 settled = flow > 0 ? CLAMP(-record, 0, flow) : CLAMP(record, 0, -flow);

    if (flow > 0) {
        totals->repaid += settled;
        totals->lent += flow - settled;
    } else {
        totals->returned += settled;
        totals->borrowed += -flow - settled;
    }
}
