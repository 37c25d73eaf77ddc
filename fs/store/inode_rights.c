/*
 * What the mounts of the store forbid must not become possible through this mount.
 *
 * The kernel knows the flags of this mount, but not those of the mount on which a file of the store
 * lies. If those are stricter, the daemon hides all that the kernel would make a right of:
 * set-user-ID and set-group-ID bits, capabilities, and the number of a device. An open for
 * execution is refused.
 *
 * The kernel believes nothing of such a file, and asks each time (qos_mode_gives_rights). So a
 * remount holds from the next use on, and nothing must be taken back.
 */
#include <errno.h>
#include <sys/sysmacros.h>

#include "fs/store/inode_state.h"

/* No driver has it, whatever the minor number. */
#define NO_DRIVER makedev(0xfff, 0)

void qos_inodes_allow(QosInodes *inodes, gulong allowed)
{
    inodes->root_allows = allowed;
}

static gulong ask(QosInodes *inodes, guint64 mount, int fd)
{
    return qos_mount_flags_of(inodes->mount_flags, inodes->has_mount_ids ? mount : 0, fd);
}

gulong qos_inodes_source_forbids(QosInodes *inodes)
{
    const int fd = inodes->source >= 0 ? inodes->source : inodes->root->fd;

    return ask(inodes, inodes->source_mount, fd);
}

static gulong forbidden_on(QosInodes *inodes, guint64 mount, int fd)
{
    if (mount != inodes->root_mount)
        return ask(inodes, mount, fd);
    return qos_inodes_source_forbids(inodes) & ~inodes->root_allows;
}

gulong qos_inode_ref_forbids(const QosInodeRef *ref)
{
    return forbidden_on(ref->inodes, ref->inode->key.mount, ref->fd);
}

static mode_t harmless_mode(mode_t mode)
{
    return S_ISREG(mode) ? mode & ~(mode_t)(S_ISUID | S_ISGID) : mode;
}

void qos_inodes_disarm(QosInodes *inodes, int fd, QosFacts *facts)
{
    struct stat *stat = &facts->stat;
    gulong forbidden;

    facts->gives_rights = qos_mode_gives_rights(stat->st_mode);
    if (!facts->gives_rights)
        return;
    forbidden = forbidden_on(inodes, facts->key.mount, fd);
    if ((forbidden & MS_NOSUID) != 0)
        stat->st_mode = harmless_mode(stat->st_mode);
    facts->hides_device = qos_mode_is_device(stat->st_mode) && (forbidden & MS_NODEV) != 0;
    if (facts->hides_device)
        stat->st_rdev = NO_DRIVER;
}

/* The kernel keeps the number of a device that it was told once. If the device may not be opened
 * any more, the kernel must look the name up again, and finds another inode. */
int qos_inode_ref_disarm(const QosInodeRef *ref, mode_t *mode, dev_t *device)
{
    gulong forbidden;

    if (!qos_mode_gives_rights(*mode))
        return 0;
    forbidden = qos_inode_ref_forbids(ref);
    if ((forbidden & MS_NOSUID) != 0)
        *mode = harmless_mode(*mode);
    if (!qos_mode_is_device(*mode))
        return 0;
    if ((forbidden & MS_NODEV) != 0 && !ref->inode->hides_device)
        return -ESTALE;
    if (ref->inode->hides_device)
        *device = NO_DRIVER;
    return 0;
}

gboolean qos_inode_ref_hides_device(const QosInodeRef *ref)
{
    return ref->inode->hides_device;
}
