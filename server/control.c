/*
 * The control socket; server/control.h has the requests and their answers.
 */
#include "server/control.h"

#include <errno.h>
#include <glib-unix.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "server/report.h"
#include "server/socket_path.h"

#define REQUEST_MAX 70000 /* bytes: the longest command of the cluster, and some words */
#define READ_SIZE   4096
#define AT_ONCE     64 /* connections; further ones wait */
#define PATIENCE    10 /* seconds for a request and its answer */
#define PAUSE       1  /* seconds, where no descriptor is left */

struct QosServerControl {
    char *path;
    const QosServerOptions *options;
    QosGrants *grants;
    QosCluster *cluster;
    const QosListener *listener;
    int fd;
    guint watch;  /* of fd, or a pause; 0: enough connections */
    GQueue talks; /* of Talk */
};

/* One connection: the request is read, then the answer written, perhaps later. */
typedef struct {
    QosServerControl *control;
    int fd;
    uid_t uid;
    guint watch, timeout;
    GString *request;
    char *answer;       /* NULL: there is none yet */
    gsize sent, length; /* of the answer */
    GList link;
} Talk;

/* --- requests --- */

/* Sets a tunable. Returns the text of the answer; NULL with *error. */
static char *take_set(const QosServerControl *control, char **words, GError **error)
{
    QosGrants *grants = control->grants;
    QosGrantsState state;
    const char *doubt;

    if (!words[1] || !words[2] || words[3]) {
        qos_set_error(error, EINVAL, "set wants a name and a value");
        return NULL;
    }
    if (!qos_grants_set(grants, words[1], words[2], error))
        return NULL;
    qos_grants_state(grants, &state);
    qos_cluster_set_sharing(control->cluster, state.settings);
    doubt = qos_server_settings_doubt(state.settings);
    return g_strdup(doubt ? doubt : "");
}

static gboolean take_evict(QosGrants *grants, char **words, GError **error)
{
    guint64 id;

    if (words[1] && !words[2] &&
        g_ascii_string_to_unsigned(words[1], 16, 1, G_MAXUINT64, &id, NULL))
        return qos_grants_expel(grants, id, error);
    qos_set_error(error, EINVAL,
                  "evict wants the id of a mount, as 'qosfsctl server mounts' has it");
    return FALSE;
}

/* The answer's text; NULL with *error. */
static char *serve(const QosServerControl *control, const char *request, GError **error)
{
    const QosListenerStatistics sockets = qos_listener_statistics(control->listener);
    QosGrants *grants = control->grants;
    g_auto(GStrv) words = g_strsplit(request, " ", 5);

    if (g_strcmp0(words[0], "state") == 0)
        return qos_server_report_state(grants, control->cluster, &sockets);
    if (g_strcmp0(words[0], "metrics") == 0)
        return qos_server_report_metrics(grants, control->cluster, &sockets);
    if (g_strcmp0(words[0], "set") == 0)
        return take_set(control, words, error);
    if (g_strcmp0(words[0], "evict") == 0)
        return take_evict(grants, words, error) ? g_strdup("") : NULL;
    qos_set_error(error, EINVAL, "there is no such request");
    return NULL;
}

/* --- a connection --- */

static void listen_again(QosServerControl *control);

static void talk_free(Talk *talk)
{
    g_queue_unlink(&talk->control->talks, &talk->link);
    if (talk->watch)
        g_source_remove(talk->watch);
    if (talk->timeout)
        g_source_remove(talk->timeout);
    qos_cluster_forget(talk->control->cluster, talk);
    g_string_free(talk->request, TRUE);
    g_free(talk->answer);
    close(talk->fd);
    g_free(talk);
}

static void talk_end(Talk *talk)
{
    QosServerControl *control = talk->control;

    talk_free(talk);
    listen_again(control);
}

static gboolean talk_timed_out(gpointer data)
{
    Talk *talk = data;

    talk->timeout = 0;
    talk_end(talk);
    return G_SOURCE_REMOVE;
}

static gboolean talk_write(int fd, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    Talk *talk = data;
    ssize_t sent =
        send(fd, talk->answer + talk->sent, talk->length - talk->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        return G_SOURCE_CONTINUE;
    talk->sent += (gsize)MAX(sent, 0);
    if (sent > 0 && talk->sent < talk->length)
        return G_SOURCE_CONTINUE;
    talk->watch = 0;
    talk_end(talk);
    return G_SOURCE_REMOVE;
}

/* Begins to write the answer: "ok" and the text, or the error. */
static void talk_answer(int error, const char *text, gpointer data)
{
    Talk *talk = data;

    talk->answer =
        error == 0 ? g_strconcat("ok\n", text, NULL) : g_strdup_printf("%d %s\n", error, text);
    talk->length = strlen(talk->answer);
    talk->watch = g_unix_fd_add(talk->fd, G_IO_OUT, talk_write, talk);
}

static gboolean is_owner(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* Answers the request, at once or later. */
static void talk_serve(Talk *talk)
{
    static const char head[] = "cluster ";
    QosServerControl *control = talk->control;
    const char *request = talk->request->str;
    const QosAsker asker = {.door = QOS_DOOR_LOCAL, .uid = talk->uid, .caller = talk->uid};
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;

    if (g_str_has_prefix(request, head)) {
        qos_cluster_ask(control->cluster, &asker, request + strlen(head), TRUE, talk_answer, talk);
        return;
    }
    if (is_owner(talk->uid))
        text = serve(control, request, &error);
    else
        qos_set_error(&error, EPERM,
                      "permission denied: admin-uid may change the rules of the cluster; all else "
                      "is for root and the server's own user");
    if (error != NULL)
        talk_answer(error->code, error->message, talk);
    else
        talk_answer(0, text, talk);
}

static gboolean talk_read(int fd, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    Talk *talk = data;
    char buffer[READ_SIZE];
    ssize_t length = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return G_SOURCE_CONTINUE;
    g_string_append_len(talk->request, buffer, MAX(length, 0));
    char *end = memchr(talk->request->str, '\n', MIN(talk->request->len, REQUEST_MAX));
    if (length > 0 && !end && talk->request->len < REQUEST_MAX)
        return G_SOURCE_CONTINUE;
    talk->watch = 0;
    if (end) {
        *end = '\0';
        talk_serve(talk);
    } else if (length <= 0) {
        talk_end(talk);
    } else {
        g_autofree char *fault =
            g_strdup_printf("the request is longer than %d bytes", REQUEST_MAX);
        talk_answer(EMSGSIZE, fault, talk);
    }
    return G_SOURCE_REMOVE;
}

/* The user at the other end; FALSE: it may not use the socket. */
static gboolean is_permitted(const QosServerControl *control, int fd, uid_t *ret_uid)
{
    const GArray *admins = control->options->admin_uids;
    struct ucred peer;
    socklen_t length = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return FALSE;
    *ret_uid = peer.uid;
    for (guint i = 0; i < admins->len; i++) {
        if (g_array_index(admins, uid_t, i) == peer.uid)
            return TRUE;
    }
    return is_owner(peer.uid);
}

static gboolean end_pause(gpointer data)
{
    QosServerControl *control = data;

    control->watch = 0;
    listen_again(control);
    return G_SOURCE_REMOVE;
}

static gboolean accept_one(int listening, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    QosServerControl *control = data;
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uid_t uid;

    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return G_SOURCE_CONTINUE;
    if (fd < 0) { /* the waiting connection would wake the loop again at once */
        g_warning("control: cannot accept a connection: %s", g_strerror(errno));
        control->watch = g_timeout_add_seconds(PAUSE, end_pause, control);
        return G_SOURCE_REMOVE;
    }
    if (!is_permitted(control, fd, &uid)) {
        close(fd);
        return G_SOURCE_CONTINUE;
    }
    Talk *talk = g_new0(Talk, 1);
    *talk = (Talk){.control = control, .fd = fd, .uid = uid, .request = g_string_new(NULL)};
    talk->link.data = talk;
    talk->watch = g_unix_fd_add(fd, G_IO_IN, talk_read, talk);
    talk->timeout = g_timeout_add_seconds(PATIENCE, talk_timed_out, talk);
    g_queue_push_tail_link(&control->talks, &talk->link);
    if (control->talks.length < AT_ONCE)
        return G_SOURCE_CONTINUE;
    control->watch = 0;
    return G_SOURCE_REMOVE;
}

/* --- the socket --- */

static void listen_again(QosServerControl *control)
{
    if (control->watch == 0)
        control->watch = g_unix_fd_add(control->fd, G_IO_IN, accept_one, control);
}

static gboolean open_socket(QosServerControl *control, GError **error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* With admin-uid, users are told apart when they connect. */
    const mode_t mode = control->options->admin_uids->len > 0 ? 0666 : 0600;

    if (!qos_socket_path_clear(control->path, error))
        return FALSE;
    g_strlcpy(address.sun_path, control->path, sizeof(address.sun_path));
    control->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->fd >= 0 &&
        bind(control->fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
        g_chmod(control->path, (int)mode) == 0 && listen(control->fd, AT_ONCE) == 0)
        return TRUE;
    qos_set_error(error, errno, "control: cannot listen at %s: %s", control->path,
                  g_strerror(errno));
    return FALSE;
}

QosServerControl *qos_server_control_new(const QosServerOptions *options, QosGrants *grants,
                                         QosCluster *cluster, const QosListener *listener,
                                         GError **error)
{
    QosServerControl *control = g_new0(QosServerControl, 1);

    control->path = g_strdup(options->control);
    control->options = options;
    control->grants = grants;
    control->cluster = cluster;
    control->listener = listener;
    control->fd = -1;
    g_queue_init(&control->talks);
    if (open_socket(control, error)) {
        listen_again(control);
        return control;
    }
    if (control->fd >= 0)
        close(control->fd);
    g_free(control->path);
    g_free(control);
    return NULL;
}

void qos_server_control_free(QosServerControl *control)
{
    if (!control)
        return;
    while (control->talks.length > 0)
        talk_free(control->talks.head->data);
    if (control->watch)
        g_source_remove(control->watch);
    close(control->fd);
    g_unlink(control->path);
    g_free(control->path);
    g_free(control);
}
