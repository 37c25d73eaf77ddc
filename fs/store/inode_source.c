/*
 * The store without what is mounted below it (fs/store/inode.h).
 *
 * With submounts=no, the root of the table is a mount of the daemon's own: a copy of the mount on
 * which SRC lies, that no other process sees and that nothing is propagated to. A walk through it
 * sees the folders that other mounts cover elsewhere, and costs no more than any walk. Nobody can
 * change the flags of that copy. So the flags of the original hold, which stays open for that.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/error.h"
#include "fs/store/inode_state.h"

static int open_source(const char *source, GError **error)
{
    const int fd = open(source, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        qos_set_error(error, errno, "cannot open the directory %s: %s", source, g_strerror(errno));
    return fd;
}

/* -1 with errno set where it cannot be had. */
static int copy_mount(int original)
{
    struct mount_attr attributes = {.propagation = MS_PRIVATE};
    const int fd = open_tree(original, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    int error;

    if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int open_alone(int original, GError **error)
{
    const int fd = copy_mount(original);

    if (fd < 0)
        qos_set_error(error, errno, "option submounts=no: %s (%s)",
                      errno == EPERM    ? "that takes root (CAP_SYS_ADMIN)"
                      : errno == EINVAL ? "what is mounted below SRC is locked to it, as in a "
                                          "container: mount qosfs outside of it"
                                        : "that takes Linux 5.12",
                      g_strerror(errno));
    return fd;
}

QosInodes *qos_inodes_new(const char *source, GError **error)
{
    const int fd = open_source(source, error);

    return fd < 0 ? NULL : qos_inodes_new_over(source, -1, fd, error);
}

QosInodes *qos_inodes_new_alone(const char *source, GError **error)
{
    const int original = open_source(source, error);
    const int fd = original < 0 ? -1 : open_alone(original, error);

    if (fd >= 0)
        return qos_inodes_new_over(source, original, fd, error);
    if (original >= 0)
        close(original);
    return NULL;
}
