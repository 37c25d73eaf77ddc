/*
 * Tells the kernel to forget what is no longer covered by a credit (docs/design/coherence.md).
 *
 * The lock client says which credits other mounts want, and which are lost. A thread of its own
 * then makes the kernel forget, and releases the credit. It invalidates the attributes of each
 * inode that the kernel knows. For names it raises the mount's epoch, which outdates all of them at
 * once.
 *
 * None of this waits for a lock. Invalidating a single name would wait for the lock of its
 * directory, and a CREATE may hold that lock while it waits for a credit. Dropping a page would
 * wait for the READ or WRITE that fills it. So another thread drops pages
 * (fs/coherence/page_drops.h). The release of the credit waits until the kernel was told to drop
 * them, but not for the requests that delay it.
 *
 * fs/coherence/recall_queue.h has the order in which the thread works.
 *
 * Raising the epoch costs a look-up of all names of the mount. So if only the cache is to shrink, a
 * credit that covers a directory stays as many times as a directory has files on average.
 *
 * A reply that is on its way to the kernel meanwhile does no harm. The kernel counts invalidations,
 * and ignores attributes and names that are older than one. Replies without such a count get no
 * time-out (fs/coherence/coherence.c). Three cases need more:
 *
 *   - The kernel has no count for an inode of which it hears for the first time. So the release
 *     waits until the kernel knows the inode. That takes a moment, because the operation that found
 *     it waits for no credit any more. If it takes too long, the inode is *in doubt*: this thread,
 *     or the next operation on it, tells the kernel again, until the kernel knows it.
 *   - The kernel believes the reply to CREATE a little later than it knows the inode. There the
 *     release waits until the open file is used, 100 ms at most.
 *   - Names with attributes may be on their way in a list (fs/coherence/readdirplus.h). The release
 *     of the directory's credit waits for it likewise.
 *
 * If another mount wants a file that is open here, the credit to read is asked for again, so that
 * the kernel hears of the new size (docs/design/coherence.md).
 *
 * Lock: `lock`, taken before that of the inodes; not held while the kernel is told or the client is
 * called.
 */
#pragma once

#include "fs/coherence/namecache.h"
#include "fs/coherence/page_drops.h"
#include "fs/coherence/readdirplus.h"
#include "fs/coherence/recall_queue.h"
#include "fs/lockclient/client.h"
#include "fs/request/fs.h"

typedef struct QosInvalidator QosInvalidator;

/* All are borrowed. Starts its thread; NULL where that fails. */
QosInvalidator *qos_invalidator_new(const QosFs *fs, QosPages *pages, QosReaddirplus *readdirplus,
                                    QosNamecache *names);
/* Ends the thread: nothing is forgotten or released any more. NULL is allowed. */
void qos_invalidator_stop(QosInvalidator *invalidator);
/* Stopped. NULL is allowed. */
void qos_invalidator_free(QosInvalidator *invalidator);

/* Has the kernel forget what is cached under the credit, and then releases the credit, unless it is
 * lost. Any thread; does not block. */
void qos_invalidator_forget(QosInvalidator *invalidator, const QosResource *resource,
                            const QosCredit *credit, QosRecallKind kind);
/* Another mount wants what was to shrink the cache of the resource: it comes before the rest of
 * that, if it was not begun. Likewise. */
void qos_invalidator_make_urgent(QosInvalidator *invalidator, const QosResource *resource);
/* An operation on `ino` has come: the kernel knows it. */
void qos_invalidator_confirm(QosInvalidator *invalidator, fuse_ino_t ino);
/* Outdates all names that the kernel has come to so far. Any thread. */
void qos_invalidator_outdate_names(QosInvalidator *invalidator);
/* The kernel speaks FUSE 7.`minor`; before the first request. */
void qos_invalidator_meet_kernel(QosInvalidator *invalidator, guint minor);
/* FALSE: the kernel (before Linux 6.16) forgets no names, so that it must not keep any. */
gboolean qos_invalidator_forgets_names(const QosInvalidator *invalidator);
