/*
 * The server's address, with TLS and MUNGE. fs/lockclient/address.h has the contract.
 */
#include "fs/lockclient/address.h"

#include <errno.h>
#include <gio/gunixsocketaddress.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "net/munge.h"

/* --- TLS --- */

/* Our certificate, or NULL with an error. */
static GTlsCertificate *read_certificate(const QosLinkConfig *config, GError **error)
{
    g_autoptr(GError) reason = NULL;
    GTlsCertificate *certificate =
        g_tls_certificate_new_from_files(config->certificate, config->key, &reason);

    if (certificate == NULL)
        qos_set_error(error, EINVAL, "server_cert=%s, server_key=%s: %s", config->certificate,
                      config->key, reason->message);
    return certificate;
}

/* The authorities to believe, or NULL with an error. */
static GTlsDatabase *read_authorities(const QosLinkConfig *config, GError **error)
{
    g_autofree char *path = g_canonicalize_filename(config->ca, NULL);
    g_autoptr(GError) reason = NULL;
    GTlsDatabase *database = g_tls_file_database_new(path, &reason);

    if (database == NULL)
        qos_set_error(error, EINVAL, "server_ca=%s: %s", config->ca, reason->message);
    return database;
}

static gboolean check_tls(const QosLinkConfig *config, GError **error)
{
    g_autoptr(GTlsCertificate) certificate = NULL;
    g_autoptr(GTlsDatabase) database = NULL;

    if (config->ca == NULL || config->certificate == NULL || config->key == NULL) {
        qos_set_error(
            error, EINVAL,
            "option server=%s: TCP is with TLS: give server_ca=FILE, server_cert=FILE and "
            "server_key=FILE too",
            config->server);
        return FALSE;
    }
    if (!g_tls_backend_supports_tls(g_tls_backend_get_default())) {
        qos_set_error(error, ENOTSUP,
                      "option server=%s: GIO has no TLS here: install "
                      "glib-networking",
                      config->server);
        return FALSE;
    }
    certificate = read_certificate(config, error);
    if (certificate != NULL)
        database = read_authorities(config, error);
    return database != NULL;
}

GTlsConnection *qos_lockaddress_secure(const QosLockaddress *address, GSocketConnection *connection,
                                       GError **error)
{
    g_autoptr(GTlsCertificate) certificate = read_certificate(&address->config, error);
    g_autoptr(GTlsDatabase) database =
        certificate != NULL ? read_authorities(&address->config, error) : NULL;

    if (database == NULL)
        return NULL;
    /* With its database at once: else it begins by reading all authorities of the system. */
    return g_initable_new(g_tls_backend_get_client_connection_type(g_tls_backend_get_default()),
                          NULL, error, "base-io-stream", connection, "server-identity",
                          address->place, "certificate", certificate, "database", database, NULL);
}

/* --- MUNGE --- */

/* The uid of the server: root, or the mount's own user's, for trying it out. */
static gboolean is_believed(uid_t uid, gconstpointer arg G_GNUC_UNUSED)
{
    return uid == 0 || uid == geteuid();
}

gboolean qos_lockaddress_shake_hands(const QosLockaddress *address, GSocketConnection *connection,
                                     GCancellable *cancellable, GError **error)
{
    uid_t uid;

    return qos_munge_shake_hands(QOS_MUNGE_MOUNT, g_socket_connection_get_socket(connection),
                                 address->config.munged, is_believed, NULL, &uid, cancellable,
                                 error);
}

/* --- the address --- */

static GSocketConnectable *local_place(const char *server, GError **error)
{
    const char *path = server + strlen("unix:");
    struct sockaddr_un *limit = NULL;

    if (*path == '/' && strlen(path) < sizeof(limit->sun_path))
        return G_SOCKET_CONNECTABLE(g_unix_socket_address_new(path));
    qos_set_error(error, EINVAL,
                  "option server=%s: the path of a Unix socket begins with / and has at most "
                  "%zu characters",
                  server, sizeof(limit->sun_path) - 1);
    return NULL;
}

/* Takes `place`. To TLS a numeric address is no host's name: servers refuse one with colons. */
static GSocketConnectable *numeric_place(GSocketConnectable *place)
{
    GNetworkAddress *named = G_NETWORK_ADDRESS(place);
    GSocketAddress *numeric = g_inet_socket_address_new_from_string(
        g_network_address_get_hostname(named), g_network_address_get_port(named));

    if (numeric == NULL)
        return place;
    g_object_unref(place);
    return G_SOCKET_CONNECTABLE(numeric);
}

/* `host` is what follows "munge:" in `server`, or all of it. Only an address in brackets has
 * colons. */
static GSocketConnectable *remote_place(const char *server, const char *host, GError **error)
{
    const char *colon = strrchr(host, ':');
    const char *bracket = strrchr(host, ']');
    const char *last = bracket != NULL ? bracket + 1 : strchr(host, ':');
    GSocketConnectable *place = NULL;

    if (colon != NULL && colon != host && colon == last)
        place = g_network_address_parse(host, 0, NULL);
    if (place == NULL)
        qos_set_error(error, EINVAL,
                      "option server=%s: expected unix:PATH, HOST:PORT or munge:HOST:PORT, an IPv6 "
                      "address in []",
                      server);
    return place != NULL ? numeric_place(place) : NULL;
}

gboolean qos_lockaddress_init(QosLockaddress *address, const QosLinkConfig *config, GError **error)
{
    const char *server = config->server;

    *address = (QosLockaddress){.config = *config, .kind = QOS_LOCKADDRESS_TLS};
    if (g_str_has_prefix(server, "unix:")) {
        address->kind = QOS_LOCKADDRESS_LOCAL;
        address->place = local_place(server, error);
        return address->place != NULL;
    }
    if (g_str_has_prefix(server, "munge:")) {
        address->kind = QOS_LOCKADDRESS_MUNGE;
        address->place = remote_place(server, server + strlen("munge:"), error);
        return address->place != NULL && qos_munge_is_built(error);
    }
    address->place = remote_place(server, server, error);
    return address->place != NULL && check_tls(config, error);
}

/* A GNetworkAddress keeps what its name was resolved to first. */
GSocketConnectable *qos_lockaddress_place(const QosLockaddress *address)
{
    GNetworkAddress *named;

    if (!G_IS_NETWORK_ADDRESS(address->place))
        return g_object_ref(address->place);
    named = G_NETWORK_ADDRESS(address->place);
    return g_network_address_new(g_network_address_get_hostname(named),
                                 g_network_address_get_port(named));
}

void qos_lockaddress_clear(QosLockaddress *address)
{
    g_clear_object(&address->place);
}
