/*
 * Which signals a thread has pending, as /proc tells it: for those that the kernel says nothing of.
 *
 * FUSE passes a signal on as INTERRUPT. Over io_uring it passes on none that came before the
 * request was delivered (docs/io_uring.md); but such a one is pending by then.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

typedef struct {
    gboolean is_gone;     /* no such thread */
    gboolean is_signaled; /* one that it does not block is pending, for it or for its process */
    gboolean is_its_own;  /* likewise, and no other thread of the process may take it */
    gboolean is_killed;   /* one that is to end its call */
} QosSignals;

/* `thread` as in a request's context: 0, for one in a pid namespace that this daemon cannot see,
 * has none. Reads /proc, so no lock is held. */
QosSignals qos_signals_of(pid_t thread);
