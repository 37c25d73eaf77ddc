/*
 * One peer of the server: turns bytes into frames and messages, and back.
 *
 *     SECURING     TCP only: the handshake reads the socket; no frame is read yet
 *     GREETING     waits for HELLO
 *     OPEN         CREDITS, WAIT, and frames of rules and budgets (core/wire_cluster.h)
 *     REFUSED      has been told why; waits until that has arrived, reading nothing
 *     CLOSED
 *
 * The server never waits for the stream. One turn of the loop does a bounded amount of work for
 * each peer: a piece of input, or some hundred messages. So an urgent message for one peer never
 * waits behind a lot of input from another. All messages of a connection keep their order, because
 * a session drops what comes out of order (core/credit_session.c).
 *
 * Output has three classes, and each keeps its own order:
 *
 *     urgent    BUDGET_GRANT, ADMIN_RESULT, EPOCH   as soon as what is being written is written
 *     credits   CREDITS, DEADLOCK                   so many bytes at a time, when nothing is urgent
 *     bulk      RULES                               a page at a time, when nothing else waits
 *
 * So neither a clean-up of many credits nor a long list of rules delays a grant, and the list
 * delays no revocation by more than a page. What is being written is never taken back, because TLS
 * must be given the same bytes again.
 */
#pragma once

#include <gio/gio.h>

#include "core/wire.h"
#include "net/poller.h"
#include "server/handshake.h"

/* Bytes for a peer that does not read, without bulk; with more it is dropped. All that a session
 * has under way (64 messages), be they as long as they may be, is less. */
#define QOS_CONNECTION_QUEUE_MAX (8u << 20)

typedef struct QosConnection QosConnection;

/* The owner of connections, which is called back. */
typedef struct {
    QosTime patience;  /* from the connection to HELLO, and from REFUSED to the end */
    QosPoller *poller; /* waits for the input of plain streams; outlives the connections */
    gpointer arg;
    /* Its handshake may begin, and does by qos_connection_shake(), now or later; once. */
    void (*knocks)(QosConnection *connection, gpointer arg);
    /* The handshake has ended, well or not. Perhaps within qos_connection_shake(). */
    void (*shaken)(QosConnection *connection, gpointer arg);
    /* It said HELLO. FALSE: refuse it. */
    gboolean (*hello)(QosConnection *connection, const QosWireHello *hello,
                      QosWireWelcome *ret_welcome, QosWireRefused *ret_refused, gpointer arg);
    /* It is open: WELCOME has been put out. */
    void (*opened)(QosConnection *connection, gpointer arg);
    /* In the order in which they came. */
    void (*received)(QosConnection *connection, const QosCreditMessage *messages, guint count,
                     gpointer arg);
    /* A process of it waits; the items may be taken. TRUE: for ever. */
    gboolean (*waits)(QosConnection *connection, QosWireWait *wait, gpointer arg);
    /* RULES_SEEN, BUDGET_REPORT, ADMIN or EPOCH; the payload is the connection's. Returns NULL, or
     * what is wrong with it, which ends the connection: a static string. */
    const char *(*frame)(QosConnection *connection, QosWireType type, const guint8 *payload,
                         gsize length, gpointer arg);
    /* There is output: qos_connection_flush() is to be called before the loop waits. */
    void (*has_output)(QosConnection *connection, gpointer arg);
    /* A turn's input has been worked on: its output may now be sent, on any connection. */
    void (*has_turned)(gpointer arg);
    /* It is no client's any more: refused, or closed. Once. `reason` is why, NULL where the peer
     * just went; `code` is what kind of reason, else 0. */
    void (*ended)(QosConnection *connection, QosWireRefusal code, const char *reason, gpointer arg);
    /* Nothing more comes of it. Once, later or at once. */
    void (*closed)(QosConnection *connection, gpointer arg);
    /* Its memory is free. */
    void (*gone)(gpointer arg);
} QosConnectionUser;

/*
 * `socket` is non-blocking and connected. `handshake` comes first, and stays the caller's; NULL:
 * none. `principal` is the peer's identity; NULL: the handshake finds it. Begins at once, in the
 * main loop.
 */
QosConnection *qos_connection_new(GSocket *socket, const QosHandshake *handshake,
                                  const char *principal, const QosConnectionUser *user);
QosConnection *qos_connection_ref(QosConnection *connection);
void qos_connection_unref(QosConnection *connection);

/* "uid 0", "munge uid 0" or a certificate's subject; NULL before that is known. */
const char *qos_connection_principal(const QosConnection *connection);
/* Where it comes from: its address, without a port; of a Unix socket its principal. */
const char *qos_connection_host(const QosConnection *connection);
/* Of its HELLO; 0 before. */
QosOwnerId qos_connection_id(const QosConnection *connection);
/* Likewise, for people; empty before. */
const char *qos_connection_name(const QosConnection *connection);
/* NULL: a plain socket. */
const QosHandshake *qos_connection_handshake(const QosConnection *connection);
/* For the log: the peer's address, its principal, and its name. Free with g_free(). */
char *qos_connection_label(const QosConnection *connection);

/* Of one that knocked, and was not closed since. So many handshakes of its host are under way, with
 * its own. */
void qos_connection_shake(QosConnection *connection, guint crowd);
/* Does nothing unless it is open. */
void qos_connection_send(QosConnection *connection, const QosCreditMessage *message);
/* Likewise: whole frames, which are copied. */
void qos_connection_send_urgent(QosConnection *connection, const guint8 *frames, gsize length);
/* Likewise: whole frames, of which the connection keeps a reference. What has not been put out of
 * the bulk before is dropped. */
void qos_connection_send_bulk(QosConnection *connection, GBytes *frames);
void qos_connection_flush(QosConnection *connection);
/* Tells the peer, and closes. Where it cannot be told (no handshake yet), just closes. */
void qos_connection_refuse(QosConnection *connection, QosWireRefusal code, const char *reason);
/* Closes at once; `code` and `reason` as for `ended`. */
void qos_connection_close(QosConnection *connection, QosWireRefusal code, const char *reason);
