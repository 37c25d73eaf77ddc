/*
 * Reports to the server of processes that wait for a file lock while they have others. From these
 * the server finds circles of waits across mounts (server/deadlocks.h).
 *
 * A wait is reported as it is when the link sends next, so one that began and ended before is not
 * reported at all. On a new connection all waits are reported.
 *
 * Pure; the caller locks.
 */
#pragma once

#include "core/wire.h"

/* Embedded. */
typedef struct {
    GHashTable *waits; /* id -> Wait */
    GQueue untold;     /* of Wait: those that changed */
} QosWaitReports;

void qos_wait_reports_init(QosWaitReports *waits);
void qos_wait_reports_clear(QosWaitReports *waits);

/* A wait begins, or has changed. One that does not fit into a frame is not told. */
void qos_wait_reports_set(QosWaitReports *waits, const QosWireWait *wait);
/* The wait is over. Does nothing if it is not known. */
void qos_wait_reports_end(QosWaitReports *waits, guint64 id);
/* There is a new connection: its server has been told nothing. */
void qos_wait_reports_renew(QosWaitReports *waits);
/* There is something to tell. */
gboolean qos_wait_reports_has_frames(const QosWaitReports *waits);
/* Appends the frames that tell it. */
void qos_wait_reports_take(QosWaitReports *waits, GByteArray *frames);
