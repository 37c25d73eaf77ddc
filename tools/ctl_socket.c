/*
 * The control socket of a qosfs-server, as a client.
 */
#include "tools/ctl_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "tools/ctl_text.h"

#define PATIENCE  30 /* seconds that a server may take to answer */
#define NO_ANSWER "it has not answered within 30 s: see whether it is stopped or overloaded"

static void set_no_server(GError **error, const char *path, int reason)
{
    const char *what = reason == ENOENT || reason == ECONNREFUSED
                           ? "no qosfs-server listens there; --socket names another"
                       : reason == EACCES || reason == EPERM
                           ? "permission denied; only root and the server's own user may ask it"
                       : reason == EAGAIN ? NO_ANSWER
                                          : g_strerror(reason);

    qos_set_error(error, reason == ECONNREFUSED ? ENOENT : reason, "%s: %s", path, what);
}

/* With its time-outs, calls end with EINTR also where the process was stopped and goes on. */
static int connect_to(const char *path, GError **error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = PATIENCE};
    int fd;

    if (g_strlcpy(address.sun_path, path, sizeof(address.sun_path)) >= sizeof(address.sun_path)) {
        qos_set_error(error, ENAMETOOLONG, "%s: the path is longer than 107 bytes", path);
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
        TEMP_FAILURE_RETRY(connect(fd, (const struct sockaddr *)&address, sizeof(address))) == 0)
        return fd;
    set_no_server(error, path, errno);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* All that comes until the end, also one by ECONNRESET: the server has closed without reading all.
 * NULL: there is an error. */
static GString *read_all(int fd)
{
    GString *text = g_string_new(NULL);
    char buffer[65536];
    ssize_t length;

    while ((length = TEMP_FAILURE_RETRY(recv(fd, buffer, sizeof(buffer), 0))) > 0)
        g_string_append_len(text, buffer, length);
    if (length < 0 && errno != ECONNRESET) {
        int reason = errno;
        g_string_free(text, TRUE);
        errno = reason;
        return NULL;
    }
    return text;
}

/* The answer's text without its first line, which says whether it worked; free with g_free. */
static char *take_answer(const char *path, GString *answer, gboolean *ret_reached, GError **error)
{
    g_autofree char *text = g_string_free(answer, FALSE);
    char *line_end = strchr(text, '\n');
    char *reason;

    *ret_reached = line_end != NULL;
    if (g_str_has_prefix(text, "ok\n"))
        return g_strdup(text + strlen("ok\n"));
    if (!line_end) {
        qos_set_error(error, EPERM, "%s: %s", path,
                      text[0] == '\0' ? "only root and the server's own user may ask"
                                      : "this is no control socket of qosfs-server");
        return NULL;
    }
    *line_end = '\0';
    int code = (int)g_ascii_strtoll(text, &reason, 10);
    g_autofree char *words = qos_ctl_escape(g_strstrip(reason));
    qos_set_error(error, code ? code : EPROTO, "%s", words);
    return NULL;
}

/* The whole of `text`. FALSE where the server reads no more of it: it has said already what it does
 * not like, or errno says what is wrong. */
static gboolean send_all(int fd, const char *text)
{
    gsize length = strlen(text);

    while (length > 0) {
        ssize_t sent = TEMP_FAILURE_RETRY(send(fd, text, length, MSG_NOSIGNAL));
        if (sent < 0)
            return FALSE;
        text += sent;
        length -= (gsize)sent;
    }
    return TRUE;
}

char *qos_ctl_socket_ask(const char *path, const char *request, gboolean *ret_reached,
                         GError **error)
{
    g_autofree char *line = g_strconcat(request, "\n", NULL);
    gboolean reached = FALSE;
    GString *answer = NULL;
    int fd = connect_to(path, error);
    char *text = NULL;

    if (fd >= 0) {
        if (send_all(fd, line) || errno == EPIPE || errno == ECONNRESET)
            answer = read_all(fd);
        if (answer)
            text = take_answer(path, answer, &reached, error);
        else
            set_no_server(error, path, errno);
        close(fd);
    }
    if (ret_reached)
        *ret_reached = reached;
    return text;
}
