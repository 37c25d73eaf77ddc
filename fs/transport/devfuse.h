/*
 * The readers: the threads that read requests from /dev/fuse, hand them to libfuse, and serve them.
 * As few of them as possible do the work.
 *
 * libfuse's own loop makes a thread whenever none is left to read, and the kernel gives each
 * request to the thread that has waited longest. So all threads take turns, even if few are needed,
 * each with its stack and buffers fallen out of the caches. Their number grows soon, because an
 * answered caller takes the CPU from the thread that answered it. libfuse also takes five locks
 * that all threads share, most of them twice, for each request.
 *
 * Here at most `waiting` threads wait in the kernel, and fewer if that is enough. Other idle
 * threads are parked. The last one parked is called first, and only when hardly any thread reads
 * any more, because the others are busy in the store. So a slow store gets as many threads as it
 * needs, up to `most`, and a fast one is served by a few that stay warm.
 *
 * Each reader has its own descriptor of /dev/fuse (FUSE_DEV_IOC_CLONE), and a reply must go by the
 * descriptor that its request came by, whichever thread sends it. All that libfuse keeps of a
 * request is its number. So the reader's own number is added to that in its upper bits, and taken
 * away from the reply. There are 65,535 such numbers; further readers share the session's
 * descriptor.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <glib.h>
#include <signal.h>

#include "fs/transport/interrupt_table.h"

#define QOS_MAX_WRITE (1u << 20) /* bytes of data in one request */

typedef struct QosReaders QosReaders;

/* At most `waiting` (>= 3) threads wait in the kernel, and there are `most` (>= 3) in all. */
QosReaders *qos_readers_new(guint waiting, guint most);
void qos_readers_free(QosReaders *readers); /* NULL is allowed */
/* Lets each reader read by a descriptor of its own, and libfuse send its replies by `write`, which
 * gets the session's user data and must call qos_readers_write(). The session is mounted. */
void qos_readers_attach(QosReaders *readers, struct fuse_session *session,
                        ssize_t (*write)(int fd, struct iovec *vector, int count, void *user_data));
/* Sends a reply by the descriptor that its request came by; `fd` is the session's. Returns its
 * length, or -1 with errno. */
ssize_t qos_readers_write(const QosReaders *readers, int fd, struct iovec *vector, int count);
/* libfuse wants a function that reads (struct fuse_custom_io), though it is never asked to. */
ssize_t qos_readers_read(int fd, void *buffer, size_t size, void *user_data);
/* Reads and serves requests until the session ends: by the unmount, or by a signal with a handler
 * that says so (fuse_set_signal_handlers()). `signals`, the mask of this thread meanwhile, must let
 * it through. Interrupts go to those that listen in `interrupts`. Returns 0, or the -errno of the
 * device. Requests that come after a signal are still served, until the readers are stopped. */
int qos_readers_run(QosReaders *readers, struct fuse_session *session,
                    QosInterruptTable *interrupts, const sigset_t *signals);
/* Behind qos_readers_run(): ends the threads. */
void qos_readers_stop(QosReaders *readers);

/*
 * This thread has nothing left to do but to reply: from now on it counts among those that read.
 * Does nothing in threads that do not read.
 *
 * As soon as a reply is written the kernel may give the thread's CPU to the program that waited for
 * it, which sends its next request before the thread is back. Another thread would not serve that
 * sooner, because only a CPU is missing, and to call one costs a futex(2) and a switch of threads.
 */
void qos_reading_comes_next(void);
