/*
 * The mountpoint (fs/daemon/mountpoint.h).
 *
 * Mounts may lie upon one another at one path, and the daemon's mount may have been detached while
 * programs still use it. So the topmost mount is unmounted only if it is known to be the right one.
 */
#include "fs/daemon/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/error.h"

#define TYPE      "fuse.qosfs"
#define LINKS_MAX 40 /* in one path, as for the kernel */

/* The columns of /proc/self/mountinfo, as proc(5) counts them from 0; the type comes after "-". */
enum { DEVICE = 2, PLACE = 4, FIRST_OPTIONAL = 6 };

gboolean qos_mountpoint_is_below(const char *path, const char *directory)
{
    gsize length = strlen(directory);

    if (length == 1) /* "/" */
        return path[1] != '\0';
    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

gboolean qos_mountpoint_hides(const char *mountpoint, const char *path)
{
    g_autofree char *place = g_strdup(path);
    gboolean is_hidden = qos_mountpoint_is_below(place, mountpoint);

    for (guint links = 0; place && !is_hidden && links < LINKS_MAX; links++) {
        g_autofree char *folder = g_path_get_dirname(place);
        g_autofree char *name = g_path_get_basename(place);
        g_autofree char *resolved = realpath(folder, NULL);
        g_autofree char *file = resolved ? g_build_filename(resolved, name, NULL) : NULL;
        g_autofree char *target = file ? g_file_read_link(file, NULL) : NULL;

        is_hidden = file && qos_mountpoint_is_below(file, mountpoint);
        g_free(place);
        place = target ? g_canonicalize_filename(target, resolved) : NULL;
    }
    return is_hidden;
}

/* The words of the line about the topmost mount on `path`, or NULL. */
static GStrv find_mount(const char *path)
{
    g_autofree char *table = NULL;
    g_auto(GStrv) lines = NULL;
    GStrv found = NULL;

    if (!g_file_get_contents("/proc/self/mountinfo", &table, NULL, NULL))
        return NULL;
    lines = g_strsplit(table, "\n", -1);
    for (guint i = 0; lines[i]; i++) {
        g_auto(GStrv) words = g_strsplit(lines[i], " ", -1);
        g_autofree char *place = NULL;

        if (g_strv_length(words) <= FIRST_OPTIONAL)
            continue;
        place = g_strcompress(words[PLACE]); /* \040 is a blank */
        if (g_str_equal(place, path)) {
            g_strfreev(found);
            found = g_steal_pointer(&words);
        }
    }
    return found;
}

char *qos_mountpoint_device(const char *path, char **ret_type)
{
    g_auto(GStrv) words = find_mount(path);
    guint dash = FIRST_OPTIONAL;

    if (!words)
        return NULL;
    while (words[dash] && !g_str_equal(words[dash], "-"))
        dash++;
    if (ret_type)
        *ret_type = g_strdup(words[dash] ? words[dash + 1] : NULL);
    return g_strdup(words[DEVICE]);
}

/* The number after `name` among the words; FALSE: there is none. */
static gboolean find_number(char *const *words, const char *name, guint *ret_number)
{
    for (; *words; words++) {
        const char *found = strstr(*words, name);

        if (found) {
            *ret_number = (guint)g_ascii_strtoull(found + strlen(name), NULL, 10);
            return TRUE;
        }
    }
    return FALSE;
}

gboolean qos_mountpoint_owner(const char *path, uid_t *ret_uid, gid_t *ret_gid)
{
    g_auto(GStrv) words = find_mount(path);
    char *const *last = words;

    if (!words)
        return FALSE;
    while (last[1]) /* the options of the file system */
        last++;
    return find_number(last, "user_id=", ret_uid) && find_number(last, "group_id=", ret_gid);
}

dev_t qos_mountpoint_device_number(const char *path)
{
    g_autofree char *device = qos_mountpoint_device(path, NULL);
    g_auto(GStrv) words = device ? g_strsplit(device, ":", 2) : NULL;
    guint64 major, minor;

    if (!words || g_strv_length(words) != 2 ||
        !g_ascii_string_to_unsigned(words[0], 10, 0, G_MAXUINT32, &major, NULL) ||
        !g_ascii_string_to_unsigned(words[1], 10, 0, G_MAXUINT32, &minor, NULL))
        return 0;
    return makedev((guint)major, (guint)minor);
}

gboolean qos_mountpoint_is_taken(const char *path)
{
    g_autofree char *type = NULL, *device = qos_mountpoint_device(path, &type);

    return device && g_strcmp0(type, TYPE) == 0;
}

/* --- dead mounts --- */

/* Removes a slash at the end, because a path with one would enter a dead mount. */
static char *resolve(const char *path)
{
    g_autofree char *name = g_strdup(path);

    for (gsize length = strlen(name); length > 1 && name[length - 1] == '/'; length--)
        name[length - 1] = '\0';
    return realpath(name, NULL);
}

/* Unmounts it as root, or by fusermount3 as the user that made the mount. */
static gboolean unmount_dead(const char *place)
{
    const char *const command[] = {"fusermount3", "-u", "-z", "--", place, NULL};
    int status;

    if (geteuid() == 0)
        return umount2(place, MNT_DETACH | UMOUNT_NOFOLLOW) == 0;
    return g_spawn_sync(NULL, (char **)command, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL,
                        &status, NULL) &&
           g_spawn_check_wait_status(status, NULL);
}

/* Whether the daemon of the mount on `path` is dead. The kernel may still have attributes of a dead
 * mount, so the question must reach the daemon. If the daemon dies only now, the question has no
 * answer. */
static gboolean is_dead(const char *path)
{
    struct statx statx_buffer;

    if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &statx_buffer) == 0)
        return FALSE;
    return errno == ENOTCONN || errno == ECONNABORTED || errno == ECANCELED;
}

void qos_mountpoint_detach(const char *path, const char *device, gboolean is_disconnected)
{
    g_autofree char *topmost = qos_mountpoint_device(path, NULL);

    if (is_disconnected && !is_dead(path))
        return;
    if (g_strcmp0(topmost, device) == 0 &&
        umount2(path, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) != 0 &&
        errno != EINVAL) /* another process was quicker */
        g_warning("cannot unmount \"%s\": %s; umount -l takes it away", path, g_strerror(errno));
}

gboolean qos_mountpoint_clear(const char *path, GError **error)
{
    while (is_dead(path)) {
        char *place = resolve(path);
        gboolean cleared = place && qos_mountpoint_is_taken(place) && unmount_dead(place);

        free(place);
        if (!cleared) {
            qos_set_error(error, ENOTCONN,
                          "DIR \"%s\": the daemon of a mount there has died: umount it first",
                          path);
            return FALSE;
        }
        g_message("cleared away a mount on \"%s\" whose daemon had died", path);
    }
    return TRUE;
}

/* --- what mounting takes --- */

gboolean qos_mountpoint_check_device(GError **error)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        close(fd);
        return TRUE;
    }
    if (errno == EACCES || errno == EPERM)
        qos_set_error(error, errno,
                      "/dev/fuse is closed to you: open it (chmod 666 /dev/fuse), or let root "
                      "mount");
    else
        qos_set_error(error, errno, "/dev/fuse: %s: load the kernel's module (modprobe fuse)",
                      g_strerror(errno));
    return FALSE;
}

const char *qos_mountpoint_obstacle(void)
{
    g_autofree char *helper = g_find_program_in_path("fusermount3");
    struct stat stat_buffer;

    if (geteuid() == 0)
        return NULL;
    if (!helper)
        return "there is no fusermount3 that you may run: install fuse3, or let root mount";
    if (stat(helper, &stat_buffer) == 0 &&
        (stat_buffer.st_uid != 0 || !(stat_buffer.st_mode & S_ISUID)))
        return "fusermount3 is not setuid root (chmod u+s), or let root mount";
    return NULL;
}
