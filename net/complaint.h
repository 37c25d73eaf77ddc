/*
 * Log messages at a bounded rate, so that no peer can fill the log. The server logs faults of its
 * peers this way, and a mount logs faults about the file locks of its programs. (The connections
 * that the server ended are counted by reason in QosListenerStatistics.)
 */
#pragma once

#include "base/time.h"

/* So many lines may come at once, and then one in each period. */
#define QOS_COMPLAINT_BURST  20
#define QOS_COMPLAINT_PERIOD QOS_SECOND

typedef struct {
    guint64 suppressed; /* since the last line */
    QosTime paid;       /* up to when lines have been taken: at most a burst ahead of now */
} QosComplaints;

/* Zeroed at first; `level` is that of GLib. The line that ends a silence says how many were left
 * out. */
void qos_complain(QosComplaints *complaints, GLogLevelFlags level, QosTime now, const char *format,
                  ...) G_GNUC_PRINTF(4, 5);
