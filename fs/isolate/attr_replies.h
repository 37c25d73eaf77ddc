/*
 * What the kernel was last told of a file's attributes: whether an attribute reply tells of a
 * change.
 *
 * What the kernel was told last is remembered of some files, as a digest. Where that is the same,
 * and was not fresh, the reply tells nothing new.
 *
 * All is atomic.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "base/time.h"

typedef struct QosLooks QosLooks;

QosLooks *qos_looks_new(void);
void qos_looks_free(QosLooks *looks); /* NULL is allowed */

/* The kernel is about to be told of the regular file `ino`. TRUE: it may be a change. */
gboolean qos_looks_note(QosLooks *looks, fuse_ino_t ino, struct timespec modified, off_t size);
