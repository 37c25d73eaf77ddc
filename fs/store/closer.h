/*
 * Threads that close what nobody works on any more.
 *
 * The last close of a file may take the store its time, or for ever: it frees the blocks of a file
 * that was removed, writes back what is dirty, waits while the store is frozen. Where a request
 * does it, its job pays. Where nobody does (the kernel forgets a file, a descriptor is given up to
 * make room for others), it is left to these threads.
 *
 * Each device is served by one thread, or where closes come faster than that by a few, so that one
 * that hangs holds up its own files alone.
 *
 * Lock: `lock` of the closer; never held while something is closed.
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
