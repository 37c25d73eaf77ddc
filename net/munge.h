/*
 * A handshake by MUNGE: mount and server prove to each other that they belong to the same MUNGE
 * realm (their munged daemons share one key), and as which users.
 *
 * Limit: the handshake proves the peer's identity at the beginning of the connection. It neither
 * hides nor authenticates the data that follows; docs/design/credits.md says what that means.
 *
 *     mount                                    server
 *     magic, its nonce           ->
 *                                <-            magic, its nonce
 *     credential "mount ..."     ->
 *                                <-            credential "server ..."
 *
 * A credential's payload is the sender's role, both nonces, and the server's address as the sender
 * sees it. So a credential cannot be used for a second connection, for another server than the one
 * that the mount has called, or for the other direction. munged also refuses a credential that it
 * has decoded before. All sizes are fixed or bounded, and nothing that arrives is kept.
 *
 * The handshake blocks, for the peer and for munged (libmunge gives up by itself after some
 * seconds). So it needs a thread of its own.
 */
#pragma once

#include <gio/gio.h>
#include <sys/types.h>

typedef enum { QOS_MUNGE_MOUNT, QOS_MUNGE_SERVER } QosMungeRole;

/* FALSE with an error (QOS_ERROR, ENOTSUP): this program was built without it. */
gboolean qos_munge_is_built(GError **error);

/* Has munged, on its socket as below, make a credential. FALSE with an error for people: there is
 * none, or it does not answer. Blocks. */
gboolean qos_munge_answers(const char *munged, GError **error);

/*
 * The handshake on `socket`, which is connected, and may be non-blocking. `munged` is the path of
 * munged's socket; NULL: the usual one. TRUE: the peer is user *ret_uid of the realm, has been told
 * nothing else yet, and its next bytes are those behind the handshake.
 *
 * `is_allowed` is asked whether that user is acceptable, before the peer is told anything that
 * proves this side's identity. FALSE with an error for people: what was wrong with the peer, or
 * with munged; or G_IO_ERROR_CANCELLED.
 */
gboolean qos_munge_shake_hands(QosMungeRole role, GSocket *socket, const char *munged,
                               gboolean (*is_allowed)(uid_t uid, gconstpointer arg),
                               gconstpointer arg, uid_t *ret_uid, GCancellable *cancellable,
                               GError **error);
