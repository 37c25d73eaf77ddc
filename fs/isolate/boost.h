/*
 * Boost on look-up: a job that comes for a file does not wait for another job's parked requests.
 *
 * On a file that one job alone has open, that job's requests wait for their tokens while the kernel
 * holds the file's lock for them (fs/store/open_jobs.h). Another job that names the file, as
 * chmod(2) and unlink(2) do, needs that lock. The kernel asks for nothing before it takes the lock,
 * but for the name. So the kernel is to believe no name of a file on which another job's requests
 * are parked, and a look-up of the name boosts them: they go into debt, as far as their class may
 * owe. So does an attribute reply that tells another job of a change, because that job is likely to
 * come for the file's pages next. Requests of that file that arrive within the next second are
 * boosted likewise.
 *
 * A job's own look-ups boost nothing, so that its limit holds whatever its threads do.
 *
 * A job that comes by a name which the kernel still believes, or by a descriptor, boosts nothing.
 * It waits until the parked requests have their tokens. These share the rule's time evenly with the
 * requests of their class that have no lock, however many of those wait (fs/tbf.c).
 *
 * A fixed table of atomics: a file that pushes another out of its place costs that one a boost.
 */
#pragma once

#include "fs/request/op.h"

typedef struct QosBoosts QosBoosts;

QosBoosts *qos_boosts_new(void);
void qos_boosts_free(QosBoosts *boosts); /* NULL is allowed */

/* The job of `op` comes for the file `ino`. Returns whose requests were parked there. Cheap where
 * nothing is parked with a lock and no other job has the file open. */
QosGateHolder qos_boost_file(const QosOp *op, fuse_ino_t ino);
/* TRUE where another job than `job`, which is not looked into, came for the file `ino` within the
 * last second. */
gboolean qos_boosts_want(QosBoosts *boosts, fuse_ino_t ino, const QosJob *job);
