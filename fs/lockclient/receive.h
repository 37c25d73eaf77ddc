/*
 * What the lock server says: the frames of one connection, and which thread has the turn to read
 * them.
 *
 * The thread of the main context reads (fs/lockclient/link.h). A thread that waits for an answer
 * may take its place for a moment. The answer then wakes the waiting thread directly, and not the
 * context's thread first:
 *
 *     if (qos_lockinput_take_over(input)) {
 *         while (... && qos_lockinput_wait(input, timeout))
 *             if (!qos_lockinput_read(input))
 *                 break;
 *         qos_lockinput_hand_back(input);
 *     }
 *
 * One thread reads at a time. A thread that took over leaves to the context's thread what take()
 * does not know: a refusal, rubbish, the end. Only the context's thread ends a connection. It waits
 * in poll() for an epoll instance that has the socket in it. So a thread that takes over can stop
 * it from waiting for bytes without waking it. With TLS, which reads ahead, no thread takes over.
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
#define QOS_LOCKINPUT_NONSENSE "what it says makes no sense"

typedef struct {
    gpointer arg;
    /* A frame, by the thread that reads. FALSE: it is left to take_rest(), whatever was done with
     * it. */
    gboolean (*take)(QosWireType type, const guint8 *payload, gsize length, gpointer arg);
    /* A frame that take() left. By the context's thread, as what follows. FALSE: all was closed. */
    gboolean (*take_rest)(QosWireType type, const guint8 *payload, gsize length, gpointer arg);
    /* There is nothing more to read, for that reason; it is to be closed. */
    void (*ended)(const char *reason, gpointer arg);
} QosLockinputUser; /* none may be NULL */

typedef enum {
    QOS_LOCKINPUT_UNREAD,
    QOS_LOCKINPUT_READ, /* by the context's thread, ... */
    QOS_LOCKINPUT_TAKEN_OVER,
} QosLockinputTurn;

/* Embedded; all is its own. */
typedef struct {
    QosLockinputUser user;
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
    pthread_cond_t handed_back;
    QosLockinputTurn turn;
    gboolean may_take_over;
} QosLockinput;

void qos_lockinput_init(QosLockinput *input, const QosLockinputUser *user);
void qos_lockinput_clear(QosLockinput *input); /* closed */

/* --- for the context's thread --- */

/* Begins to read what comes by the stream, which is the socket's own or TLS upon it. Closed before.
 */
void qos_lockinput_open(QosLockinput *input, GIOStream *stream, GSocket *socket,
                        GMainContext *context);
/* From here on take() may be called by any thread. */
void qos_lockinput_share(QosLockinput *input);
/* Waits until a thread that took over has handed back. The caller has shut the socket down, which
 * wakes that thread. Nothing happens where it is closed. */
void qos_lockinput_close(QosLockinput *input);
/* When something was read last; monotonic. */
QosTime qos_lockinput_heard(const QosLockinput *input);

/* --- for any thread --- */

/* FALSE: it is somebody's turn, or cannot be another's than the context's thread: also where
 * something is left for that. */
gboolean qos_lockinput_take_over(QosLockinput *input);
/* Whether there is something to read, now or within `timeout`, a duration. */
gboolean qos_lockinput_wait(QosLockinput *input, QosTime timeout);
/* Reads and takes that. FALSE: what is left is for the context's thread. */
gboolean qos_lockinput_read(QosLockinput *input);
void qos_lockinput_hand_back(QosLockinput *input);
