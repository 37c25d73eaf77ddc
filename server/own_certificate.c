/*
 * Reads the server's certificate and key, and tries both in a handshake of the server with itself
 * (server/own_certificate.h).
 */
#include "server/own_certificate.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

/* A handshake with ourselves. */
typedef struct {
    GIOStream *sides[2]; /* of TLS: the server's, the client's */
    GCancellable *cancellable;
    guint ended;
    GError *error; /* the first; NULL: none */
} Trial;

static void trial_clear(Trial *trial)
{
    for (guint i = 0; i < G_N_ELEMENTS(trial->sides); i++)
        g_clear_object(&trial->sides[i]);
    g_clear_object(&trial->cancellable);
    g_clear_error(&trial->error);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Trial, trial_clear)

/* Accepts any certificate: the mounts judge its subject and its dates. */
static gboolean accept_any(GTlsConnection *tls G_GNUC_UNUSED, GTlsCertificate *peer G_GNUC_UNUSED,
                           GTlsCertificateFlags faults G_GNUC_UNUSED, gpointer data G_GNUC_UNUSED)
{
    return TRUE;
}

/* Takes the descriptor. */
static GIOStream *plain_stream(int fd, GError **error)
{
    g_autoptr(GSocket) socket = g_socket_new_from_fd(fd, error);

    if (socket != NULL)
        return G_IO_STREAM(g_socket_connection_factory_create_connection(socket));
    close(fd);
    return NULL;
}

static gboolean open_sides(Trial *trial, GTlsCertificate *certificate, GError **error)
{
    g_autoptr(GIOStream) server = NULL;
    g_autoptr(GIOStream) client = NULL;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        qos_set_error(error, errno, "cannot make a pair of sockets: %s", g_strerror(errno));
        return FALSE;
    }
    server = plain_stream(fds[0], error);
    client = plain_stream(fds[1], server != NULL ? error : NULL);
    if (server == NULL || client == NULL)
        return FALSE;
    trial->sides[0] = g_tls_server_connection_new(server, certificate, error);
    if (trial->sides[0] != NULL)
        trial->sides[1] = g_tls_client_connection_new(client, NULL, error);
    if (trial->sides[1] == NULL)
        return FALSE;
    g_signal_connect(trial->sides[1], "accept-certificate", G_CALLBACK(accept_any), NULL);
    return TRUE;
}

/* Where one side fails, the other is cancelled: it would wait for what does not come. */
static void end_side(GObject *side, GAsyncResult *result, gpointer data)
{
    Trial *trial = data;
    GError **error = trial->error == NULL ? &trial->error : NULL;

    if (!g_tls_connection_handshake_finish(G_TLS_CONNECTION(side), result, error))
        g_cancellable_cancel(trial->cancellable);
    trial->ended++;
}

/* Each side needs the other to go on: so both are begun before either is waited for. */
static gboolean belong_together(GTlsCertificate *certificate, GError **error)
{
    g_autoptr(GMainContext) context = g_main_context_new();
    g_auto(Trial) trial = {.cancellable = g_cancellable_new()};

    if (!open_sides(&trial, certificate, error))
        return FALSE;
    g_main_context_push_thread_default(context);
    for (guint i = 0; i < G_N_ELEMENTS(trial.sides); i++)
        g_tls_connection_handshake_async(G_TLS_CONNECTION(trial.sides[i]), G_PRIORITY_DEFAULT,
                                         trial.cancellable, end_side, &trial);
    while (trial.ended < G_N_ELEMENTS(trial.sides))
        g_main_context_iteration(context, TRUE);
    g_main_context_pop_thread_default(context);
    if (trial.error == NULL)
        return TRUE;
    qos_set_error(error, EINVAL,
                  "they do not work together (%s): give the certificate that was made for this key",
                  trial.error->message);
    return FALSE;
}

GTlsCertificate *qos_own_certificate_read(const char *certificate, const char *key, GError **error)
{
    g_autoptr(GTlsCertificate) own = g_tls_certificate_new_from_files(certificate, key, error);

    return own != NULL && belong_together(own, error) ? g_steal_pointer(&own) : NULL;
}
