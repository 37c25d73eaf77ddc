/*
 * The readers. fs/transport/devfuse.h has the contract.
 *
 * `reading` counts the threads that wait in the kernel or are on the way there. A thread counts
 * from before it sends its reply (qos_reading_comes_next()). The count is changed without the lock,
 * because most threads never need it. A thread takes the lock only if it finds too many reading,
 * and parks; or if it leaves too few, and calls a parked thread or makes another. A thread that
 * parks looks again once it is in the list. So either it sees that too few read, or the thread that
 * left them sees it.
 *
 * A thread ends if enough are parked already. Its descriptor stays, because requests that came by
 * it may still wait, and the next thread takes it over.
 *
 * At the end the threads are cancelled, which they allow while they wait, in the kernel or parked.
 */
#include "fs/transport/devfuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/transport/interrupt_table.h"
#include "fs/transport/reply_buffer.h"
#include "sys/mutex.h"
#include "sys/tsan_order.h"

#define PAGE       4096
#define PARKED_MAX 8 /* further ones end */
/* So many threads read from the start, and stay. One replies, one has the next request, and one
 * more waits, which the scheduler may run on the CPU that the client is about to leave. With two,
 * client and reader settle on two CPUs and wake each other by interrupts: `ls -l` takes half as
 * long again. */
#define READING_ENOUGH 3
/* A thread that leaves fewer others than this calls one more. With several clients on as many CPUs,
 * the two others may each wait for a CPU that a client has, while the kernel holds requests for
 * them. Four readers serve four clients 1.1 times as fast as three, and five no faster. A single
 * client would lose a third with four readers. It takes two of its three at once only if it does
 * not wait for an answer, such as that of a RELEASE. */
#define READING_LEAST 2
/* A thread that leaves READING_ENOUGH others for so many requests in a row is not needed. */
#define NEEDLESS_MAX 1000
/* The kernel counts requests by twos: these bits last for years. The others hold the numbers of the
 * readers; what is read beyond them comes by the session's descriptor. */
#define NUMBER_BITS 48
#define NUMBER_MAX  (G_MAXUINT64 >> NUMBER_BITS)
/* The kernel looks up and pins each piece of a reply: copying a small one into a single piece costs
 * less. */
#define SMALL_REPLY 256
/* The bytes before the data of a WRITE; the data is to begin on a page. */
#define WRITE_HEAD (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))

typedef struct {
    QosReaders *readers;
    guint number; /* by which replies find `fd`; 0: the session's */
    int fd;
    pthread_t thread;
    gboolean is_running;
    guint needless; /* requests in a row that left enough others reading */
    char *memory;   /* of its thread */
    GList link;     /* in `unused` */
} Reader;

struct QosReaders {
    guint waiting, most;
    gboolean has_clones;
    struct fuse_session *session;
    QosInterruptTable *interrupts;
    int done;      /* eventfd: the session has ended */
    gint error;    /* atomic: -errno of the first that failed */
    gint reading;  /* atomic */
    gint is_over;  /* atomic: no further request is read */
    Reader *all;   /* from 1 on */
    QosMutex lock; /* everything below, and `is_running` of all */
    guint made;    /* of `all`, with a descriptor */
    GQueue unused; /* of Reader: their threads have ended */
    GQueue parked; /* of Place, the last one first */
    gboolean is_stopping;
};

/* Where a parked thread waits: on its stack. */
typedef struct {
    GList link;
    gboolean is_parked;
    pthread_cond_t called;
    QosReaders *readers;
} Place;

/* --- about to read --- */

static _Thread_local gint *this_count;
static _Thread_local gboolean is_counted; /* ahead */

/* This thread reads requests, and is counted in `count` (atomic) where it is about to. */
static void join_reading(gint *count)
{
    this_count = count;
}

void qos_reading_comes_next(void)
{
    if (this_count == NULL || is_counted)
        return;
    g_atomic_int_inc(this_count);
    is_counted = TRUE;
}

/* Counts this thread, unless it was already, as it reads now. Returns how many there are. */
static gint count_this_thread(void)
{
    const gint before =
        is_counted ? g_atomic_int_get(this_count) - 1 : g_atomic_int_add(this_count, 1);

    is_counted = FALSE;
    return before + 1;
}

/* --- the readers --- */

QosReaders *qos_readers_new(guint waiting, guint most)
{
    QosReaders *readers = g_new0(QosReaders, 1);

    readers->waiting = waiting;
    readers->most = most;
    readers->all = g_new0(Reader, most + 1);
    readers->done = -1;
    qos_mutex_init(&readers->lock, QOS_MUTEX_READERS);
    return readers;
}

void qos_readers_free(QosReaders *readers)
{
    if (readers == NULL)
        return;
    for (guint i = 1; i <= readers->made; i++) {
        if (readers->all[i].number != 0)
            close(readers->all[i].fd);
    }
    if (readers->done >= 0)
        close(readers->done);
    qos_mutex_destroy(&readers->lock);
    g_free(readers->all);
    g_free(readers);
}

/* --- reading --- */

static void *read_requests(void *data);

/* As libfuse does it. */
static int clone_device(int master)
{
    guint32 source = (guint32)master;
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd >= 0 && ioctl(fd, FUSE_DEV_IOC_CLONE, &source) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A reader without a thread, or NULL. */
static Reader *get_reader_locked(QosReaders *readers)
{
    GList *link = g_queue_pop_head_link(&readers->unused);
    Reader *reader;

    if (link != NULL)
        return link->data;
    if (readers->made == readers->most)
        return NULL;
    reader = &readers->all[++readers->made];
    reader->readers = readers;
    reader->link.data = reader;
    if (readers->has_clones && readers->made <= NUMBER_MAX)
        reader->fd = clone_device(fuse_session_fd(readers->session));
    else
        reader->fd = -1;
    if (reader->fd >= 0)
        reader->number = readers->made;
    else
        reader->fd = fuse_session_fd(readers->session);
    return reader;
}

static gboolean too_few_read(QosReaders *readers)
{
    return g_atomic_int_get(&readers->reading) < READING_LEAST;
}

/* Makes a thread that reads, already counted. 0 or -errno. */
static int start_locked(QosReaders *readers)
{
    Reader *reader = readers->is_stopping ? NULL : get_reader_locked(readers);
    int error;

    if (reader == NULL)
        return -EAGAIN;
    g_atomic_int_inc(&readers->reading);
    error = pthread_create(&reader->thread, NULL, read_requests, reader);
    reader->is_running = error == 0;
    if (error != 0) {
        g_atomic_int_add(&readers->reading, -1);
        g_queue_push_head_link(&readers->unused, &reader->link);
    }
    return -error;
}

/* Calls the thread that parked last to read. FALSE: there is none. */
static gboolean call_locked(QosReaders *readers)
{
    GList *link = g_queue_pop_head_link(&readers->parked);

    if (link == NULL)
        return FALSE;
    Place *place = link->data;
    place->is_parked = FALSE;
    g_atomic_int_inc(&readers->reading);
    pthread_cond_signal(&place->called);
    return TRUE;
}

/* Also when the thread is cancelled. */
static void leave_place(void *arg)
{
    Place *place = arg;

    if (place->is_parked)
        g_queue_unlink(&place->readers->parked, &place->link);
    qos_mutex_unlock(&place->readers->lock);
    pthread_cond_destroy(&place->called);
}

/* TRUE: it was called, and counted. FALSE: it is to end. */
static gboolean park(QosReaders *readers)
{
    Place place = {.readers = readers, .is_parked = TRUE, .called = PTHREAD_COND_INITIALIZER};

    place.link.data = &place;
    qos_mutex_lock(&readers->lock);
    if (readers->parked.length >= PARKED_MAX && !too_few_read(readers)) {
        qos_mutex_unlock(&readers->lock);
        return FALSE;
    }
    g_queue_push_head_link(&readers->parked, &place.link);
    if (too_few_read(readers))
        call_locked(readers);
    pthread_cleanup_push(leave_place, &place);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    while (place.is_parked)
        qos_condition_wait(&place.called, &readers->lock);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(TRUE);
    return TRUE;
}

/* FALSE: the thread is to end. */
static gboolean begin_reading(Reader *reader)
{
    QosReaders *readers = reader->readers;
    const gint most = reader->needless < NEEDLESS_MAX ? (gint)readers->waiting : READING_ENOUGH;

    for (gint now = count_this_thread();; now = g_atomic_int_get(&readers->reading)) {
        if (now <= most)
            return TRUE;
        if (g_atomic_int_compare_and_exchange(&readers->reading, now, now - 1))
            break;
    }
    reader->needless = 0;
    return park(readers);
}

static void end_reading(Reader *reader)
{
    QosReaders *readers = reader->readers;
    const gint others = g_atomic_int_add(&readers->reading, -1) - 1;

    reader->needless = others >= READING_ENOUGH ? reader->needless + 1 : 0;
    if (others >= READING_LEAST)
        return;
    qos_mutex_lock(&readers->lock);
    /* Another may have called one while this one waited for the lock. */
    if (too_few_read(readers) && !call_locked(readers))
        start_locked(readers); /* if not, the next thread that is done with its request reads */
    qos_mutex_unlock(&readers->lock);
}

/* --- a request --- */

static void end_session(QosReaders *readers, int error)
{
    guint64 one = 1;

    g_atomic_int_compare_and_exchange(&readers->error, 0, -error);
    fuse_session_exit(readers->session);
    if (write(readers->done, &one, sizeof(one)) < 0)
        g_warning("cannot wake the end of the session (eventfd): %s", g_strerror(errno));
}

static void hand_on(Reader *reader, struct fuse_in_header *header, gsize length)
{
    QosReaders *readers = reader->readers;
    struct fuse_buf message = {.mem = header, .size = length};

    qos_kernel_order_request();
    if (header->opcode == FUSE_INTERRUPT) {
        const struct fuse_interrupt_in *interrupt = (const struct fuse_interrupt_in *)(header + 1);

        qos_interrupt_table_receive(readers->interrupts, interrupt->unique);
        return;
    }
    qos_interrupt_table_set_number(header->unique);
    header->unique |= (guint64)reader->number << NUMBER_BITS;
    fuse_session_process_buf(readers->session, &message);
}

/* The bytes of a request, or -errno. */
static ssize_t read_request(Reader *reader, struct fuse_in_header *header, gsize size)
{
    ssize_t length;

    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    length = read(reader->fd, header, size);
    if (length < 0)
        length = -errno;
    else if (length < (ssize_t)sizeof(*header))
        length = -EIO;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return length;
}

/* Reads one request and serves it; FALSE when the session has ended. */
static gboolean serve(Reader *reader, struct fuse_in_header *header, gsize size)
{
    QosReaders *readers = reader->readers;
    const ssize_t length = read_request(reader, header, size);
    const gboolean is_taken_back = length == -ENOENT || length == -EINTR || length == -EAGAIN;

    if (length < 0 && !is_taken_back) { /* unmounted, or aborted: nobody is called for it */
        end_session(readers, length == -ENODEV ? 0 : (int)-length);
        return FALSE;
    }
    end_reading(reader);
    if (!is_taken_back)
        hand_on(reader, header, (gsize)length);
    return !g_atomic_int_get(&readers->is_over);
}

/* The thread ends: by itself, or cancelled. */
static void leave(void *data)
{
    Reader *reader = data;
    QosReaders *readers = reader->readers;

    g_aligned_free(g_steal_pointer(&reader->memory));
    qos_mutex_lock(&readers->lock);
    if (!readers->is_stopping) { /* else it is about to be joined */
        pthread_detach(reader->thread);
        reader->is_running = FALSE;
        g_queue_push_head_link(&readers->unused, &reader->link);
    }
    qos_mutex_unlock(&readers->lock);
}

static void *read_requests(void *data)
{
    Reader *reader = data;
    const gsize size = PAGE + QOS_MAX_WRITE;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_setname_np(pthread_self(), "reader");
    join_reading(&reader->readers->reading);
    reader->memory = g_aligned_alloc(1, PAGE + size, PAGE);
    struct fuse_in_header *header = (struct fuse_in_header *)(reader->memory + PAGE - WRITE_HEAD);
    pthread_cleanup_push(leave, reader);
    while (serve(reader, header, size) && begin_reading(reader))
        ;
    pthread_cleanup_pop(TRUE);
    return NULL;
}

/* --- the replies --- */

/* If the data lies in the thread's buffer, header and data are written in one piece too. */
static ssize_t write_large(int fd, const struct iovec *vector, int count)
{
    const struct iovec *header = &vector[0], *data = &vector[1];
    char *place = count == 2 ? qos_reply_buffer_head(data->iov_base, header->iov_len) : NULL;

    if (place == NULL)
        return writev(fd, vector, count);
    memcpy(place, header->iov_base, header->iov_len);
    return write(fd, place, header->iov_len + data->iov_len);
}

ssize_t qos_readers_write(const QosReaders *readers, int fd, struct iovec *vector, int count)
{
    struct fuse_out_header *header = vector[0].iov_base;
    guint number = (guint)(header->unique >> NUMBER_BITS);
    char reply[SMALL_REPLY] __attribute__((aligned(SMALL_REPLY)));
    size_t length = 0;

    qos_mutex_assert_call(QOS_MUTEX_CALL_KERNEL);
    qos_kernel_order_reply();
    if (number != 0) {
        fd = readers->all[number].fd;
        header->unique &= (G_GUINT64_CONSTANT(1) << NUMBER_BITS) - 1;
    }
    for (int i = 0; i < count; i++) {
        if (vector[i].iov_len > sizeof(reply) - length)
            return write_large(fd, vector, count);
        memcpy(reply + length, vector[i].iov_base, vector[i].iov_len);
        length += vector[i].iov_len;
    }
    return write(fd, reply, length);
}

ssize_t qos_readers_read(int fd, void *buffer, size_t size, void *user_data G_GNUC_UNUSED)
{
    return read(fd, buffer, size);
}

void qos_readers_attach(QosReaders *readers, struct fuse_session *session,
                        ssize_t (*write)(int fd, struct iovec *vector, int count, void *user_data))
{
    const struct fuse_custom_io io = {.read = qos_readers_read, .writev = write};

    readers->has_clones =
        fuse_session_custom_io(session, &io, sizeof(io), fuse_session_fd(session)) == 0;
}

/* --- the session --- */

/* The threads that there are; none is made any more. */
void qos_readers_stop(QosReaders *readers)
{
    qos_mutex_lock(&readers->lock);
    readers->is_stopping = TRUE;
    g_atomic_int_set(&readers->is_over, TRUE);
    qos_mutex_unlock(&readers->lock);
    for (guint i = 1; i <= readers->made; i++) {
        if (readers->all[i].is_running)
            pthread_cancel(readers->all[i].thread);
    }
    for (guint i = 1; i <= readers->made; i++) {
        if (readers->all[i].is_running)
            pthread_join(readers->all[i].thread, NULL);
    }
}

int qos_readers_run(QosReaders *readers, struct fuse_session *session,
                    QosInterruptTable *interrupts, const sigset_t *signals)
{
    struct pollfd done = {.events = POLLIN};
    int result = 0;

    readers->session = session;
    readers->interrupts = interrupts;
    readers->done = done.fd = eventfd(0, EFD_CLOEXEC);
    if (readers->done < 0)
        return -errno;
    qos_mutex_lock(&readers->lock);
    for (guint i = 0; result == 0 && i < READING_ENOUGH; i++)
        result = start_locked(readers);
    qos_mutex_unlock(&readers->lock);
    while (result == 0 && !fuse_session_exited(session))
        ppoll(&done, 1, NULL, signals);
    return result != 0 ? result : g_atomic_int_get(&readers->error);
}
