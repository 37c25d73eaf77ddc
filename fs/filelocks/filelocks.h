/*
 * File locks across mounts: which owners have locked what of a file, also by other mounts
 * (docs/design/filelocks.md).
 *
 * Each file and kind has a table of the locks of this mount's processes (fs/filelocks/table.h). The
 * table settles what they want of one another. What all of them have together, the mount itself
 * must have. It *holds* that as a credit on ranges of the file, borrowed of the lock server
 * (fs/lockclient/client.h). So a lock takes two steps:
 *
 *     no owner here is in the way    else EAGAIN, or wait for its unlock
 *     the mount may have the range   at once where it has it; else the server is asked, which asks
 *                                    the mounts that have it: one that only keeps it gives it
 *
 * A request that waits holds no thread: it is a call in a list. It is answered by the thread that
 * brings what it waits for: another owner's unlock, the server's answer, its interrupt, or the
 * time. A request that would wait for ever in a circle fails with EDEADLK. Circles within the mount
 * are found here at once. The server finds the others, because it is told of the waits of owners
 * that have locks.
 *
 * Locks: `lock`, taken inside that of the table of interrupts, and before the lock client's; not
 * held while a request is answered.
 */
#pragma once

#include "fs/filelocks/table.h"
#include "fs/lockclient/client.h"
#include "fs/store/open_file.h"
#include "fs/transport/interrupt_table.h"

/* Requests that may wait (QOS_FILELOCKS_WAIT) at a time, shared as fs/quota.h says. Beyond that
 * they fail (ENOLCK), because an unlock looks at all that wait for the file, and each takes memory.
 */
#define QOS_FILELOCKS_WAITS_MAX 8192

typedef struct QosFileLocks QosFileLocks;

QosFileLocks *qos_filelocks_new(QosInterruptTable *interrupts);
/* From now on locks come from `client`. Its callbacks may call the functions below even before.
 * Starts the keeper (after the daemon's fork). 0 or -errno. */
int qos_filelocks_start(QosFileLocks *locks, QosLockclient *client);
/* Answers the requests that wait (ENOTCONN) and gives all back; no request may follow, callbacks
 * may. */
void qos_filelocks_stop(QosFileLocks *locks);
void qos_filelocks_free(QosFileLocks *locks); /* the client is gone, too; NULL is allowed */

/* Gives the owner the lock, or tells (TEST) which owner is in the way; answers the request, now or
 * later. `lock->open_file` is the QosOpenFile by which it is taken. `may_miss_signals`: the kernel
 * may not tell of a signal that the caller had before (fs/caller/signals.h). */
void qos_filelocks_take(QosFileLocks *locks, fuse_req_t request, const QosFileName *file,
                        QosFileLockKind kind, QosFileLockMode mode, const QosFileLock *lock,
                        gboolean may_miss_signals);
/* The owner gives up what it has from `first` to `last`. */
void qos_filelocks_give(QosFileLocks *locks, const QosFileName *file, QosFileLockKind kind,
                        guint64 owner, guint64 first, guint64 last);
/* The open file is closed for good, and what was locked by it is free. */
void qos_filelocks_close(QosFileLocks *locks, const QosOpenFile *open_file);

/* TRUE if a lock that was taken by the open file, or a record lock of its process, is lost and may
 * be another's by now. Then nothing may be read or changed by it any more. `locks` NULL: nothing
 * was locked. */
gboolean qos_filelocks_are_lost(QosFileLocks *locks, const QosOpenFile *open_file);

/* The lock client's callbacks, of resources of type QOS_RESOURCE_EXTENT. */
void qos_filelocks_drop(QosFileLocks *locks, const QosResource *resource, const QosCredit *credit);
void qos_filelocks_lost(QosFileLocks *locks, const QosResource *resource);
void qos_filelocks_changed(QosFileLocks *locks, gboolean is_up);
/* And of any type: the server has found that the wait with this id would never end. */
void qos_filelocks_deadlocked(QosFileLocks *locks, guint64 wait);
