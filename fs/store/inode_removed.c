/*
 * Files that lose their last name while the kernel knows them (fs/store/inode.h).
 *
 * A program may hold such a file without having it open: by O_PATH, or as its working directory.
 * The file lives as long as any process has a descriptor of it, and no file handle finds it again.
 * The daemon cannot tell whether a program holds it; the kernel forgets it soon if none does.
 *
 * So an inode that is to be closed keeps its descriptor if its file has no name left. It goes to
 * the queue of removed inodes, and leaves it when the kernel forgets the inode. A quarter of all
 * descriptors may be of such files, shared among users as fs/quota.h says. Beyond that the oldest
 * is given up, and the file is lost if a program still holds it.
 *
 * An inode that is already closed must be opened before its name goes. inode_lookup.c does
 * that.
 */
#include <fcntl.h>

#include "fs/quota.h"
#include "fs/store/inode_state.h"

/* A network's store is not asked for what it told before. */
static gboolean is_nameless(int fd)
{
    const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    struct statx x;

    return fd >= 0 && statx(fd, "", flags, STATX_NLINK, &x) == 0 &&
           (x.stx_mask & STATX_NLINK) != 0 && x.stx_nlink == 0;
}

void qos_inode_leave_removed_locked(QosInodes *inodes, QosInode *inode)
{
    if (!inode->is_removed)
        return;
    g_queue_unlink(&inodes->removed, &inode->clock);
    inode->is_removed = 0;
    if (inode->user != NULL)
        inode->user->removed_files--;
    g_atomic_int_or(&inode->use, QOS_USE_UPDATE);
}

/* The inode that is to be given up, referenced: the oldest; or `inode` itself, if none may go in
 * its verdict; or NULL, if there is room for another. */
static QosInode *make_room_locked(QosInodes *inodes, QosInode *inode)
{
    const guint left = inodes->removed_max - inodes->removed.length;
    const guint of_user = inode->user != NULL ? inode->user->removed_files : 0;
    const QosQuotaVerdict verdict = qos_quota_check(left, 0, of_user);
    QosInode *oldest = g_queue_peek_tail(&inodes->removed);

    if (verdict == QOS_QUOTA_FREE)
        return NULL;
    if (oldest == NULL || (verdict == QOS_QUOTA_OF_USER && oldest->user != inode->user))
        return inode;
    qos_inode_leave_removed_locked(inodes, oldest);
    qos_inode_get_locked(oldest);
    return oldest;
}

QosInode *qos_inode_keep_removed(QosInodes *inodes, QosInode *inode)
{
    QosInode *given_up;

    if (!is_nameless(inode->fd)) /* which stays while it is referenced */
        return inode;
    qos_mutex_lock(&inodes->lock);
    given_up = inode->is_removed ? NULL : make_room_locked(inodes, inode);
    if (given_up != inode && !inode->is_removed) {
        qos_inode_take_off_clock_locked(inodes, inode);
        inode->is_removed = 1;
        if (inode->user != NULL)
            inode->user->removed_files++;
        g_queue_push_head_link(&inodes->removed, &inode->clock);
    }
    qos_mutex_unlock(&inodes->lock);
    return given_up;
}
