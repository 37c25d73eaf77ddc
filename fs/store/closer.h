/*
 * Threads that close the descriptors that no operation uses any more.
 *
 * The last close of a file may take long, or block for ever. The store frees the blocks of a file
 * that was removed, writes back what is dirty, or waits while it is frozen. If a request causes the
 * close, its job pays for it. If none does, because the kernel forgets a file, or a descriptor is
 * given up to make room for others, these threads close it.
 *
 * One thread serves a device, and a few more do where closes come faster than one can do them. So a
 * device that hangs holds up only its own files.
 *
 * Lock: `lock` of the closer; not held while something is closed.
 */
#pragma once

#include <glib.h>

#include "base/time.h"

#define QOS_CLOSERS         16 /* threads */
#define QOS_CLOSERS_DEVICE  4  /* for one device */
#define QOS_CLOSERS_BACKLOG 64 /* descriptors that wait there before it has more than one */
#define QOS_CLOSER_PATIENCE QOS_SECOND

typedef struct QosCloser QosCloser;

/* Starts without threads. */
QosCloser *qos_closer_new(void);
/* Returns when all is closed; but what no thread could be started for is left to the end of the
 * process. NULL is allowed. */
void qos_closer_free(QosCloser *closer);

/* Takes `fd`, of a file on `device`. */
void qos_closer_give(QosCloser *closer, guint64 device, int fd);
/* Descriptors that are not closed yet. */
guint qos_closer_count(QosCloser *closer);
/* Waits until these are fewer than `most`; FALSE where that takes longer than QOS_CLOSER_PATIENCE.
 */
gboolean qos_closer_wait(QosCloser *closer, guint most);
