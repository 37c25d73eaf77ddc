/*
 * Which signals a thread has pending, by /proc.
 *
 * FUSE passes a signal on as INTERRUPT, but not always. Over io_uring it passes on none that came
 * before the request was delivered (docs/design/io_uring.md); such a signal is pending by then. For
 * requests in the background it passes on none at all (fs/request/background.h). In these cases
 * /proc tells.
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

/* `thread` as in a request's context. A thread in a pid namespace that the daemon cannot see is 0,
 * and has no signals. Reads /proc, so the caller holds no lock. */
QosSignals qos_signals_of(pid_t thread);

typedef struct {
    pid_t pid;
    guint64 start; /* clock ticks since the machine's boot, at which it began; 0: there is none */
} QosProcessId;

/* The number of the process that a descriptor is of, for as long as that may not be another's; 0:
 * nothing is left of the process, the kernel does not tell (before Linux 6.13), or there is no
 * descriptor (-1). */
pid_t qos_signals_number_of(int descriptor);
/* The process of a thread. Reads /proc. */
void qos_signals_process(pid_t thread, QosProcessId *ret_process);
/* The same from its descriptor (-1: none), also when the thread has gone and the process only waits
 * for its parent. */
void qos_signals_process_of(int descriptor, QosProcessId *ret_process);
/* A descriptor by which the kernel tells how a process has ended, also when nothing is left of it
 * (since Linux 6.15); -1: there is none. */
int qos_signals_open(const QosProcessId *process);
/* The same of a thread's process; reads nothing. */
int qos_signals_open_thread(pid_t thread);

typedef enum {
    QOS_END_NONE,    /* it lives, or ends by itself */
    QOS_END_KILLED,  /* by a signal: each of its threads exits because of one, or is about to */
    QOS_END_UNKNOWN, /* it has gone, and nothing tells how */
} QosEnd;

/* How the process ends. Reads /proc, of a process that lives one file. */
QosEnd qos_signals_end(const QosProcessId *process);
/* How one that has gone did. `descriptor`: its, or -1. UNKNOWN also of one that lives. Does not
 * wait. */
QosEnd qos_signals_end_of_gone(int descriptor);
