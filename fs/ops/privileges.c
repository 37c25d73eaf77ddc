/*
 * Telling the kernel that set-user-ID and set-group-ID bits have gone (fs/ops/privileges.h).
 */
#include "fs/ops/privileges.h"

#include <sys/stat.h>

#include "fs/store/open_file.h"
#include "fs/store/passthrough.h"

/* The kernel takes the attributes in such an answer however late it comes. */
static gboolean is_taken_late(const QosOp *op)
{
    switch (op->entry.request.opcode) {
    case QOS_OP_SETATTR:
    case QOS_OP_LINK:
    case QOS_OP_CREATE:
    case QOS_OP_MKNOD:
        return TRUE;
    default:
        return FALSE;
    }
}

/* In this order, because an open for passthrough makes itself known first and then looks for shown
 * bits. */
gboolean qos_privileges_may_believe(const QosOp *op, fuse_ino_t ino, mode_t mode)
{
    if (!S_ISREG(mode) || (mode & (S_ISUID | S_ISGID)) == 0)
        return TRUE;
    return qos_inodes_show_privileges(op->fs->inodes, ino, mode) && !is_taken_late(op) &&
           !qos_passthroughs_were_used(op->fs->passthroughs);
}

void qos_privileges_forget_attributes(const QosOp *op, fuse_ino_t ino)
{
    /* An offset below 0: the attributes alone. A file that the kernel does not know is no error. */
    fuse_lowlevel_notify_inval_inode(op->fs->session, ino, -1, 0);
}

/* Where the store does not say which bits are left, none are. */
static void look_again(const QosOp *op, const QosInodeRef *file, int fd, guint known)
{
    struct stat stat = {0};

    if (fstat(fd, &stat) == 0 && !qos_privileges_are_lost(known, stat.st_mode))
        return;
    qos_privileges_forget_attributes(op, qos_inode_ref_id(file));
    qos_inode_ref_lose_privileges(file, known, stat.st_mode);
}

void qos_privileges_note_change(const QosOp *op, const QosOpenFile *open_file)
{
    const guint known = qos_inode_ref_privileges(&open_file->file);

    if (known != 0)
        look_again(op, &open_file->file, open_file->fd, known);
}

void qos_privileges_note_failure(const QosOp *op, const QosInodeRef *file)
{
    const guint known = qos_inode_ref_privileges(file);

    if (known != 0)
        look_again(op, file, file->fd, known);
}

void qos_privileges_note_passthrough(const QosOp *op, const QosOpenFile *open_file)
{
    if (qos_inode_ref_privileges(&open_file->file) != 0)
        qos_privileges_forget_attributes(op, qos_inode_ref_id(&open_file->file));
}
