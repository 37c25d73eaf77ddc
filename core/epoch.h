/*
 * Epochs that many schedulers begin together, each with the same data: the epoch handler (EH) of
 * seed 003, section 5.
 *
 * A scheduler (LRS) calls qos_epoch_next() when it is ready for the next epoch, and hands in its
 * policy data. When all participants are ready, each scheduler is called back with the epoch's
 * number and the data of all of them, reduced to one. Participants that are not ready in time are
 * evicted.
 *
 *   IDLE     no participant
 *   WAITING  in an epoch, no participant is ready for the next
 *   CLOSING  a participant is ready: since then the timeout counts
 *   PASSED   (of a node in a tree) all are ready, and the parent has their reduction. The seed does
 *            not say how peers find each other, and counts this as CLOSING.
 *
 * There are two handlers, each a table of functions: the local one (core/epoch_local.c) for a
 * scheduler alone, and a node of a tree (core/epoch_tree.c). Such a node is a participant's own
 * handler, a combiner of its children or, at the root, the coordinator.
 *
 * Promises, whatever messages are lost, repeated, delayed or reordered, and whichever node crashes:
 *   - an epoch is never begun with two different data, nor twice by one participant;
 *   - a participant that has begun an epoch next begins the epoch after it, or one of a later
 *     incarnation of the coordinator, unless it was told -ESTALE or -ETIMEDOUT in between;
 *   - each qos_epoch_next() is answered by one call-back, at the latest when `patience` has passed.
 *
 * They rest on numbers that only grow: epoch numbers hold the coordinator's incarnation, tickets
 * (one for each READY and LEAVE) hold the sender's. A START or REFUSE repeats the ticket that it
 * answers, so a late answer matches no open ticket.
 *
 * Pure: time is an argument; what is to be sent or called back is handed out. Callers lock.
 */
#pragma once

#include "base/time.h"

#define QOS_EPOCH_FIRST    0    /* "I know no epoch": the first call, and after an error */
#define QOS_EPOCH_HERE     0    /* the node number of the scheduler that this handler serves */
#define QOS_EPOCH_DATA_MAX 4096 /* bytes; seed 003, 5.1 */
/* The digits of a number below its incarnation: 34 years of a thousand epochs a second. */
#define QOS_EPOCH_COUNT_BITS      40
#define QOS_EPOCH_INCARNATION_MAX ((1 << (63 - QOS_EPOCH_COUNT_BITS)) - 2) /* no sum overflows */

typedef enum {
    QOS_EPOCH_IDLE,
    QOS_EPOCH_WAITING,
    QOS_EPOCH_CLOSING,
    QOS_EPOCH_PASSED
} QosEpochState;

typedef enum {
    QOS_EPOCH_READY = 1, /* up: the sender is ready for the epoch after `epoch`, with `data` */
    QOS_EPOCH_LEAVE,     /* up: it takes part no more */
    QOS_EPOCH_START,     /* down: `epoch` begins, with `data` */
    QOS_EPOCH_REFUSE,    /* down: it does not, `epoch` is -errno */
} QosEpochMessageType;

/* The transport knows the sender and the receiver. */
typedef struct {
    QosEpochMessageType type;
    guint64 ticket; /* the sender's own, or the one that is answered */
    gint64 epoch;
    GBytes *data;        /* policy data; NULL = none */
    gboolean is_swapped; /* `data` is in the other byte order than this machine's */
} QosEpochMessage;

/*
 * An action that the caller carries out, in order: it sends `message` to the node `to`. If `to` is
 * QOS_EPOCH_HERE, it calls the scheduler back instead. For a START it passes `epoch` and the
 * reduced data, otherwise the -errno in `epoch`:
 *     -ESTALE     evicted: the peers have begun epochs without it; QOS_EPOCH_FIRST joins anew
 *     -ETIMEDOUT  no answer from the peers; taken off the participants
 *     -EOVERFLOW  the coordinator has no more numbers
 */
typedef struct {
    guint64 to;
    QosEpochMessage message;
} QosEpochAction;

/* How policy data of two participants becomes that of both. */
typedef struct {
    /* Associative and commutative. Of `combined`, which has room for the longer of the two and is
     * neither of them, as many bytes count as the shorter has. All are aligned for any number. */
    void (*combine)(void *combined, const void *a, gsize a_length, const void *b, gsize b_length);
    /* Turns data from the other byte order to this machine's. */
    void (*swab)(void *data, gsize length);
} QosEpochReduction;

typedef struct QosEpochHandler QosEpochHandler;

/* A handler: the functions below, less their checks. */
typedef struct {
    int (*next)(QosEpochHandler *handler, gint64 epoch, GBytes *data, QosTime now, GArray *out);
    int (*last)(QosEpochHandler *handler, gint64 epoch, QosTime now, GArray *out);
    gboolean (*receive)(QosEpochHandler *handler, guint64 from, const QosEpochMessage *message,
                        QosTime now, GArray *out);
    QosTime (*tick)(QosEpochHandler *handler, QosTime now, GArray *out);
    void (*free)(QosEpochHandler *handler);
} QosEpochClass;

struct QosEpochHandler {
    const QosEpochClass *class;
    QosEpochState state; /* to be read by anyone */
    gint64 epoch;        /* the latest that began here; 0 = none */
};

/* For a scheduler alone: the next epoch begins at once, with its own data. */
QosEpochHandler *qos_epoch_local_new(void);

/*
 * A node of a tree. The timeout counts from the first member that is ready. A node above combiners
 * needs twice their timeout and the time of messages, so that no participant is evicted that was
 * ready in time.
 */
typedef struct {
    guint64 parent;      /* QOS_EPOCH_HERE: none, this is the coordinator */
    guint32 incarnation; /* 1 to QOS_EPOCH_INCARNATION_MAX, greater after each restart */
    QosTime timeout;     /* > 0; children that are not ready by then are evicted */
    QosTime retry;       /* > 0; what the parent has not answered is sent again */
    QosTime patience;    /* > 0; the scheduler here is called back by then */
    QosEpochReduction reduction;
} QosEpochConfig;
/* NULL where `config` is out of bounds. */
QosEpochHandler *qos_epoch_tree_new(const QosEpochConfig *config);

/* NULL is allowed. */
void qos_epoch_free(QosEpochHandler *handler);

/* Takes the first call-back out of `actions`, with its data; FALSE where there is none. */
gboolean qos_epoch_take_call_back(GArray *actions, QosEpochMessage *ret_message);
/* An empty array of QosEpochAction for `out`; emptied or freed, it lets go of what it holds. */
GArray *qos_epoch_actions_new(void);

/*
 * The scheduler here is ready for the epoch after `epoch`, the one it is in or QOS_EPOCH_FIRST,
 * with `data` (a reference is taken; NULL = none). The call-back follows, at once or later. Returns
 * 0, or -errno and nothing happens: EBUSY where one is still to come, EINVAL where `epoch` has not
 * begun yet, EMSGSIZE.
 */
int qos_epoch_next(QosEpochHandler *handler, gint64 epoch, GBytes *data, QosTime now, GArray *out);
/* The scheduler here takes part no more; a call-back that is still to come does not come. Returns
 * 0, or -EINVAL where it does not take part or `epoch` has not begun. */
int qos_epoch_last(QosEpochHandler *handler, gint64 epoch, QosTime now, GArray *out);
/* A message has come from the node `from`. FALSE: it is of no use (late, repeated, impossible or
 * wrong), nothing happened but that an answer may have been repeated. */
gboolean qos_epoch_receive(QosEpochHandler *handler, guint64 from, const QosEpochMessage *message,
                           QosTime now, GArray *out);
/* Does what is due; returns when there will be something. To be called then, and after each call
 * above to learn when. */
QosTime qos_epoch_tick(QosEpochHandler *handler, QosTime now, GArray *out);

#define QOS_EPOCH_HEADER 24 /* bytes of a message without data */

/* Appends `message`. */
void qos_epoch_encode(const QosEpochMessage *message, GByteArray *bytes);
/* FALSE where the bytes are not exactly one message. */
gboolean qos_epoch_decode(const guint8 *bytes, gsize length, QosEpochMessage *ret_message);
/* Lets go of its data. */
void qos_epoch_message_clear(QosEpochMessage *message);
