/*
 * Where the lock server is, by the mount's options, and how mount and server show their identity to
 * each other: by TLS or by MUNGE.
 */
#pragma once

#include <gio/gio.h>

/* See QosLockclientConfig. */
typedef struct {
    const char *server;
    const char *ca, *certificate, *key;
    const char *munged;
} QosLinkConfig;

typedef enum {
    QOS_LOCKADDRESS_LOCAL, /* a Unix socket: the kernel tells the peer's uid */
    QOS_LOCKADDRESS_TLS,
    QOS_LOCKADDRESS_MUNGE,
} QosLockaddressKind;

/* Embedded. */
typedef struct {
    QosLinkConfig config; /* its strings are the caller's */
    QosLockaddressKind kind;
    GSocketConnectable *place;
} QosLockaddress;

/* FALSE, with *error (QOS_ERROR): it can never work. Reads the files once, so that a mistake shows
 * where it was made. */
gboolean qos_lockaddress_init(QosLockaddress *address, const QosLinkConfig *config, GError **error);
/* Also after a failed init. */
void qos_lockaddress_clear(QosLockaddress *address);

/* Where to connect to now; a reference. A name is looked up anew by each: a server may move. */
GSocketConnectable *qos_lockaddress_place(const QosLockaddress *address);

/* TLS upon the connection, before its handshake; a reference. Reads the files again: certificates
 * are renewed. NULL, with *error: it cannot be. */
GTlsConnection *qos_lockaddress_secure(const QosLockaddress *address, GSocketConnection *connection,
                                       GError **error);
/* By MUNGE: shows the mount's identity, and makes sure that the server is root's or the mount's own
 * user's. Waits for both, or until `cancellable`. FALSE, with *error: it did not succeed. */
gboolean qos_lockaddress_shake_hands(const QosLockaddress *address, GSocketConnection *connection,
                                     GCancellable *cancellable, GError **error);
