/*
 * The gate: the one lock around the scheduler and the jobs, and the waiting
 * (docs/design/architecture.md, "One request's journey").
 *
 * The scheduler decides; the gate locks, sleeps and wakes. The thread that brought a request also
 * runs it if it may go, because a hand-over costs more than the work. A request that must wait is
 * parked: it holds no thread, and a worker runs it when it is due. A thread that finishes a request
 * runs the next one that is due, so that a full store is kept busy without a hand-over.
 *
 * Parking takes two steps, because the request's data must be moved out of the reader's buffer
 * without the lock. enter() says "wait", then the caller moves the data and calls park(). If the
 * request comes due in between, the caller runs it. The states (QosEntry.parking, under the lock):
 *
 *     ARRIVING -> PARKED -> RUNNING          moved its data, then came due
 *     ARRIVING -> DUE -> RUNNING             came due first: park() says "run it"
 *     PARKED -> CANCELLED                    interrupted, read-ahead that makes way, the mount ends
 *     ARRIVING -> CANCELLED                  there is no room for it to wait
 *
 * The workers take turns (leader and followers): the leader sleeps until the nearest deadline; when
 * something is due, it names the next leader and runs it. There are never more workers than
 * requests may be in the store, and they are made on demand.
 *
 * Lock: `lock` is the only one. All calls take it; qos_gate_boost() and qos_gate_holder() only
 * while requests wait with a kernel lock. It is not held while run() or cancelled() is called.
 */
#pragma once

#include "fs/budgets.h"
#include "fs/sched.h"
#include "sys/clock.h"

typedef struct QosGate QosGate;
typedef struct QosEntry QosEntry;

/* One request on its way through the gate; the operation embeds it. */
struct QosEntry {
    QosRequest request;
    /* Runs the request in the store, calls qos_gate_leave() and frees it. Called by a worker, or by
     * the thread that has the entry from qos_gate_next(). */
    void (*run)(QosEntry *entry);
    /* Answers and frees a request that was taken back with `error` (an errno). Any thread. */
    void (*cancelled)(QosEntry *entry, int error);
    guint64 number; /* the kernel's, where request.thread is set: it sent greater ones later; 0: not
                       known */
    /* The gate's own, under its lock. */
    int parking;
    guint sent;                   /* of its thread's READs that were parked: its number */
    struct QosParkedQueue *queue; /* where it is parked */
    GList parked;                 /* there */
};

/* `policy` and `slots` as for qos_sched_new(). The gate starts without threads. */
QosGate *qos_gate_new(const QosPolicyClass *policy, guint slots, QosTime job_cleanup_interval);
/* Starts the first worker; after the daemon's fork. 0 or -errno. */
int qos_gate_start(QosGate *gate);
/* Takes back all that waits (ENOTCONN), ends the threads. No enter() may follow or be under way. */
void qos_gate_stop(QosGate *gate);
void qos_gate_free(QosGate *gate); /* stopped, or never started; NULL is allowed */

/* TRUE: run it now. FALSE: it waits; move what it needs, then call qos_gate_park(). */
gboolean qos_gate_enter(QosGate *gate, QosEntry *entry);
/* TRUE: it has come due meanwhile, run it now. FALSE: it is the gate's; do not touch it any more.
 */
gboolean qos_gate_park(QosGate *gate, QosEntry *entry);
/* TRUE where a rule bounds what the entry's request belongs to: what it costs matters. */
gboolean qos_gate_is_limited(QosGate *gate, const QosEntry *entry);
/* Between enter() and park(): says where to keep the request and its `data`, as
 * qos_sched_park_place(). NOWHERE: the request was taken back, and the caller answers it. */
QosParkPlace qos_gate_park_place(QosGate *gate, QosEntry *entry, gboolean may_be_early);
/* After QOS_PARK_IN_STORE: it is there. */
void qos_gate_note_stored(QosGate *gate, QosEntry *entry);
/* A request that may go is about to wait for something else (a credit, stale pages) without a
 * thread. Its slot is free meanwhile, because the wait may end only after others go first. */
void qos_gate_pause(QosGate *gate, QosEntry *entry);
/* It has waited, or need not: it is about to go to the store. */
void qos_gate_go_on(QosGate *gate, QosEntry *entry);
/* The entry's wait is over: a worker calls its run() again. Any thread. */
void qos_gate_resume(QosGate *gate, QosEntry *entry);
/* To be called after the backing call, and best before the reply, because a thread that has replied
 * may lose its CPU to the program, and would keep its slot all the while. `bytes`: moved; `error`:
 * errno or 0. The entry belongs to the caller again. TRUE if others wait: the thread calls
 * qos_gate_next() when it has replied. */
gboolean qos_gate_leave(QosGate *gate, QosEntry *entry, guint64 bytes, int error);
/* Another that is due, to be run by this thread (its run()), or NULL. */
QosEntry *qos_gate_next(QosGate *gate);
/* Boosts what waits with the lock `lock` (QosRequest.lock), because `job`, or with NULL any job,
 * wants it: requests of other jobs go into debt, unless their class owes as much as it may. Each is
 * looked at once, however often this is called; where they are many, others have the gate
 * meanwhile. Cheap where nothing waits with a lock. */
void qos_gate_boost(QosGate *gate, guint64 lock, const QosJob *job);
/* Of which job requests wait with the lock, by the first of them. Cheap where nothing waits with
 * any. */
typedef enum { QOS_GATE_NOBODY, QOS_GATE_THE_JOB, QOS_GATE_ANOTHER } QosGateHolder;
QosGateHolder qos_gate_holder(QosGate *gate, guint64 lock, const QosJob *job);
/* Takes back a parked request: TRUE where it was parked; the caller answers it then (cancelled() is
 * not called). */
gboolean qos_gate_cancel(QosGate *gate, QosEntry *entry);

/* The user; borrowed from the gate. */
QosUser *qos_gate_user(QosGate *gate, guint32 uid);
/* The job of that name for `user` (qos_jobs_job_for); a new reference. `nodes` 0 = unknown. */
QosJob *qos_gate_job(QosGate *gate, QosUser *user, const char *id, guint nodes);

/* qos_sched_passes_through() by the rules in force. */
gboolean qos_gate_passes_through(QosGate *gate, const QosRequest *request, QosOpcodeSet opcodes);
/* The kernel reads and writes one more open file (1), or one less (-1), by itself for the job. */
void qos_gate_count_passthrough(QosGate *gate, QosJob *job, gint change);

/* --- the scheduler, to be set and asked --- */

/* Takes the gate's lock, and returns the scheduler: until it unlocks, the caller may call what
 * fs/sched.h and fs/jobs.h offer, with the time of qos_clock_now().
 *
 * No request of any job goes on meanwhile. So in between the caller does nothing that sleeps, makes
 * no system call and takes no other lock: the gate's is the innermost, which debug builds assert
 * (sys/mutex.h). Where there are many jobs or rules, it locks anew for each. */
QosSched *qos_gate_lock(QosGate *gate);
/* After questions, and settings that let nothing go earlier. */
void qos_gate_unlock(QosGate *gate);
/* After all other settings: a worker looks at once at what is due by now, and at what is to be told
 * (qos_gate_on_change). */
void qos_gate_unlock_and_wake(QosGate *gate);

/* What the mount has of the cluster's rates, for a caller that has qos_gate_lock(); NULL: it has no
 * lock server. */
QosBudgets *qos_gate_budgets(QosGate *gate);
/* Takes them over; once, with qos_gate_lock(). */
void qos_gate_set_budgets(QosGate *gate, QosBudgets *budgets);

/* Histograms over all jobs, for the metrics. */
typedef struct {
    QosHistogram latency[QOS_OP_COUNT]; /* the store's time, ns */
    QosTime latency_sum[QOS_OP_COUNT];  /* of what `latency` counts, ns */
    QosHistogram waiting;               /* of requests that waited, ns */
    QosTime waiting_sum;                /* of what `waiting` counts, ns */
} QosGateHistograms;
void qos_gate_histograms(QosGate *gate, QosGateHistograms *ret_histograms);

/* What changes by itself. */
typedef enum {
    QOS_GATE_RULES = 1 << 0,  /* some have expired */
    QOS_GATE_SHARES = 1 << 1, /* qos_gate_changed_shares() */
} QosGateChanges;
/* A worker calls `changed`, without the lock, with what has changed. Shares change once a period at
 * most, and not while no job lends or owes. NULL: nothing is called. */
void qos_gate_on_change(QosGate *gate, void (*changed)(QosGateChanges changes, void *arg),
                        void *arg);
