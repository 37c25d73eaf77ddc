/*
 * From a name in the store to an inode of the table (fs/store/inode.h).
 *
 * A look-up opens the file behind the name, asks for its key, and finds or makes the inode with
 * that key. If that inode is closed, it also compares the file handle. If the file is likely to be
 * open, the key is asked for by the name alone, and nothing is opened.
 *
 * A name that is to be removed is looked up only if inodes are closed, or may soon be, so that a
 * removal costs nothing more while few files are known. NFS is different, because it keeps a
 * removed file under another name while the daemon has a descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fs/store/inode_state.h"

/* --- look-ups --- */

/* The inode that has the key of `facts`. The kernel keeps the number of a device node. If it must
 * be told another number than before, it needs another inode. */
static QosInode *inode_of_locked(QosInodes *inodes, const QosFacts *facts)
{
    QosInode *inode = qos_inode_by_key_locked(inodes, &facts->key);

    if (inode == NULL || inode->hides_device == (guint)facts->hides_device)
        return inode;
    qos_inode_detach_key_locked(inodes, inode);
    return NULL;
}

/* The same, if it is the file with this handle. An open inode is for certain. A closed one loses
 * its key if that has become another file's. */
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

static struct fuse_entry_param entry_of(const QosFacts *facts, fuse_ino_t id)
{
    return (struct fuse_entry_param){
        .ino = id, .attr = facts->stat, .attr_timeout = facts->gives_rights ? -1 : 0};
}

/* Counts a look-up of the file that is `fd` (O_PATH, taken over) and of which `facts` are.
 * *ret_known: it was open. *ret_ref: the file, where that is not NULL. */
static int count_lookup(QosInodes *inodes, int fd, const QosFacts *facts, QosUser *user,
                        struct fuse_entry_param *ret_entry, gboolean *ret_known,
                        QosInodeRef *ret_ref)
{
    QosInode *inode;
    gboolean has_surplus;
    int error;

    if (facts->is_mount_root)
        qos_mounts_enter(inodes->mounts, facts->key.mount, fd);
    gboolean has_room = qos_inodes_await_closes(inodes);
    qos_mutex_lock(&inodes->lock);
    inode = identify_locked(inodes, facts, fd);
    error = inode != NULL ? 0 : has_room ? qos_inodes_find_room_locked(inodes, user) : -ENFILE;
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
    if (ret_ref != NULL) {
        qos_inode_get_locked(inode);
        *ret_ref = (QosInodeRef){.inodes = inodes, .inode = inode, .fd = inode->fd};
    }
    qos_inode_update_locked(inodes, inode);
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

/* Counts a look-up of an open file by its key alone: its descriptor pins it, so that the key can be
 * no other's. For any other file, ret_entry->ino is 0. */
static int count_warm_lookup(QosInodes *inodes, const QosInodeRef *parent, const char *name,
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
        qos_inode_update_locked(inodes, inode);
        ret_entry->ino = inode->id;
    }
    qos_mutex_unlock(&inodes->lock);
    return 0;
}

/* A new file costs openat() and statx(), an open one only the latter: what the last look-up in the
 * directory found is what this one expects, as programs walk a directory. */
int qos_inodes_lookup(QosInodes *inodes, const QosInodeRef *parent, const char *name, QosUser *user,
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
                     QosInodeRef *ret_ref)
{
    QosFacts facts = {0};
    int error, path_fd = open_path(fd);
    gboolean known;

    if (path_fd < 0)
        return path_fd;
    error = qos_inodes_examine(inodes, path_fd, "", &facts);
    if (error == 0)
        return count_lookup(inodes, path_fd, &facts, user, ret_entry, &known, ret_ref);
    close(path_fd);
    return error;
}

/* --- before a name goes (inode_removed.c) --- */

/* No inode is closed before a further eighth of their descriptors is taken. */
static gboolean are_any_cold_soon(QosInodes *inodes)
{
    qos_mutex_lock(&inodes->lock);
    const gboolean are_some = g_hash_table_size(inodes->by_id) > inodes->open_count;
    const gboolean are_soon = inodes->open_count >= inodes->open_max - inodes->open_max / 8;
    qos_mutex_unlock(&inodes->lock);
    return are_some || are_soon;
}

/* The inode of the file that the name is, 0: it is not known. */
static fuse_ino_t find_name(QosInodes *inodes, const QosInodeRef *parent, const char *name)
{
    QosFacts facts = {0};

    if (qos_inodes_examine(inodes, parent->fd, name, &facts) != 0)
        return 0;
    qos_mutex_lock(&inodes->lock);
    const QosInode *inode = qos_inode_by_key_locked(inodes, &facts.key);
    const fuse_ino_t id = inode != NULL ? inode->id : 0;
    qos_mutex_unlock(&inodes->lock);
    return id;
}

/* NFS shall find no descriptor of the daemon's: the inode is closed. */
static void let_go(QosInodes *inodes, fuse_ino_t id)
{
    QosInode *inode;
    int fd;

    qos_mutex_lock(&inodes->lock);
    inode = qos_inode_by_id_locked(inodes, id);
    if (inode != NULL && inode->is_directory)
        inode = NULL;
    if (inode != NULL)
        qos_inode_get_locked(inode);
    qos_mutex_unlock(&inodes->lock);
    if (inode == NULL)
        return;
    fd = qos_inode_close(inodes, inode);
    if (fd >= 0)
        close(fd);
    qos_inode_put(inodes, inode);
}

void qos_inodes_begin_removal(QosInodes *inodes, const QosInodeRef *parent, const char *name,
                              QosInodeRef *ret_ref)
{
    const gboolean is_nfs = qos_mounts_keep_removed(inodes->mounts, parent->inode->key.mount);
    fuse_ino_t id;

    if (!is_nfs && !are_any_cold_soon(inodes))
        return;
    id = find_name(inodes, parent, name);
    if (id == 0)
        return;
    if (is_nfs)
        let_go(inodes, id);
    else /* one that cannot be found again is lost already */
        (void)qos_inodes_get(inodes, id, ret_ref);
}
