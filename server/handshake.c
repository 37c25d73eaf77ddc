/*
 * TLS and MUNGE for a new peer by TCP, in threads of GIO (server/handshake.h).
 */
#include "server/handshake.h"

#include <errno.h>

#include "base/error.h"
#include "net/certificate.h"
#include "net/munge.h"
#include "net/tls.h"
#include "server/own_certificate.h"

struct QosHandshake {
    const QosServerOptions *options;
    GTlsCertificate *certificate; /* NULL: by MUNGE */
    GTlsDatabase *authority;
};

/* A handshake that is under way. */
typedef struct {
    const QosHandshake *way;
    GSocket *socket;
    int priority; /* GLib's: the lower goes first */
    QosHandshakeDone done;
    gpointer arg;
    GTlsCertificateFlags faults; /* TLS: of the peer's certificate */
    uid_t uid;                   /* MUNGE: the peer's */
} Attempt;

static void attempt_free(Attempt *attempt)
{
    g_object_unref(attempt->socket);
    g_free(attempt);
}

/* --- TLS --- */

/* GIO asks a server about each certificate, also about one that the authority's database accepts.
 * Runs in the handshake's thread. */
static gboolean judge_certificate(GTlsConnection *tls G_GNUC_UNUSED,
                                  GTlsCertificate *certificate G_GNUC_UNUSED,
                                  GTlsCertificateFlags faults, gpointer data)
{
    Attempt *attempt = data;

    attempt->faults = faults;
    return faults == 0;
}

static void finish_tls(GObject *tls, GAsyncResult *result, gpointer data)
{
    Attempt *attempt = data;
    g_autoptr(GError) error = NULL;
    g_autofree char *principal = NULL;
    g_autofree char *reason = NULL;
    g_autofree char *failure = NULL;
    const char *fault = "its certificate has no subject", *old;

    g_signal_handlers_disconnect_by_data(tls, attempt);
    if (g_tls_connection_handshake_finish(G_TLS_CONNECTION(tls), result, &error)) {
        GTlsCertificate *certificate = g_tls_connection_get_peer_certificate(G_TLS_CONNECTION(tls));
        principal = certificate != NULL ? g_tls_certificate_get_subject_name(certificate) : NULL;
        if (principal != NULL && qos_server_options_deny(attempt->way->options, principal)) {
            reason = g_strdup_printf("its certificate is denied (tls-deny): %s", principal);
            fault = reason;
            g_clear_pointer(&principal, g_free);
        }
        old = qos_tls_version_fault(G_TLS_CONNECTION(tls));
        if (old != NULL) {
            fault = old;
            g_clear_pointer(&principal, g_free);
        }
    } else if (attempt->faults != 0) {
        fault = qos_certificate_fault(attempt->faults);
    } else {
        failure = qos_tls_handshake_fault(error);
        reason = g_strdup_printf(
            "%s (if it is a mount, 'qosfsctl status' there tells what it found)", failure);
        fault = reason;
    }
    if (principal != NULL && principal[0] != '\0')
        attempt->done(G_IO_STREAM(tls), principal, NULL, attempt->arg);
    else
        attempt->done(NULL, NULL, fault, attempt->arg);
    attempt_free(attempt);
}

static void start_tls(Attempt *attempt, GIOStream *base, GCancellable *cancellable)
{
    g_autoptr(GError) error = NULL;
    /* Gets its database at once; otherwise GIO begins by reading all authorities of the system. */
    GObject *tls =
        g_initable_new(g_tls_backend_get_server_connection_type(g_tls_backend_get_default()), NULL,
                       &error, "base-io-stream", base, "certificate", attempt->way->certificate,
                       "database", attempt->way->authority, "require-close-notify", FALSE,
                       "authentication-mode", G_TLS_AUTHENTICATION_REQUIRED, NULL);

    if (tls == NULL) {
        attempt->done(NULL, NULL, error->message, attempt->arg);
        attempt_free(attempt);
        return;
    }
    g_signal_connect(tls, "accept-certificate", G_CALLBACK(judge_certificate), attempt);
    g_tls_connection_handshake_async(G_TLS_CONNECTION(tls), attempt->priority, cancellable,
                                     finish_tls, attempt);
    g_object_unref(tls);
}

/* --- MUNGE --- */

static gboolean is_allowed(uid_t uid, gconstpointer options)
{
    return qos_server_options_allow(options, uid);
}

static void shake_hands(GTask *task, gpointer base G_GNUC_UNUSED, gpointer data,
                        GCancellable *cancellable)
{
    Attempt *attempt = data;
    const QosServerOptions *options = attempt->way->options;
    GError *error = NULL;

    if (qos_munge_shake_hands(QOS_MUNGE_SERVER, attempt->socket, options->munge_socket, is_allowed,
                              options, &attempt->uid, cancellable, &error))
        g_task_return_boolean(task, TRUE);
    else
        g_task_return_error(task, error);
}

static void finish_munge(GObject *base, GAsyncResult *result, gpointer data)
{
    Attempt *attempt = data;
    g_autoptr(GError) error = NULL;
    g_autofree char *principal = NULL;

    if (g_task_propagate_boolean(G_TASK(result), &error)) {
        principal = g_strdup_printf("munge uid %u", attempt->uid);
        attempt->done(G_IO_STREAM(base), principal, NULL, attempt->arg);
    } else {
        attempt->done(NULL, NULL, error->message, attempt->arg);
    }
    attempt_free(attempt);
}

static void start_munge(Attempt *attempt, GIOStream *base, GCancellable *cancellable)
{
    g_autoptr(GTask) task = g_task_new(base, cancellable, finish_munge, attempt);

    g_task_set_task_data(task, attempt, NULL);
    g_task_set_priority(task, attempt->priority);
    g_task_run_in_thread(task, shake_hands);
}

/* The server starts even if munged is not there, because munged may start later, and mounts may
 * connect in other ways. */
static void tell_of_munged(GObject *source G_GNUC_UNUSED, GAsyncResult *result,
                           gpointer data G_GNUC_UNUSED)
{
    g_autoptr(GError) error = NULL;

    if (!g_task_propagate_boolean(G_TASK(result), &error))
        g_warning("listen=munge: %s; mounts that come this way are refused until munged runs here "
                  "(systemctl start munge), or munge-socket= names its socket",
                  error->message);
}

static void ask_munged(GTask *task, gpointer source G_GNUC_UNUSED, gpointer munged,
                       GCancellable *cancellable G_GNUC_UNUSED)
{
    GError *error = NULL;

    if (qos_munge_answers(munged, &error))
        g_task_return_boolean(task, TRUE);
    else
        g_task_return_error(task, error);
}

/* Runs in a thread, so that a munged that hangs does not block the server. */
static void look_for_munged(const char *munged)
{
    g_autoptr(GTask) task = g_task_new(NULL, NULL, tell_of_munged, NULL);

    g_task_set_task_data(task, g_strdup(munged), g_free);
    g_task_run_in_thread(task, ask_munged);
}

/* --- both --- */

void qos_handshake_start(const QosHandshake *handshake, GSocket *socket, guint crowd,
                         GCancellable *cancellable, QosHandshakeDone done, gpointer arg)
{
    g_autoptr(GSocketConnection) base = g_socket_connection_factory_create_connection(socket);
    Attempt *attempt = g_new0(Attempt, 1);

    *attempt = (Attempt){.way = handshake,
                         .socket = g_object_ref(socket),
                         .priority = G_PRIORITY_DEFAULT + (int)crowd,
                         .done = done,
                         .arg = arg};
    if (handshake->certificate != NULL)
        start_tls(attempt, G_IO_STREAM(base), cancellable);
    else
        start_munge(attempt, G_IO_STREAM(base), cancellable);
}

QosHandshake *qos_handshake_new_tls(const QosServerOptions *options, GError **error)
{
    g_autoptr(GTlsCertificate) certificate = NULL;
    g_autoptr(GError) reason = NULL;
    GTlsDatabase *authority = NULL;
    QosHandshake *handshake;

    if (!g_tls_backend_supports_tls(g_tls_backend_get_default())) {
        qos_set_error(error, ENOTSUP, "GLib has no TLS here: install glib-networking");
        return NULL;
    }
    certificate = qos_own_certificate_read(options->tls_certificate, options->tls_key, &reason);
    if (certificate == NULL) {
        qos_set_error(error, EINVAL, "tls-cert=%s, tls-key=%s: %s", options->tls_certificate,
                      options->tls_key, reason->message);
        return NULL;
    }
    authority = g_tls_file_database_new(options->tls_authority, &reason);
    if (authority == NULL) {
        qos_set_error(error, EINVAL, "tls-ca=%s: %s", options->tls_authority, reason->message);
        return NULL;
    }
    handshake = g_new0(QosHandshake, 1);
    handshake->options = options;
    handshake->certificate = g_steal_pointer(&certificate);
    handshake->authority = authority;
    return handshake;
}

QosHandshake *qos_handshake_new_munge(const QosServerOptions *options, GError **error)
{
    QosHandshake *handshake;

    if (!qos_munge_is_built(error))
        return NULL;
    handshake = g_new0(QosHandshake, 1);
    handshake->options = options;
    look_for_munged(options->munge_socket);
    return handshake;
}

void qos_handshake_free(QosHandshake *handshake)
{
    if (handshake == NULL)
        return;
    g_clear_object(&handshake->certificate);
    g_clear_object(&handshake->authority);
    g_free(handshake);
}
