/*
 * What the files of the gate share: gate.c has a request's way and the workers, parking.c where
 * it is parked, gate_control.c what is told to the scheduler and asked of it.
 */
#pragma once

#include <pthread.h>

#include "fs/gate/gate.h"
#include "sys/mutex.h"

/* The parked requests for which the kernel holds the same lock: found without a look at the others,
 * of which there may be 50,000 of one user's. */
typedef struct QosGateLine {
    guint64 lock;   /* first: the table holds these; 0: of all that cannot be boosted */
    GQueue entries; /* of QosEntry, oldest first */
    GList link;
} QosGateLine;

struct QosGate {
    gint locked_lines;      /* atomic: `lines` but for that with the lock 0 */
    QosMutex lock;          /* everything below */
    pthread_cond_t lead;    /* the leader: something is due earlier */
    pthread_cond_t follow;  /* one of the followers: lead */
    pthread_cond_t entered; /* who awaits a request: one is in the store */
    QosSched *sched;
    GHashTable *parked;  /* a set of QosGateLine, none empty */
    GQueue lines;        /* the same */
    GHashTable *threads; /* that have READs parked: read_ahead.c */
    GQueue resumed;      /* of QosEntry, RUNNING, oldest first */
    QosGateHistograms histograms;

    GArray *workers; /* of pthread_t */
    guint followers; /* workers that wait for their turn to lead */
    gboolean has_leader;
    gboolean named; /* a follower was signalled to lead and is on its way */
    gboolean is_stopping;
    gboolean is_awaited;  /* a request, by somebody who sleeps */
    QosTime leader_wake;  /* when the leader means to wake */
    QosTime housekeeping; /* when next */

    /* Who is told of what changes by itself, or NULL. */
    void (*changed)(QosGateChanges changes, void *arg);
    void *changed_arg;
    QosShareChanges told; /* of shares, as far as it was told */
};

/* Something is due at `wake`: the leader must not sleep longer. */
void qos_gate_wake_leader_locked(QosGate *gate, QosTime wake);

/* Takes back an entry that is PARKED; the caller answers it. */
void qos_gate_take_back_locked(QosGate *gate, QosEntry *entry);

/* --- read_ahead.c --- */

GHashTable *qos_gate_threads_new(void);
/* An entry is PARKED; it is so no more. What its thread has asked for before it may be given up. */
void qos_gate_join_thread_locked(QosGate *gate, QosEntry *entry, GQueue *given_up);
void qos_gate_leave_thread_locked(QosGate *gate, QosEntry *entry);
/* Another job wants the file of a parked entry: it is given up where it is read-ahead that waits.
 */
void qos_gate_give_up_ahead_locked(QosGate *gate, QosEntry *entry, GQueue *given_up);
/* Without the lock. `given_up`: of QosEntry. */
void qos_gate_answer_given_up(GQueue *given_up);

/* --- parking.c --- */

/* An entry is PARKED; it is so no more. */
void qos_gate_join_line_locked(QosGate *gate, QosEntry *entry);
void qos_gate_leave_line_locked(QosGate *gate, QosEntry *entry);
/* One that is PARKED, or NULL. */
QosEntry *qos_gate_any_parked_locked(QosGate *gate);
