/*
 * Which signals a thread has pending, as /proc tells it: for those that the kernel says nothing of.
 *
 * FUSE passes a signal on as INTERRUPT. Over io_uring it passes on none that came before the
 * request was delivered (docs/io_uring.md); but such a one is pending by then. For a request in the
 * background it passes on none at all (ops/background.h).
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

typedef struct {
    pid_t pid;
    guint64 start; /* clock ticks since the machine's boot, at which it began; 0: there is none */
} QosProcessId;

/* The process of a thread. Reads /proc. */
void qos_signals_process(pid_t thread, QosProcessId *ret_process);
/* A signal ends it: each of its threads exits because of one, or is about to. FALSE also where it
 * has gone. Reads /proc, of a process that lives one file. */
gboolean qos_signals_have_killed(const QosProcessId *process);
