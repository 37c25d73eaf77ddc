/*
 * How somebody who comes by TCP shows who he is, before a byte of his is looked at:
 *
 *     TLS      his certificate is signed by the authority; he is its subject
 *     MUNGE    his credential is of the same realm (net/munge.h), and of a user who may connect
 *
 * A handshake waits for the peer in one of the threads that all of GIO's tasks share, ten at first
 * and one more after a tenth of a second or some: so it is not to begin before the peer has said
 * something, and who comes in a crowd, as those do who say no more than that, waits behind others.
 */
#pragma once

#include <gio/gio.h>

#include "server/options.h"

/* One of these ways; many handshakes share it. */
typedef struct QosHandshake QosHandshake;

/* Called once, in the main loop. `stream` is the way to the peer from now on, and `principal` who
 * he is; both are the caller's own only if referenced or copied. NULL: there is no connection, and
 * `fault` says why. */
typedef void (*QosHandshakeDone)(GIOStream *stream, const char *principal, const char *fault,
                                 gpointer arg);

/* By the files, or the munged, that the options name. NULL with an error (QOS_ERROR) that names
 * what is not there, or does not belong together; of a munged that does not answer a line in the
 * log, soon after, says so. `options` stay the caller's, and are there as long. */
QosHandshake *qos_handshake_new_tls(const QosServerOptions *options, GError **error);
QosHandshake *qos_handshake_new_munge(const QosServerOptions *options, GError **error);
/* No handshake is under way any more. NULL is allowed. */
void qos_handshake_free(QosHandshake *handshake);

/* On a connected socket, of a peer whose host has so many others under way. Cancelling ends it
 * early. */
void qos_handshake_start(const QosHandshake *handshake, GSocket *socket, guint crowd,
                         GCancellable *cancellable, QosHandshakeDone done, gpointer arg);
