/*
 * Resolves the paths on mount.qosfs's command line (fs/daemon/paths.h).
 */
#include "fs/daemon/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "db/db.h"
#include "fs/daemon/mountpoint.h"

/* An absolute path of a directory, or NULL with an error that calls it `what`. */
static char *resolve_directory(const char *what, const char *path, GError **error)
{
    char resolved[PATH_MAX];
    struct stat stat_buffer;

    if (realpath(path, resolved) != NULL && stat(resolved, &stat_buffer) == 0) {
        if (S_ISDIR(stat_buffer.st_mode))
            return g_strdup(resolved);
        errno = ENOTDIR;
    }
    qos_set_error(error, errno, "%s \"%s\": %s", what, path, g_strerror(errno));
    return NULL;
}

/* Enters the mount namespace that mount(8) was told to mount in. */
static gboolean enter_namespace(const char *name, GError **error)
{
    g_autofree char *path = strspn(name, "0123456789") == strlen(name)
                                ? g_strdup_printf("/proc/%s/ns/mnt", name)
                                : g_strdup(name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gboolean entered = fd >= 0 && setns(fd, CLONE_NEWNS) == 0;

    if (!entered)
        qos_set_error(error, errno, "cannot enter the namespace \"%s\": %s", name,
                      g_strerror(errno));
    if (fd >= 0)
        close(fd);
    return entered;
}

/* The daemon would ask itself, and wait for itself. */
static gboolean check_socket(const char *server, const char *mountpoint, GError **error)
{

    if (server == NULL || !g_str_has_prefix(server, "unix:") ||
        !qos_mountpoint_hides(mountpoint, server + strlen("unix:")))
        return TRUE;
    qos_set_error(
        error, EINVAL,
        "the socket \"%s\" would lie below DIR, where the mount hides it from the daemon; "
        "have the server listen elsewhere",
        server);
    return FALSE;
}

/* Where the database is: the folder of the usual place is made, another one is to be there. */
static gboolean resolve_database(QosOptions *options, const char *mountpoint, GError **error)
{
    g_autofree char *given = g_steal_pointer(&options->database);
    g_autofree char *folder = NULL;

    options->database =
        given ? g_canonicalize_filename(given, NULL) : qos_db_default_path(mountpoint);
    if (qos_mountpoint_hides(mountpoint, options->database)) {
        qos_set_error(error, EINVAL,
                      "the database \"%s\" would lie below DIR, where the mount hides it from the "
                      "daemon; choose another place with -o db=PATH",
                      options->database);
        return FALSE;
    }
    folder = g_path_get_dirname(options->database);
    if (given || g_mkdir_with_parents(folder, 0755) == 0)
        return TRUE;
    qos_set_error(error, errno,
                  "database %s: cannot make its folder: %s; choose another place with -o db=PATH",
                  options->database, g_strerror(errno));
    return FALSE;
}

/* The daemon would meet its own mount there. */
static gboolean check_places(const char *source, const char *mountpoint, GError **error)
{
    if (!qos_mountpoint_is_below(mountpoint, source))
        return TRUE;
    qos_set_error(
        error, EINVAL,
        "DIR \"%s\" lies below SRC \"%s\": the daemon would meet its own mount there and wait "
        "for itself; mount it elsewhere, or on SRC itself",
        mountpoint, source);
    return FALSE;
}

gboolean qos_paths_resolve(QosOptions *options, char **ret_source, char **ret_mountpoint,
                           GError **error)
{
    if (options->mount_namespace && !enter_namespace(options->mount_namespace, error))
        return FALSE;
    *ret_source = resolve_directory("SRC", options->source, error);
    if (!*ret_source || !qos_mountpoint_clear(options->mountpoint, error))
        return FALSE;
    *ret_mountpoint = resolve_directory("DIR", options->mountpoint, error);
    if (!*ret_mountpoint || !check_places(*ret_source, *ret_mountpoint, error))
        return FALSE;
    /* With -f it is not needed. The database is the first that would be left behind. */
    return (options->fake || qos_mountpoint_check_device(error)) &&
           check_socket(options->cluster.server, *ret_mountpoint, error) &&
           resolve_database(options, *ret_mountpoint, error);
}
