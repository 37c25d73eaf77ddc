#include "server/handshake.h"

typedef struct {
    QosHandshakeDone done;
    gpointer arg;
    GTlsCertificateFlags faults;
    gulong judge;
} Handshake;

static const char *certificate_fault(GTlsCertificateFlags faults)
{
    return faults & G_TLS_CERTIFICATE_UNKNOWN_CA      ? "its certificate is of another authority"
           : faults & G_TLS_CERTIFICATE_EXPIRED       ? "its certificate has expired"
           : faults & G_TLS_CERTIFICATE_NOT_ACTIVATED ? "its certificate is not valid yet"
           : faults & G_TLS_CERTIFICATE_REVOKED       ? "its certificate has been revoked"
                                                      : "its certificate will not do";
}

/* A server is asked about each certificate, whatever the authority's database says of it. In the
 * handshake's thread. */
static gboolean judge_certificate(GTlsConnection *tls G_GNUC_UNUSED,
                                  GTlsCertificate *certificate G_GNUC_UNUSED,
                                  GTlsCertificateFlags faults, gpointer data)
{
    Handshake *handshake = data;

    handshake->faults = faults;
    return faults == 0;
}

static void finish(GObject *tls, GAsyncResult *result, gpointer data)
{
    Handshake *handshake = data;
    g_autoptr(GError) error = NULL;
    g_autofree char *principal = NULL;
    const char *fault = "its certificate has no subject";

    g_signal_handler_disconnect(tls, handshake->judge);
    if (g_tls_connection_handshake_finish(G_TLS_CONNECTION(tls), result, &error)) {
        GTlsCertificate *certificate = g_tls_connection_get_peer_certificate(G_TLS_CONNECTION(tls));
        principal = certificate != NULL ? g_tls_certificate_get_subject_name(certificate) : NULL;
    } else {
        fault = handshake->faults != 0 ? certificate_fault(handshake->faults) : error->message;
    }
    if (principal != NULL && principal[0] != '\0')
        handshake->done(principal, NULL, handshake->arg);
    else
        handshake->done(NULL, fault, handshake->arg);
    g_free(handshake);
}

GTlsConnection *qos_handshake_prepare(GSocket *socket, GTlsCertificate *certificate,
                                      GTlsDatabase *authority)
{
    g_autoptr(GSocketConnection) base = g_socket_connection_factory_create_connection(socket);
    GIOStream *tls = g_tls_server_connection_new(G_IO_STREAM(base), certificate, NULL);

    if (tls == NULL)
        return NULL;
    g_tls_connection_set_database(G_TLS_CONNECTION(tls), authority);
    g_tls_connection_set_require_close_notify(G_TLS_CONNECTION(tls), FALSE);
    g_object_set(tls, "authentication-mode", G_TLS_AUTHENTICATION_REQUIRED, NULL);
    return G_TLS_CONNECTION(tls);
}

void qos_handshake_start(GTlsConnection *tls, GCancellable *cancellable, QosHandshakeDone done,
                         gpointer arg)
{
    Handshake *handshake = g_new0(Handshake, 1);

    *handshake = (Handshake){.done = done, .arg = arg};
    handshake->judge =
        g_signal_connect(tls, "accept-certificate", G_CALLBACK(judge_certificate), handshake);
    g_tls_connection_handshake_async(tls, G_PRIORITY_DEFAULT, cancellable, finish, handshake);
}
