/*
 * Short memory is reported. Where the kernel reports it out of band, the test uses a socket,
 * because urgent bytes look the same to poll().
 */
#include "sys/memory_pressure.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

/* Two ends of a TCP connection. */
static void connect_pair(int ret_ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_assert_cmpint(bind(listener, (struct sockaddr *)&address, length), ==, 0);
    g_assert_cmpint(listen(listener, 1), ==, 0);
    g_assert_cmpint(getsockname(listener, (struct sockaddr *)&address, &length), ==, 0);
    ret_ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(connect(ret_ends[0], (struct sockaddr *)&address, length), ==, 0);
    ret_ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

typedef struct {
    int fd;
    guint pressed;
} Seen;

static void note(gpointer arg)
{
    Seen *seen = arg;
    char byte;

    g_assert_cmpint(recv(seen->fd, &byte, 1, MSG_OOB), ==, 1);
    seen->pressed++;
}

static void test_told(void)
{
    g_autoptr(GMainContext) context = g_main_context_new();
    int ends[2];
    Seen seen = {0};

    connect_pair(ends);
    seen.fd = ends[0];
    QosPressure *pressure = qos_pressure_new(ends, 1, context, note, &seen);
    g_assert_cmpint(send(ends[1], "x", 1, 0), ==, 1); /* nothing to do with it */
    g_assert_false(g_main_context_iteration(context, FALSE));
    for (guint i = 1; i <= 3; i++) {
        g_assert_cmpint(send(ends[1], "!", 1, MSG_OOB), ==, 1);
        while (seen.pressed < i)
            g_main_context_iteration(context, TRUE);
    }
    g_assert_cmpuint(seen.pressed, ==, 3);
    qos_pressure_free(pressure);
    close(ends[1]);
}

/* What this kernel has can be watched; it may have nothing. */
static void test_real_places(void)
{
    g_autoptr(GMainContext) context = g_main_context_new();
    int fds[QOS_PRESSURE_PLACES];
    Seen seen = {0};
    guint count = qos_pressure_open(fds);

    if (count == 0)
        g_test_message("no pressure stall information here");
    QosPressure *pressure = qos_pressure_new(fds, count, context, note, &seen);
    g_assert_nonnull(pressure);
    qos_pressure_free(pressure);
    qos_pressure_free(NULL);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pressure/told", test_told);
    g_test_add_func("/pressure/real-places", test_real_places);
    return g_test_run();
}
