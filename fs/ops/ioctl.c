/*
 * The ioctls about a file's flags, project and version: what chattr, lsattr and xfs_io use. Each is
 * named here, with what its argument really is: the kernel derives the sizes from the command's
 * number, which says "long" where these calls read and write an int.
 *
 * The kernel checks the caller's rights for FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR before it asks.
 * It does not know the numbers of 32-bit programs (FS_IOC32_...) from a 64-bit program, and passes
 * them on unchecked; stores answer ENOTTY then, and so does this. It never checks
 * FS_IOC_SETVERSION: the store does.
 *
 * The kernel opens the file for each of them by itself; where one sets something it holds the
 * file's lock from before that open until the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "fs/control/control.h"
#include "fs/ops/operations.h"
#include "fs/ops/privileges.h"
#include "fs/store/open_file.h"

#ifndef FS_IOC_SETVERSION
#define FS_IOC_SETVERSION _IOW('v', 2, long)
#endif

typedef struct {
    unsigned int command;
    unsigned int native; /* what the store is asked for */
    size_t size;         /* of the argument */
    gboolean writes;     /* the argument comes from the caller */
    gboolean reads;      /* it goes to the caller */
    gboolean is_32bit;   /* a number that 32-bit programs use */
} Command;

static const Command commands[] = {
    {FS_IOC_GETFLAGS, FS_IOC_GETFLAGS, sizeof(int), FALSE, TRUE, FALSE},
    {FS_IOC_SETFLAGS, FS_IOC_SETFLAGS, sizeof(int), TRUE, FALSE, FALSE},
    {FS_IOC_GETVERSION, FS_IOC_GETVERSION, sizeof(int), FALSE, TRUE, FALSE},
    {FS_IOC_SETVERSION, FS_IOC_SETVERSION, sizeof(int), TRUE, FALSE, FALSE},
    {FS_IOC32_GETFLAGS, FS_IOC_GETFLAGS, sizeof(int), FALSE, TRUE, TRUE},
    {FS_IOC32_SETFLAGS, FS_IOC_SETFLAGS, sizeof(int), TRUE, FALSE, TRUE},
    {FS_IOC32_GETVERSION, FS_IOC_GETVERSION, sizeof(int), FALSE, TRUE, TRUE},
    {FS_IOC32_SETVERSION, FS_IOC_SETVERSION, sizeof(int), TRUE, FALSE, TRUE},
    {FS_IOC_FSGETXATTR, FS_IOC_FSGETXATTR, sizeof(struct fsxattr), FALSE, TRUE, FALSE},
    {FS_IOC_FSSETXATTR, FS_IOC_FSSETXATTR, sizeof(struct fsxattr), TRUE, FALSE, FALSE},
};

typedef union {
    int number;
    long room; /* a store may write what the command's number says */
    struct fsxattr xattr;
} Argument;

typedef struct {
    QosOp op;
    const Command *command;
    Argument argument;
    size_t output_size;
} IoctlOp;

static const Command *find_command(unsigned int number, gboolean from_32bit)
{
    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (commands[i].command == number)
            return commands[i].is_32bit == from_32bit ? &commands[i] : NULL;
    }
    return NULL;
}

static int run_ioctl(QosOp *op)
{
    IoctlOp *ioctl_op = (IoctlOp *)op;
    const Command *command = ioctl_op->command;
    int result = ioctl(op->open_file->fd, command->native, &ioctl_op->argument);

    if (result < 0)
        return -errno;
    if (command->writes) /* the time of change is another */
        qos_privileges_forget_attributes(op, op->target.node);
    op->reply.kind = QOS_REPLY_IOCTL;
    op->reply.ioctl.result = result;
    op->reply.ioctl.bytes = &ioctl_op->argument;
    op->reply.ioctl.length = command->reads ? MIN(command->size, ioctl_op->output_size) : 0;
    return 0;
}

/* The kernel's own open for an ioctl has no other flag. An open by a program has O_LARGEFILE too,
 * except by a 32-bit program, to which this does no harm. */
void qos_ioctl_note_open(QosOp *op, fuse_ino_t ino, const struct fuse_file_info *info)
{
    if (info->flags == O_RDONLY)
        qos_op_lock_file(op, ino, NULL);
}

void qosfs_op_ioctl(fuse_req_t request, fuse_ino_t ino, unsigned int number,
                    G_GNUC_UNUSED void *argument, struct fuse_file_info *info, unsigned flags,
                    const void *input, size_t input_size, size_t output_size)
{
    const Command *command = find_command(number, (flags & FUSE_IOCTL_COMPAT) != 0);
    IoctlOp *ioctl_op;

    if (qos_control_owns(ino) || command == NULL) {
        fuse_reply_err(request, ENOTTY);
        return;
    }
    if (command->writes && input_size < command->size) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    ioctl_op = qos_op_new(request, sizeof(*ioctl_op), QOS_OP_IOCTL, run_ioctl);
    ioctl_op->op.target.node = ino;
    ioctl_op->command = command;
    ioctl_op->output_size = output_size;
    if (command->writes)
        memcpy(&ioctl_op->argument, input, command->size);
    qos_op_use_open_file(&ioctl_op->op, info);
    qos_op_lock_file(&ioctl_op->op, ino, ioctl_op->op.open_file);
    qos_op_submit(&ioctl_op->op);
}
