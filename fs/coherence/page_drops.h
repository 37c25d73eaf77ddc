/*
 * Drops the kernel's pages of files that other mounts may have changed (docs/design/coherence.md).
 *
 * To drop a page, the kernel waits for the READ or WRITE that has it locked, and that request may
 * itself wait for a credit that another mount has. So only GETATTR waits for this thread, and a
 * release for moments. That is enough: the kernel was told to forget the attributes, so it asks for
 * them before it believes a page, and the answer waits until the stale pages are gone. Meanwhile a
 * READ that waits for a token goes at once, and one that comes takes no credit; its pages are
 * dropped too.
 *
 * The kernel cannot be interrupted in a drop. If it waited there for a request of this mount and
 * the daemon were killed, the daemon would wait for its own answer for ever. So the kernel is told
 * to drop only pages that no such request has locked. (It sends WRITEs for what a mapping has
 * changed while it drops that; there the risk remains.)
 *
 * There may be such requests all the time, because the next one comes before the last has ended. So
 * a GETATTR waits only for those that were there before it. Ranges that later requests have locked
 * are left out of its drop, and dropped afterwards. Nothing in them is too old for that GETATTR,
 * because the kernel sends a READ for what it does not have.
 *
 * Lock: `lock`, taken before that of the inodes; not held while the kernel is told.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "fs/gate/gate.h"
#include "fs/store/inode.h"

typedef struct QosPages QosPages;

/* All are borrowed. `clock` is qos_clock_now(), or a test's, for the 2 ms of a reader. Starts its
 * thread; NULL where that fails. */
QosPages *qos_pages_new(struct fuse_session *session, QosGate *gate, QosInodes *inodes,
                        QosTime (*clock)(void));
/* Lets no further drop begin, and waits until the kernel is done with the one under way, but not
 * for long. Once requests are no longer served, a READ or WRITE that is yet to be read from the
 * kernel keeps its pages locked for ever. */
void qos_pages_end_drops(QosPages *pages);
/* Resumes what waits, and lets nothing wait any more; NULL is allowed. */
void qos_pages_stop(QosPages *pages);
/* Ends the thread. NULL is allowed. */
void qos_pages_free(QosPages *pages);

/* Drops the pages of `ino` soon: all, or at least those with the bytes [start, end); `end`
 * G_MAXINT64: to its end. */
void qos_pages_drop(QosPages *pages, fuse_ino_t ino);
void qos_pages_drop_range(QosPages *pages, fuse_ino_t ino, gint64 start, gint64 end);
/* Tells the kernel the file's size in the store, if the file has grown, because mmap(2),
 * sendfile(2) and copy_file_range(2) do not ask for it. It counts as a drop, and is told as one. */
void qos_pages_push_size(QosPages *pages, fuse_ino_t ino);
/* Drops all pages, also those that a READ is about to fill for the thread `reader`. The drop waits
 * until that thread asks again, or until 2 ms after the answer, unless the pages are to be dropped
 * for another reason too. */
void qos_pages_drop_read(QosPages *pages, fuse_ino_t ino, pid_t reader);
/* Waits until the kernel was told to drop all that is queued, except pages that are locked for
 * requests. If the kernel does not come back from a drop, it waits for 10 ms at most. */
void qos_pages_await_told(QosPages *pages);
/* A request that was counted (qos_inode_ref_fill) has just [start, end) of `ino` locked, and the
 * kernel's former pages there are gone. */
void qos_pages_note_locked(QosPages *pages, fuse_ino_t ino, gconstpointer request, gint64 start,
                           gint64 end);
/* A request, noted or not, has pages of `ino`, which is `file`, locked no more: counts it off. */
void qos_pages_end_locked(QosPages *pages, fuse_ino_t ino, const QosInodeRef *file,
                          gconstpointer request);
/* TRUE until they are dropped. Cheap where there are none to be. */
gboolean qos_pages_are_stale(QosPages *pages, fuse_ino_t ino);
/* TRUE: there are stale pages, and the gate resumes `entry`, of that thread, when those that are
 * old now are dropped. The entry does not belong to the caller any more. */
gboolean qos_pages_await(QosPages *pages, fuse_ino_t ino, pid_t thread, QosEntry *entry);
/* Takes back an `entry` that waits: it is the caller's again. FALSE: it is resumed already, or is
 * yet to wait. */
gboolean qos_pages_withdraw(QosPages *pages, fuse_ino_t ino, QosEntry *entry);
