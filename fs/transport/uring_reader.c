/*
 * The readers of the ring: entries, requests, and the wait for them. fs/transport/uring.c says how
 * the ring works.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "fs/transport/interrupt_table.h"
#include "fs/transport/uring_private.h"
#include "sys/clock.h"
#include "sys/mutex.h"
#include "sys/tsan_order.h"

/* linux/fuse.h */
#define FUSE_READ            15
#define FUSE_WRITE           16
#define FUSE_NOTIFY_REPLY    41
#define FUSE_NOTIFY_RETRIEVE 5

#define MEMORY_PATIENCE      (100 * QOS_MILLISECOND)
#define OWN_NUMBERS          (G_GUINT64_CONSTANT(1) << 62) /* the kernel's are far below */

static _Thread_local QosRingReader *this_reader;

/* --- entries --- */

/* Has the kernel make a request of its own for this CPU's queue. It does so for regular files
 * alone, so the one serves that was read, written or looked up last. */
static void ask_for_commit(QosRing *ring)
{
    struct {
        FuseOutHeader header;
        guint64 unique, nodeid, offset; /* struct fuse_notify_retrieve_out */
        guint32 size, padding;
    } message = {
        .header = {.length = sizeof(message), .error = FUSE_NOTIFY_RETRIEVE},
        .unique = OWN_NUMBERS + 2 * (guint64)g_atomic_pointer_add(&ring->own_requests, 1),
        .nodeid = (gsize)g_atomic_pointer_get(&ring->file),
    };

    if (write(ring->fd, &message, sizeof(message)) < 0)
        g_info("cannot ask for a request: %s", g_strerror(errno));
}

/* Sends the entry to the kernel, with the reply that it may carry. */
static void send_entry(QosRingReader *reader, RingEntry *entry)
{
    QosRingQueue *queue = reader->queue;
    gboolean is_new = !entry->is_registered;
    gint starved = g_atomic_int_get(&queue->starved);

    qos_mutex_assert_call(QOS_MUTEX_CALL_KERNEL);
    qos_ring_entry_prepare(entry, qos_ring_support_next(&reader->uring));
    reader->held++;
    if (is_new) {
        io_uring_submit(&reader->uring);
        g_atomic_int_inc(&queue->starved);
        ask_for_commit(queue->ring);
    } else if (starved != 0) {
        io_uring_submit(&reader->uring);
        if (io_uring_cq_ready(&reader->uring) == 0) /* none waited, unless registered since */
            g_atomic_int_compare_and_exchange(&queue->starved, starved, 0);
    }
}

static void watch_wake_fd(QosRingReader *reader)
{
    struct io_uring_sqe *sqe = qos_ring_support_next(&reader->uring);

    io_uring_prep_poll_add(sqe, reader->queue->wake_fd, POLLIN);
    io_uring_sqe_set_data(sqe, NULL);
}

void qos_ring_wake(QosRingQueue *queue)
{
    guint64 one = 1;

    if (write(queue->wake_fd, &one, sizeof(one)) < 0)
        g_warning("io_uring: cannot wake a reader (eventfd): %s", g_strerror(errno));
}

/* --- readers --- */

static void handle(QosRingReader *reader, RingEntry *entry)
{
    QosRing *ring = reader->queue->ring;
    struct fuse_buf buffer = {0};
    FuseInHeader *request = qos_ring_entry_request(entry, &buffer.size);

    qos_kernel_order_request();
    reader->handling = entry;
    reader->has_reply = FALSE;
    if (request->opcode == FUSE_READ || request->opcode == FUSE_WRITE)
        g_atomic_pointer_set(&ring->file, (gsize)request->nodeid);
    if (request->opcode == FUSE_NOTIFY_REPLY) {
        FuseOutHeader done = {0};

        qos_ring_entry_reply(entry, &(struct iovec){&done, sizeof(done)}, 1);
        reader->has_reply = TRUE;
    } else {
        buffer.mem = request;
        qos_interrupt_table_set_number(entry->headers.commit_id);
        fuse_session_process_buf(ring->session, &buffer);
    }
    if (reader->has_reply)
        send_entry(reader, entry);
    else if (g_atomic_int_get(&reader->queue->starved) != 0)
        ask_for_commit(ring);
    reader->handling = NULL;
    reader->has_reply = FALSE;
}

/* A request has left too few readers waiting. */
static void call_reader(QosRingQueue *queue)
{
    qos_mutex_lock(&queue->lock);
    if (queue->resting > 0)
        pthread_cond_signal(&queue->changed);
    else
        qos_ring_start_reader_locked(queue);
    qos_mutex_unlock(&queue->lock);
}

/* There is no memory for an entry, and perhaps no reader at this CPU. Returns when to try again. */
static QosTime find_no_memory(const QosRingQueue *queue)
{
    g_warning_once("io_uring: no memory for a request of CPU %u (see RLIMIT_AS, "
                   "vm.overcommit_memory); requests wait until there is some",
                   queue->number);
    return qos_clock_now() + MEMORY_PATIENCE;
}

/* An entry for a reader that has none; NULL at the end. */
static RingEntry *rest(QosRingReader *reader)
{
    QosRingQueue *queue = reader->queue;
    QosRing *ring = queue->ring;
    RingEntry *entry = NULL;
    QosTime again = QOS_NEVER;

    qos_mutex_lock(&queue->lock);
    if (!reader->is_counted)
        queue->resting++;
    while (!g_atomic_int_get(&ring->is_stopping)) {
        entry = g_queue_pop_head(&queue->returned);
        if (entry == NULL && g_atomic_int_get(&ring->is_open) &&
            g_atomic_int_get(&queue->waiting) < (gint)ring->depth) {
            entry = qos_ring_entry_new(queue->number, ring->payload_size);
            if (entry != NULL)
                g_ptr_array_add(queue->entries, entry);
            else
                again = find_no_memory(queue);
        }
        if (entry != NULL)
            break;
        qos_condition_wait_until(&queue->changed, &queue->lock, again);
    }
    queue->resting--;
    reader->is_counted = FALSE;
    qos_mutex_unlock(&queue->lock);
    return entry;
}

/* Takes what was returned and nobody rests for. */
static void take_returned(QosRingReader *reader)
{
    QosRingQueue *queue = reader->queue;
    GQueue taken = G_QUEUE_INIT;
    guint64 count;

    if (read(queue->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        g_warning("io_uring: cannot read what woke a reader (eventfd): %s", g_strerror(errno));
    if (g_atomic_int_get(&queue->ring->is_stopping)) /* it may have been the end's, for all */
        qos_ring_wake(queue);
    qos_mutex_lock(&queue->lock);
    while (queue->returned.length > queue->resting)
        g_queue_push_tail(&taken, g_queue_pop_head(&queue->returned));
    qos_mutex_unlock(&queue->lock);
    while (!g_queue_is_empty(&taken))
        send_entry(reader, g_queue_pop_head(&taken));
    watch_wake_fd(reader);
}

/* Waits for one completion and deals with it; FALSE when the connection has ended. */
static gboolean serve(QosRingReader *reader)
{
    QosRingQueue *queue = reader->queue;
    QosRing *ring = queue->ring;
    struct io_uring_cqe *completion;

    g_atomic_int_inc(&queue->waiting);
    while (qos_ring_support_wait(&reader->uring, reader->flags) == -EINTR)
        ;
    gboolean are_few = g_atomic_int_add(&queue->waiting, -1) <= (gint)ring->depth;
    if (io_uring_peek_cqe(&reader->uring, &completion) != 0)
        return TRUE;
    RingEntry *entry = io_uring_cqe_get_data(completion);
    int result = completion->res;
    io_uring_cqe_seen(&reader->uring, completion);

    if (entry == NULL) {
        if (!g_atomic_int_get(&ring->is_stopping))
            take_returned(reader);
        return TRUE;
    }
    reader->held--;
    if (result == -ENOTCONN || result == -ECONNABORTED) {
        g_atomic_int_set(&ring->is_over, TRUE);
        return FALSE;
    }
    if (result < 0) {
        g_warning("io_uring: the kernel refuses an entry of queue %u: %s", queue->number,
                  g_strerror(-result));
        return TRUE;
    }
    if (are_few)
        call_reader(queue);
    handle(reader, entry);
    return TRUE;
}

static void *read_requests(void *data)
{
    QosRingReader *reader = data;
    QosRingQueue *queue = reader->queue;
    QosRing *ring = queue->ring;
    char name[16];

    this_reader = reader;
    g_snprintf(name, sizeof(name), "ring-%u", queue->number);
    pthread_setname_np(pthread_self(), name);
    qos_ring_support_pin(queue->number);
    reader->flags = qos_ring_support_adopt(&reader->uring);
    watch_wake_fd(reader);
    while (!g_atomic_int_get(&ring->is_stopping)) {
        if (reader->held == 0) {
            RingEntry *entry = rest(reader);

            if (entry == NULL)
                break;
            send_entry(reader, entry);
        }
        if (!serve(reader))
            break;
    }
    io_uring_submit(&reader->uring); /* the last reply */
    io_uring_unregister_ring_fd(&reader->uring);
    return NULL;
}

gboolean qos_ring_start_reader_locked(QosRingQueue *queue)
{
    QosRing *ring = queue->ring;
    QosRingReader *reader;

    if (g_atomic_int_get(&ring->is_stopping) || queue->readers->len >= ring->threads)
        return FALSE;
    reader = g_new0(QosRingReader, 1);
    reader->queue = queue;
    reader->is_counted = TRUE;
    if (qos_ring_support_open_disabled(&reader->uring, ring->fd) != 0) {
        g_free(reader);
        return FALSE;
    }
    if (pthread_create(&reader->thread, NULL, read_requests, reader) != 0) {
        io_uring_queue_exit(&reader->uring);
        g_free(reader);
        return FALSE;
    }
    queue->resting++;
    g_ptr_array_add(queue->readers, reader);
    return TRUE;
}

/* --- the request in this thread --- */

void qos_ring_send_last(QosRing *ring, RingEntry *entry)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_KERNEL);
    qos_mutex_lock(&ring->last_lock);
    qos_ring_entry_prepare(entry, qos_ring_support_next(&ring->last));
    io_uring_submit(&ring->last);
    qos_mutex_unlock(&ring->last_lock);
}

void qos_ring_give_back(QosRing *ring, RingEntry *entry)
{
    QosRingQueue *queue = &ring->queues[entry->queue];
    gboolean is_last;

    if (g_atomic_int_get(&ring->is_over))
        return;
    entry->is_parked = TRUE;
    qos_mutex_lock(&queue->lock);
    is_last = g_atomic_int_get(&ring->is_stopping);
    if (!is_last) {
        g_queue_push_tail(&queue->returned, entry);
        if (queue->returned.length <= queue->resting)
            pthread_cond_signal(&queue->changed);
        else if (!qos_ring_start_reader_locked(queue))
            qos_ring_wake(queue);
    }
    qos_mutex_unlock(&queue->lock);
    if (is_last)
        qos_ring_send_last(ring, entry);
}

gboolean qos_ring_take_reply(const RingEntry *entry)
{
    if (this_reader == NULL || this_reader->handling != entry)
        return FALSE;
    this_reader->has_reply = TRUE;
    return TRUE;
}

void qos_ring_flush(void)
{
    QosRingReader *reader = this_reader;

    if (reader == NULL || !reader->has_reply)
        return;
    qos_ring_give_back(reader->queue->ring, reader->handling);
    reader->handling = NULL;
    reader->has_reply = FALSE;
}

void *qos_ring_buffer(gsize size)
{
    const QosRingReader *reader = this_reader;

    if (reader == NULL || reader->handling == NULL || reader->has_reply ||
        size > reader->handling->memory[1].iov_len)
        return NULL;
    return reader->handling->memory[1].iov_base;
}

void qos_ring_drop_data(void)
{
    const QosRingReader *reader = this_reader;

    if (reader != NULL && reader->handling != NULL)
        qos_ring_entry_drop_data(reader->handling);
}
