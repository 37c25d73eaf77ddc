/*
 * Many descriptors as one event source of a GLib loop.
 *
 * GLib gives all its descriptors to poll(), and each turn of the loop looks at every one. A server
 * of two thousand mounts hears from some twenty of them in a turn, so most of its time would go
 * into those that are silent. This source has a descriptor of epoll instead, and a turn costs what
 * is ready.
 *
 * All that is ready is dispatched in one turn of the loop, and each descriptor once, so none gets
 * more turns than another. A descriptor whose input is not read to its end is ready again in the
 * next turn. Limits: it waits for input only, and it belongs to the thread of its loop.
 */
#pragma once

#include <glib.h>

typedef struct QosPoller QosPoller;

/* The caller's memory, which stays in place while it is added. */
typedef struct {
    int fd;
    /* There is input, an error or the end of the stream. It may add and remove any watch, and runs
     * no main loop. */
    void (*ready)(gpointer arg);
    gpointer arg;
} QosPollerWatch;

/* Its source is attached to the context (NULL: the default one) with the default priority. NULL:
 * `error` is set (QOS_ERROR). */
QosPoller *qos_poller_new(GMainContext *context, GError **error);
/* NULL is allowed. No watch may be left. */
void qos_poller_free(QosPoller *poller);

/* FALSE: the system has no room for it, or the descriptor cannot be waited for; errno says which.
 * The descriptor is not in the poller yet, and is closed only after its watch was removed. */
gboolean qos_poller_add(QosPoller *poller, QosPollerWatch *watch);
/* It was added. It is not called any more, even if it was ready in this turn. */
void qos_poller_remove(QosPoller *poller, QosPollerWatch *watch);
