/*
 * qosfs-server: one thread, one loop.
 *
 *     peer -> connection: frames -> grants: owner, pool -> connection -> peer
 *                                -> cluster: rules, budgets -> connection -> peer
 *
 * The start checks the settings first, then makes the sockets, and then the grants, with what the
 * database has of them. The server ends by SIGTERM or SIGINT, and takes everything down in the
 * reverse order.
 */
#include <errno.h>
#include <gio/gunixsocketaddress.h>
#include <glib-unix.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "net/standard_streams.h"
#include "net/tls.h"
#include "server/cluster.h"
#include "server/control.h"
#include "server/grants.h"
#include "server/listener.h"
#include "server/options.h"

#define EXIT_USAGE 2
/* The server's own descriptors, 64 for control connections, 64 for handshakes with munged, and 64
 * for connections that were closed during their handshake. */
#define OTHER_DESCRIPTORS 224

typedef struct {
    QosServerOptions options;
    QosListener *listener;
    QosGrants *grants;
    QosCluster *cluster;
    QosServerControl *control;
    GMainLoop *loop;
} Server;

/* --- the log --- */

/* To standard error, with the priority in front that systemd's journal takes off. */
static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize count,
                                  gpointer data)
{
    const Server *server = data;
    gboolean is_journal = g_getenv("JOURNAL_STREAM") != NULL;
    gboolean is_error = level & (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
    gboolean is_warning = level & G_LOG_LEVEL_WARNING;
    const char *message = "";

    if (level & G_LOG_LEVEL_DEBUG || (level & G_LOG_LEVEL_INFO && !server->options.verbose))
        return G_LOG_WRITER_HANDLED;
    for (gsize i = 0; i < count; i++) {
        if (g_str_equal(fields[i].key, "MESSAGE"))
            message = fields[i].value;
    }
    dprintf(STDERR_FILENO, "%sqosfs-server: %s%s\n",
            !is_journal  ? ""
            : is_error   ? "<3>"
            : is_warning ? "<4>"
                         : "<5>",
            is_error     ? "error: "
            : is_warning ? "warning: "
                         : "",
            message);
    return G_LOG_WRITER_HANDLED;
}

/* --- start and end --- */

static gboolean stop(gpointer data)
{
    Server *server = data;

    g_main_loop_quit(server->loop);
    return G_SOURCE_CONTINUE;
}

/* Raises the limit on descriptors, because the shell's usual limit is lower than `connections`. If
 * the hard limit is too low as well, `connections` is lowered, so that descriptors are left for the
 * control socket. */
static void provide_descriptors(QosServerOptions *options)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max >= options->connections + OTHER_DESCRIPTORS)
        return;
    guint most = files.rlim_max > OTHER_DESCRIPTORS ? (guint)files.rlim_max - OTHER_DESCRIPTORS : 1;
    g_warning("connections=%u: there will be %u at most, as a process may have %" G_GUINT64_FORMAT
              " descriptors here: raise that limit (ulimit -Hn, LimitNOFILE= of the unit)",
              options->connections, most, (guint64)files.rlim_max);
    options->connections = most;
}

/* The default folders are made if they are missing. Any other folder must exist, because its name
 * may be mistyped. A socket in a mistyped folder would not be found, and a database there would not
 * know the mounts that have credits. */
static gboolean find_folder(const char *setting, const char *folder, int mode, GError **error)
{
    gboolean is_usual = g_str_equal(folder, QOS_SERVER_RUN_FOLDER) ||
                        g_str_equal(folder, QOS_SERVER_DATABASE_FOLDER);

    if (g_file_test(folder, G_FILE_TEST_IS_DIR) ||
        (is_usual && g_mkdir_with_parents(folder, mode) == 0))
        return TRUE;
    if (is_usual)
        qos_set_error(error, errno, "%s: cannot make the folder %s: %s", setting, folder,
                      g_strerror(errno));
    else if (g_file_test(folder, G_FILE_TEST_EXISTS))
        qos_set_error(error, ENOTDIR, "%s: %s is no folder: correct the setting", setting, folder);
    else
        qos_set_error(error, ENOENT,
                      "%s: there is no folder %s: make it first (mkdir), or correct the setting",
                      setting, folder);
    return FALSE;
}

static gboolean find_folders(const QosServerOptions *options, GError **error)
{
    g_autofree char *control = g_path_get_dirname(options->control);

    for (guint i = 0; i < options->listen->len; i++) {
        const QosServerAddress *where = options->listen->pdata[i];
        g_autofree char *folder = NULL;

        if (where->kind != QOS_DOOR_LOCAL)
            continue;
        folder = g_path_get_dirname(
            g_unix_socket_address_get_path(G_UNIX_SOCKET_ADDRESS(where->address)));
        if (!find_folder("listen", folder, 0755, error))
            return FALSE;
    }
    return find_folder("control", control, 0755, error) &&
           find_folder("database", options->database, 0700, error);
}

/* The sockets come first: a second server by mistake ends there, and leaves the database alone. */
static gboolean start(Server *server, GError **error)
{
    QosServerOptions *options = &server->options;
    const QosGrantsConfig config = {
        .database = options->database, .settings = options->settings, .resend = options->resend};
    QosGrantsState state;
    QosGrantsOutput output = {.send = qos_listener_send, .drop = qos_listener_drop};

    provide_descriptors(options);
    if (!find_folders(options, error))
        return FALSE;
    server->listener = qos_listener_new(options, error);
    if (server->listener == NULL)
        return FALSE;
    output.arg = server->listener;
    server->grants = qos_grants_new(&config, &output, error);
    if (server->grants == NULL)
        return FALSE;
    qos_listener_set_grants(server->listener, server->grants);
    server->cluster = qos_cluster_new(options, qos_grants_database(server->grants),
                                      &(QosClusterOutput){.arg = server->listener,
                                                          .send_urgent = qos_listener_send_urgent,
                                                          .send_bulk = qos_listener_send_bulk},
                                      error);
    if (server->cluster == NULL)
        return FALSE;
    qos_grants_state(server->grants, &state);
    qos_cluster_set_sharing(server->cluster, state.settings);
    qos_listener_set_cluster(server->listener, server->cluster);
    server->control =
        qos_server_control_new(options, server->grants, server->cluster, server->listener, error);
    return server->control != NULL;
}

static int run(Server *server)
{
    g_autoptr(GError) error = NULL;

    server->loop = g_main_loop_new(NULL, FALSE);
    g_unix_signal_add(SIGTERM, stop, server);
    g_unix_signal_add(SIGINT, stop, server);
    if (start(server, &error)) {
        g_message("is ready");
        g_main_loop_run(server->loop);
    } else {
        g_critical("%s", error->message);
    }
    qos_server_control_free(server->control);
    qos_listener_free(server->listener);
    qos_cluster_free(server->cluster);
    qos_grants_free(server->grants);
    g_main_loop_unref(server->loop);
    return error == NULL ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Server server = {0};
    int status = EXIT_SUCCESS;

    qos_standard_streams_open();
    qos_tls_refuse_old_versions();
    setlocale(LC_CTYPE, ""); /* not LC_NUMERIC and LC_MESSAGES: a log is in one language */
    signal(SIGPIPE, SIG_IGN);
    if (!qos_server_options_parse(&server.options, argc, argv, &error)) {
        fprintf(stderr, "qosfs-server: %s\n", error->message);
        return EXIT_USAGE;
    }
    g_log_set_writer_func(write_log, &server, NULL);
    if (server.options.help) {
        g_autofree char *text = qos_server_options_help();
        fputs(text, stdout);
    } else if (server.options.version) {
        puts("qosfs-server " QOSFS_VERSION);
    } else {
        status = run(&server);
    }
    qos_server_options_clear(&server.options);
    return status;
}
