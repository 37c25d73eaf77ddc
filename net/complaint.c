/*
 * Logging at a bounded rate; net/complaint.h says why.
 */
#include "net/complaint.h"

void qos_complain(QosComplaints *complaints, GLogLevelFlags level, QosTime now, const char *format,
                  ...)
{
    g_autofree char *text = NULL;
    va_list arguments;

    if (complaints->paid > now + (QOS_COMPLAINT_BURST - 1) * QOS_COMPLAINT_PERIOD) {
        complaints->suppressed++;
        return;
    }
    complaints->paid = MAX(complaints->paid, now) + QOS_COMPLAINT_PERIOD;
    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (complaints->suppressed > 0)
        g_log(G_LOG_DOMAIN, level, "%s (%" G_GUINT64_FORMAT " such lines were left out)", text,
              complaints->suppressed);
    else
        g_log(G_LOG_DOMAIN, level, "%s", text);
    complaints->suppressed = 0;
}
