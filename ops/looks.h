/*
 * Who looks at a file's attributes may come to wait for its pages.
 *
 * Where the kernel is told of a changed mtime or size it drops the file's pages, and waits for
 * those that it keeps locked or writes back, until the requests on them are answered: in a stat(2),
 * while it looks up a name or reads a directory, of which it then holds the lock. So a request that
 * keeps pages must not wait for tokens while somebody looks: he who brings news of a file lets
 * those go that wait (qos_gate_release_pages). Those that come later he may meet as well, for as
 * long as he is at it: so he is watched, and while he sleeps they go (ops/approaches.h). A WRITE
 * beyond the end needs none of this: meanwhile the kernel believes no attributes.
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

/* The kernel is about to be told of the regular file `ino`. TRUE: it may be news, for which it
 * drops the file's pages. */
gboolean qos_looks_note(QosLooks *looks, fuse_ino_t ino, struct timespec modified, off_t size);
/* A request that keeps pages of `ino` is about to wait. `end`: where a WRITE ends in the file, as
 * it does not matter beyond the file's end; 0 for any other. */
void qos_looks_wait(QosLooks *looks, fuse_ino_t ino, gint64 end);
/* It does not wait any more. */
void qos_looks_go_on(QosLooks *looks, fuse_ino_t ino);
/* Whether of those that wait some keep pages that matter where `ino` is so large. */
gboolean qos_looks_are_awaited(QosLooks *looks, fuse_ino_t ino, gint64 size);
