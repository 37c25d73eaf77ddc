/*
 * Tells the kernel to forget what is not covered by a credit any more (docs/design/coherence.md).
 *
 * A thread of its own takes what the lock client says is wanted by others, or lost. Of each inode
 * of it that the kernel knows, the attributes are forgotten; names by raising the mount's epoch,
 * which outdates all of them at once; and then the credit is released. None of this waits for
 * a lock: to forget a single name would wait for the lock of its directory, which a CREATE may
 * hold that itself waits for a credit, and to drop a page for the READ or WRITE that fills it.
 * So pages are dropped by another thread (fs/coherence/page_drops.h), and the release waits until
 * the kernel was told to, but not for what keeps it from that.
 *
 * fs/coherence/recall_queue.h tells what comes first.
 *
 * To forget a directory's names costs a look-up of all names of the mount. So where only the cache
 * is to shrink, a credit that covers a directory stays as many times as a directory has files on
 * average.
 *
 * A reply that is on its way to the kernel meanwhile does no harm. What it says of attributes and
 * names is older than the invalidation by the kernel's own count, and not believed; what has no
 * such count is given no time-out (fs/coherence/coherence.c). Only of an inode that the kernel is
 * just being told of for the first time there is none either: the release waits until the kernel
 * knows it, which takes a moment, as the operation that found it waits for no credit any more.
 * Where that takes too long, it is in doubt, and told again until the kernel knows it, by the
 * thread, or by the next operation on it. What CREATE brings is believed a little later than the
 * inode is known: there the release waits until the open file is used, 100 ms at most. So does that
 * of a directory of which a list of names with attributes is on its way
 * (fs/coherence/readdirplus.h).
 *
 * Of a file that is open here, and that another wants, the credit to read is asked for again, so
 * that the kernel hears of its new size (docs/design/coherence.md).
 *
 * Lock: `lock`, taken before that of the inodes; never held while the kernel is told, or the client
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
QosInvalidator *qos_invalidator_new(const QosFs *fs, QosPages *pages, QosLists *lists,
                                    QosNamecache *names);
/* Ends the thread: nothing is forgotten or released any more. NULL is allowed. */
void qos_invalidator_stop(QosInvalidator *invalidator);
/* Stopped. NULL is allowed. */
void qos_invalidator_free(QosInvalidator *invalidator);

/* What is cached under the credit is to be forgotten; then the credit is released, unless it is
 * lost. Any thread; does not block. */
void qos_invalidator_forget(QosInvalidator *invalidator, const QosResource *resource,
                            const QosCredit *credit, QosLossKind kind);
/* Another mount wants what was to shrink the cache of the resource: it comes before the rest of
 * that, if it was not begun. Likewise. */
void qos_invalidator_hurry(QosInvalidator *invalidator, const QosResource *resource);
/* An operation on `ino` has come: the kernel knows it. */
void qos_invalidator_confirm(QosInvalidator *invalidator, fuse_ino_t ino);
/* Outdates all names that the kernel has come to so far. Any thread. */
void qos_invalidator_outdate_names(QosInvalidator *invalidator);
/* The kernel speaks FUSE 7.`minor`; before the first request. */
void qos_invalidator_meet_kernel(QosInvalidator *invalidator, guint minor);
/* FALSE: the kernel (before Linux 6.16) forgets no names, so that it must not keep any. */
gboolean qos_invalidator_forgets_names(const QosInvalidator *invalidator);
