/*
 * What the lock server says: the frames of one connection, and which thread has the turn to read
 * them.
 *
 * The thread of the main context reads (fs/lockclient/link.h). A thread that waits for an answer
 * may read in its place for a moment, as the *leader*; all others are followers. So the answer
 * wakes one thread, the leader, and not the context's thread first:
 *
 *     if (qos_receive_lead(receiver)) {
 *         while (... && qos_receive_wait(receiver, timeout))
 *             if (!qos_receive_read(receiver))
 *                 break;
 *         qos_receive_cede(receiver);
 *     }
 *
 * What this gains: with server and client ahead of all other programs on two CPUs, an uncontended
 * request takes 44 us (median of six runs by turns, of bench-lockclient's median; the aim is 60).
 * Where only the context's thread reads, and tells the thread that asked, it takes 122 us. With
 * client and server bound to a CPU each these are 46 and 77 us.
 *
 * One thread reads at a time. A leader leaves to the context's thread what take()
 * does not know: a refusal, rubbish, the end. Only the context's thread ends a connection. It waits
 * in poll() for an epoll instance that has the socket in it. So a leader can stop
 * it from waiting for bytes without waking it. With TLS, which reads ahead, no thread leads.
 *
 * Lock: its own; not held while a thread reads, waits or calls take().
 */
#pragma once

#include <gio/gio.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/wire.h"
#include "sys/mutex.h"

/* A reason to close, for people. */
#define QOS_RECEIVE_NONSENSE "what it says makes no sense"

typedef struct {
    gpointer arg;
    /* A frame, by the thread that reads. FALSE: it is left to take_rest(), whatever was done with
     * it. */
    gboolean (*take)(QosWireType type, const guint8 *payload, gsize length, gpointer arg);
    /* A frame that take() left. By the context's thread, as what follows. FALSE: all was closed. */
    gboolean (*take_rest)(QosWireType type, const guint8 *payload, gsize length, gpointer arg);
    /* There is nothing more to read, for that reason; it is to be closed. */
    void (*ended)(const char *reason, gpointer arg);
} QosReceiveUser; /* none may be NULL */

typedef enum {
    QOS_RECEIVE_UNREAD,
    QOS_RECEIVE_READ, /* by the context's thread, ... */
    QOS_RECEIVE_LED,  /* ..., or by a leader */
} QosReceiveTurn;

/* Embedded; all is its own. */
typedef struct {
    QosReceiveUser user;
    _Atomic QosTime heard;

    /* The context's thread changes these, while no other reads: */
    GIOStream *stream; /* NULL: closed */
    GSource *source;
    int socket, epoll; /* -1: none */

    /* Of the thread that has the turn: */
    guint asleep; /* so many waits are to sleep at once */
    QosWireReader reader;
    gboolean has_rest; /* what was found last is left to the context's thread: */
    QosWireVerdict found;
    QosWireType type;
    const guint8 *payload; /* the reader's */
    gsize length;

    QosMutex lock; /* the rest */
    pthread_cond_t ceded;
    QosReceiveTurn turn;
    gboolean may_lead;
} QosReceiver;

void qos_receive_init(QosReceiver *receiver, const QosReceiveUser *user);
void qos_receive_clear(QosReceiver *receiver); /* closed */

/* --- for the context's thread --- */

/* Begins to read what comes by the stream, which is the socket's own or TLS upon it. Closed before.
 */
void qos_receive_open(QosReceiver *receiver, GIOStream *stream, GSocket *socket,
                      GMainContext *context);
/* From here on take() may be called by any thread. */
void qos_receive_share(QosReceiver *receiver);
/* Waits until a leader has ceded. The caller has shut the socket down, which
 * wakes it. Nothing happens where it is closed. */
void qos_receive_close(QosReceiver *receiver);
/* When something was read last; monotonic. */
QosTime qos_receive_heard(const QosReceiver *receiver);

/* --- for any thread --- */

/* Makes the caller the leader. FALSE: it is another's turn, or can be that of the context's thread
 * alone: also where something is left for that. */
gboolean qos_receive_lead(QosReceiver *receiver);
/* Whether there is something to read, now or within `timeout`, a duration. */
gboolean qos_receive_wait(QosReceiver *receiver, QosTime timeout);
/* Reads and takes that. FALSE: what is left is for the context's thread. */
gboolean qos_receive_read(QosReceiver *receiver);
/* By the leader: the context's thread reads again. */
void qos_receive_cede(QosReceiver *receiver);
