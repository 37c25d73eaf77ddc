/*
 * Which object to look at next, if a look takes time and there may be many objects. An object is,
 * for example, an interrupted caller that is checked for a fatal signal.
 *
 * A new object is looked at at once: an event brings it, so there are no more such looks than
 * events. Objects that are looked at again and again get QOS_POLL_TURNS_LOOKS a second, all
 * together, however many there are. These looks are made in a batch at the beginning of each round,
 * so that the looking thread need not wake for each. A look that finds what it was made for pays
 * for QOS_POLL_TURNS_PAID further ones. So if a signal ends many callers, they are found the
 * sooner. New and repeated looks alternate if both are due.
 *
 * Users take turns; within a user its jobs take turns, and within a job the turn that became due
 * first is next. So a user or job with many objects has each of them looked at less often, and the
 * others notice nothing. Jobs of users without bounds (user NULL) take turns with the users.
 *
 * Pure; the caller locks.
 */
#pragma once

#include "base/heap.h"
#include "fs/jobs.h"

/* A look at an interrupted caller takes some 25 us, so all looks take at most a tenth of a CPU. */
#define QOS_POLL_TURNS_LOOKS 4000
#define QOS_POLL_TURNS_ROUND (10 * QOS_MILLISECOND)
#define QOS_POLL_TURNS_PAID  8

typedef struct QosPollTurns QosPollTurns;
typedef struct QosPollQueue QosPollQueue;

typedef enum {
    QOS_POLL_TURN_NONE, /* to be said */
    QOS_POLL_TURN_LATER,
    QOS_POLL_TURN_NEW,   /* due, and never looked at */
    QOS_POLL_TURN_AGAIN, /* due */
} QosPollTurnState;

/* An object's place in the turns. Embedded in the object; except for `kind`, fs/poll_turns.c's
 * own. */
typedef struct {
    QosHeapNode later;   /* its key: when it becomes due */
    GList link;          /* in its job's queue, while it is due */
    QosPollQueue *queue; /* NULL: it is in no turns */
    QosJob *job;         /* a reference */
    QosPollTurnState place;
    guint kind; /* the caller's, to tell what it is embedded in */
} QosPollTurn;

QosPollTurns *qos_poll_turns_new(void);
void qos_poll_turns_free(QosPollTurns *turns); /* nothing is in them; NULL is allowed */

/* `turn` is zeroed, or was removed; it stands for `job` and `user` (NULL: one without bounds). It
 * is not due before one of the two calls below says when. */
void qos_poll_turns_add(QosPollTurns *turns, QosPollTurn *turn, QosJob *job, QosUser *user);
/* Does nothing to what is in no turns. */
void qos_poll_turns_remove(QosPollTurns *turns, QosPollTurn *turn);
/* It is new. */
void qos_poll_turns_at_once(QosPollTurns *turns, QosPollTurn *turn);
/* The turn is due from `when` on. Also used after a look, or to replace an earlier time. */
void qos_poll_turns_at(QosPollTurns *turns, QosPollTurn *turn, QosTime when);

/* The next turn to be looked at now; it is not due again before a call above says when. Or NULL,
 * which holds until `*ret_wake` or the next call above. */
QosPollTurn *qos_poll_turns_next(QosPollTurns *turns, QosTime now, QosTime *ret_wake);
/* The turn that was last taken; NULL if it has been removed since. */
QosPollTurn *qos_poll_turns_taken(const QosPollTurns *turns);
/* The look has found what it was made for. */
void qos_poll_turns_pay(QosPollTurns *turns);
