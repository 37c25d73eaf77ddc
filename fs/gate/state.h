/*
 * What the files of the gate share.
 *
 * From below upwards: read_ahead.c and parking.c have the tables of parked requests, boost.c makes
 * parked requests go, workers.c runs what is due, and gate.c has the way of a request.
 */
#pragma once

#include <pthread.h>

#include "fs/gate/gate.h"
#include "sys/mutex.h"

/* Idle classes and jobs live on for 10 s and more. */
#define QOS_GATE_HOUSEKEEPING (5 * QOS_SECOND)

/* Of QosEntry.parking; fs/gate/gate.h tells what they mean. */
enum {
    QOS_ENTRY_ARRIVING,
    QOS_ENTRY_DUE,
    QOS_ENTRY_PARKED,
    QOS_ENTRY_RUNNING,
    QOS_ENTRY_CANCELLED,
};

/* The parked requests for which the kernel holds the same lock. They are found without a look at
 * the others, of which one user may have 50,000. */
typedef struct QosParkedQueue {
    guint64 lock;   /* first: the table holds these; 0: of all that cannot be boosted */
    GQueue entries; /* of QosEntry, oldest first */
    GList link;
} QosParkedQueue;

struct QosGate {
    gint lock_queues;      /* atomic: `queues` but for that with the lock 0 */
    QosMutex lock;         /* everything below */
    pthread_cond_t lead;   /* the leader: something is due earlier */
    pthread_cond_t follow; /* one of the followers: lead */
    QosSched *sched;
    QosBudgets *budgets; /* NULL: no lock server */
    GHashTable *parked;  /* a set of QosParkedQueue, none empty */
    GQueue queues;       /* the same */
    GHashTable *threads; /* that have READs parked: read_ahead.c */
    GQueue resumed;      /* of QosEntry, RUNNING, oldest first */
    QosGateHistograms histograms;

    GArray *workers; /* of pthread_t */
    guint followers; /* workers that wait for their turn to lead */
    gboolean has_leader;
    gboolean named; /* a follower was signalled to lead and is on its way */
    gboolean is_stopping;
    QosTime leader_wake;  /* when the leader means to wake */
    QosTime housekeeping; /* when next */

    /* Is told of what changes by itself; may be NULL. */
    void (*changed)(QosGateChanges changes, void *arg);
    void *changed_arg;
    QosShareChanges told; /* of shares, as far as it was told */
};

/* Something is due at `wake`: the leader must not sleep longer. */
static inline void qos_gate_wake_leader_locked(QosGate *gate, QosTime wake)
{
    if (wake < gate->leader_wake) {
        gate->leader_wake = wake;
        pthread_cond_signal(&gate->lead);
    }
}

/* --- read_ahead.c --- */

GHashTable *qos_gate_threads_new(void);
/* These two are called when an entry is PARKED, and when it is so no more. The first returns the
 * entry that the same thread sent before, if that is parked, because it is read-ahead from now on;
 * or NULL. */
QosEntry *qos_gate_join_thread_locked(QosGate *gate, QosEntry *entry);
void qos_gate_leave_thread_locked(QosGate *gate, QosEntry *entry);
/* TRUE where no system call waits for the parked entry. */
gboolean qos_gate_is_read_ahead_locked(QosGate *gate, const QosEntry *entry);

/* --- parking.c --- */

/* The queue of `lock`, or NULL. */
QosParkedQueue *qos_gate_queue_of_locked(QosGate *gate, guint64 lock);
/* An entry becomes PARKED; it is so no more. Returns as qos_gate_join_thread_locked(). */
QosEntry *qos_gate_join_parked_locked(QosGate *gate, QosEntry *entry);
void qos_gate_leave_parked_locked(QosGate *gate, QosEntry *entry);
/* To the end of the queue of `lock`, which may be its own. */
void qos_gate_change_queue_locked(QosGate *gate, QosEntry *entry, guint64 lock);
/* Takes back an entry that is PARKED; the caller answers it. */
void qos_gate_take_back_locked(QosGate *gate, QosEntry *entry);
/* One that is PARKED, or NULL. */
QosEntry *qos_gate_any_parked_locked(QosGate *gate);

/* --- boost.c --- */

/* Takes read-ahead back that keeps another job from the file until it has a token. */
void qos_gate_give_up_locked(QosGate *gate, QosEntry *entry, GQueue *given_up);
/* Without the lock. `given_up`: of QosEntry. */
void qos_gate_answer_given_up(GQueue *given_up);

/* --- workers.c --- */

/* The next entry that this thread is to run, or NULL with when to look again. Entries that already
 * have a slot come first. */
QosEntry *qos_gate_take_locked(QosGate *gate, QosTime now, QosTime *wake);
