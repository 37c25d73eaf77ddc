/*
 * Operations on names: finding, making, linking, moving and removing files.
 *
 * The store makes a file under the caller's identity and umask, so it belongs to the caller.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/ops/operations.h"
#include "fs/ops/reply.h"
#include "fs/ops/rights.h"
#include "fs/transport/reply_buffer.h"

typedef struct {
    QosOp op;
    fuse_ino_t parent;
    const char *name;
    fuse_ino_t other; /* link: the file; rename: the new parent */
    const char *text; /* symlink: the target; rename: the new name */
    mode_t mode;
    dev_t device;
    unsigned flags;
} NameOp;

static NameOp *name_op_new(fuse_req_t request, fuse_ino_t parent, const char *name,
                           QosOpcode opcode, int (*run)(QosOp *op))
{
    NameOp *op = qos_op_new(request, sizeof(*op), opcode, run);

    op->parent = op->op.target.node = parent;
    if (parent != 0)
        qos_op_lock_directory(&op->op, parent);
    op->name = op->op.target.name = name == NULL ? NULL : qos_op_strdup(&op->op, name);
    return op;
}

/* The names of control belong to it alone. TRUE where the request was answered. */
static gboolean refuse(fuse_req_t request, fuse_ino_t parent, const char *name, int error)
{
    if (qos_control_owns(parent))
        error = EPERM;
    else if (!qos_control_is_name(parent, name))
        return FALSE;
    fuse_reply_err(request, error);
    return TRUE;
}

/* --- look-ups --- */

static int reply_entry(QosOp *op, const QosInodeRef *parent, const char *name)
{
    int error =
        qos_inodes_lookup(op->fs->inodes, parent, name, op->entry.request.user, &op->reply.entry);

    if (error != 0)
        return error;
    op->reply.kind = QOS_REPLY_ENTRY;
    qos_reply_entry(op, &op->reply.entry);
    return 0;
}

static int reply_absence(QosOp *op)
{
    const double timeout = qos_reply_absence(op);

    if (timeout == 0)
        return -ENOENT;
    op->reply.kind = QOS_REPLY_ENTRY;
    op->reply.entry = (struct fuse_entry_param){.entry_timeout = timeout};
    return 0;
}

static int run_lookup(QosOp *op)
{
    NameOp *lookup = (NameOp *)op;
    g_auto(QosInodeRef) parent = {0};
    int error = qos_inodes_get(op->fs->inodes, lookup->parent, &parent);

    if (error != 0)
        return error;
    error = reply_entry(op, &parent, lookup->name);
    return error == -ENOENT ? reply_absence(op) : error;
}

void qosfs_op_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    if (qos_control_owns(parent) || qos_control_is_name(parent, name)) {
        qos_control_lookup(request, parent, name);
        return;
    }
    qos_op_submit(&name_op_new(request, parent, name, QOS_OP_LOOKUP, run_lookup)->op);
}

void qosfs_op_forget(fuse_req_t request, fuse_ino_t ino, uint64_t count)
{
    qos_inodes_forget(qos_fs(request)->inodes, ino, count);
    fuse_reply_none(request);
}

void qosfs_op_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets)
{
    QosInodes *inodes = qos_fs(request)->inodes;

    for (size_t i = 0; i < count; i++)
        qos_inodes_forget(inodes, forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(request);
}

static int run_readlink(QosOp *op)
{
    NameOp *link = (NameOp *)op;
    char *target = qos_reply_buffer(PATH_MAX);
    g_auto(QosInodeRef) file = {0};
    int error = qos_inodes_get(op->fs->inodes, link->other, &file);
    ssize_t length;

    if (error != 0)
        return error;
    length = readlinkat(file.fd, "", target, PATH_MAX);
    if (length < 0)
        return -errno;
    if (length == PATH_MAX)
        return -ENAMETOOLONG;
    op->reply.kind = QOS_REPLY_DATA;
    op->reply.data.bytes = target;
    op->reply.data.length = (size_t)length;
    return 0;
}

void qosfs_op_readlink(fuse_req_t request, fuse_ino_t ino)
{
    NameOp *link;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    link = name_op_new(request, 0, NULL, QOS_OP_READLINK, run_readlink);
    link->other = ino;
    /* Every program that walks through the link waits for its page. */
    if (link->op.fs->config.cache != QOS_CACHE_NONE)
        qos_op_lock_directory(&link->op, ino);
    qos_op_submit(&link->op);
}

/* --- making --- */

static int make_node(const NameOp *make, int parent)
{
    return mknodat(parent, make->name, make->mode, make->device);
}

static int make_directory(const NameOp *make, int parent)
{
    return mkdirat(parent, make->name, make->mode);
}

static int make_symlink(const NameOp *make, int parent)
{
    return symlinkat(make->text, parent, make->name);
}

static int run_make(QosOp *op, int (*make_in)(const NameOp *make, int parent))
{
    NameOp *make = (NameOp *)op;
    g_auto(QosInodeRef) parent = {0};
    int error = qos_inodes_get(op->fs->inodes, make->parent, &parent);

    if (error == 0)
        error = qos_inodes_find_room(op->fs->inodes, op->entry.request.user);
    if (error != 0)
        return error;
    qos_cred_umask(fuse_req_ctx(op->fuse)->umask);
    if ((make->mode & S_ISGID) != 0)
        qos_rights_claim(op, QOS_CAPABILITY(CAP_FSETID));
    return make_in(make, parent.fd) == 0 ? reply_entry(op, &parent, make->name) : -errno;
}

static int run_mknod(QosOp *op)
{
    return run_make(op, make_node);
}

static int run_mkdir(QosOp *op)
{
    return run_make(op, make_directory);
}

static int run_symlink(QosOp *op)
{
    return run_make(op, make_symlink);
}

void qosfs_op_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                    dev_t device)
{
    NameOp *make;

    if (refuse(request, parent, name, EEXIST))
        return;
    make = name_op_new(request, parent, name, QOS_OP_MKNOD, run_mknod);
    make->mode = mode;
    make->device = device;
    qos_op_submit(&make->op);
}

void qosfs_op_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode)
{
    NameOp *make;

    if (refuse(request, parent, name, EEXIST))
        return;
    make = name_op_new(request, parent, name, QOS_OP_MKDIR, run_mkdir);
    make->mode = mode;
    qos_op_submit(&make->op);
}

void qosfs_op_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name)
{
    NameOp *make;

    if (refuse(request, parent, name, EEXIST))
        return;
    make = name_op_new(request, parent, name, QOS_OP_SYMLINK, run_symlink);
    make->text = qos_op_strdup(&make->op, target);
    qos_op_submit(&make->op);
}

/* 0 or -errno: -ESTALE where the store has lost the file, and not the folder of its new name. */
static int make_link(const QosInodeRef *file, const QosInodeRef *parent, const char *name)
{
    char path[QOS_PROC_PATH_MAX];
    struct stat stat;
    int error;

    qos_proc_path(file->fd, path);
    if (linkat(AT_FDCWD, path, parent->fd, name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    error = -errno;
    return error == -ENOENT && fstat(file->fd, &stat) != 0 ? -ESTALE : error;
}

static int run_link(QosOp *op)
{
    NameOp *link = (NameOp *)op;
    g_auto(QosInodeRef) file = {0};
    g_auto(QosInodeRef) parent = {0};
    int error = qos_inodes_get(op->fs->inodes, link->other, &file);

    if (error == 0)
        error = qos_inodes_get(op->fs->inodes, link->parent, &parent);
    if (error != 0)
        return error;
    error = make_link(&file, &parent, link->name);
    if (error == 0)
        error = qos_inodes_adopt(op->fs->inodes, file.fd, op->entry.request.user, &op->reply.entry,
                                 NULL);
    if (error != 0)
        return error;
    op->reply.kind = QOS_REPLY_ENTRY;
    qos_reply_entry(op, &op->reply.entry);
    return 0;
}

void qosfs_op_link(fuse_req_t request, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    NameOp *link;

    if (refuse(request, parent, name, EEXIST))
        return;
    if (qos_control_owns(ino)) {
        fuse_reply_err(request, EPERM);
        return;
    }
    link = name_op_new(request, parent, name, QOS_OP_LINK, run_link);
    link->other = link->op.target.other_node = ino;
    qos_op_submit(&link->op);
}

/* --- removing and moving --- */

static int remove_name(QosOp *op, int flags)
{
    NameOp *remove = (NameOp *)op;
    g_auto(QosInodeRef) parent = {0};
    g_auto(QosInodeRef) file = {0};
    int error = qos_inodes_get(op->fs->inodes, remove->parent, &parent);

    if (error != 0)
        return error;
    qos_inodes_begin_removal(op->fs->inodes, &parent, remove->name, &file);
    return unlinkat(parent.fd, remove->name, flags) == 0 ? 0 : -errno;
}

static int run_unlink(QosOp *op)
{
    return remove_name(op, 0);
}

static int run_rmdir(QosOp *op)
{
    return remove_name(op, AT_REMOVEDIR);
}

static void submit_removal(fuse_req_t request, fuse_ino_t parent, const char *name,
                           QosOpcode opcode, int (*run)(QosOp *op))
{
    NameOp *remove;

    if (refuse(request, parent, name, EPERM))
        return;
    remove = name_op_new(request, parent, name, opcode, run);
    qos_op_submit(&remove->op);
}

void qosfs_op_unlink(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    submit_removal(request, parent, name, QOS_OP_UNLINK, run_unlink);
}

void qosfs_op_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    submit_removal(request, parent, name, QOS_OP_RMDIR, run_rmdir);
}

static int run_rename(QosOp *op)
{
    NameOp *move = (NameOp *)op;
    g_auto(QosInodeRef) parent = {0};
    g_auto(QosInodeRef) new_parent = {0};
    g_auto(QosInodeRef) file = {0};
    int error = qos_inodes_get(op->fs->inodes, move->parent, &parent);

    if (error == 0)
        error = qos_inodes_get(op->fs->inodes, move->other, &new_parent);
    if (error != 0)
        return error;
    qos_inodes_begin_removal(op->fs->inodes, &new_parent, move->text, &file);
    /* RENAME_WHITEOUT makes a node. */
    qos_cred_umask(fuse_req_ctx(op->fuse)->umask);
    return renameat2(parent.fd, move->name, new_parent.fd, move->text, move->flags) == 0 ? 0
                                                                                         : -errno;
}

void qosfs_op_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                     const char *new_name, unsigned flags)
{
    NameOp *move;

    if (refuse(request, parent, name, EPERM) || refuse(request, new_parent, new_name, EPERM))
        return;
    move = name_op_new(request, parent, name, QOS_OP_RENAME, run_rename);
    move->other = move->op.target.other_node = new_parent;
    move->text = qos_op_strdup(&move->op, new_name);
    move->op.target.other_name = move->text;
    move->op.target.moves_name = (flags & ~(unsigned)RENAME_NOREPLACE) == 0;
    move->flags = flags;
    qos_op_submit(&move->op);
}
