/*
 * A handshake by MUNGE: mount and server show each other that they belong to the same MUNGE realm
 * (its munged have one key), and as which users. docs/design/server.md says what that is worth: it
 * tells who is there as the connection begins, and neither hides nor guards what goes over it.
 *
 *     mount                                    server
 *     magic, its nonce           ->
 *                                <-            magic, its nonce
 *     credential "mount ..."     ->
 *                                <-            credential "server ..."
 *
 * A credential's payload is the sender's role, both nonces, and the server's address as the sender
 * sees it. So none is good for a second connection, none for another server than that which the
 * mount has called, and none for the other direction; munged also refuses one that it has decoded
 * before. All sizes are fixed or bounded, and nothing that comes is kept.
 *
 * It blocks, for the peer and for munged (libmunge gives up by itself after some seconds), so it is
 * for a thread of its own.
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
 * `is_allowed` is asked whether that user will do before the peer is told anything that proves who
 * this is. FALSE with an error for people: what was wrong with the peer, or with munged; or
 * G_IO_ERROR_CANCELLED.
 */
gboolean qos_munge_shake_hands(QosMungeRole role, GSocket *socket, const char *munged,
                               gboolean (*is_allowed)(uid_t uid, gconstpointer arg),
                               gconstpointer arg, uid_t *ret_uid, GCancellable *cancellable,
                               GError **error);
