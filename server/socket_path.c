/*
 * Removes a socket that a killed server left, and nothing else (server/socket_path.h).
 */
#include "server/socket_path.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"

/* Connects to the socket and returns 0 or the errno. Does not wait for a server that is stopped. */
static int knock(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int result = fd < 0 ? errno : 0;

    g_strlcpy(address.sun_path, path, sizeof(address.sun_path));
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        result = errno;
    if (fd >= 0)
        close(fd);
    return result;
}

static gboolean cannot(const char *path, const char *what, int reason, GError **error)
{
    qos_set_error(error, reason, "%s: cannot %s: %s", path, what, g_strerror(reason));
    return FALSE;
}

gboolean qos_socket_path_clear(const char *path, GError **error)
{
    GStatBuf status;
    int answer;

    G_STATIC_ASSERT(QOS_SOCKET_PATH_MAX < sizeof(((struct sockaddr_un *)NULL)->sun_path));
    if (g_lstat(path, &status) < 0)
        return errno == ENOENT || cannot(path, "look at it", errno, error);
    /* connect(2) fails in the same way for a file that is no socket and for a socket without a
     * listener. */
    if (!S_ISSOCK(status.st_mode)) {
        qos_set_error(error, EEXIST,
                      "%s is there, and no socket: remove it, or correct the setting", path);
        return FALSE;
    }
    answer = knock(path);
    if (answer == 0 || answer == EAGAIN) {
        qos_set_error(
            error, EADDRINUSE,
            "%s: another server listens there: end that one, or give this one another place", path);
        return FALSE;
    }
    if (answer != ECONNREFUSED)
        return cannot(path, "tell whether a server listens there", answer, error);
    return g_unlink(path) == 0 || cannot(path, "remove what a killed server left", errno, error);
}
