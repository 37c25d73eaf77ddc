/*
 * Reads what the lock server says. fs/lockclient/receive.h has the contract.
 */
#include "fs/lockclient/receive.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/input.h"

#define READ_SIZE 65536

/* How long a waiting thread stays awake first. To be woken by another CPU takes 20 to 30 us in a
 * virtual machine, and a server there has answered when this is over. */
#define AWAKE (50 * QOS_MICROSECOND)
/* When that was in vain, so many waits sleep at once: the server is far away, asks others first, or
 * has to wait for this very CPU. So a wait costs 3 us more at most. */
#define ASLEEP 16

static void lock(QosReceiver *receiver)
{
    qos_mutex_lock(&receiver->lock);
}

static void unlock(QosReceiver *receiver)
{
    qos_mutex_unlock(&receiver->lock);
}

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* --- reading, by the thread that has the turn --- */

/* FALSE: there is nothing more, for a reason that *error says, or because the server closed. */
static gboolean read_some(QosReceiver *receiver, GError **error)
{
    GInputStream *stream = g_io_stream_get_input_stream(receiver->stream);
    GError *reason = NULL;
    guint8 bytes[READ_SIZE];

    gssize length = g_pollable_input_stream_read_nonblocking(G_POLLABLE_INPUT_STREAM(stream), bytes,
                                                             sizeof(bytes), NULL, &reason);
    const gboolean is_empty = g_error_matches(reason, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK);
    if (is_empty)
        g_clear_error(&reason);
    if (reason != NULL)
        g_propagate_error(error, reason);
    if (length <= 0)
        return is_empty;
    qos_wire_reader_feed(&receiver->reader, bytes, (gsize)length);
    atomic_store_explicit(&receiver->heard, now_of(), memory_order_relaxed);
    return TRUE;
}

/* FALSE: something is left. */
static gboolean take_frames(QosReceiver *receiver)
{
    while (!receiver->has_rest) {
        receiver->found = qos_wire_reader_next(&receiver->reader, &receiver->type,
                                               &receiver->payload, &receiver->length);
        if (receiver->found == QOS_WIRE_MORE)
            return TRUE;
        receiver->has_rest = receiver->found == QOS_WIRE_BROKEN ||
                             !receiver->user.take(receiver->type, receiver->payload,
                                                  receiver->length, receiver->user.arg);
    }
    return FALSE;
}

/* --- the context's thread --- */

/* FALSE: it is another's. */
static gboolean begin_turn(QosReceiver *receiver)
{
    lock(receiver);
    gboolean is_mine = receiver->turn != QOS_RECEIVE_LED;
    if (is_mine)
        receiver->turn = QOS_RECEIVE_READ;
    unlock(receiver);
    return is_mine;
}

static void end_turn(QosReceiver *receiver)
{
    lock(receiver);
    receiver->turn = QOS_RECEIVE_UNREAD;
    unlock(receiver);
}

/* FALSE: all was closed. */
static gboolean take_all(QosReceiver *receiver)
{
    while (!take_frames(receiver)) {
        receiver->has_rest = FALSE;
        if (receiver->found == QOS_WIRE_BROKEN) {
            receiver->user.ended(QOS_RECEIVE_NONSENSE, receiver->user.arg);
            return FALSE;
        }
        if (!receiver->user.take_rest(receiver->type, receiver->payload, receiver->length,
                                      receiver->user.arg))
            return FALSE;
    }
    return TRUE;
}

static gboolean on_input(GObject *stream G_GNUC_UNUSED, gpointer data)
{
    QosReceiver *receiver = data;
    g_autoptr(GError) error = NULL;

    if (!begin_turn(receiver))
        return G_SOURCE_CONTINUE;
    g_source_set_ready_time(receiver->source, -1);
    /* What was left came before what there is to read. */
    if (!receiver->has_rest && !read_some(receiver, &error)) {
        receiver->user.ended(error != NULL ? error->message : "it closed the connection",
                             receiver->user.arg);
        return G_SOURCE_REMOVE;
    }
    if (!take_all(receiver))
        return G_SOURCE_REMOVE;
    end_turn(receiver);
    return G_SOURCE_CONTINUE;
}

/* --- the turn --- */

/* The context's thread is to wait for bytes, or not. */
static void set_waiting(const QosReceiver *receiver, gboolean waits)
{
    struct epoll_event event = {.events = waits ? EPOLLIN : 0};

    epoll_ctl(receiver->epoll, EPOLL_CTL_MOD, receiver->socket, &event);
}

gboolean qos_receive_lead(QosReceiver *receiver)
{
    lock(receiver);
    /* What is left lies among the reader's bytes, which are not to move. */
    gboolean is_mine =
        receiver->may_lead && receiver->turn == QOS_RECEIVE_UNREAD && !receiver->has_rest;
    if (is_mine) {
        receiver->turn = QOS_RECEIVE_LED;
        set_waiting(receiver, FALSE);
    }
    unlock(receiver);
    return is_mine;
}

static gboolean wait_asleep(const QosReceiver *receiver, QosTime timeout)
{
    struct pollfd socket = {.fd = receiver->socket, .events = POLLIN};
    const struct timespec most = {.tv_sec = timeout / QOS_SECOND, .tv_nsec = timeout % QOS_SECOND};

    return ppoll(&socket, 1, &most, NULL) > 0;
}

static gboolean wait_awake(const QosReceiver *receiver, QosTime timeout)
{
    const QosTime until = now_of() + timeout;
    gboolean is_input;

    do
        is_input = wait_asleep(receiver, 0);
    while (!is_input && now_of() < until);
    return is_input;
}

gboolean qos_receive_wait(QosReceiver *receiver, QosTime timeout)
{
    const QosTime awake = MIN(timeout, AWAKE);

    if (receiver->asleep > 0) {
        receiver->asleep--;
        return wait_asleep(receiver, timeout);
    }
    if (wait_awake(receiver, awake))
        return TRUE;
    receiver->asleep = ASLEEP;
    return wait_asleep(receiver, timeout - awake);
}

gboolean qos_receive_read(QosReceiver *receiver)
{
    return read_some(receiver, NULL) && take_frames(receiver);
}

void qos_receive_cede(QosReceiver *receiver)
{
    lock(receiver);
    receiver->turn = QOS_RECEIVE_UNREAD;
    set_waiting(receiver, TRUE);
    if (receiver->has_rest)
        g_source_set_ready_time(receiver->source, 0);
    pthread_cond_signal(&receiver->ceded);
    unlock(receiver);
}

/* --- connections --- */

void qos_receive_init(QosReceiver *receiver, const QosReceiveUser *user)
{
    *receiver = (QosReceiver){.user = *user, .epoll = -1};
    qos_mutex_init(&receiver->lock, QOS_MUTEX_RECEIVE);
    pthread_cond_init(&receiver->ceded, NULL);
}

void qos_receive_clear(QosReceiver *receiver)
{
    pthread_cond_destroy(&receiver->ceded);
    qos_mutex_destroy(&receiver->lock);
}

/* -1: there is none to be had. */
static int make_epoll(int socket)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    if (epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) < 0) {
        close(epoll);
        epoll = -1;
    }
    return epoll;
}

void qos_receive_open(QosReceiver *receiver, GIOStream *stream, GSocket *socket,
                      GMainContext *context)
{
    qos_wire_reader_init(&receiver->reader);
    receiver->has_rest = FALSE;
    receiver->stream = g_object_ref(stream);
    receiver->socket = g_socket_get_fd(socket);
    if (!G_IS_TLS_CONNECTION(stream))
        receiver->epoll = make_epoll(receiver->socket);
    receiver->source =
        qos_input_source_new(stream, receiver->epoll >= 0 ? receiver->epoll : receiver->socket);
    g_source_set_callback(receiver->source, G_SOURCE_FUNC(on_input), receiver, NULL);
    g_source_attach(receiver->source, context);
}

void qos_receive_share(QosReceiver *receiver)
{
    lock(receiver);
    receiver->may_lead = receiver->epoll >= 0;
    unlock(receiver);
}

void qos_receive_close(QosReceiver *receiver)
{
    if (receiver->stream == NULL)
        return;
    lock(receiver);
    receiver->may_lead = FALSE;
    while (receiver->turn == QOS_RECEIVE_LED)
        qos_condition_wait(&receiver->ceded, &receiver->lock);
    receiver->turn = QOS_RECEIVE_UNREAD;
    unlock(receiver);
    g_source_destroy(receiver->source);
    g_clear_pointer(&receiver->source, g_source_unref);
    if (receiver->epoll >= 0)
        close(receiver->epoll);
    receiver->epoll = -1;
    g_clear_object(&receiver->stream);
    qos_wire_reader_clear(&receiver->reader);
}

QosTime qos_receive_heard(const QosReceiver *receiver)
{
    return atomic_load_explicit(&receiver->heard, memory_order_relaxed);
}
