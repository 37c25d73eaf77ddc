/*
 * Reading directories.
 *
 * A stream (fs/store/dir_stream.h) says where the reading of an open directory stands. It belongs
 * to the open file, and a request takes it out while it reads. The kernel reads one open directory
 * from one thread at a time, but a caller that was killed may leave a request behind. The next
 * request then makes a stream of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/control/control.h"
#include "fs/ops/operations.h"
#include "fs/ops/reply.h"
#include "fs/store/open_file.h"
#include "fs/transport/reply_buffer.h"

typedef struct {
    QosOp op;
    fuse_ino_t ino;
    size_t size;
    off_t offset;
    gboolean plus;
} DirOp;

/* --- streams --- */

/* NULL with errno set where a second one cannot be opened. */
static QosDirStream *take_stream(const QosFs *fs, QosOpenFile *open_file)
{
    QosDirStream *stream = g_atomic_pointer_exchange(&open_file->stream, NULL);
    char path[QOS_PROC_PATH_MAX];
    int fd;

    if (stream != NULL) {
        qos_dir_stream_take(stream);
        return stream;
    }
    qos_proc_path(open_file->fd, path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? NULL : qos_dir_stream_new(fs->dir_streams, fd, TRUE);
}

static void put_stream(QosOpenFile *open_file, QosDirStream *stream)
{
    qos_dir_stream_keep(stream);
    if (!g_atomic_pointer_compare_and_exchange(&open_file->stream, NULL, stream))
        qos_dir_stream_free(stream);
}

/* --- opendir, releasedir --- */

static int run_opendir(QosOp *op)
{
    DirOp *open_op = (DirOp *)op;
    char path[QOS_PROC_PATH_MAX];
    g_auto(QosInodeRef) file = {0};
    g_autoptr(QosOpenFile) open_file = NULL;
    int error = qos_inodes_get(op->fs->inodes, open_op->ino, &file);
    int fd;

    if (error == 0)
        error = qos_op_new_open_file(op, &open_file);
    if (error != 0)
        return error;
    /* By this path and not as ".": that would demand the search permission. */
    qos_proc_path(file.fd, path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    op->reply.kind = QOS_REPLY_OPEN;
    qos_open_file_set_file(open_file, fd, op->reply.info.flags, &file);
    open_file->stream = qos_dir_stream_new(op->fs->dir_streams, fd, FALSE);
    if (op->fs->config.no_atime)
        qos_open_file_spare_atime(open_file);
    op->reply.open_file = g_steal_pointer(&open_file);
    qos_reply_opendir(op);
    return 0;
}

void qosfs_op_opendir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    DirOp *open_op;

    if (qos_control_owns(ino)) {
        qos_control_opendir(request, ino, info);
        return;
    }
    open_op = qos_op_new(request, sizeof(*open_op), QOS_OP_OPENDIR, run_opendir);
    open_op->ino = open_op->op.target.node = ino;
    open_op->op.reply.info = *info;
    qos_ioctl_note_open(&open_op->op, ino, info);
    qos_op_submit(&open_op->op);
}

/* Gives back the kernel's reference; the operation's own is the last. */
static int run_releasedir(QosOp *op)
{
    qos_open_file_unref(op->open_file);
    return 0;
}

void qosfs_op_releasedir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    QosOp *op;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, 0);
        return;
    }
    op = qos_op_new(request, sizeof(*op), QOS_OP_CLOSEDIR, run_releasedir);
    qos_op_use_open_file(op, info);
    qos_op_submit_release(op);
}

/* --- readdir, readdirplus --- */

static gboolean is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The attributes that the directory itself knows of an entry. */
static struct stat stat_of_entry(QosOp *op, const struct dirent64 *entry, dev_t device)
{
    return (struct stat){
        .st_ino = qos_inodes_shown(op->fs->inodes, device, entry->d_ino),
        .st_mode = DTTOIF(entry->d_type),
    };
}

static int look_up(QosOp *op, const char *name, struct fuse_entry_param *ret_entry)
{
    const int error = qos_inodes_lookup(op->fs->inodes, &op->open_file->file, name,
                                        op->entry.request.user, ret_entry);

    qos_reply_listed(op, error, &ret_entry->attr);
    return error;
}

/* Writes an entry with its attributes and counts its look-up. An entry that cannot be looked up is
 * listed without attributes: it has gone meanwhile, or the directory may be read but not searched.
 * So is one that the kernel could not keep, because attributes would make it forget what it knew,
 * and the ACLs. */
static void add_entry_plus(DirOp *read_op, char *buffer, size_t size, const struct dirent64 *entry,
                           const struct stat *stat)
{
    QosOp *op = &read_op->op;
    struct fuse_entry_param param = {0};

    if (!is_dot(entry->d_name) &&
        qos_reply_lists(op, entry->d_ino, entry->d_name, read_op->offset == 0) &&
        look_up(op, entry->d_name, &param) == 0)
        qos_reply_entry(op, &param);
    else
        param = (struct fuse_entry_param){.attr = *stat};
    fuse_add_direntry_plus(op->fuse, buffer, size, entry->d_name, &param, entry->d_off);
}

/* Writes an entry if it fits: the bytes it takes, or 0. */
static size_t add_entry(DirOp *read_op, char *buffer, size_t size, const struct dirent64 *entry,
                        dev_t device)
{
    fuse_req_t request = read_op->op.fuse;
    struct stat stat = stat_of_entry(&read_op->op, entry, device);
    size_t length;

    if (!read_op->plus) {
        length = fuse_add_direntry(request, buffer, size, entry->d_name, &stat, entry->d_off);
        return length <= size ? length : 0;
    }
    length = fuse_add_direntry_plus(request, NULL, 0, entry->d_name, NULL, 0);
    if (length > size)
        return 0;
    add_entry_plus(read_op, buffer, size, entry, &stat);
    return length;
}

/* Fills `buffer` with the entries from where the stream is: their length; or -errno if there is
 * none. */
static ssize_t fill_entries(DirOp *read_op, QosDirStream *stream, char *buffer)
{
    const struct dirent64 *entry = NULL;
    const dev_t device = qos_inode_ref_device(&read_op->op.open_file->file);
    size_t used = 0;

    for (;;) {
        int error = qos_dir_stream_peek(stream, &entry);
        size_t length;

        if (error != 0)
            return used > 0 ? (ssize_t)used : error;
        if (entry == NULL)
            return (ssize_t)used;
        if (!qos_control_is_name(read_op->ino, entry->d_name)) {
            length = add_entry(read_op, buffer + used, read_op->size - used, entry, device);
            if (length == 0)
                return (ssize_t)used;
            used += length;
        }
        qos_dir_stream_pass(stream, entry);
    }
}

static int run_readdir(QosOp *op)
{
    DirOp *read_op = (DirOp *)op;
    char *buffer = qos_reply_buffer(read_op->size);
    QosDirStream *stream = take_stream(op->fs, op->open_file);
    ssize_t length;

    if (stream == NULL)
        return -errno;
    length = qos_dir_stream_seek(stream, read_op->offset);
    if (length == 0)
        length = fill_entries(read_op, stream, buffer);
    put_stream(op->open_file, stream);
    if (length < 0)
        return (int)length;
    op->reply.kind = QOS_REPLY_DATA;
    op->reply.data.bytes = buffer;
    op->reply.data.length = (size_t)length;
    return 0;
}

static void submit_readdir(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                           struct fuse_file_info *info, gboolean plus)
{
    DirOp *read_op;

    if (qos_control_owns(ino)) {
        qos_control_readdir(request, ino, size, offset, plus);
        return;
    }
    read_op = qos_op_new(request, sizeof(*read_op), QOS_OP_READDIR, run_readdir);
    read_op->ino = ino;
    read_op->size = size;
    read_op->offset = offset;
    read_op->plus = plus;
    if (plus)
        read_op->op.target.node = ino;
    qos_op_use_open_file(&read_op->op, info);
    qos_op_lock_directory(&read_op->op, ino);
    qos_op_submit(&read_op->op);
}

void qosfs_op_readdir(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *info)
{
    submit_readdir(request, ino, size, offset, info, FALSE);
}

void qosfs_op_readdirplus(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                          struct fuse_file_info *info)
{
    submit_readdir(request, ino, size, offset, info, TRUE);
}
