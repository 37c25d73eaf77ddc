/*
 * Attributes of files and of the file system: reading and setting them.
 *
 * Both work through the inode, even if the kernel names an open file. Only truncation needs the
 * open file, because that may be open for writing although its mode forbids it now.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fs/caller/proc.h"
#include "fs/control/control.h"
#include "fs/filelocks/filelocks.h"
#include "fs/ops/operations.h"
#include "fs/ops/privileges.h"
#include "fs/ops/reply.h"
#include "fs/ops/rights.h"
#include "fs/store/open_file.h"
#include "fs/store/root_attr.h"

typedef struct {
    QosOp op;
    fuse_ino_t ino;
    const struct stat *stat; /* setattr */
    int to_set;
    int mask; /* access, statx */
    int flags;
} AttrOp;

static AttrOp *attr_op_new(fuse_req_t request, fuse_ino_t ino, QosOpcode opcode,
                           int (*run)(QosOp *op))
{
    AttrOp *attr = qos_op_new(request, sizeof(*attr), opcode, run);

    attr->ino = attr->op.target.node = ino;
    return attr;
}

/* Takes from the attributes what may not be told of the file. Returns -EACCES for a program that
 * opens a device that may not be opened there. The kernel asks for attributes before that open, by
 * the same GETATTR as for a program that only looks, and the open would give ENXIO. */
static int disarm(const QosOp *op, const QosInodeRef *file, struct stat *stat)
{
    const int error = qos_inode_ref_disarm(file, &stat->st_mode, &stat->st_rdev);

    if ((error != 0 || qos_inode_ref_hides_device(file)) &&
        op->entry.request.opcode == QOS_OP_GETATTR &&
        qos_call_opens(qos_proc_call(fuse_req_ctx(op->fuse)->pid)))
        return -EACCES;
    return error;
}

/* `fd`: the file, by what there is of it. */
static int reply_attributes(QosOp *op, fuse_ino_t ino, const QosInodeRef *file, int fd)
{
    struct stat *stat = &op->reply.attr.stat;
    mode_t stored;
    int error;

    op->progress.asked = qos_clock_now();
    if (fstatat(fd, "", stat, AT_EMPTY_PATH) != 0)
        return -errno;
    stored = stat->st_mode;
    error = disarm(op, file, stat);
    if (error != 0)
        return error;
    if (ino == FUSE_ROOT_ID)
        qos_root_attr_note(op->fs->root_attr, stat);
    stat->st_ino = qos_inodes_shown(op->fs->inodes, stat->st_dev, stat->st_ino);
    op->reply.kind = QOS_REPLY_ATTR;
    op->reply.attr.timeout = qos_reply_attributes(op, ino, file, stat, stored);
    return 0;
}

static int run_getattr(QosOp *op)
{
    AttrOp *attr = (AttrOp *)op;
    g_auto(QosInodeRef) file = {0};
    int error;

    if (op->open_file != NULL)
        return reply_attributes(op, attr->ino, &op->open_file->file, op->open_file->fd);
    error = qos_inodes_get(op->fs->inodes, attr->ino, &file);
    return error != 0 ? error : reply_attributes(op, attr->ino, &file, file.fd);
}

void qosfs_op_getattr(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    AttrOp *attr;
    struct stat stat;

    if (qos_control_owns(ino)) {
        qos_control_getattr(request, ino);
        return;
    }
    if (ino == FUSE_ROOT_ID && qos_root_attr_recall(qos_fs(request)->root_attr, &stat)) {
        fuse_reply_attr(request, &stat, 0);
        return;
    }
    attr = attr_op_new(request, ino, QOS_OP_GETATTR, run_getattr);
    if (info != NULL)
        qos_op_use_open_file(&attr->op, info);
    attr->op.target.may_be_unasked = TRUE;
    qos_op_submit(&attr->op);
}

/* --- setattr --- */

int qos_attr_kill_privileges(int fd)
{
    char path[QOS_PROC_PATH_MAX];
    struct stat stat;
    mode_t mode;

    if (fstat(fd, &stat) != 0)
        return -errno;
    mode = stat.st_mode & ~S_ISUID;
    if ((stat.st_mode & S_IXGRP) != 0)
        mode &= ~S_ISGID;
    if (!S_ISREG(stat.st_mode) || mode == stat.st_mode)
        return 0;
    qos_proc_path(fd, path);
    return chmod(path, mode & 07777) == 0 ? 0 : -errno;
}

static int set_size(const AttrOp *attr, int path_fd, const char *path)
{
    const QosOpenFile *open_file = attr->op.open_file;
    int result;

    if (open_file != NULL && qos_filelocks_are_lost(attr->op.fs->filelocks, open_file))
        return -EIO;
    if (qos_op_keeps_suid(&attr->op, (attr->to_set & FUSE_SET_ATTR_KILL_SUID) != 0))
        qos_cred_give(QOS_CAPABILITY(CAP_FSETID));
    result = open_file != NULL ? ftruncate(open_file->fd, attr->stat->st_size)
                               : truncate(path, attr->stat->st_size);
    if (result != 0)
        return -errno;
    /* The store took it for root's doing. */
    if ((attr->to_set & FUSE_SET_ATTR_KILL_SUID) != 0 && qos_cred_keeps_suid())
        return qos_attr_kill_privileges(path_fd);
    return 0;
}

static struct timespec time_to_set(int to_set, int set, int now, struct timespec time)
{
    if ((to_set & set) == 0)
        time.tv_nsec = UTIME_OMIT;
    else if ((to_set & now) != 0)
        time.tv_nsec = UTIME_NOW;
    return time;
}

static int set_times(const AttrOp *attr, const char *path)
{
    struct timespec times[2] = {
        time_to_set(attr->to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW,
                    attr->stat->st_atim),
        time_to_set(attr->to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW,
                    attr->stat->st_mtim),
    };

    return utimensat(AT_FDCWD, path, times, 0) == 0 ? 0 : -errno;
}

/* A SETATTR of nothing at all has two meanings. One is chown(-1, -1), which takes suid and sgid
 * bits away; the other is that the kernel wants them gone before a program writes. The caller need
 * not own the file, and may be refused: then the write takes them away. So a failure is no
 * error. */
static int set_owner(const AttrOp *attr, int fd)
{
    gboolean sets_uid = (attr->to_set & FUSE_SET_ATTR_UID) != 0;
    gboolean sets_gid = (attr->to_set & FUSE_SET_ATTR_GID) != 0;
    uid_t uid = sets_uid ? attr->stat->st_uid : (uid_t)-1;
    gid_t gid = sets_gid ? attr->stat->st_gid : (gid_t)-1;

    if (!sets_uid && !sets_gid && attr->to_set != 0)
        return 0;
    if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 && attr->to_set != 0)
        return -errno;
    return 0;
}

static int set_attributes(const AttrOp *attr, int fd)
{
    const int to_set = attr->to_set;
    char path[QOS_PROC_PATH_MAX];
    int error = set_owner(attr, fd);

    if (error != 0)
        return error;
    qos_proc_path(fd, path);
    if ((to_set & FUSE_SET_ATTR_MODE) != 0 && chmod(path, attr->stat->st_mode & 07777) != 0)
        return -errno;
    if ((to_set & FUSE_SET_ATTR_SIZE) != 0)
        error = set_size(attr, fd, path);
    if (error == 0 && (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) != 0)
        error = set_times(attr, path);
    return error;
}

static int run_setattr(QosOp *op)
{
    AttrOp *attr = (AttrOp *)op;
    g_auto(QosInodeRef) file = {0};
    QosFileChanges *changes;
    int error = qos_inodes_get(op->fs->inodes, attr->ino, &file);

    if (error != 0)
        return error;
    if ((attr->to_set & FUSE_SET_ATTR_MODE) != 0 && (attr->stat->st_mode & S_ISGID) != 0)
        qos_rights_claim(op, QOS_CAPABILITY(CAP_FSETID));
    changes = qos_inode_ref_begin_change(&file, file.fd);
    qos_file_changes_set_rights(changes, 1);
    error = set_attributes(attr, file.fd);
    qos_file_changes_end(changes);
    if (error != 0)
        qos_privileges_note_failure(op, &file);
    else
        error = reply_attributes(op, attr->ino, &file, file.fd);
    qos_file_changes_set_rights(changes, -1);
    return error;
}

void qosfs_op_setattr(fuse_req_t request, fuse_ino_t ino, struct stat *stat, int to_set,
                      struct fuse_file_info *info)
{
    AttrOp *attr;

    if (qos_control_owns(ino)) {
        qos_control_setattr(request, ino, to_set);
        return;
    }
    attr = attr_op_new(request, ino, QOS_OP_SETATTR, run_setattr);
    attr->stat = qos_op_memdup(&attr->op, stat, sizeof(*stat));
    attr->to_set = to_set;
    if (info != NULL)
        qos_op_use_open_file(&attr->op, info);
    qos_op_lock_file(&attr->op, ino, attr->op.open_file);
    qos_op_submit(&attr->op);
}

/* --- access, statx, statfs --- */

static int run_access(QosOp *op)
{
    AttrOp *attr = (AttrOp *)op;
    g_auto(QosInodeRef) file = {0};
    int error = qos_inodes_get(op->fs->inodes, attr->ino, &file);

    if (error != 0)
        return error;
    return faccessat(file.fd, "", attr->mask, AT_EACCESS | AT_EMPTY_PATH) == 0 ? 0 : -errno;
}

void qosfs_op_access(fuse_req_t request, fuse_ino_t ino, int mask)
{
    AttrOp *attr;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, 0);
        return;
    }
    attr = attr_op_new(request, ino, QOS_OP_ACCESS, run_access);
    attr->mask = mask;
    qos_op_submit(&attr->op);
}

static int run_statx(QosOp *op)
{
    AttrOp *attr = (AttrOp *)op;
    struct statx *x = &op->reply.statx.statx;
    g_auto(QosInodeRef) file = {0};
    int flags = AT_EMPTY_PATH | (attr->flags & AT_STATX_SYNC_TYPE);
    int error = qos_inodes_get(op->fs->inodes, attr->ino, &file);

    if (error != 0)
        return error;
    if (statx(file.fd, "", flags, (unsigned)attr->mask, x) != 0)
        return -errno;
    mode_t mode = x->stx_mode;
    dev_t device = makedev(x->stx_rdev_major, x->stx_rdev_minor);
    error = qos_inode_ref_disarm(&file, &mode, &device);
    if (error != 0)
        return error;
    const mode_t stored = x->stx_mode;
    x->stx_mode = (guint16)mode;
    x->stx_rdev_major = major(device);
    x->stx_rdev_minor = minor(device);
    x->stx_ino =
        qos_inodes_shown(op->fs->inodes, makedev(x->stx_dev_major, x->stx_dev_minor), x->stx_ino);
    const struct timespec modified = {x->stx_mtime.tv_sec, x->stx_mtime.tv_nsec};
    const struct stat stat = {.st_mode = x->stx_mode,
                              .st_uid = x->stx_uid,
                              .st_gid = x->stx_gid,
                              .st_mtim = modified,
                              .st_size = (off_t)x->stx_size};
    op->reply.kind = QOS_REPLY_STATX;
    op->reply.statx.timeout = qos_reply_attributes(op, attr->ino, &file, &stat, stored);
    return 0;
}

void qosfs_op_statx(fuse_req_t request, fuse_ino_t ino, int flags, int mask,
                    struct fuse_file_info *info)
{
    AttrOp *attr;

    if (qos_control_owns(ino)) {
        qos_control_statx(request, ino);
        return;
    }
    attr = attr_op_new(request, ino, QOS_OP_GETATTR, run_statx);
    attr->flags = flags;
    attr->mask = mask;
    if (info != NULL)
        qos_op_use_open_file(&attr->op, info);
    qos_op_submit(&attr->op);
}

static int run_statfs(QosOp *op)
{
    AttrOp *attr = (AttrOp *)op;
    g_auto(QosInodeRef) file = {0};
    int error = qos_inodes_get(op->fs->inodes, attr->ino, &file);

    if (error != 0)
        return error;
    if (fstatvfs(file.fd, &op->reply.statfs) != 0)
        return -errno;
    op->reply.kind = QOS_REPLY_STATFS;
    return 0;
}

void qosfs_op_statfs(fuse_req_t request, fuse_ino_t ino)
{
    if (qos_control_owns(ino))
        ino = FUSE_ROOT_ID;
    qos_op_submit(&attr_op_new(request, ino, QOS_OP_STATFS, run_statfs)->op);
}
