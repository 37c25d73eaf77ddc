/*
 * What the server is told of the processes that wait for a file lock while they have others: by
 * that it sees who waits for whom across mounts (server/deadlocks.h).
 *
 * A wait is told as it is now, when the link sends the next time: what began and ended before is
 * not told at all. Another connection is told all that there is.
 *
 * Pure; the caller locks.
 */
#pragma once

#include "core/wire.h"

/* Embedded. */
typedef struct {
    GHashTable *waits; /* id -> Wait */
    GQueue untold;     /* of Wait: those that changed */
} QosLockwaits;

void qos_lockwaits_init(QosLockwaits *waits);
void qos_lockwaits_clear(QosLockwaits *waits);

/* There is such a wait, or it is another by now. One that no frame holds is not told. */
void qos_lockwaits_set(QosLockwaits *waits, const QosWireWait *wait);
/* It is over. One that is not known is let alone. */
void qos_lockwaits_end(QosLockwaits *waits, guint64 id);
/* Whom we talk to from now on has been told nothing. */
void qos_lockwaits_renew(QosLockwaits *waits);
/* There is something to tell. */
gboolean qos_lockwaits_has_frames(const QosLockwaits *waits);
/* Appends the frames that tell it. */
void qos_lockwaits_take(QosLockwaits *waits, GByteArray *frames);
