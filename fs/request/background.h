/*
 * Parked requests that the kernel may have sent in the background, by process: reads, and writes
 * past its cache (O_DIRECT, cache=none).
 *
 * For these the kernel passes on no signal. A killed program would wait for them in its exit, as
 * long as its rule says. So the daemon looks at their processes (fs/poll_turns.h), once for each
 * process however many requests it has.
 *
 * A thread may end long before its process. So the process is found at the first look, and is known
 * by its start time from then on. Until then the requests of a thread are a group of their own. If
 * requests of the same process already wait, and its descriptor is kept, a new request joins them
 * at once: this costs a few short system calls, while a look takes a switch of threads and two
 * files of /proc.
 *
 * The exit of a program does not wait for what it asked for by io_uring, so nothing may be left of
 * a killed program. So a descriptor of the process is kept (pidfd), by which the kernel tells how
 * the process ended. There are as many as the quota allows (fs/quota.h). If the thread of a request
 * has gone at the first look, the request belongs to the process that the descriptor names, or to
 * that of another waiting request of the same thread. If there is none, and the process was not
 * killed, the request is served when it is due.
 *
 * If a program ends by itself, its requests are served, because it may want its writes. If nothing
 * tells how a process ended, only its reads are taken back.
 *
 * Locks: none; the owner locks (fs/request/interrupt.c).
 */
#pragma once

#include "fs/caller/signals.h"
#include "fs/poll_turns.h"
#include "fs/quota.h"
#include "fs/request/op.h"

typedef struct QosBackground QosBackground;

/* A group lives as long as it has requests. In the turns it counts as the first of them. */
struct QosBackgroundGroup {
    QosPollTurn turn; /* first */
    QosProcessId id;  /* of the process; before it is found, of the thread, with a `start` of 0 */
    QosEnd end;
    int descriptor; /* -1, or that of qos_signals_open() or qos_signals_open_thread() */
    QosJob *job;    /* whose quota the descriptor counts in, and the user; not a reference */
    QosUser *user;
    GQueue ops;
};

/* The turns are borrowed; those of groups are of this kind. */
QosBackground *qos_background_new(QosPollTurns *turns, guint kind);
void qos_background_free(QosBackground *background); /* empty; NULL is allowed */

/* The group that the request joins: its thread's, or that of a process which `descriptor` names and
 * of which one is kept; or NULL. */
QosBackgroundGroup *qos_background_find(QosBackground *background, const QosOp *op);
QosBackgroundGroup *qos_background_find_process(QosBackground *background, int descriptor);
/* Puts the operation into `group`; NULL: into a new one of its thread, and the caller must say when
 * it is that one's turn. */
QosBackgroundGroup *qos_background_add(QosBackground *background, QosOp *op,
                                       QosBackgroundGroup *group);
/* Does nothing to what is not in it. */
void qos_background_remove(QosBackground *background, QosOp *op);
/* TRUE where other requests of the group's thread wait with its process. */
gboolean qos_background_knows(QosBackground *background, const QosBackgroundGroup *thread);
/* TRUE where the process has no group yet. */
gboolean qos_background_is_new(QosBackground *background, const QosProcessId *process);
/* Gives a thread's requests to its process, and returns the process's group; if that is new, the
 * caller must say when its turn is. Where the thread has gone (start 0), and its process is not
 * known: `thread` itself if it was killed; else NULL, and its requests are removed. */
QosBackgroundGroup *qos_background_found(QosBackground *background, QosBackgroundGroup *thread,
                                         const QosProcessId *process);
/* Takes `descriptor` if the quota allows it; else FALSE. */
gboolean qos_background_keep(QosBackground *background, QosBackgroundGroup *group, int descriptor);
