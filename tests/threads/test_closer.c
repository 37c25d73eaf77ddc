/*
 * The closer: all is closed, by whichever thread; a device that hangs holds up its own files alone.
 * What hangs is a socket that lingers: its close waits until the other end has read what was sent.
 */
#include "fs/store/closer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/socket.h>
#include <unistd.h>

#define GIVERS 4
#define GIVEN  500
#define MANY   1000
#define HUNG   7
#define FINE   8

static gboolean is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static guint count_open(void)
{
    guint count = 0;

    for (int fd = 0; fd < 2 * GIVERS * GIVEN; fd++)
        count += is_open(fd);
    return count;
}

static gpointer give_many(gpointer data)
{
    QosCloser *closer = data;

    for (guint i = 0; i < GIVEN; i++)
        qos_closer_give(closer, i % 3, dup(STDERR_FILENO));
    return NULL;
}

static void test_all_is_closed(void)
{
    guint before = count_open();
    GThread *givers[GIVERS];
    QosCloser *closer = qos_closer_new();

    for (guint i = 0; i < GIVERS; i++)
        givers[i] = g_thread_new("giver", give_many, closer);
    for (guint i = 0; i < GIVERS; i++)
        g_thread_join(givers[i]);
    qos_closer_free(closer);
    g_assert_cmpuint(count_open(), ==, before);
}

/* A socket; its close hangs until `*ret_peer` is read or closed. */
static int open_lingering(int *ret_peer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    struct linger linger = {.l_onoff = 1, .l_linger = 60};
    static char data[1 << 16];
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

    g_assert_cmpint(bind(listener, (struct sockaddr *)&address, length), ==, 0);
    g_assert_cmpint(listen(listener, 1), ==, 0);
    g_assert_cmpint(getsockname(listener, (struct sockaddr *)&address, &length), ==, 0);
    g_assert_cmpint(connect(fd, (struct sockaddr *)&address, length), ==, 0);
    *ret_peer = accept(listener, NULL, NULL);
    g_assert_cmpint(*ret_peer, >=, 0);
    close(listener);
    g_assert_cmpint(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), ==, 0);
    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0) {
        /* until both ends are full */
    }
    return fd;
}

static void test_a_device_that_hangs(void)
{
    guint before = count_open();
    QosCloser *closer = qos_closer_new();
    int peer, fd = open_lingering(&peer);

    qos_closer_give(closer, HUNG, fd);
    for (guint i = 0; i < MANY; i++)
        qos_closer_give(closer, FINE, dup(STDERR_FILENO));
    while (qos_closer_count(closer) > 1)
        g_usleep(1000);

    /* A few wait for it; where much is to be closed there, another thread comes. */
    for (guint i = 0; i < QOS_CLOSERS_BACKLOG; i++)
        qos_closer_give(closer, HUNG, dup(STDERR_FILENO));
    /* Until another device's thread has looked what there is to do. */
    qos_closer_give(closer, FINE, dup(STDERR_FILENO));
    while (qos_closer_count(closer) > 1 + QOS_CLOSERS_BACKLOG)
        g_usleep(1000);
    g_assert_cmpuint(qos_closer_count(closer), ==, 1 + QOS_CLOSERS_BACKLOG);
    qos_closer_give(closer, HUNG, dup(STDERR_FILENO));
    while (qos_closer_count(closer) > QOS_CLOSERS_BACKLOG)
        g_usleep(1000);
    close(peer);
    qos_closer_free(closer);
    g_assert_cmpuint(count_open(), ==, before);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/closer/all-is-closed", test_all_is_closed);
    g_test_add_func("/closer/a-device-that-hangs", test_a_device_that_hangs);
    return g_test_run();
}
