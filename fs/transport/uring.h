/*
 * FUSE over io_uring: a transport beside /dev/fuse, which saves each request a system call and a
 * wake-up on another CPU. fs/transport/uring.c says how it works, docs/design/io_uring.md why.
 *
 *     ring = qos_ring_new(depth, &error);                  where the kernel and this build have it
 *     fuse_session_custom_io(session, ...)                 with qos_ring_write
 * inside qos_ring_attach(ring, session, threads)              before the loop
 *     ... the loop: INIT, FORGET and INTERRUPT still come by /dev/fuse ...
 *     qos_ring_stop(ring)                                  after the loop
 *     qos_ring_free(ring)                                  before the unmount
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct QosRing QosRing;

/* Bytes of memory that the entry of a request takes which waits: of what it may grow to
 * (fs/transport/uring.c), so much is touched. */
#define QOS_RING_WAITING_MEMORY 8192

typedef enum {
    QOS_RING_OFF,
    QOS_RING_AUTO, /* where the kernel offers it */
    QOS_RING_ON,   /* or not at all */
} QosRingMode;

/* `depth`: how many readers wait at each CPU at least. NULL with an error (QOS_ERROR) that says
 * what is missing. */
QosRing *qos_ring_new(guint depth, GError **error);
/* Lets the requests of a mounted session come by the ring. `threads`: how many readers there may be
 * at one CPU. */
gboolean qos_ring_attach(QosRing *ring, struct fuse_session *session, guint threads,
                         GError **error);
/* Takes no more requests, and joins the readers. Replies may still follow. */
void qos_ring_stop(QosRing *ring);
/* NULL is fine. No reply may follow. */
void qos_ring_free(QosRing *ring);

/* For libfuse (struct fuse_custom_io): as writev(2) of /dev/fuse. */
ssize_t qos_ring_write(QosRing *ring, int fd, struct iovec *parts, int count);

/* This thread's reply, if it still holds one, does not wait for the end of its handler. To be
 * called before a handler that has replied goes on with something that may take long. */
void qos_ring_flush(void);
/* Where the reply to the request that this thread is handling may be made without being copied;
 * NULL if it came another way, or does not fit. */
void *qos_ring_buffer(gsize size);
/* Gives back the memory for the data of the request that this thread is handling, because the
 * request is going to wait, and its data has been copied elsewhere. */
void qos_ring_drop_data(void);
