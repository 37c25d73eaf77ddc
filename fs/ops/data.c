/*
 * Operations on the bytes of open files: read, write, sync, allocate, copy and seek.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/filelocks/filelocks.h"
#include "fs/ops/operations.h"
#include "fs/ops/privileges.h"
#include "fs/ops/rights.h"
#include "fs/store/open_file.h"
#include "fs/transport/reply_buffer.h"

/* Since Linux 6.9; older C libraries do not name it. */
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

/* The lock owner in a READ by which the kernel fills its pages, which it keeps locked meanwhile;
 * one past them bears its caller's. */
#define NO_OWNER 0

/* One request does not hold its slot for longer than this takes; the caller goes on by itself. */
#define COPY_MAX (16 << 20)

typedef struct {
    QosOp op;
    off_t offset;
    size_t size;
    const char *data; /* write: the reader's buffer, or `copy` */
    char *copy;       /* owned */
    gboolean appends; /* write */
    gboolean kills;   /* write: suid and sgid bits */
    int sync;         /* write: RWF_SYNC or RWF_DSYNC, if the open did not ask for it */
    int mode;         /* fallocate; lseek: whence; fsync: data only */
    QosOpenFile *to;  /* copy: a reference */
    off_t to_offset;
    int flags;
} DataOp;

static DataOp *data_op_new(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                           QosOpcode opcode, int (*run)(QosOp *op))
{
    DataOp *op = qos_op_new(request, sizeof(*op), opcode, run);

    op->op.target.node = ino;
    qos_op_use_open_file(&op->op, info);
    return op;
}

/* A process that had locked the file and has lost the lock must not go on as if it had it still
 * (docs/design/filelocks.md). */
static gboolean has_lost_locks(const QosOp *op)
{
    return qos_filelocks_are_lost(op->fs->filelocks, op->open_file);
}

static gboolean keeps_pages(const QosOp *op)
{
    return qos_op_locks_pages(op) && op->target.writes != QOS_WRITE_DIRECT;
}

static void clear_data(QosOp *op)
{
    DataOp *data = (DataOp *)op;

    if (keeps_pages(op))
        qos_inode_ref_count_kept(&op->open_file->file, op->target.writes != QOS_WRITE_NONE, -1);
    g_free(data->copy);
    qos_open_file_unref(data->to);
}

/* --- read --- */

/* When the kernel fills its pages, it takes a short answer for the end of the file, and shows zeros
 * to programs that have mapped it. So the store is asked what comes behind: nothing, more, or an
 * error. */
static int run_read(QosOp *op)
{
    DataOp *read_op = (DataOp *)op;
    char *buffer = qos_reply_buffer(read_op->size);
    ssize_t length;

    if (has_lost_locks(op))
        return -EIO;
    do {
        length =
            pread(op->open_file->fd, buffer + op->progress.moved,
                  read_op->size - op->progress.moved, read_op->offset + (off_t)op->progress.moved);
        if (length < 0)
            return -errno;
        op->progress.moved += (guint64)length;
    } while (op->entry.request.fills_cache && length > 0 && op->progress.moved < read_op->size);
    op->reply.kind = QOS_REPLY_DATA;
    op->reply.data.bytes = buffer;
    op->reply.data.length = op->progress.moved;
    return 0;
}

void qosfs_op_read(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                   struct fuse_file_info *info)
{
    DataOp *read_op;

    if (qos_control_owns(ino)) {
        qos_control_read(request, ino, size, offset, info);
        return;
    }
    read_op = data_op_new(request, ino, info, QOS_OP_READ, run_read);
    read_op->size = size;
    read_op->offset = offset;
    read_op->op.entry.request.bytes = size;
    read_op->op.target.start = offset;
    read_op->op.target.end =
        (gint64)size > G_MAXINT64 - offset ? G_MAXINT64 : offset + (gint64)size;
    read_op->op.target.is_untold = TRUE;
    if (info->lock_owner == NO_OWNER) {
        read_op->op.entry.request.fills_cache = TRUE;
        read_op->op.entry.request.thread = (guint)fuse_req_ctx(request)->pid;
        read_op->op.entry.number = read_op->op.number;
        read_op->op.clear = clear_data;
        qos_inode_ref_count_kept(&read_op->op.open_file->file, FALSE, 1);
        qos_op_lock_file(&read_op->op, ino, read_op->op.open_file);
    }
    qos_op_submit(&read_op->op);
}

/* --- write --- */

/* Where it appends, others may have done so too: it may come to lie behind what the kernel thinks.
 */
static void tell_of_pages(DataOp *write_op, gboolean is_write_back)
{
    QosOp *op = &write_op->op;
    gboolean is_direct =
        op->fs->config.cache == QOS_CACHE_NONE || (op->open_file->flags & O_DIRECT) != 0;

    op->target.writes = is_write_back ? QOS_WRITE_BACK
                        : is_direct   ? QOS_WRITE_DIRECT
                                      : QOS_WRITE_THROUGH;
    op->target.start = write_op->offset;
    op->target.end = write_op->appends ? G_MAXINT64 : write_op->offset + (gint64)write_op->size;
}

/* A write past the page cache that must be on the disk when it returns says so, and no FSYNC
 * follows it. After other writes the kernel sends one. */
static int sync_of_write(const DataOp *write_op, int flags)
{
    int asked = flags & ~write_op->op.open_file->flags & O_SYNC;

    if (write_op->op.target.writes != QOS_WRITE_DIRECT || asked == 0)
        return 0;
    return asked == O_DSYNC ? RWF_DSYNC : RWF_SYNC;
}

/* Kernels before 6.9 can write at an offset only through a file that does not append. Some stores
 * say only at the close that they did not take it. */
static ssize_t write_reopened(const DataOp *write_op, const struct iovec *data, off_t offset)
{
    const QosOpenFile *open_file = write_op->op.open_file;
    char path[QOS_PROC_PATH_MAX];
    ssize_t length;
    int fd, error;

    qos_proc_path(open_file->fd, path);
    qos_cred_raise();
    fd = open(path, O_WRONLY | O_CLOEXEC | (open_file->flags & O_SYNC));
    qos_cred_lower();
    if (fd < 0)
        return -1;
    length = pwritev2(fd, data, 1, offset, write_op->sync);
    error = errno;
    if (close(fd) != 0 && length >= 0)
        return -1;
    errno = error;
    return length;
}

/* Writes what has not been written yet. A file opened with O_APPEND appends, whatever the offset.
 * In two cases a WRITE differs from how the file was opened: pages of a mapping are written back to
 * their place, and fcntl(F_SETFL) changes the flag. */
static ssize_t write_data(const DataOp *write_op)
{
    const QosOpenFile *open_file = write_op->op.open_file;
    size_t moved = write_op->op.progress.moved;
    struct iovec data = {(char *)write_op->data + moved, write_op->size - moved};
    off_t offset = write_op->offset + (off_t)moved;
    gboolean appends = (open_file->flags & O_APPEND) != 0;
    int flags = write_op->sync;
    ssize_t length;

    if (write_op->appends != appends)
        flags |= write_op->appends ? RWF_APPEND : RWF_NOAPPEND;
    if (flags == 0)
        return pwrite(open_file->fd, data.iov_base, data.iov_len, offset);
    length = pwritev2(open_file->fd, &data, 1, offset, flags);
    if (length < 0 && errno == EOPNOTSUPP && (flags & RWF_NOAPPEND) != 0)
        length = write_reopened(write_op, &data, offset);
    return length;
}

/* When the kernel writes back pages, it looks only at the error, and takes the rest of a short
 * write for written. So the rest is offered to the store too, until it has taken all or says why
 * not. */
static int write_all(QosOp *op)
{
    DataOp *write_op = (DataOp *)op;
    ssize_t length;

    if (op->target.writes != QOS_WRITE_BACK && qos_op_keeps_suid(op, write_op->kills))
        qos_cred_give(QOS_CAPABILITY(CAP_FSETID));
    if (write_op->kills && qos_cred_keeps_suid()) {
        int error = qos_attr_kill_privileges(op->open_file->fd);

        if (error != 0)
            return error;
    }
    do {
        length = write_data(write_op);
        if (length < 0)
            return -errno;
        op->progress.moved += (guint64)length;
    } while (op->target.writes == QOS_WRITE_BACK && length > 0 &&
             op->progress.moved < write_op->size);
    if (op->target.writes == QOS_WRITE_BACK && op->progress.moved < write_op->size)
        return -EIO;
    op->reply.kind = QOS_REPLY_WRITE;
    op->reply.count = op->progress.moved;
    return 0;
}

/* A write that fails may have taken suid and sgid bits away all the same. */
static int run_write(QosOp *op)
{
    QosFileChanges *changes;
    int error;

    if (has_lost_locks(op))
        return -EIO;
    changes = qos_inode_ref_begin_change(&op->open_file->file, op->open_file->fd);
    if (((const DataOp *)op)->appends)
        qos_file_changes_note_append(changes, op->open_file->fd, ((const DataOp *)op)->offset);
    error = write_all(op);
    qos_file_changes_end(changes);
    qos_privileges_note_change(op, op->open_file);
    return error;
}

static void park_write(QosOp *op)
{
    DataOp *write_op = (DataOp *)op;

    write_op->copy = g_memdup2(write_op->data, write_op->size);
    write_op->data = write_op->copy;
}

void qosfs_op_write(fuse_req_t request, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                    struct fuse_file_info *info)
{
    DataOp *write_op;

    if (qos_control_owns(ino)) {
        qos_control_write(request, ino, data, size, offset, info);
        return;
    }
    write_op = data_op_new(request, ino, info, QOS_OP_WRITE, run_write);
    write_op->data = data;
    write_op->size = size;
    write_op->offset = offset;
    write_op->appends = (info->flags & O_APPEND) != 0 && !info->writepage;
    write_op->kills = info->kill_suidgid;
    tell_of_pages(write_op, info->writepage);
    write_op->op.target.is_untold = write_op->op.target.writes == QOS_WRITE_DIRECT;
    write_op->sync = sync_of_write(write_op, info->flags);
    write_op->op.entry.request.writes_back = info->writepage;
    write_op->op.park = park_write;
    write_op->op.clear = clear_data;
    write_op->op.entry.request.bytes = write_op->op.entry.request.data = size;
    if (keeps_pages(&write_op->op))
        qos_inode_ref_count_kept(&write_op->op.open_file->file, TRUE, 1);
    else
        write_op->op.target.reads_before = qos_inode_ref_reads(&write_op->op.open_file->file);
    qos_op_lock_file(&write_op->op, ino, write_op->op.open_file);
    qos_op_submit(&write_op->op);
}

/* --- the rest --- */

static int run_fsync(QosOp *op)
{
    DataOp *sync_op = (DataOp *)op;
    int fd = op->open_file->fd;

    return (sync_op->mode != 0 ? fdatasync(fd) : fsync(fd)) == 0 ? 0 : -errno;
}

/* NULL where the request was answered. */
static QosOp *sync_op_new(fuse_req_t request, fuse_ino_t ino, int data_only,
                          struct fuse_file_info *info)
{
    DataOp *sync_op;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, 0);
        return NULL;
    }
    sync_op = data_op_new(request, ino, info, QOS_OP_SYNC, run_fsync);
    sync_op->mode = data_only;
    return &sync_op->op;
}

void qosfs_op_fsync(fuse_req_t request, fuse_ino_t ino, int data_only, struct fuse_file_info *info)
{
    QosOp *op = sync_op_new(request, ino, data_only, info);

    if (op == NULL)
        return;
    qos_op_lock_file(op, ino, op->open_file);
    qos_op_submit(op);
}

void qosfs_op_fsyncdir(fuse_req_t request, fuse_ino_t ino, int data_only,
                       struct fuse_file_info *info)
{
    QosOp *op = sync_op_new(request, ino, data_only, info);

    if (op == NULL)
        return;
    qos_op_lock_directory(op, ino);
    qos_op_submit(op);
}

static int run_fallocate(QosOp *op)
{
    DataOp *allocate = (DataOp *)op;
    int fd = op->open_file->fd, error;
    QosFileChanges *changes;

    if (has_lost_locks(op))
        return -EIO;
    qos_rights_claim(op, QOS_CAPABILITY(CAP_FSETID));
    changes = qos_inode_ref_begin_change(&op->open_file->file, fd);
    error =
        fallocate(fd, allocate->mode, allocate->offset, (off_t)allocate->size) == 0 ? 0 : -errno;
    qos_file_changes_end(changes);
    qos_privileges_note_change(op, op->open_file);
    return error;
}

void qosfs_op_fallocate(fuse_req_t request, fuse_ino_t ino, int mode, off_t offset, off_t length,
                        struct fuse_file_info *info)
{
    DataOp *allocate;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, EPERM);
        return;
    }
    allocate = data_op_new(request, ino, info, QOS_OP_FALLOCATE, run_fallocate);
    allocate->mode = mode;
    allocate->offset = offset;
    allocate->size = (size_t)length;
    qos_op_lock_file(&allocate->op, ino, allocate->op.open_file);
    qos_op_submit(&allocate->op);
}

static int run_lseek(QosOp *op)
{
    DataOp *seek = (DataOp *)op;

    op->reply.offset = lseek(op->open_file->fd, seek->offset, seek->mode);
    if (op->reply.offset < 0)
        return -errno;
    op->reply.kind = QOS_REPLY_SEEK;
    return 0;
}

void qosfs_op_lseek(fuse_req_t request, fuse_ino_t ino, off_t offset, int whence,
                    struct fuse_file_info *info)
{
    DataOp *seek;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    seek = data_op_new(request, ino, info, QOS_OP_SEEK, run_lseek);
    seek->offset = offset;
    seek->mode = whence;
    qos_op_lock_file(&seek->op, ino, seek->op.open_file);
    qos_op_submit(&seek->op);
}

static int run_copy(QosOp *op)
{
    DataOp *copy = (DataOp *)op;
    off_t from = copy->offset, to = copy->to_offset;
    QosFileChanges *changes;
    ssize_t length;
    int error;

    if (has_lost_locks(op) || qos_filelocks_are_lost(op->fs->filelocks, copy->to))
        return -EIO;
    qos_rights_claim(op, QOS_CAPABILITY(CAP_FSETID));
    changes = qos_inode_ref_begin_change(&copy->to->file, copy->to->fd);
    length = copy_file_range(op->open_file->fd, &from, copy->to->fd, &to, copy->size,
                             (unsigned)copy->flags);
    error = length < 0 ? -errno : 0;
    qos_file_changes_end(changes);
    qos_privileges_note_change(op, copy->to);
    if (error != 0)
        return error;
    if (length > 0 && !op->fs->config.no_atime) /* the kernel does not know that it was read */
        qos_privileges_forget_attributes(op, qos_inode_ref_id(&op->open_file->file));
    op->progress.moved = (guint64)length;
    op->reply.kind = QOS_REPLY_WRITE;
    op->reply.count = (size_t)length;
    return 0;
}

void qosfs_op_copy_file_range(fuse_req_t request, fuse_ino_t ino_in, off_t offset_in,
                              struct fuse_file_info *info_in, fuse_ino_t ino_out, off_t offset_out,
                              struct fuse_file_info *info_out, size_t length, int flags)
{
    DataOp *copy;

    /* The kernel then reads and writes. */
    if (qos_control_owns(ino_in) || qos_control_owns(ino_out)) {
        fuse_reply_err(request, EXDEV);
        return;
    }
    copy = data_op_new(request, ino_out, info_in, QOS_OP_COPY, run_copy);
    copy->to = qos_open_file_ref(qos_open_file_from(info_out));
    copy->offset = offset_in;
    copy->to_offset = offset_out;
    copy->size = MIN(length, COPY_MAX);
    copy->flags = flags;
    copy->op.clear = clear_data;
    copy->op.entry.request.bytes = copy->size;
    qos_op_lock_file(&copy->op, ino_out, copy->to);
    qos_op_submit(&copy->op);
}
