/*
 * What the lock server says: frames of one connection, and whose turn it is to read them.
 *
 * The thread of the main context reads (fs/lockclient/link.h). Who waits for an answer takes its
 * place for a moment: the answer then wakes him, and not that thread, only that it may wake him:
 *
 *     if (qos_lockinput_take_over(input)) {
 *         while (... && qos_lockinput_wait(input, timeout))
 *             if (!qos_lockinput_read(input))
 *                 break;
 *         qos_lockinput_hand_back(input);
 *     }
 *
 * One reads at a time. Who took over leaves to the context's thread what take() does not know: a
 * refusal, rubbish, the end. For it alone ends a connection. It waits in poll() for an epoll
 * instance that has the socket in it: so that who takes over lets it wait for no bytes any more,
 * without waking it. With TLS, which reads ahead, nobody takes over.
 *
 * Lock: its own, which nobody holds who reads, takes or waits.
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
    /* A frame, by whoever reads. FALSE: it is left to take_rest(), whatever was done with it. */
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

    /* Whoever's turn it is: */
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
/* Waits until who took over has handed back: the caller has shut the socket down, which wakes him.
 * Nothing happens where it is closed. */
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
