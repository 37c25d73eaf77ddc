/*
 * Which peers may change the rules of the cluster: root at the server's own machine, and those that
 * the settings name.
 *
 *     the control socket, a Unix socket    root, the server's own user, admin-uid
 *     MUNGE                                admin-uid: root of another machine is not root here
 *     TLS                                  admin-cn, the CN of the mount's certificate
 *
 * A mount that may is also believed about which of its users asks. Its own root and its own user
 * may, and admin-uid; all others have to be named.
 */
#pragma once

#include "server/options.h"

typedef struct {
    QosDoorKind door;    /* the control socket is QOS_DOOR_LOCAL */
    uid_t uid;           /* of the peer; not with TLS */
    const char *subject; /* of its certificate, with TLS */
    uid_t caller;        /* of the process that asks, as the peer says */
} QosAsker;

/* FALSE: *error (QOS_ERROR, EPERM) says which setting would permit it. */
gboolean qos_admins_permit(const QosServerOptions *options, const QosAsker *asker, GError **error);
/* For the log: "uid 7", "munge uid 7", "CN=node1", with ", caller 8" where that is another user.
 * Free with g_free(). */
char *qos_asker_text(const QosAsker *asker);
/* The CN in a certificate's subject as GIO writes it (RFC 4514): "node1" of "CN=node1,O=site". NULL
 * where there is none, more than one, or one that is no text. Free with g_free(). */
char *qos_subject_cn(const char *subject);
