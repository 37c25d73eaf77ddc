/*
 * The readers (fs/readers.h), by libfuse's hooks for reading and writing its device.
 *
 * `reading` counts the threads that are in the kernel, or on the way. It is changed without the
 * lock, as two of three threads never need it: only one that finds too many parks, and only the one
 * that was the last looks for a parked one. A thread that parks looks again once it is in the list,
 * so that either it sees that nobody reads, or the last one sees it. `serving` is a hint alone, and
 * so is `service_time`.
 *
 * The last one that calls nobody makes sure that the watch is awake; the watch looks again whether
 * somebody reads once it has said that it sleeps.
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

#include "fs/gate.h"
#include "ops/fs.h"

/* The kernel pins each piece of a reply: copying a small one into a single piece costs less. */
#define SMALL_REPLY 256

/* To call another thread, and then to have one too many, costs about as much as this. */
#define QUICK (30 * QOS_MICROSECOND)
/* One request counts for no more than this in the mean, which is of about MEAN_OF requests: so that
 * not each thread that loses the CPU for a while makes the store slow. */
#define LONGEST        (8 * QUICK)
#define MEAN_OF        16
#define WATCH_INTERVAL (500 * QOS_MICROSECOND)
/* For so many intervals after that, a thread that takes a request calls another: what rarely is
 * slow must not hold up what is quick for more than a small part of the time. */
#define WARY_INTERVALS 200

struct QosReaders {
    gint most;
    gint reading;         /* atomic */
    gint serving;         /* atomic: threads that have read a request, and did not come back yet */
    gint taken;           /* atomic: requests that were read */
    gint service_time;    /* atomic: the mean from a request to its thread's return, ns */
    gint is_wary;         /* atomic: threads were stuck lately */
    gint is_watched;      /* atomic, changed under the lock: the watch is awake */
    pthread_mutex_t lock; /* of all below */
    GQueue parked;        /* of Place, the last one first */
    pthread_cond_t wake;  /* the watch */
    gboolean is_stopping;
    gboolean has_watch; /* set before the first reader */
    pthread_t watch;
};

/* When this thread read a request; 0 = it has not come back from none yet. */
static __thread QosTime serving_since;

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

    pthread_condattr_t attributes;

    readers->most = (gint)most;
    pthread_mutex_init(&readers->lock, NULL);
    g_queue_init(&readers->parked);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&readers->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    return readers;
}

void qos_readers_free(QosReaders *readers)
{
    if (readers == NULL)
        return;
    pthread_mutex_lock(&readers->lock);
    readers->is_stopping = TRUE;
    pthread_cond_signal(&readers->wake);
    pthread_mutex_unlock(&readers->lock);
    if (readers->has_watch)
        pthread_join(readers->watch, NULL);
    g_assert(readers->parked.length == 0);
    pthread_cond_destroy(&readers->wake);
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

/* TRUE where the thread that has a request will be back soon: then none is called in its stead. */
static gboolean are_quick(const QosReaders *readers)
{
    return readers->has_watch && !g_atomic_int_get(&readers->is_wary) &&
           g_atomic_int_get(&readers->service_time) < QUICK;
}

static void note_service_time(QosReaders *readers, QosTime time)
{
    gint mean = g_atomic_int_get(&readers->service_time);

    g_atomic_int_set(&readers->service_time, mean + ((gint)MIN(time, LONGEST) - mean) / MEAN_OF);
}

/* How many may be in the kernel. */
static gint get_most(const QosReaders *readers, gboolean is_idle)
{
    if (are_quick(readers))
        return MAX(readers->most / 2, 1);
    return is_idle ? readers->most + 1 : readers->most;
}

static void begin_reading(QosReaders *readers)
{
    gboolean is_idle = FALSE;

    if (serving_since != 0) {
        is_idle = g_atomic_int_dec_and_test(&readers->serving);
        note_service_time(readers, qos_gate_now() - serving_since);
    }
    if (g_atomic_int_add(&readers->reading, 1) < get_most(readers, is_idle))
        return;
    g_atomic_int_add(&readers->reading, -1);
    park(readers);
}

/* Nobody reads: the thread itself will, soon, or else the watch calls another. */
static void wake_watch(QosReaders *readers)
{
    if (g_atomic_int_get(&readers->is_watched))
        return;
    pthread_mutex_lock(&readers->lock);
    g_atomic_int_set(&readers->is_watched, TRUE);
    pthread_cond_signal(&readers->wake);
    pthread_mutex_unlock(&readers->lock);
}

static void end_reading(QosReaders *readers)
{
    serving_since = qos_gate_now();
    g_atomic_int_inc(&readers->serving);
    g_atomic_int_inc(&readers->taken);
    if (!g_atomic_int_dec_and_test(&readers->reading))
        return;
    if (are_quick(readers)) {
        wake_watch(readers);
        return;
    }
    pthread_mutex_lock(&readers->lock);
    call_locked(readers);
    pthread_mutex_unlock(&readers->lock);
}

/* --- the watch --- */

static gboolean lacks_reader_locked(QosReaders *readers)
{
    return g_atomic_int_get(&readers->reading) == 0 && readers->parked.length > 0;
}

static void sleep_locked(QosReaders *readers)
{
    g_atomic_int_set(&readers->is_watched, FALSE);
    if (lacks_reader_locked(readers))
        g_atomic_int_set(&readers->is_watched, TRUE);
    while (!readers->is_stopping && !g_atomic_int_get(&readers->is_watched))
        pthread_cond_wait(&readers->wake, &readers->lock);
}

static void wait_locked(QosReaders *readers)
{
    QosTime until = qos_gate_now() + WATCH_INTERVAL;
    struct timespec time = {.tv_sec = until / QOS_SECOND, .tv_nsec = until % QOS_SECOND};

    while (!readers->is_stopping &&
           pthread_cond_timedwait(&readers->wake, &readers->lock, &time) == 0) {
        /* woken for nothing */
    }
}

/* Calls a thread where none has read a request for a while: those that have one are stuck. */
static void *watch(void *arg)
{
    QosReaders *readers = arg;
    guint wary = 0;
    gint seen = 0;

    pthread_setname_np(pthread_self(), "readers"); /* not that of who started it */
    pthread_mutex_lock(&readers->lock);
    while (!readers->is_stopping) {
        gint taken = g_atomic_int_get(&readers->taken);

        if (taken == seen && lacks_reader_locked(readers)) {
            call_locked(readers);
            wary = WARY_INTERVALS;
        } else if (wary > 0) {
            wary--;
        }
        g_atomic_int_set(&readers->is_wary, wary > 0);
        if (taken != seen || wary > 0)
            wait_locked(readers);
        else
            sleep_locked(readers);
        seen = taken;
    }
    pthread_mutex_unlock(&readers->lock);
    return NULL;
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

void qos_readers_attach(QosReaders *readers, struct fuse_session *session)
{
    static const struct fuse_custom_io io = {
        .read = read_request,
        .writev = write_reply,
        .clone_fd = clone_device,
    };

    if (fuse_session_custom_io(session, &io, sizeof(io), fuse_session_fd(session)) != 0) {
        g_info("libfuse reads requests by itself");
        return;
    }
    readers->has_watch = pthread_create(&readers->watch, NULL, watch, readers) == 0;
}
