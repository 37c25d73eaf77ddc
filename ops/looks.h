/*
 * Who looks at a file's attributes may come to wait for its pages.
 *
 * Where the kernel is told of a changed mtime or size it drops the file's pages, and waits for
 * those that it keeps locked or writes back, until the requests on them are answered: in a stat(2),
 * while it looks up a name or reads a directory, of which it then holds the lock. So a request that
 * keeps pages must not wait for tokens while somebody looks: he who brings news of a file is told
 * of those that wait, to let them go (qos_gate_release_pages), and those that come shortly after do
 * not wait, for the kernel may be at it still; but what the thread itself sends that was told, for
 * it has come to the end of its look before. A WRITE beyond the end needs none of this: meanwhile
 * the kernel believes no attributes.
 *
 * What the kernel was told last is remembered of some files. Where that is the same, and was not
 * fresh, it drops nothing.
 *
 * Lock: `lock` of the looks; the rest is atomic.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "base/time.h"

typedef struct QosLooks QosLooks;

QosLooks *qos_looks_new(void);
/* Nothing may wait. NULL is allowed. */
void qos_looks_free(QosLooks *looks);

/* The kernel is about to be told of the regular file `ino`, for `thread` (0: not known). TRUE: of
 * requests that wait some keep its pages, and the kernel may come to wait for them. */
gboolean qos_looks_note(QosLooks *looks, fuse_ino_t ino, struct timespec modified, off_t size,
                        pid_t thread);
/* A request that keeps pages of `ino` is about to wait. `end`: where a WRITE ends in the file, as
 * it does not matter beyond the file's end; 0 for any other. Likewise below. */
void qos_looks_wait(QosLooks *looks, fuse_ino_t ino, gint64 end);
/* It does not wait any more. */
void qos_looks_go_on(QosLooks *looks, fuse_ino_t ino);
/* TRUE where the kernel is just being told news of `ino` for others than `thread`, for which it may
 * wait for such a request of that one. To be asked after qos_looks_wait(): who brought the news may
 * have looked before that. */
gboolean qos_looks_has_news(QosLooks *looks, fuse_ino_t ino, gint64 end, pid_t thread);
/* TRUE where news were told less than `within` ago while requests waited, which were let go then.
 */
gboolean qos_looks_is_awaited(QosLooks *looks, fuse_ino_t ino, gint64 end, QosTime within);
