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

static void lock(QosReceive *input)
{
    qos_mutex_lock(&input->lock);
}

static void unlock(QosReceive *input)
{
    qos_mutex_unlock(&input->lock);
}

static QosTime now_of(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* --- reading, by the thread that has the turn --- */

/* FALSE: there is nothing more, for a reason that *error says, or because the server closed. */
static gboolean read_some(QosReceive *input, GError **error)
{
    GInputStream *stream = g_io_stream_get_input_stream(input->stream);
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
    qos_wire_reader_feed(&input->reader, bytes, (gsize)length);
    atomic_store_explicit(&input->heard, now_of(), memory_order_relaxed);
    return TRUE;
}

/* FALSE: something is left. */
static gboolean take_frames(QosReceive *input)
{
    while (!input->has_rest) {
        input->found =
            qos_wire_reader_next(&input->reader, &input->type, &input->payload, &input->length);
        if (input->found == QOS_WIRE_MORE)
            return TRUE;
        input->has_rest =
            input->found == QOS_WIRE_BROKEN ||
            !input->user.take(input->type, input->payload, input->length, input->user.arg);
    }
    return FALSE;
}

/* --- the context's thread --- */

/* FALSE: it is another's. */
static gboolean begin_turn(QosReceive *input)
{
    lock(input);
    gboolean is_mine = input->turn != QOS_RECEIVE_LED;
    if (is_mine)
        input->turn = QOS_RECEIVE_READ;
    unlock(input);
    return is_mine;
}

static void end_turn(QosReceive *input)
{
    lock(input);
    input->turn = QOS_RECEIVE_UNREAD;
    unlock(input);
}

/* FALSE: all was closed. */
static gboolean take_all(QosReceive *input)
{
    while (!take_frames(input)) {
        input->has_rest = FALSE;
        if (input->found == QOS_WIRE_BROKEN) {
            input->user.ended(QOS_RECEIVE_NONSENSE, input->user.arg);
            return FALSE;
        }
        if (!input->user.take_rest(input->type, input->payload, input->length, input->user.arg))
            return FALSE;
    }
    return TRUE;
}

static gboolean on_input(GObject *stream G_GNUC_UNUSED, gpointer data)
{
    QosReceive *input = data;
    g_autoptr(GError) error = NULL;

    if (!begin_turn(input))
        return G_SOURCE_CONTINUE;
    g_source_set_ready_time(input->source, -1);
    /* What was left came before what there is to read. */
    if (!input->has_rest && !read_some(input, &error)) {
        input->user.ended(error != NULL ? error->message : "it closed the connection",
                          input->user.arg);
        return G_SOURCE_REMOVE;
    }
    if (!take_all(input))
        return G_SOURCE_REMOVE;
    end_turn(input);
    return G_SOURCE_CONTINUE;
}

/* --- the turn --- */

/* The context's thread is to wait for bytes, or not. */
static void set_waiting(const QosReceive *input, gboolean waits)
{
    struct epoll_event event = {.events = waits ? EPOLLIN : 0};

    epoll_ctl(input->epoll, EPOLL_CTL_MOD, input->socket, &event);
}

gboolean qos_receive_lead(QosReceive *input)
{
    lock(input);
    /* What is left lies among the reader's bytes, which are not to move. */
    gboolean is_mine = input->may_lead && input->turn == QOS_RECEIVE_UNREAD && !input->has_rest;
    if (is_mine) {
        input->turn = QOS_RECEIVE_LED;
        set_waiting(input, FALSE);
    }
    unlock(input);
    return is_mine;
}

static gboolean wait_asleep(const QosReceive *input, QosTime timeout)
{
    struct pollfd socket = {.fd = input->socket, .events = POLLIN};
    const struct timespec most = {.tv_sec = timeout / QOS_SECOND, .tv_nsec = timeout % QOS_SECOND};

    return ppoll(&socket, 1, &most, NULL) > 0;
}

static gboolean wait_awake(const QosReceive *input, QosTime timeout)
{
    const QosTime until = now_of() + timeout;
    gboolean is_input;

    do
        is_input = wait_asleep(input, 0);
    while (!is_input && now_of() < until);
    return is_input;
}

gboolean qos_receive_wait(QosReceive *input, QosTime timeout)
{
    const QosTime awake = MIN(timeout, AWAKE);

    if (input->asleep > 0) {
        input->asleep--;
        return wait_asleep(input, timeout);
    }
    if (wait_awake(input, awake))
        return TRUE;
    input->asleep = ASLEEP;
    return wait_asleep(input, timeout - awake);
}

gboolean qos_receive_read(QosReceive *input)
{
    return read_some(input, NULL) && take_frames(input);
}

void qos_receive_cede(QosReceive *input)
{
    lock(input);
    input->turn = QOS_RECEIVE_UNREAD;
    set_waiting(input, TRUE);
    if (input->has_rest)
        g_source_set_ready_time(input->source, 0);
    pthread_cond_signal(&input->ceded);
    unlock(input);
}

/* --- connections --- */

void qos_receive_init(QosReceive *input, const QosReceiveUser *user)
{
    *input = (QosReceive){.user = *user, .epoll = -1};
    qos_mutex_init(&input->lock, QOS_MUTEX_RECEIVE);
    pthread_cond_init(&input->ceded, NULL);
}

void qos_receive_clear(QosReceive *input)
{
    pthread_cond_destroy(&input->ceded);
    qos_mutex_destroy(&input->lock);
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

void qos_receive_open(QosReceive *input, GIOStream *stream, GSocket *socket, GMainContext *context)
{
    qos_wire_reader_init(&input->reader);
    input->has_rest = FALSE;
    input->stream = g_object_ref(stream);
    input->socket = g_socket_get_fd(socket);
    if (!G_IS_TLS_CONNECTION(stream))
        input->epoll = make_epoll(input->socket);
    input->source = qos_input_source_new(stream, input->epoll >= 0 ? input->epoll : input->socket);
    g_source_set_callback(input->source, G_SOURCE_FUNC(on_input), input, NULL);
    g_source_attach(input->source, context);
}

void qos_receive_share(QosReceive *input)
{
    lock(input);
    input->may_lead = input->epoll >= 0;
    unlock(input);
}

void qos_receive_close(QosReceive *input)
{
    if (input->stream == NULL)
        return;
    lock(input);
    input->may_lead = FALSE;
    while (input->turn == QOS_RECEIVE_LED)
        qos_condition_wait(&input->ceded, &input->lock);
    input->turn = QOS_RECEIVE_UNREAD;
    unlock(input);
    g_source_destroy(input->source);
    g_clear_pointer(&input->source, g_source_unref);
    if (input->epoll >= 0)
        close(input->epoll);
    input->epoll = -1;
    g_clear_object(&input->stream);
    qos_wire_reader_clear(&input->reader);
}

QosTime qos_receive_heard(const QosReceive *input)
{
    return atomic_load_explicit(&input->heard, memory_order_relaxed);
}
