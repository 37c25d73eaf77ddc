/*
 * Who comes by the name of a file with whose lock another job's requests wait.
 *
 * On a file that is one job's own, requests wait with the file's lock (ops/openers.h). Who names
 * the file, as chmod(2) and unlink(2) do, takes that lock too, and the kernel asks for nothing
 * before, but for the name. So while requests wait there the kernel is to believe no name of the
 * file (ops/name.c), and who looks one up, for another job, is watched for some seconds: once his
 * thread sleeps as one does that waits for a lock, and for as long, what waits with the lock goes,
 * and what comes. Who only looks does not sleep like that, so that nobody is let go for him.
 *
 * A thread sleeps like that for other reasons too: then some requests go that need not, into debt.
 *
 * Lock: `lock` of the approaches; neither a look at a thread nor what lets requests go is under it.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "fs/gate.h"

typedef struct QosApproaches QosApproaches;

/* Starts its thread; NULL where that fails. */
QosApproaches *qos_approaches_new(QosGate *gate);
/* Ends the thread. No request is under way any more. NULL is allowed. */
void qos_approaches_free(QosApproaches *approaches);

/* `thread` (0: one that cannot be seen) looked the file `ino` up for `job` and `user`, while
 * requests of others waited with its lock. */
void qos_approaches_note(QosApproaches *approaches, fuse_ino_t ino, QosJob *job, QosUser *user,
                         pid_t thread);
/* TRUE while such a thread of another job than `job` seems to wait for the lock of `ino`. Cheap
 * where none waits for any. */
gboolean qos_approaches_are_waiting(QosApproaches *approaches, fuse_ino_t ino, const QosJob *job);
