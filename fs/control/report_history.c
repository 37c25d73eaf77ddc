/*
 * .qosfs/history: a line of CSV for each job and slice of time. docs/reports.md has the columns.
 *
 * What the adaptive sharing counts is given in operations. Ids are written as everywhere: no byte
 * of them needs to be quoted.
 */
#include "fs/control/report.h"

GString *qos_report_history_head(void)
{
    return g_string_new("time,seconds,job,operations,read_bytes,write_bytes,waits,waited_us,"
                        "lent,returned,borrowed,repaid\n");
}

void qos_report_append_history(GString *text, const QosHistoryRow *row)
{
    g_string_append_printf(text, "%" G_GINT64_FORMAT ",%" G_GINT64_FORMAT ",", row->begin,
                           row->step);
    qos_report_append_id(text, row->id);
    for (guint i = 0; i < QOS_HISTORY_COUNT; i++) {
        gint64 value = row->value[i];

        if (i < QOS_HISTORY_LENT)
            g_string_append_printf(text, ",%" G_GINT64_FORMAT,
                                   i == QOS_HISTORY_WAITED ? value / QOS_MICROSECOND : value);
        else
            g_string_append_printf(text, ",%.12g", (double)value / (double)QOS_COST_UNIT);
    }
    g_string_append_c(text, '\n');
}
