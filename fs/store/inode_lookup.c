/*
 * From a name in the store to an inode of the table (fs/store/inode.h).
 *
 * A look-up opens what the name is, asks for its key, and finds or makes the inode that has it; of
 * a cold one the file handle is compared. Where the file is likely to be warm, the key is asked for
 * by the name alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fs/quota.h"
#include "fs/store/inode_state.h"

/* Bits of an inode number on other devices than the root's; the device's place is above them. */
#define NUMBER_BITS 48

/* Of Linux 6.10, whose headers are not everywhere; older kernels do not tell it. */
#ifndef STATX_SUBVOL
#define STATX_SUBVOL 0x8000U
#endif
#define SUBVOLUME_OFFSET 0xa0 /* of stx_subvol in struct statx */

/* --- attributes --- */

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

/* --- look-ups --- */

/* The inode that has the key of `facts`. Of a device the kernel keeps the number: where another is
 * to be told than was, it needs another inode. */
static QosInode *inode_of_locked(QosInodes *inodes, const QosFacts *facts)
{
    QosInode *inode = qos_inode_by_key_locked(inodes, &facts->key);

    if (inode == NULL || inode->hides_device == (guint)facts->hides_device)
        return inode;
    qos_inode_detach_key_locked(inodes, inode);
    return NULL;
}

/* The same, if it is the file whose handle is `handle`. A warm one is for certain; a cold one whose
 * key has become another file's loses it. */
static QosInode *find_locked(QosInodes *inodes, const QosFacts *facts, const QosFileHandle *handle)
{
    QosInode *inode = inode_of_locked(inodes, facts);

    if (inode == NULL || inode->fd >= 0 || qos_file_handle_equal(inode->handle, handle))
        return inode;
    qos_inode_detach_key_locked(inodes, inode);
    return NULL;
}

/* The same, with the handle made that takes: the lock is given up meanwhile. */
static QosInode *identify_locked(QosInodes *inodes, const QosFacts *facts, int fd)
{
    QosInode *inode = inode_of_locked(inodes, facts);
    QosFileHandle *handle;

    if (inode == NULL || inode->fd >= 0)
        return inode;
    qos_mutex_unlock(&inodes->lock);
    handle = qos_file_handle_new(inodes->mounts, facts->key.mount, fd);
    qos_mutex_lock(&inodes->lock);
    inode = find_locked(inodes, facts, handle);
    qos_file_handle_free(handle);
    return inode;
}

static gboolean is_full_locked(QosInodes *inodes)
{
    return inodes->open_count >= inodes->bound && g_queue_is_empty(&inodes->clock);
}

/* 0, or why the user finds no more files: -ENFILE or -EMFILE. */
static int find_room_locked(QosInodes *inodes, const QosUser *user)
{
    if (is_full_locked(inodes))
        return -ENFILE;
    if (user != NULL && inodes->open_count < inodes->bound &&
        qos_place_for(inodes->bound - inodes->open_count, 0, user->known_files) ==
            QOS_PLACE_OF_USER)
        return -EMFILE;
    return 0;
}

int qos_inodes_find_room(QosInodes *inodes, const QosUser *user)
{
    gboolean has_room = qos_inodes_await_closes(inodes);

    qos_mutex_lock(&inodes->lock);
    int error = find_room_locked(inodes, user);
    qos_mutex_unlock(&inodes->lock);
    return has_room ? error : -ENFILE;
}

static struct fuse_entry_param entry_of(const QosFacts *facts, fuse_ino_t id)
{
    return (struct fuse_entry_param){
        .ino = id, .attr = facts->stat, .attr_timeout = facts->gives_rights ? -1 : 0};
}

/* Counts a look-up of the file that is `fd` (O_PATH, taken over) and of which `facts` are.
 * *ret_known: it was warm. *ret_loan: the file, where that is not NULL. */
static int count_lookup(QosInodes *inodes, int fd, const QosFacts *facts, QosUser *user,
                        struct fuse_entry_param *ret_entry, gboolean *ret_known, QosLoan *ret_loan)
{
    QosInode *inode;
    gboolean has_surplus;
    int error;

    if (facts->is_mount_root)
        qos_mounts_enter(inodes->mounts, facts->key.mount, fd);
    gboolean has_room = qos_inodes_await_closes(inodes);
    qos_mutex_lock(&inodes->lock);
    inode = identify_locked(inodes, facts, fd);
    error = inode != NULL ? 0 : has_room ? find_room_locked(inodes, user) : -ENFILE;
    if (error != 0) {
        qos_mutex_unlock(&inodes->lock);
        if (facts->is_mount_root)
            qos_mounts_leave(inodes->mounts, facts->key.mount);
        close(fd);
        return error;
    }
    if (inode == NULL) {
        inode = qos_inode_add_locked(inodes, inodes->next_id++, facts, fd, user);
        fd = -1;
    } else if (inode->fd < 0) {
        inode->fd = fd;
        inodes->open_count++;
        fd = -1;
    }
    inode->lookups++;
    if (ret_loan != NULL) {
        qos_inode_lend_locked(inode);
        *ret_loan = (QosLoan){.inodes = inodes, .inode = inode, .fd = inode->fd};
    }
    qos_inode_settle_locked(inodes, inode);
    *ret_entry = entry_of(facts, inode->id);
    has_surplus = inodes->open_count > inodes->open_max;
    qos_mutex_unlock(&inodes->lock);

    *ret_known = fd >= 0;
    if (fd >= 0)
        close(fd);
    else if (has_surplus)
        qos_inodes_close_surplus(inodes);
    return 0;
}

/* Counts a look-up of a warm file by its key alone: its descriptor pins it, so that the key can be
 * no other's. For any other file, ret_entry->ino is 0. */
static int count_warm_lookup(QosInodes *inodes, const QosLoan *parent, const char *name,
                             struct fuse_entry_param *ret_entry)
{
    QosInode *inode;
    QosFacts facts = {0};
    int error = qos_inodes_examine(inodes, parent->fd, name, &facts);

    if (error != 0)
        return error;
    *ret_entry = entry_of(&facts, 0);
    qos_mutex_lock(&inodes->lock);
    inode = inode_of_locked(inodes, &facts);
    if (inode != NULL && inode->fd >= 0) {
        inode->lookups++;
        qos_inode_settle_locked(inodes, inode);
        ret_entry->ino = inode->id;
    }
    qos_mutex_unlock(&inodes->lock);
    return 0;
}

/* A new file costs openat() and statx(), a warm one only the latter: what the last look-up in the
 * directory found is what this one expects, as programs walk a directory. */
int qos_inodes_lookup(QosInodes *inodes, const QosLoan *parent, const char *name, QosUser *user,
                      struct fuse_entry_param *ret_entry)
{
    /* Where the kernel does not tell the mount, only a descriptor tells its flags. */
    gboolean expected = inodes->has_mount_ids && g_atomic_int_get(&parent->inode->finds_known) != 0;
    gboolean known;
    QosFacts facts = {0};
    int error, fd;

    if (expected) {
        error = count_warm_lookup(inodes, parent, name, ret_entry);
        if (error != 0 || ret_entry->ino != 0)
            return error;
    }
    fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    error = qos_inodes_examine(inodes, fd, "", &facts);
    if (error != 0) {
        close(fd);
        return error;
    }
    error = count_lookup(inodes, fd, &facts, user, ret_entry, &known, NULL);
    if (error == 0 && known != expected)
        g_atomic_int_set(&parent->inode->finds_known, known);
    return error;
}

/* An O_PATH descriptor of the file that `fd` is: >= 0, or -errno. */
static int open_path(int fd)
{
    int path_fd = open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLOEXEC);
    char path[QOS_PROC_PATH_MAX];

    /* Some containers refuse that; this way costs three times as much. */
    if (path_fd < 0) {
        qos_proc_path(fd, path);
        path_fd = open(path, O_PATH | O_CLOEXEC);
    }
    return path_fd >= 0 ? path_fd : -errno;
}

int qos_inodes_adopt(QosInodes *inodes, int fd, QosUser *user, struct fuse_entry_param *ret_entry,
                     QosLoan *ret_loan)
{
    QosFacts facts = {0};
    int error, path_fd = open_path(fd);
    gboolean known;

    if (path_fd < 0)
        return path_fd;
    error = qos_inodes_examine(inodes, path_fd, "", &facts);
    if (error == 0)
        return count_lookup(inodes, path_fd, &facts, user, ret_entry, &known, ret_loan);
    close(path_fd);
    return error;
}
