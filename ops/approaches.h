/*
 * Who comes by the name of a file with whose lock another job's requests wait, or may come to.
 *
 * On a file that is one job's own, requests wait with the file's lock (ops/openers.h). Who names
 * the file, as chmod(2) and unlink(2) do, takes that lock too, and the kernel asks for nothing
 * before, but for the name. So while requests wait there the kernel is to believe no name of the
 * file (ops/name.c), and who looks one up, for another job, is watched for some seconds, and so is
 * who does while nothing waits there yet: once his thread sleeps as one does that waits for a lock,
 * and for as long, what waits with the lock goes, and what comes. Who only looks does not sleep
 * like that, so that nobody is let go for him.
 *
 * So is who asks for a directory's attributes while another job's request for them waits, maybe
 * under the directory's lock (find_lock() in ops/op.c).
 *
 * So is who is about to be told news of an open file: the kernel drops the file's pages then, and
 * may wait for each that a request keeps (ops/looks.h), be it one that comes later. While he
 * sleeps, what keeps pages of that file goes, and what comes, his own job's too; and for others
 * what waits with its lock, for which he may have come.
 *
 * A thread sleeps like that for other reasons too: then some requests go that need not, into debt.
 *
 * Lock: `lock` of the approaches; neither a look at a thread nor what lets requests go is under it.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "ops/looks.h"
#include "ops/op.h"

typedef struct QosApproaches QosApproaches;

/* Starts its thread; NULL where that fails. `gate` and `looks` are borrowed. */
QosApproaches *qos_approaches_new(QosGate *gate, QosLooks *looks);
/* Ends the thread. No request is under way any more. NULL is allowed. */
void qos_approaches_free(QosApproaches *approaches);

/* `op` has looked the file or directory `ino` up, or asked for its attributes, while requests of
 * others waited with its lock, or may come to. Does nothing where its thread cannot be seen;
 * likewise below. */
void qos_approaches_note(QosApproaches *approaches, const QosOp *op, fuse_ino_t ino);
/* The answer to `op` is about to tell news of `ino`, which is so large. */
void qos_approaches_tell(QosApproaches *approaches, const QosOp *op, fuse_ino_t ino, gint64 size);
/* TRUE while a thread of either kind, of another job than `job`, seems to wait for the lock of
 * `ino`. Cheap where none waits for any. */
gboolean qos_approaches_are_waiting(QosApproaches *approaches, fuse_ino_t ino, const QosJob *job);
/* TRUE while one that was told news of `ino`, another than `thread`, seems to wait for its pages
 * before `end`. As cheap. */
gboolean qos_approaches_want_pages(QosApproaches *approaches, fuse_ino_t ino, gint64 end,
                                   pid_t thread);
