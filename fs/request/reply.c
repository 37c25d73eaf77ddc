/*
 * The answer to an operation. fs/request/reply.h has the contract.
 */
#include "fs/request/reply.h"

#include <errno.h>

#include "fs/request/fs.h"
#include "fs/store/inode.h"

/* A reply fails where the connection has ended. All that the kernel knew of us ended with it, so
 * nothing is to be taken back: look-ups and open files go with their tables. */
static void send_reply(QosOp *op)
{
    const QosReply *reply = &op->reply;

    switch (reply->kind) {
    case QOS_REPLY_ERROR:
        fuse_reply_err(op->fuse, 0);
        break;
    case QOS_REPLY_NONE:
        fuse_reply_none(op->fuse);
        break;
    case QOS_REPLY_ENTRY:
        fuse_reply_entry(op->fuse, &reply->entry);
        break;
    case QOS_REPLY_CREATE:
        fuse_reply_create(op->fuse, &reply->entry, &reply->info);
        break;
    case QOS_REPLY_OPEN:
        fuse_reply_open(op->fuse, &reply->info);
        break;
    case QOS_REPLY_ATTR:
        fuse_reply_attr(op->fuse, &reply->attr.stat, reply->attr.timeout);
        break;
    case QOS_REPLY_STATX:
        fuse_reply_statx(op->fuse, 0, (struct statx *)&reply->statx.statx, reply->statx.timeout);
        break;
    case QOS_REPLY_DATA:
        fuse_reply_buf(op->fuse, reply->data.bytes, reply->data.length);
        break;
    case QOS_REPLY_WRITE:
        fuse_reply_write(op->fuse, reply->count);
        break;
    case QOS_REPLY_XATTR:
        fuse_reply_xattr(op->fuse, reply->count);
        break;
    case QOS_REPLY_STATFS:
        fuse_reply_statfs(op->fuse, &reply->statfs);
        break;
    case QOS_REPLY_SEEK:
        fuse_reply_lseek(op->fuse, reply->offset);
        break;
    case QOS_REPLY_IOCTL:
        fuse_reply_ioctl(op->fuse, reply->ioctl.result, reply->ioctl.bytes, reply->ioctl.length);
        break;
    }
}

/* The errno that the kernel is told for the store's. It would take ENOSYS for the daemon's, and
 * never send that operation again, for any file: it would go on without having opened them. It
 * takes no answer with an errno that is for kernels alone, which some stores let out. */
static int told_error(int error)
{
    const int kernel_first = 512, kernel_notsupp = 524;

    if (error == ENOSYS || error == kernel_notsupp)
        return EOPNOTSUPP;
    return error < kernel_first ? error : EIO;
}

/* Says in the log where files have run short: in the mount, or in the store or the machine. If a
 * user or job has used up its share, the log says so already. */
static void explain_shortage(const QosOp *op, int error)
{
    QosInodes *inodes = op->fs->inodes;

    if (op->progress.is_refused && error == -EMFILE)
        return;
    if (op->progress.is_refused || qos_inodes_are_short(inodes, op->entry.request.user))
        qos_inodes_explain_shortage(inodes);
    else
        g_warning_once("the store, or the machine, says that too many files are open (%s), where "
                       "the daemon may open more: see the store's own limits, and fs.file-max",
                       g_strerror(-error));
}

void qos_op_reply(QosOp *op, int error)
{
    if (op->progress.is_replied)
        return;
    op->progress.is_replied = TRUE;
    if (error == -ENFILE || error == -EMFILE)
        explain_shortage(op, error);
    if (error != 0) {
        fuse_reply_err(op->fuse, told_error(-error));
        return;
    }
    if (op->reply.open_file != NULL)
        op->reply.info.fh = (uintptr_t)op->reply.open_file;
    send_reply(op);
}
