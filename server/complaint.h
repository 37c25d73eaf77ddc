/*
 * What the server has to say about its peers: counted, each kind, and logged at a bounded rate, so
 * that nobody can fill the log.
 */
#pragma once

#include "base/time.h"

/* Lines that may come at once, and how long it takes until there is one more. */
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
