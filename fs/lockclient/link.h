/*
 * The connection to the lock server. The link finds the server, says HELLO for the mount, and
 * carries frames. When the connection breaks, it is made anew, after 100 ms and up to 5 s. It is a
 * Unix socket, or TCP on which both sides show their identity: by certificates, with TLS, or by
 * MUNGE (net/munge.h).
 *
 *     IDLE -> CONNECTING (socket, handshake) -> GREETING (HELLO sent) -> OPEN (WELCOME came)
 *      ^--------------------------------------------------------------------------'
 *
 * There are two queues of frames to send. After a clean-up `more` may give megabytes of releases,
 * and a report of budgets must not be late for that. So after 64 KiB at most the link asks for
 * urgent frames again, and writes these first. Limit: what the socket has taken is ahead of them.
 *
 * From IDLE to OPEN takes at most 10 s. An open connection is given up if nothing comes for half a
 * lease, in which the mount has asked for two answers at least.
 *
 * One thread runs the main context, calls all functions below, and makes the calls of
 * QosLinkUser. There are two exceptions, which save waking it. Any thread may send by
 * qos_link_try_send(): one lock keeps the messages in order, and is held across a write that
 * does not wait, and across `more`. And a thread that waits for an answer may read it
 * (fs/lockclient/receive.h). No function blocks but the one that ends the link
 * (QOS_LINK_PATIENCE).
 */
#pragma once

#include "core/wire.h"
#include "fs/lockclient/address.h"
#include "fs/lockclient/receive.h"

#define QOS_LINK_PATIENCE 1 /* s, for the last bytes */

typedef struct QosLink QosLink;

/* None may be NULL, none may free the link. */
typedef struct {
    gpointer arg;
    /* What to say of the mount. */
    void (*hello)(QosWireHello *ret_hello, gpointer arg);
    /* It is open. FALSE: it is not wanted, for the reason in *error. */
    gboolean (*welcomed)(const QosWireWelcome *welcome, gpointer arg, GError **error);
    /* The payload of CREDITS. FALSE: it is broken. From any thread that reads, as the next. */
    gboolean (*received)(const guint8 *payload, gsize length, gpointer arg);
    /* The payload of DEADLOCK; likewise. */
    gboolean (*deadlocked)(const guint8 *payload, gsize length, gpointer arg);
    /* The payload of RULES, by the context's thread; of BUDGET_GRANT, ADMIN_RESULT or EPOCH, by any
     * thread that reads. FALSE: it is broken. */
    gboolean (*frame)(QosWireType type, const guint8 *payload, gsize length, gpointer arg);
    /* Frames to send, or NULL; the link takes them over. From any thread that sends. */
    GByteArray *(*more)(gpointer arg);
    /* The same: frames that go before all that `more` gave and that is not written yet, but for the
     * frames that were begun. */
    GByteArray *(*urgent)(gpointer arg);
    /* It broke, or did not come about; for people. `is_refused`: the server said why. */
    void (*failed)(const char *reason, gboolean is_refused, gpointer arg);
} QosLinkUser;

/* The strings of `config` are the caller's, and stay. Errors (QOS_ERROR): what can never work.
 * Nothing happens before qos_link_start(). */
QosLink *qos_link_new(const QosLinkConfig *config, const QosLinkUser *user, GMainContext *context,
                      GError **error);
/* From here on in the context's thread, of which it is the default one. */
void qos_link_start(QosLink *link);
/* There may be more to send. FALSE: some waits for room, and goes by itself. */
gboolean qos_link_send(QosLink *link);
/* The same, for any thread. FALSE: the link's own is to call qos_link_send() for the rest. */
gboolean qos_link_try_send(QosLink *link);
/* For any thread that waits for an answer. */
QosReceiver *qos_link_receive(QosLink *link);
/* Sends what there is if it can, and closes. */
void qos_link_stop(QosLink *link);
/* After qos_link_stop(), if it was started. NULL is allowed. */
void qos_link_free(QosLink *link);
