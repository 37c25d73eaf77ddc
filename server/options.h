/*
 * The settings of qosfs-server (docs/qosfs-server.8): on the command line as --NAME VALUE, in the
 * file given by --config as NAME=VALUE below [server]. What is on the command line prevails; lists
 * add up.
 */
#pragma once

#include <gio/gio.h>

#include "server/tunable.h"

/* The default places of sockets and the database. */
#define QOS_SERVER_RUN_FOLDER      "/run/qosfs"
#define QOS_SERVER_DATABASE_FOLDER "/var/lib/qosfs/server"

/* Which peers may connect to an address. */
typedef enum {
    QOS_DOOR_LOCAL, /* a Unix socket: the kernel names the user */
    QOS_DOOR_TLS,   /* TCP: certificates */
    QOS_DOOR_MUNGE, /* TCP: MUNGE names the user */
} QosDoorKind;

typedef struct {
    QosDoorKind kind;
    char *value; /* as it was given */
    GSocketAddress *address;
} QosServerAddress;

typedef struct {
    GPtrArray *listen;   /* of QosServerAddress */
    char *control;       /* the path of the Unix socket for qosfsctl */
    char *database;      /* a directory */
    char *tls_authority; /* PEM files; all three, or none */
    char *tls_certificate;
    char *tls_key;
    GPtrArray *tls_denied; /* of subjects */
    char *munge_socket;    /* munged's; NULL: the usual one */
    GArray *allowed_uids;  /* of uid_t, beside root and the server's own */
    GArray *admin_uids;    /* of uid_t; see server/admins.h */
    GPtrArray *admin_cns;  /* of names */
    QosServerSettings settings;
    QosTime resend;    /* of a message that is not acknowledged */
    guint connections; /* at most */
    QosTime patience;  /* with a connection that does not identify itself */
    gboolean verbose;
    gboolean help; /* or version: the text is printed, nothing else was looked at */
    gboolean version;
} QosServerOptions;

/* FALSE with an error (QOS_ERROR, EINVAL) that names the setting and says what it may be; then
 * there is nothing to clear. */
gboolean qos_server_options_parse(QosServerOptions *ret_options, int argc, char **argv,
                                  GError **error);
void qos_server_options_clear(QosServerOptions *options);
/* Whether mounts of that user may connect, by a Unix socket or by MUNGE. */
gboolean qos_server_options_allow(const QosServerOptions *options, uid_t uid);
/* Whether a certificate with that subject is denied, even if the authority has signed it. */
gboolean qos_server_options_deny(const QosServerOptions *options, const char *subject);
/* The text for --help; free with g_free(). */
char *qos_server_options_help(void);
