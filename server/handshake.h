/*
 * TLS handshakes. GIO waits for the peer in threads that all such tasks share, ten at first and one
 * more every tenth of a second: so a handshake is not to begin before the peer has said something.
 */
#pragma once

#include <gio/gio.h>

/* Called once, in the main loop. `principal` is the subject of the certificate, which has been
 * verified; NULL: there is no connection, and `fault` says why. */
typedef void (*QosHandshakeDone)(const char *principal, const char *fault, gpointer arg);

/* Makes the server's side of TLS upon a connected socket. The client must show a certificate that
 * the authority has signed. NULL where that is not possible. */
GTlsConnection *qos_handshake_prepare(GSocket *socket, GTlsCertificate *certificate,
                                      GTlsDatabase *authority);
/* Cancelling ends it early. */
void qos_handshake_start(GTlsConnection *tls, GCancellable *cancellable, QosHandshakeDone done,
                         gpointer arg);
