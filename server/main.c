/*
 * qosfs-server: one thread, one loop.
 *
 *     peer -> connection: frames -> grants: owner, pool -> connection -> peer
 *
 * The settings are checked first; then the grants are made, whatever the database has of them; then
 * the sockets. It ends by SIGTERM or SIGINT, in the reverse order.
 */
#include <glib-unix.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/grants.h"
#include "server/options.h"

#define EXIT_USAGE 2

typedef struct {
    QosServerOptions options;
    QosGrants *grants;
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

    if ((level & (G_LOG_LEVEL_INFO | G_LOG_LEVEL_DEBUG)) && !server->options.verbose)
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

/* A connection is a descriptor, and the shell's usual limit is lower than `connections`. */
static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void send_nothing(QosOwnerId id G_GNUC_UNUSED, const QosCreditMessage *message G_GNUC_UNUSED,
                         gpointer arg G_GNUC_UNUSED)
{
}

static gboolean start(Server *server, GError **error)
{
    const QosServerOptions *options = &server->options;
    const QosGrantsConfig config = {.database = options->database,
                                    .pool = options->pool,
                                    .lease = options->lease,
                                    .resend = options->resend,
                                    .group = options->group};
    const QosGrantsOutput output = {.arg = server, .send = send_nothing};

    raise_limits();
    server->grants = qos_grants_new(&config, &output, error);
    return server->grants != NULL;
}

static int run(Server *server)
{
    g_autoptr(GError) error = NULL;

    server->loop = g_main_loop_new(NULL, FALSE);
    g_unix_signal_add(SIGTERM, stop, server);
    g_unix_signal_add(SIGINT, stop, server);
    if (start(server, &error))
        g_main_loop_run(server->loop);
    else
        g_critical("%s", error->message);
    qos_grants_free(server->grants);
    g_main_loop_unref(server->loop);
    return error == NULL ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Server server = {0};
    int status = EXIT_SUCCESS;

    setlocale(LC_ALL, "");
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
