/*
 * How a peer that connects by TCP proves its identity, before any of its messages is read:
 *
 *     TLS      its certificate is signed by the authority; the principal is its subject
 *     MUNGE    its credential is of the same realm (net/munge.h), and of a user that may connect
 *
 * A handshake waits for the peer in a thread. All tasks of GIO share these threads: ten at first,
 * and one more about every tenth of a second. So a handshake must not begin before the peer has
 * sent something. A peer from a host with many handshakes under way gets a lower priority, because
 * peers that only send a first byte and then stay silent come in such crowds.
 */
#pragma once

#include <gio/gio.h>

#include "server/options.h"

/* One of these ways; many handshakes share it. */
typedef struct QosHandshake QosHandshake;

/* Called once, in the main loop. `stream` leads to the peer from now on, and `principal` is the
 * peer's identity. To keep them, the caller references or copies them. NULL: there is no
 * connection, and `fault` says why. */
typedef void (*QosHandshakeDone)(GIOStream *stream, const char *principal, const char *fault,
                                 gpointer arg);

/* By the files, or the munged, that the options name. NULL with an error (QOS_ERROR) that names
 * what is not there, or does not belong together; of a munged that does not answer a line in the
 * log, soon after, says so. `options` stay the caller's, and are there as long. */
QosHandshake *qos_handshake_new_tls(const QosServerOptions *options, GError **error);
QosHandshake *qos_handshake_new_munge(const QosServerOptions *options, GError **error);
/* No handshake is under way any more. NULL is allowed. */
void qos_handshake_free(QosHandshake *handshake);

/* On a connected socket. `crowd` is how many handshakes of the peer's host are under way.
 * Cancelling ends it early. */
void qos_handshake_start(const QosHandshake *handshake, GSocket *socket, guint crowd,
                         GCancellable *cancellable, QosHandshakeDone done, gpointer arg);
