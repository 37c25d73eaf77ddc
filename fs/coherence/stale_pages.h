/*
 * Which of the kernel's pages may be too old, and are to be dropped, with a lock server
 * (docs/design/coherence.md has the table of all cases).
 *
 * If a credit is called back while a page is being filled or is known, the invalidator drops the
 * page (fs/coherence/invalidator.h). This unit finds the pages that no call would reach:
 *
 *   - Other mounts may have changed a file since a credit was lost. So pages belong to a generation
 *     (fs/store/inode.h), which ends with each loss. Pages of a former generation are dropped
 * before attributes are answered, even if the invalidator has not come to the loss yet.
 *   - Pages that a READ has filled or a WRITE has changed without a credit are dropped behind it,
 *     because nobody would call them back. The drop is queued before the store is looked at,
 *     because another mount may change the file while the answer is on its way.
 *   - A page may have been dropped and filled again between a program's write into it and its
 *     WRITE. It shows the data from before the WRITE, so it is dropped behind it.
 *
 * A drop is queued (fs/coherence/page_drops.h) before the reply, so that a later request for the
 * attributes waits until the pages are gone.
 *
 *     qos_stale_pages_begin()     a request is here that keeps pages locked: qos_op_locks_pages()
 *     qos_stale_pages_enter()     it is about to be made
 *     qos_stale_pages_settle()    it was made, and is not answered
 *     qos_stale_pages_leave()     it was answered, or cancelled
 *
 * No lock of its own; none of these waits.
 */
#pragma once

#include "fs/coherence/page_drops.h"
#include "fs/request/fs.h"
#include "fs/request/op.h"

void qos_stale_pages_begin(const QosOp *op, QosPages *pages);
/* TRUE if pages are going to be dropped behind a WRITE, however early it is made. For that all
 * waiting requests on the file are boosted, and the WRITE itself must not be. */
gboolean qos_stale_pages_may_follow(const QosOp *op);
/* With `is_covered` the operation has a credit on op->target.node; to settle, had it all the time.
 */
void qos_stale_pages_enter(const QosOp *op, QosPages *pages, gboolean is_covered);
void qos_stale_pages_settle(const QosOp *op, QosPages *pages, gboolean is_covered);
void qos_stale_pages_leave(const QosOp *op, QosPages *pages);

/* TRUE until the pages of `ino` that may be too old are dropped; queues those that were not found
 * before. `filled_generation`: what qos_inodes_filled_generation() says of it. */
gboolean qos_stale_pages_are_there(const QosFs *fs, QosPages *pages, fuse_ino_t ino,
                                   gint filled_generation);
/* TRUE if a GETATTR must wait until the stale pages are gone (qos_pages_await): once, and again if
 * something was lost meanwhile. Pages that were filled after it came are not too old for it. */
gboolean qos_stale_pages_hold(QosOp *op, QosPages *pages);
