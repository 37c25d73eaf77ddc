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

#define REQUEST_MAX 1024 /* bytes */
#define AT_ONCE     64   /* connections; further ones wait */
#define PATIENCE    10   /* seconds for a request and its answer */
#define PAUSE       1    /* seconds, where no descriptor is left */

struct QosServerControl {
    char *path;
    QosGrants *grants;
    const QosListener *listener;
    int fd;
    guint watch;  /* of fd, or a pause; 0: enough connections */
    GQueue talks; /* of Talk */
};

/* One connection: the request is read, then the answer written. */
typedef struct {
    QosServerControl *control;
    int fd;
    guint watch, timeout;
    GString *request; /* NULL: it was read */
    char *answer;
    gsize sent, length; /* of the answer */
    GList link;
} Talk;

/* --- requests --- */

/* Sets a tunable. Returns the text of the answer; NULL with *error. */
static char *take_set(QosGrants *grants, char **words, GError **error)
{
    QosGrantsState state;
    const char *doubt;

    if (!words[1] || !words[2] || words[3]) {
        qos_set_error(error, EINVAL, "set wants a name and a value");
        return NULL;
    }
    if (!qos_grants_set(grants, words[1], words[2], error))
        return NULL;
    qos_grants_state(grants, &state);
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
        return qos_server_report_state(grants, &sockets);
    if (g_strcmp0(words[0], "metrics") == 0)
        return qos_server_report_metrics(grants, &sockets);
    if (g_strcmp0(words[0], "set") == 0)
        return take_set(grants, words, error);
    if (g_strcmp0(words[0], "evict") == 0)
        return take_evict(grants, words, error) ? g_strdup("") : NULL;
    qos_set_error(error, EINVAL, "there is no such request");
    return NULL;
}

static char *answer_to(const QosServerControl *control, const char *request)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text = serve(control, request, &error);

    if (error)
        return g_strdup_printf("%d %s\n", error->code, error->message);
    return g_strconcat("ok\n", text, NULL);
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
    if (talk->request)
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

static gboolean talk_read(int fd, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    Talk *talk = data;
    char buffer[REQUEST_MAX];
    ssize_t length = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return G_SOURCE_CONTINUE;
    g_string_append_len(talk->request, buffer, MAX(length, 0));
    char *end = memchr(talk->request->str, '\n', MIN(talk->request->len, REQUEST_MAX));
    if (length > 0 && !end && talk->request->len < REQUEST_MAX)
        return G_SOURCE_CONTINUE;
    talk->watch = 0;
    if (length <= 0 && !end) {
        talk_end(talk);
        return G_SOURCE_REMOVE;
    }
    if (end) {
        *end = '\0';
        talk->answer = answer_to(talk->control, talk->request->str);
    } else {
        talk->answer =
            g_strdup_printf("%d the request is longer than %d bytes\n", EMSGSIZE, REQUEST_MAX);
    }
    talk->length = strlen(talk->answer);
    talk->watch = g_unix_fd_add(fd, G_IO_OUT, talk_write, talk);
    return G_SOURCE_REMOVE;
}

static gboolean is_permitted(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
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

    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return G_SOURCE_CONTINUE;
    if (fd < 0) { /* the waiting connection would wake the loop again at once */
        g_warning("control: cannot accept a connection: %s", g_strerror(errno));
        control->watch = g_timeout_add_seconds(PAUSE, end_pause, control);
        return G_SOURCE_REMOVE;
    }
    if (!is_permitted(fd)) {
        close(fd);
        return G_SOURCE_CONTINUE;
    }
    Talk *talk = g_new0(Talk, 1);
    *talk = (Talk){.control = control, .fd = fd, .request = g_string_new(NULL)};
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

    if (!qos_socket_path_clear(control->path, error))
        return FALSE;
    g_strlcpy(address.sun_path, control->path, sizeof(address.sun_path));
    control->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->fd >= 0 &&
        bind(control->fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
        g_chmod(control->path, 0600) == 0 && listen(control->fd, AT_ONCE) == 0)
        return TRUE;
    qos_set_error(error, errno, "control: cannot listen at %s: %s", control->path,
                  g_strerror(errno));
    return FALSE;
}

QosServerControl *qos_server_control_new(const char *path, QosGrants *grants,
                                         const QosListener *listener, GError **error)
{
    QosServerControl *control = g_new0(QosServerControl, 1);

    control->path = g_strdup(path);
    control->grants = grants;
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
