/*
 * A descriptor of epoll as an event source. net/poller.h has the contract.
 */
#include "net/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"

#define EVENTS 1024 /* in one turn; epoll hands out the others first in the next */

struct QosPoller {
    int epoll;
    GSource *source;
    struct epoll_event events[EVENTS];
    int ready; /* how many of them are to be dispatched in this turn */
};

static void dispatch_ready(QosPoller *poller)
{
    poller->ready = epoll_wait(poller->epoll, poller->events, EVENTS, 0);
    for (int i = 0; i < poller->ready; i++) {
        const QosPollerWatch *watch = poller->events[i].data.ptr;

        if (watch != NULL) /* it has not been removed meanwhile */
            watch->ready(watch->arg);
    }
    poller->ready = 0;
}

static gboolean on_ready(gpointer data)
{
    dispatch_ready(data);
    return G_SOURCE_CONTINUE;
}

static gboolean dispatch(GSource *source G_GNUC_UNUSED, GSourceFunc function, gpointer data)
{
    return function(data);
}

QosPoller *qos_poller_new(GMainContext *context, GError **error)
{
    static GSourceFuncs functions = {.dispatch = dispatch};
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    QosPoller *poller;

    if (epoll < 0) {
        qos_set_error(error, errno, "cannot wait for peers: epoll_create1: %s", g_strerror(errno));
        return NULL;
    }
    poller = g_new0(QosPoller, 1);
    poller->epoll = epoll;
    poller->source = g_source_new(&functions, sizeof(GSource));
    g_source_add_unix_fd(poller->source, epoll, G_IO_IN);
    g_source_set_can_recurse(poller->source, TRUE); /* else it is taken out of the loop meanwhile */
    g_source_set_callback(poller->source, on_ready, poller, NULL);
    g_source_attach(poller->source, context);
    return poller;
}

void qos_poller_free(QosPoller *poller)
{
    if (poller == NULL)
        return;
    g_source_destroy(poller->source);
    g_source_unref(poller->source);
    close(poller->epoll);
    g_free(poller);
}

gboolean qos_poller_add(QosPoller *poller, QosPollerWatch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

    return epoll_ctl(poller->epoll, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

void qos_poller_remove(QosPoller *poller, QosPollerWatch *watch)
{
    epoll_ctl(poller->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
    for (int i = 0; i < poller->ready; i++) {
        if (poller->events[i].data.ptr == watch)
            poller->events[i].data.ptr = NULL;
    }
}
