/*
 * What FUSE over io_uring (fs/transport/uring.h) needs of the machine: CPUs that a thread may be
 * pinned to, and io_urings of the kind that the kernel's FUSE takes commands from.
 */
#pragma once

#include <glib.h>
#include <liburing.h>

/* The number of CPUs, of each of which the kernel has a queue; 0 with an error (QOS_ERROR) that
 * says what is missing. */
guint qos_ring_support_check(GError **error);

/* Makes this thread run on that CPU alone. 0 or -errno: a CPU that is not there has no requests
 * either. */
int qos_ring_support_pin(guint cpu);

/* An io_uring with `fd` as its file 0, for threads that take turns. 0 or -errno. */
int qos_ring_support_open(struct io_uring *uring, int fd);
/* One for a single thread, which is to adopt it. */
int qos_ring_support_open_disabled(struct io_uring *uring, int fd);
/* Returns the flags for qos_ring_support_wait(). */
guint qos_ring_support_adopt(struct io_uring *uring);
/* Sends the commands, and waits for a completion, in one system call. 0 or more, or -errno. */
int qos_ring_support_wait(struct io_uring *uring, guint flags);

/* Room for the next command; what fills it all is sent first. */
struct io_uring_sqe *qos_ring_support_next(struct io_uring *uring);
