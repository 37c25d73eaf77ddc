/*
 * FUSE over io_uring (fs/transport/uring.h).
 *
 * The kernel has one queue for each CPU. The daemon registers *entries* with a queue: memory for
 * one request and its reply. A request takes a free entry of the queue of the CPU on which it is
 * made. If none is free, it waits in the queue until one is *committed*: given back with the reply
 * of the request before. It is delivered in the thread that gave the entry. So a busy thread with a
 * free entry would hold up the request that gets that entry. Hence:
 *
 *     a reader is a thread, pinned to the CPU of its queue, with an io_uring of its own and one
 *     entry. As with /dev/fuse, a busy thread offers nothing.
 *
 * 1. A reader waits; its request comes; it hands it to libfuse, and the handler replies. The reply
 *    and the wait for the next request are one system call.
 * 2. The request parks: its entry stays with it, and the reader needs another. If fewer than
 *    `depth` readers wait, it registers a new one: the queue grows. Otherwise the reader rests.
 * 3. Another thread replies later: the entry is returned, and a reader that rests takes it, or a
 *    new one. Only where no more readers can be made does one that waits take it besides its own.
 * 4. When a request leaves too few readers waiting, one that rests gets an entry, or a new reader
 *    is made.
 *
 * So parked requests take memory alone, and leave others `depth` entries. One thing is left: what
 * came while no entry was free waits in the queue, and a newly registered entry does not fetch it,
 * only a commit does. So after a registration the queue is `starved` until a commit brings nothing.
 * A thread that has registered an entry, or that has a parked request, has nothing to commit. If
 * the queue is starved, it asks for a request of the kernel's own (NOTIFY_RETRIEVE of no bytes of a
 * file). That comes by this queue, and its reply is a commit.
 *
 * FORGET and INTERRUPT keep coming by /dev/fuse, so fs/transport/devfuse.c goes on beside the ring.
 * A reply is known to be ours by its number, which is a token of the entry.
 *
 * fs/transport/uring_reader.c has the readers; here are the replies, and the beginning and the end.
 */
#include "fs/transport/uring.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/transport/uring_private.h"
#include "sys/tsan_order.h"

/* linux/fuse.h */
#define FUSE_LOOKUP            1
#define FUSE_MKNOD             8
#define FUSE_CREATE            35
#define FUSE_OVER_IO_URING_EXT (1u << (41 - 32))

#define PAYLOAD_MIN            8192

/* struct fuse_init_out, as far as it matters here. */
typedef struct {
    guint32 major, minor, max_readahead, flags;
    guint16 max_background, congestion_threshold;
    guint32 max_write, time_gran;
    guint16 max_pages, map_alignment;
    guint32 flags2;
} FuseInitOut;

/* struct fuse_entry_out, as far as it matters here. */
typedef struct {
    guint64 nodeid;
    char between[92];
    guint32 mode;
} FuseEntryOut;

G_STATIC_ASSERT(offsetof(FuseEntryOut, mode) == 100);

/* --- replies --- */

static ssize_t length_of(const struct iovec *parts, int count)
{
    gsize length = 0;

    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    return (ssize_t)length;
}

/* Tells the kernel of the ring in libfuse's answer to INIT. By then the ring must be able to serve
 * requests, because nothing comes another way afterwards. */
static void add_to_init(QosRing *ring, struct iovec *parts, int count)
{
    const FuseOutHeader *out = parts[0].iov_base;
    FuseInitOut *init = parts[1].iov_base;
    gboolean is_ready = TRUE;

    if (count < 2 || out->error != 0 || parts[1].iov_len < sizeof(*init))
        return;
    ring->payload_size = MAX(
        PAYLOAD_MIN, MAX(init->max_write, (gsize)init->max_pages * (gsize)sysconf(_SC_PAGESIZE)));
    for (guint i = 0; i < ring->queue_count && is_ready; i++) {
        QosRingQueue *queue = &ring->queues[i];

        qos_mutex_lock(&queue->lock);
        is_ready = qos_ring_start_reader_locked(queue);
        qos_mutex_unlock(&queue->lock);
    }
    if (is_ready)
        init->flags2 |= FUSE_OVER_IO_URING_EXT;
    else
        g_warning("io_uring: no reader for each of %u CPUs; requests come by /dev/fuse",
                  ring->queue_count);
}

static void open_queues(QosRing *ring)
{
    g_atomic_int_set(&ring->is_open, TRUE);
    for (guint i = 0; i < ring->queue_count; i++) {
        QosRingQueue *queue = &ring->queues[i];

        qos_mutex_lock(&queue->lock);
        pthread_cond_broadcast(&queue->changed);
        qos_mutex_unlock(&queue->lock);
    }
}

/* A file that the kernel learns of by this reply is one to ask for. */
static void note_file(QosRing *ring, const RingEntry *entry, const struct iovec *parts, int count)
{
    guint32 opcode = entry->headers.in.opcode;
    const FuseEntryOut *out = count > 1 ? parts[1].iov_base : NULL;

    if ((opcode == FUSE_LOOKUP || opcode == FUSE_MKNOD || opcode == FUSE_CREATE) && out != NULL &&
        parts[1].iov_len >= sizeof(*out) && out->nodeid != 0 && S_ISREG(out->mode))
        g_atomic_pointer_set(&ring->file, (gsize)out->nodeid);
}

ssize_t qos_ring_write(QosRing *ring, int fd, struct iovec *parts, int count)
{
    const FuseOutHeader *out = parts[0].iov_base;
    gboolean is_init = out->unique != 0 && !g_atomic_int_get(&ring->is_open);
    ssize_t length;

    qos_mutex_assert_call(QOS_MUTEX_CALL_KERNEL);
    qos_kernel_order_reply();
    if (!qos_ring_is_token(out->unique)) {
        if (is_init)
            add_to_init(ring, parts, count);
        length = writev(fd, parts, count);
        if (is_init && length > 0)
            open_queues(ring);
        return length;
    }
    RingEntry *entry = qos_ring_entry_from(out->unique);

    note_file(ring, entry, parts, count);
    qos_ring_entry_reply(entry, parts, count);
    if (!qos_ring_take_reply(entry))
        qos_ring_give_back(ring, entry);
    return length_of(parts, count);
}

/* --- the ring --- */

/* 0 or -errno: without its eventfd nobody could wake the queue's readers. */
static int init_queue(QosRing *ring, guint number)
{
    QosRingQueue *queue = &ring->queues[number];

    queue->ring = ring;
    queue->number = (guint16)number;
    queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int result = queue->wake_fd >= 0 ? 0 : -errno;
    qos_mutex_init(&queue->lock, QOS_MUTEX_RING_QUEUE);
    pthread_cond_init(&queue->changed, NULL);
    queue->readers = g_ptr_array_new();
    queue->entries = g_ptr_array_new_with_free_func((GDestroyNotify)qos_ring_entry_free);
    return result;
}

QosRing *qos_ring_new(guint depth, GError **error)
{
    guint count = qos_ring_support_check(error);
    QosRing *ring;
    int result = 0;

    if (count == 0)
        return NULL;
    ring = g_new0(QosRing, 1);
    ring->fd = -1;
    ring->depth = depth;
    ring->queue_count = count;
    ring->queues = g_new0(QosRingQueue, count);
    qos_mutex_init(&ring->last_lock, QOS_MUTEX_RING_LAST);
    for (guint i = 0; i < count; i++) {
        int queue_result = init_queue(ring, i);

        if (queue_result != 0)
            result = queue_result;
    }
    if (result == 0)
        return ring;
    qos_set_error(error, -result, "cannot make an eventfd for each of %u CPUs: %s", count,
                  g_strerror(-result));
    qos_ring_free(ring);
    return NULL;
}

gboolean qos_ring_attach(QosRing *ring, struct fuse_session *session, guint threads, GError **error)
{
    int result;

    ring->session = session;
    ring->threads = MAX(threads, ring->depth + 1);
    ring->fd = fuse_session_fd(session);
    result = qos_ring_support_open(&ring->last, ring->fd);
    if (result == 0)
        return TRUE;
    ring->fd = -1;
    qos_set_error(error, -result, "cannot make an io_uring: %s", g_strerror(-result));
    return FALSE;
}

void qos_ring_stop(QosRing *ring)
{
    if (ring == NULL)
        return;
    g_atomic_int_set(&ring->is_stopping, TRUE);
    for (guint i = 0; i < ring->queue_count; i++) {
        QosRingQueue *queue = &ring->queues[i];

        qos_mutex_lock(&queue->lock); /* from here on there is no new reader */
        pthread_cond_broadcast(&queue->changed);
        qos_ring_wake(queue);
        qos_mutex_unlock(&queue->lock);
        for (guint j = 0; j < queue->readers->len; j++)
            pthread_join(((QosRingReader *)g_ptr_array_index(queue->readers, j))->thread, NULL);
        while (!g_queue_is_empty(&queue->returned))
            qos_ring_send_last(ring, g_queue_pop_head(&queue->returned));
    }
}

void qos_ring_free(QosRing *ring)
{
    if (ring == NULL)
        return;
    for (guint i = 0; i < ring->queue_count; i++) {
        QosRingQueue *queue = &ring->queues[i];

        for (guint j = 0; j < queue->readers->len; j++) {
            QosRingReader *reader = g_ptr_array_index(queue->readers, j);

            io_uring_queue_exit(&reader->uring);
            g_free(reader);
        }
        g_ptr_array_unref(queue->readers);
        g_ptr_array_unref(queue->entries);
        pthread_cond_destroy(&queue->changed);
        qos_mutex_destroy(&queue->lock);
        if (queue->wake_fd >= 0)
            close(queue->wake_fd);
    }
    if (ring->fd >= 0)
        io_uring_queue_exit(&ring->last);
    qos_mutex_destroy(&ring->last_lock);
    g_free(ring->queues);
    g_free(ring);
}
