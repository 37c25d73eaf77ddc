/*
 * The attributes of a file of the store, and the key by which its inode is found
 * (fs/store/inode.h). No inode is needed for that, so it can be asked before there is one.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "fs/store/inode_state.h"

/* Bits of an inode number on other devices than the root's; the device's place is above them. */
#define NUMBER_BITS 48

/* New in Linux 6.10: not all systems have its headers yet, and older kernels do not tell it. */
#ifndef STATX_SUBVOL
#define STATX_SUBVOL 0x8000U
#endif
#define SUBVOLUME_OFFSET 0xa0 /* of stx_subvol in struct statx */

void qos_inodes_set_own_device(QosInodes *inodes, dev_t device)
{
    inodes->own_device = device;
}

guint64 qos_inodes_shown(QosInodes *inodes, dev_t device, guint64 number)
{
    guint place;

    if (device == inodes->root_device)
        return number;
    qos_mutex_lock(&inodes->lock);
    for (place = 0; place < inodes->devices->len; place++) {
        if (g_array_index(inodes->devices, dev_t, place) == device)
            break;
    }
    if (place == inodes->devices->len)
        g_array_append_val(inodes->devices, device);
    qos_mutex_unlock(&inodes->lock);
    /* A number that is too large for its place is spread over all 64 bits: as good as unique. */
    if (number >> NUMBER_BITS != 0)
        number *= 0x9e3779b97f4a7c15u;
    return number ^ ((guint64)(place + 1) << NUMBER_BITS);
}

static struct timespec timespec_from_statx(const struct statx_timestamp *stamp)
{
    return (struct timespec){.tv_sec = stamp->tv_sec, .tv_nsec = stamp->tv_nsec};
}

static guint64 subvolume_from_statx(const struct statx *x)
{
    guint64 volume = 0;

    G_STATIC_ASSERT(sizeof(*x) >= SUBVOLUME_OFFSET + sizeof(volume));
    if ((x->stx_mask & STATX_SUBVOL) != 0)
        memcpy(&volume, (const char *)x + SUBVOLUME_OFFSET, sizeof(volume));
    return volume;
}

/* One call tells the attributes, the mount and the subvolume, which stat() does not know. */
int qos_inodes_examine(QosInodes *inodes, int fd, const char *name, QosFacts *ret_facts)
{
    int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    struct statx statx_buffer = {0}, *x = &statx_buffer;
    struct stat *stat = &ret_facts->stat;

    if (statx(fd, name, flags, STATX_BASIC_STATS | STATX_MNT_ID | STATX_SUBVOL, x) != 0)
        return -errno;
    if (makedev(x->stx_dev_major, x->stx_dev_minor) == inodes->own_device)
        return -ELOOP;
    *stat = (struct stat){
        .st_dev = makedev(x->stx_dev_major, x->stx_dev_minor),
        .st_ino = x->stx_ino,
        .st_mode = x->stx_mode,
        .st_nlink = x->stx_nlink,
        .st_uid = x->stx_uid,
        .st_gid = x->stx_gid,
        .st_rdev = makedev(x->stx_rdev_major, x->stx_rdev_minor),
        .st_size = (off_t)x->stx_size,
        .st_blksize = x->stx_blksize,
        .st_blocks = (blkcnt_t)x->stx_blocks,
        .st_atim = timespec_from_statx(&x->stx_atime),
        .st_mtim = timespec_from_statx(&x->stx_mtime),
        .st_ctim = timespec_from_statx(&x->stx_ctime),
    };
    ret_facts->key = (QosInodeKey){
        .device = stat->st_dev, .volume = subvolume_from_statx(x), .number = x->stx_ino};
    /* Kernels before 5.8 do not tell. */
    ret_facts->has_mount_id = (x->stx_mask & STATX_MNT_ID) != 0;
    ret_facts->key.mount = ret_facts->has_mount_id ? x->stx_mnt_id : stat->st_dev;
    ret_facts->is_mount_root =
        (x->stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0 && S_ISDIR(x->stx_mode);
    stat->st_ino = qos_inodes_shown(inodes, stat->st_dev, stat->st_ino);
    qos_inodes_disarm(inodes, *name == '\0' ? fd : -1, ret_facts);
    return 0;
}
