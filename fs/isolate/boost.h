/*
 * Boost: a job that comes for a file does not wait for another job's parked requests.
 *
 * On a file that one job alone has open, that job's requests wait for their tokens while the kernel
 * holds the file's lock, or pages of it, for them (fs/store/open_jobs.h). Another job that wants
 * the lock would wait as long. Before the kernel takes the lock it asks for no more than the name.
 * So when another job is seen to come, the parked requests of that file are boosted: they go into
 * debt, as far as their class may owe (fs/gate/boost.c). A job boosts none of its own requests, so
 * that its limit holds whatever its threads do.
 *
 * Another job is seen to come when
 *   - it opens the file: then requests are boosted as long as it has the file open
 *     (qos_boost_opened);
 *   - it looks up the file's name: for a second from then on (qos_boost_file);
 *   - a reply tells it the attributes of the file: for a second likewise.
 *
 * - The kernel is to believe no name of a file on which another job's requests are parked, so that
 *   a job that names the file, as chmod(2) and unlink(2) do, looks the name up.
 * - Attributes may tell the kernel of a change. It then drops the file's pages, and waits for those
 *   that a READ or WRITE keeps locked. With a lock server it is told by the invalidator instead.
 * - A request looks as it is parked whether another job has come meanwhile (qos_boost_parked),
 *   because that job may not have found it.
 *
 * Limit: a job that comes by a name which the kernel still believes, or by a descriptor (O_PATH),
 * boosts nothing. It waits until the parked requests have their tokens. These share the rule's time
 * evenly with the requests of their class that have no lock, however many of those wait (fs/tbf.c).
 *
 * A fixed table of atomics has the jobs that came within the last second. A file that takes another
 * one's place costs that one a boost.
 */
#pragma once

#include "fs/request/op.h"

typedef struct QosBoosts QosBoosts;

QosBoosts *qos_boosts_new(void);
void qos_boosts_free(QosBoosts *boosts); /* NULL is allowed */

/* The job of `op` comes for the file `ino`. Returns of which job requests were parked there. Cheap
 * where nothing is parked with a lock and no other job has the file open. */
QosGateHolder qos_boost_file(const QosOp *op, fuse_ino_t ino);
/* `job` has opened the file `ino`, which it did not have open, and qos_open_jobs_join() knows. */
void qos_boost_opened(QosFs *fs, fuse_ino_t ino, const QosJob *job);
/* TRUE where another job may want the lock that the kernel holds of a file for `op`: it has the
 * file open, or has come for it within the last second. Every READ and WRITE asks. */
gboolean qos_boost_is_contended(const QosOp *op);
/* A request of `job`, which is not looked into, was parked. The kernel holds the lock of the file
 * `ino` for it. */
void qos_boost_parked(QosFs *fs, fuse_ino_t ino, const QosJob *job);
