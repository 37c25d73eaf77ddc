/*
 * The readers (fs/readers.h), by libfuse's hooks for reading and writing its device.
 *
 * `reading` counts the threads that are in the kernel, or on the way. It is changed without the
 * lock, as two of three threads never need it: only one that finds too many parks, and only the one
 * that was the last looks for a parked one. A thread that parks looks again once it is in the list,
 * so that either it sees that nobody reads, or the last one sees it.
 */
#include "fs/readers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ops/fs.h"

/* The kernel pins each piece of a reply: copying a small one into a single piece costs less. */
#define SMALL_REPLY 256

struct QosReaders {
    gint most;
    gint reading;         /* atomic */
    pthread_mutex_t lock; /* of `parked` and of what is in it */
    GQueue parked;        /* of Place, the last one first */
};

/* Where a parked thread waits: on its stack. */
typedef struct {
    GList link;
    gboolean is_parked;
    pthread_cond_t called;
    QosReaders *readers;
} Place;

QosReaders *qos_readers_new(guint most)
{
    QosReaders *readers = g_new0(QosReaders, 1);

    readers->most = (gint)most;
    pthread_mutex_init(&readers->lock, NULL);
    g_queue_init(&readers->parked);
    return readers;
}

void qos_readers_free(QosReaders *readers)
{
    if (readers == NULL)
        return;
    g_assert(readers->parked.length == 0);
    pthread_mutex_destroy(&readers->lock);
    g_free(readers);
}

/* Calls the thread that parked last to read. */
static void call_locked(QosReaders *readers)
{
    GList *link = g_queue_pop_head_link(&readers->parked);

    if (link == NULL)
        return;
    Place *place = link->data;
    place->is_parked = FALSE;
    g_atomic_int_inc(&readers->reading);
    pthread_cond_signal(&place->called);
}

/* Also when libfuse cancels the thread at the end of the session. */
static void leave_place(void *arg)
{
    Place *place = arg;

    if (place->is_parked)
        g_queue_unlink(&place->readers->parked, &place->link);
    pthread_mutex_unlock(&place->readers->lock);
    pthread_cond_destroy(&place->called);
}

static void park(QosReaders *readers)
{
    Place place = {.readers = readers, .is_parked = TRUE, .called = PTHREAD_COND_INITIALIZER};

    place.link.data = &place;
    pthread_mutex_lock(&readers->lock);
    g_queue_push_head_link(&readers->parked, &place.link);
    if (g_atomic_int_get(&readers->reading) == 0)
        call_locked(readers);
    pthread_cleanup_push(leave_place, &place);
    while (place.is_parked)
        pthread_cond_wait(&place.called, &readers->lock);
    pthread_cleanup_pop(TRUE);
}

static void begin_reading(QosReaders *readers)
{
    if (g_atomic_int_add(&readers->reading, 1) < readers->most)
        return;
    g_atomic_int_add(&readers->reading, -1);
    park(readers);
}

static void end_reading(QosReaders *readers)
{
    if (!g_atomic_int_dec_and_test(&readers->reading))
        return;
    pthread_mutex_lock(&readers->lock);
    call_locked(readers);
    pthread_mutex_unlock(&readers->lock);
}

/* --- libfuse's hooks --- */

static ssize_t read_request(int fd, void *buffer, size_t size, void *user_data)
{
    QosReaders *readers = ((const QosFs *)user_data)->readers;
    ssize_t length;
    int error;

    begin_reading(readers);
    length = read(fd, buffer, size);
    error = errno;
    end_reading(readers);
    errno = error;
    return length;
}

static ssize_t write_reply(int fd, struct iovec *vector, int count, void *user_data G_GNUC_UNUSED)
{
    char reply[SMALL_REPLY] __attribute__((aligned(SMALL_REPLY)));
    size_t length = 0;

    for (int i = 0; i < count; i++) {
        if (vector[i].iov_len > sizeof(reply) - length)
            return writev(fd, vector, count);
        memcpy(reply + length, vector[i].iov_base, vector[i].iov_len);
        length += vector[i].iov_len;
    }
    return write(fd, reply, length);
}

/* As libfuse does it: each thread has a descriptor of its own. */
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

void qos_readers_attach(struct fuse_session *session)
{
    static const struct fuse_custom_io io = {
        .read = read_request,
        .writev = write_reply,
        .clone_fd = clone_device,
    };

    if (fuse_session_custom_io(session, &io, sizeof(io), fuse_session_fd(session)) != 0)
        g_info("libfuse reads requests by itself");
}
