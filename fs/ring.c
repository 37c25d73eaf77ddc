/*
 * FUSE over io_uring (fs/ring.h).
 *
 * The kernel has one queue for each CPU. What we register with a queue is an entry: memory for one
 * request and its reply. A request takes a free entry of the queue of the CPU that it is made on,
 * or waits in the queue until one is committed: given back with the reply of the request before.
 * It is delivered in the thread that gave the entry. So a thread that is busy in the store, with a
 * free entry, would hold up whoever gets that entry. Hence:
 *
 *     a reader is a thread, pinned to the CPU of its queue, with an io_uring of its own and one
 *     entry; as with /dev/fuse, who is busy offers nothing.
 *
 * 1. A reader waits; its request comes; it hands it to libfuse, and the handler replies. The reply
 *    and the wait for the next request are one system call.
 * 2. The request parks: its entry stays with it, and the reader needs another. If fewer than
 *    `depth` readers wait, it registers a new one: the queue grows. Otherwise the reader rests.
 * 3. Somebody else replies later: the entry is returned, and a reader that rests takes it, or a new
 *    one. Only where no more readers can be made does one that waits take it besides its own.
 * 4. When a request leaves too few readers waiting, one that rests gets an entry, or a new reader
 *    is made.
 *
 * So parked requests take memory alone, and leave others `depth` entries. One thing is left: what
 * came while no entry was free waits in the queue, and a newly registered entry does not fetch it,
 * only a commit does. So after a registration the queue is `starved` until a commit brings nothing.
 * Meanwhile, whoever has nothing to commit (it has registered an entry, or its request has parked)
 * asks for a request of the kernel's own, which comes by this queue, and whose reply is a commit
 * (NOTIFY_RETRIEVE of no bytes of a file).
 *
 * FORGET and INTERRUPT keep coming by /dev/fuse, so fs/readers.c goes on beside the ring. A reply
 * is known to be ours by its number, which is a token of the entry.
 */
#include "fs/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/ring_entry.h"
#include "fs/ring_support.h"
#include "ops/interrupt_table.h"

/* linux/fuse.h */
#define FUSE_LOOKUP            1
#define FUSE_MKNOD             8
#define FUSE_READ              15
#define FUSE_WRITE             16
#define FUSE_CREATE            35
#define FUSE_NOTIFY_REPLY      41
#define FUSE_NOTIFY_RETRIEVE   5
#define FUSE_OVER_IO_URING_EXT (1u << (41 - 32))

#define PAYLOAD_MIN            8192
#define OWN_NUMBERS            (G_GUINT64_CONSTANT(1) << 62) /* the kernel's are far below */

typedef struct {
    QosRing *ring;
    guint16 number;       /* the CPU */
    gint waiting;         /* atomic: readers that wait, with an entry or more */
    gint starved;         /* atomic: not 0: requests may wait in the kernel's queue */
    int wake_fd;          /* readable: readers, look at `returned`, or end */
    pthread_mutex_t lock; /* the following */
    pthread_cond_t changed;
    GPtrArray *readers;
    GPtrArray *entries; /* all of the queue */
    GQueue returned;    /* entries with the reply to a request that had parked */
    guint resting;      /* readers without an entry */
} Queue;

typedef struct {
    Queue *queue;
    struct io_uring uring;
    pthread_t thread;
    gboolean is_counted; /* in queue->resting, since it was made */
    guint held;          /* entries that it has with the kernel */
    RingEntry *handling; /* the request in this thread, until it parks */
    gboolean has_reply;
} Reader;

struct QosRing {
    struct fuse_session *session;
    int fd;
    guint depth;
    guint threads;
    gsize payload_size;
    gsize own_requests;   /* atomic: how many ask_for_commit() has made */
    gsize file;           /* atomic: the node id of a file that the kernel knows */
    gboolean is_open;     /* atomic: the kernel knows of the ring */
    gboolean is_over;     /* atomic: the connection has ended, and with it all requests */
    gboolean is_stopping; /* atomic */
    pthread_mutex_t last_lock;
    struct io_uring last; /* for replies once there are no readers */
    guint queue_count;
    Queue *queues;
};

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

static _Thread_local Reader *this_reader;

static gboolean start_reader_locked(Queue *queue);

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
        g_debug("cannot ask for a request: %s", g_strerror(errno));
}

/* Sends the entry to the kernel, with the reply that it may carry. */
static void send_entry(Reader *reader, RingEntry *entry)
{
    Queue *queue = reader->queue;
    gboolean is_new = !entry->is_registered;
    gint starved = g_atomic_int_get(&queue->starved);

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

static void watch_wake_fd(Reader *reader)
{
    struct io_uring_sqe *sqe = qos_ring_support_next(&reader->uring);

    io_uring_prep_poll_add(sqe, reader->queue->wake_fd, POLLIN);
    io_uring_sqe_set_data(sqe, NULL);
}

static void wake(Queue *queue)
{
    guint64 one = 1;

    if (write(queue->wake_fd, &one, sizeof(one)) < 0)
        g_warning("cannot write to an eventfd: %s", g_strerror(errno));
}

/* --- readers --- */

static void handle(Reader *reader, RingEntry *entry)
{
    QosRing *ring = reader->queue->ring;
    struct fuse_buf buffer = {0};
    FuseInHeader *request = qos_ring_entry_request(entry, &buffer.size);

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
static void call_reader(Queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->resting > 0)
        pthread_cond_signal(&queue->changed);
    else
        start_reader_locked(queue);
    pthread_mutex_unlock(&queue->lock);
}

/* An entry for a reader that has none; NULL at the end. */
static RingEntry *rest(Reader *reader)
{
    Queue *queue = reader->queue;
    QosRing *ring = queue->ring;
    RingEntry *entry = NULL;

    pthread_mutex_lock(&queue->lock);
    if (!reader->is_counted)
        queue->resting++;
    while (!g_atomic_int_get(&ring->is_stopping)) {
        entry = g_queue_pop_head(&queue->returned);
        if (entry == NULL && g_atomic_int_get(&ring->is_open) &&
            g_atomic_int_get(&queue->waiting) < (gint)ring->depth) {
            entry = qos_ring_entry_new(queue->number, ring->payload_size);
            if (entry != NULL)
                g_ptr_array_add(queue->entries, entry);
        }
        if (entry != NULL)
            break;
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    queue->resting--;
    reader->is_counted = FALSE;
    pthread_mutex_unlock(&queue->lock);
    return entry;
}

/* Takes what was returned and nobody rests for. */
static void take_returned(Reader *reader)
{
    Queue *queue = reader->queue;
    GQueue taken = G_QUEUE_INIT;
    guint64 count;

    if (read(queue->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        g_warning("cannot read an eventfd: %s", g_strerror(errno));
    pthread_mutex_lock(&queue->lock);
    while (queue->returned.length > queue->resting)
        g_queue_push_tail(&taken, g_queue_pop_head(&queue->returned));
    pthread_mutex_unlock(&queue->lock);
    while (!g_queue_is_empty(&taken))
        send_entry(reader, g_queue_pop_head(&taken));
    watch_wake_fd(reader);
}

/* Waits for one completion and deals with it; FALSE when the connection has ended. */
static gboolean serve(Reader *reader)
{
    Queue *queue = reader->queue;
    QosRing *ring = queue->ring;
    struct io_uring_cqe *completion;

    g_atomic_int_inc(&queue->waiting);
    while (io_uring_submit_and_wait(&reader->uring, 1) == -EINTR)
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
        g_warning("the kernel refuses an entry of queue %u: %s", queue->number,
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
    Reader *reader = data;
    Queue *queue = reader->queue;
    QosRing *ring = queue->ring;
    char name[16];

    this_reader = reader;
    g_snprintf(name, sizeof(name), "ring-%u", queue->number);
    pthread_setname_np(pthread_self(), name);
    qos_ring_support_pin(queue->number);
    qos_ring_support_adopt(&reader->uring);
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

static gboolean start_reader_locked(Queue *queue)
{
    QosRing *ring = queue->ring;
    Reader *reader;

    if (g_atomic_int_get(&ring->is_stopping) || queue->readers->len >= ring->threads)
        return FALSE;
    reader = g_new0(Reader, 1);
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

/* --- replies --- */

/* Once there are no readers: nobody will see what the entry brings next. */
static void send_last(QosRing *ring, RingEntry *entry)
{
    pthread_mutex_lock(&ring->last_lock);
    qos_ring_entry_prepare(entry, qos_ring_support_next(&ring->last));
    io_uring_submit(&ring->last);
    pthread_mutex_unlock(&ring->last_lock);
}

/* The entry has a reply, and no reader. */
static void give_back(QosRing *ring, RingEntry *entry)
{
    Queue *queue = &ring->queues[entry->queue];
    gboolean is_last;

    if (g_atomic_int_get(&ring->is_over))
        return;
    entry->is_parked = TRUE;
    pthread_mutex_lock(&queue->lock);
    is_last = g_atomic_int_get(&ring->is_stopping);
    if (!is_last) {
        g_queue_push_tail(&queue->returned, entry);
        if (queue->returned.length <= queue->resting)
            pthread_cond_signal(&queue->changed);
        else if (!start_reader_locked(queue))
            wake(queue);
    }
    pthread_mutex_unlock(&queue->lock);
    if (is_last)
        send_last(ring, entry);
}

static ssize_t length_of(const struct iovec *parts, int count)
{
    gsize length = 0;

    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    return (ssize_t)length;
}

void qos_ring_flush(void)
{
    Reader *reader = this_reader;

    if (reader == NULL || !reader->has_reply)
        return;
    give_back(reader->queue->ring, reader->handling);
    reader->handling = NULL;
    reader->has_reply = FALSE;
}

void *qos_ring_buffer(gsize size)
{
    const Reader *reader = this_reader;

    if (reader == NULL || reader->handling == NULL || reader->has_reply ||
        size > reader->handling->memory[1].iov_len)
        return NULL;
    return reader->handling->memory[1].iov_base;
}

void qos_ring_drop_data(void)
{
    const Reader *reader = this_reader;

    if (reader != NULL && reader->handling != NULL)
        qos_ring_entry_drop_data(reader->handling);
}

/* libfuse's answer to INIT is where the kernel learns of the ring, which must be able to serve it
 * by then: from there on, nothing comes another way. */
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
        Queue *queue = &ring->queues[i];

        pthread_mutex_lock(&queue->lock);
        is_ready = start_reader_locked(queue);
        pthread_mutex_unlock(&queue->lock);
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
        Queue *queue = &ring->queues[i];

        pthread_mutex_lock(&queue->lock);
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->lock);
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
    Reader *reader = this_reader;
    gboolean is_init = out->unique != 0 && !g_atomic_int_get(&ring->is_open);
    ssize_t length;

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
    if (reader != NULL && reader->handling == entry)
        reader->has_reply = TRUE;
    else
        give_back(ring, entry);
    return length_of(parts, count);
}

/* --- the ring --- */

QosRing *qos_ring_new(guint depth, guint threads, GError **error)
{
    guint count = qos_ring_support_check(error);
    QosRing *ring;

    if (count == 0)
        return NULL;
    ring = g_new0(QosRing, 1);
    ring->fd = -1;
    ring->depth = depth;
    ring->threads = MAX(threads, depth + 1);
    ring->queue_count = count;
    ring->queues = g_new0(Queue, count);
    pthread_mutex_init(&ring->last_lock, NULL);
    for (guint i = 0; i < count; i++) {
        Queue *queue = &ring->queues[i];

        queue->ring = ring;
        queue->number = (guint16)i;
        queue->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        pthread_mutex_init(&queue->lock, NULL);
        pthread_cond_init(&queue->changed, NULL);
        queue->readers = g_ptr_array_new();
        queue->entries = g_ptr_array_new_with_free_func((GDestroyNotify)qos_ring_entry_free);
    }
    return ring;
}

gboolean qos_ring_attach(QosRing *ring, struct fuse_session *session, GError **error)
{
    int result;

    ring->session = session;
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
        Queue *queue = &ring->queues[i];

        pthread_mutex_lock(&queue->lock); /* from here on there is no new reader */
        pthread_cond_broadcast(&queue->changed);
        wake(queue);
        pthread_mutex_unlock(&queue->lock);
        for (guint j = 0; j < queue->readers->len; j++)
            pthread_join(((Reader *)g_ptr_array_index(queue->readers, j))->thread, NULL);
        while (!g_queue_is_empty(&queue->returned))
            send_last(ring, g_queue_pop_head(&queue->returned));
    }
}

void qos_ring_free(QosRing *ring)
{
    if (ring == NULL)
        return;
    for (guint i = 0; i < ring->queue_count; i++) {
        Queue *queue = &ring->queues[i];

        for (guint j = 0; j < queue->readers->len; j++) {
            Reader *reader = g_ptr_array_index(queue->readers, j);

            io_uring_queue_exit(&reader->uring);
            g_free(reader);
        }
        g_ptr_array_unref(queue->readers);
        g_ptr_array_unref(queue->entries);
        pthread_cond_destroy(&queue->changed);
        pthread_mutex_destroy(&queue->lock);
        close(queue->wake_fd);
    }
    if (ring->fd >= 0)
        io_uring_queue_exit(&ring->last);
    pthread_mutex_destroy(&ring->last_lock);
    g_free(ring->queues);
    g_free(ring);
}
