/*
 * Opening and closing files.
 *
 * The store's file is opened under the caller's identity and with the caller's flags. O_APPEND is
 * one of them, so that appends of several processes or mounts do not overwrite each other. O_DIRECT
 * stays with the kernel, because the requests come unaligned and uncached in any case.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/ops/execs.h"
#include "fs/ops/operations.h"
#include "fs/ops/privileges.h"
#include "fs/ops/reply.h"
#include "fs/ops/rights.h"
#include "fs/store/mount_flags.h"
#include "fs/store/open_file.h"

/* Flags that the kernel's open() has dealt with already. */
#define STRIPPED_FLAGS (O_CREAT | O_EXCL | O_NOCTTY | O_NOFOLLOW | O_DIRECT)
#define CREATE_TRIES   16

typedef struct {
    QosOp op;
    fuse_ino_t ino;   /* create, tmpfile: the parent */
    const char *name; /* NULL: an unnamed one, or none is made */
    mode_t mode;
} OpenOp;

static OpenOp *open_op_new(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                           QosOpcode opcode, int (*run)(QosOp *op))
{
    OpenOp *op = qos_op_new(request, sizeof(*op), opcode, run);

    op->ino = op->op.target.node = ino;
    op->op.reply.info = *info;
    return op;
}

/* Sets what the kernel may keep of the file's data. */
static void set_caching(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file)
{
    struct fuse_file_info *info = &op->reply.info;

    info->direct_io = op->fs->config.cache == QOS_CACHE_NONE || (info->flags & O_DIRECT) != 0;
    info->parallel_direct_writes = info->direct_io;
    qos_reply_open(op, ino, open_file);
}

/* Whether the store must be told of each close(). It must if the file may be mapped for writing,
 * because the kernel then writes back what was written through the mapping. */
static gboolean wants_flush(const QosOpenFile *open_file)
{
    return (open_file->flags & O_ACCMODE) == O_RDWR || qos_inode_ref_wants_flush(&open_file->file);
}

/* TRUE where the opener's job is exempt from all that this open allows. With a lock server the
 * daemon must hear of what is read and written. */
static gboolean is_exempt(QosOp *op)
{
    static const QosOpcodeSet allowed[] = {
        [O_RDONLY] = 1 << QOS_OP_READ,
        [O_WRONLY] = 1 << QOS_OP_WRITE,
        [O_RDWR] = 1 << QOS_OP_READ | 1 << QOS_OP_WRITE,
    };
    guint mode = (guint)op->reply.info.flags & O_ACCMODE;

    return !qos_fs_is_shared(op->fs) && mode < G_N_ELEMENTS(allowed) &&
           qos_gate_passes_through(op->fs->gate, &op->entry.request, allowed[mode]);
}

/* TRUE where the store's file can be opened with these flags: so does the kernel in passthrough. */
static gboolean takes_flags(int fd, int flags)
{
    int own_flags;

    if ((flags & O_DIRECT) == 0)
        return TRUE;
    own_flags = fcntl(fd, F_GETFL);
    return fcntl(fd, F_SETFL, own_flags | O_DIRECT) == 0 && fcntl(fd, F_SETFL, own_flags) == 0;
}

/* Whether the kernel does the I/O by itself: that must agree with the other opens of the file. */
static int set_passthrough_open(QosOp *op, QosOpenFile *open_file)
{
    struct fuse_file_info *info = &op->reply.info;
    QosPassthroughOpen *passthrough = &open_file->passthrough;
    gboolean takes = takes_flags(open_file->fd, info->flags);

    *passthrough = qos_passthroughs_join(op->fs->passthroughs, &open_file->file, open_file->fd,
                                         info->flags, op->caller, takes && is_exempt(op));
    if (passthrough->id == 0)
        return 0;
    if (!takes)
        return -EINVAL;
    qos_privileges_note_passthrough(op, open_file);
    info->backing_id = passthrough->id;
    info->keep_cache = FALSE;
    info->direct_io = info->parallel_direct_writes = passthrough->is_direct;
    return 0;
}

/* If the store has truncated a file as root, it took no bits away. The daemon takes them away here,
 * because the kernel wants that. */
static int clear_truncated(const QosOp *op, int fd)
{
    const struct fuse_file_info *info = &op->reply.info;

    if ((info->flags & O_TRUNC) == 0 || !info->kill_suidgid || !qos_cred_keeps_suid())
        return 0;
    return qos_attr_kill_privileges(fd);
}

static gboolean writes_pages(const QosOp *op, const QosOpenFile *open_file)
{
    const struct fuse_file_info *info = &op->reply.info;

    return !info->direct_io && open_file->passthrough.id == 0 &&
           (info->flags & O_ACCMODE) != O_RDONLY;
}

/* The store's file, open, as the answer to OPEN or CREATE. Takes all three, the open file also
 * where it fails. */
static int reply_open(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file, int fd, QosInodeRef *file)
{
    struct fuse_file_info *info = &op->reply.info;
    int error;

    qos_open_file_set_file(open_file, fd, info->flags, file);
    if ((info->flags & O_TRUNC) != 0)
        qos_privileges_note_change(op, open_file);
    error = qos_execs_admit(op, open_file);
    if (error != 0) {
        qos_open_file_unref(open_file);
        return error;
    }
    if (op->fs->config.no_atime)
        qos_open_file_spare_atime(open_file);
    set_caching(op, ino, open_file);
    /* A close() ends locks, also those across mounts. */
    info->noflush = op->fs->filelocks == NULL && !wants_flush(open_file);
    error = set_passthrough_open(op, open_file);
    if (error != 0) {
        qos_open_file_unref(open_file);
        return error;
    }
    if (writes_pages(op, open_file))
        qos_open_file_set_writes_pages(open_file);
    op->reply.open_file = open_file;
    return 0;
}

/* execve() needs no read permission, but the kernel reads the program through this file. So if the
 * caller may execute it, the daemon opens it with rights of its own. */
static int open_as_caller(int path_fd, int flags)
{
    char path[QOS_PROC_PATH_MAX];
    int fd;

    qos_proc_path(path_fd, path);
    fd = open(path, (flags & ~STRIPPED_FLAGS) | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno != EACCES || (flags & QOS_OPEN_FOR_EXEC) == 0 || (flags & O_ACCMODE) != O_RDONLY)
        return -errno;
    if (faccessat(path_fd, "", X_OK, AT_EACCESS | AT_EMPTY_PATH) != 0)
        return -errno;
    qos_cred_raise();
    fd = open(path, O_RDONLY | O_CLOEXEC);
    fd = fd >= 0 ? fd : -errno;
    qos_cred_lower();
    return fd;
}

static int run_open(QosOp *op)
{
    OpenOp *open_op = (OpenOp *)op;
    g_auto(QosInodeRef) file = {0};
    g_autoptr(QosOpenFile) open_file = NULL;
    int error = qos_inodes_get(op->fs->inodes, open_op->ino, &file);
    QosFileChanges *changes = NULL;
    int fd;

    if (error == 0)
        error = qos_op_new_open_file(op, &open_file);
    if (error == 0 && (op->reply.info.flags & QOS_OPEN_FOR_EXEC) != 0 &&
        (qos_inode_ref_forbids(&file) & MS_NOEXEC) != 0)
        error = -EACCES;
    if (error == 0)
        error = qos_execs_may_truncate(op, &file, op->reply.info.flags);
    if (error != 0)
        return error;
    qos_inode_ref_watch(&file);
    if ((op->reply.info.flags & O_TRUNC) != 0)
        changes = qos_inode_ref_begin_change(&file, -1);
    if ((op->reply.info.flags & O_TRUNC) != 0 && qos_op_keeps_suid(op, op->reply.info.kill_suidgid))
        qos_cred_give(QOS_CAPABILITY(CAP_FSETID));
    fd = open_as_caller(file.fd, op->reply.info.flags);
    qos_file_changes_end(changes);
    if (fd < 0)
        return fd;
    error = clear_truncated(op, fd);
    if (error != 0) {
        close(fd);
        return error;
    }
    op->reply.kind = QOS_REPLY_OPEN;
    return reply_open(op, open_op->ino, g_steal_pointer(&open_file), fd, &file);
}

void qosfs_op_open(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    OpenOp *open_op;

    if (qos_control_owns(ino)) {
        qos_control_open(request, ino, info);
        return;
    }
    open_op = open_op_new(request, ino, info, QOS_OP_OPEN, run_open);
    qos_ioctl_note_open(&open_op->op, ino, info);
    qos_op_submit(&open_op->op);
}

/* --- making --- */

/* Answers CREATE with the new file `fd`. Takes both. */
static int reply_create(QosOp *op, QosOpenFile *open_file, int fd)
{
    QosInodes *inodes = op->fs->inodes;
    g_auto(QosInodeRef) file = {0};
    struct fuse_entry_param entry;
    const QosTime asked = qos_clock_now();
    int error = clear_truncated(op, fd);

    if (error == 0) /* its attributes are those after that */
        error = qos_inodes_adopt(inodes, fd, op->entry.request.user, &entry, &file);
    if (error != 0) {
        close(fd);
        qos_open_file_unref(open_file);
        return error;
    }
    qos_inode_ref_watch(&file);
    error = reply_open(op, entry.ino, open_file, fd, &file);
    if (error != 0) {
        qos_inodes_forget(inodes, entry.ino, 1);
        return error;
    }
    op->reply.kind = QOS_REPLY_CREATE;
    op->reply.entry = entry;
    qos_inode_ref_note_told(&op->reply.open_file->file, entry.attr.st_mtim, entry.attr.st_size,
                            asked);
    qos_reply_entry(op, &op->reply.entry);
    return 0;
}

/* In a sticky folder, another user may have put a file there so that a program writes to it that
 * means to make its own (fs.protected_regular). */
static gboolean may_be_trap(int parent, const struct stat *file, uid_t caller)
{
    struct stat folder;

    return file->st_uid != caller &&
           (fstat(parent, &folder) != 0 || (folder.st_mode & S_ISVTX) != 0);
}

/* Opens a file that another program made meanwhile. Special files, symbolic links and traps are for
 * the kernel to judge, which looks again on -ESTALE. The kernel also judges the file for a caller
 * from another user namespace, because its capabilities were judged by the directory alone. */
static int open_existing(int parent, const OpenOp *create)
{
    struct stat stat;
    int path_fd = openat(parent, create->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int fd;

    if (path_fd < 0)
        return -errno;
    if (!create->op.progress.is_from_elsewhere && fstat(path_fd, &stat) == 0 &&
        S_ISREG(stat.st_mode) && !may_be_trap(parent, &stat, create->op.caller->uid))
        fd = open_as_caller(path_fd, create->op.reply.info.flags);
    else
        fd = -ESTALE;
    close(path_fd);
    return fd;
}

static int make_named(int parent, const OpenOp *create)
{
    int flags = create->op.reply.info.flags;
    int fd = -ESTALE;

    for (int i = 0; i < CREATE_TRIES; i++) {
        int new_flags = (flags & ~STRIPPED_FLAGS) | O_CREAT | O_EXCL | O_CLOEXEC;

        fd = openat(parent, create->name, new_flags, create->mode);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST || (flags & O_EXCL) != 0)
            return -errno;
        /* The operation was submitted for a new file: the kernel is to look again, and open it. */
        if (qos_fs_is_shared(create->op.fs))
            return -ESTALE;
        fd = open_existing(parent, create);
        if (fd != -ENOENT)
            return fd;
    }
    return fd;
}

/* CREATE and TMPFILE: `make` returns the new file's descriptor, or -errno. */
static int run_make(QosOp *op, int (*make)(int parent, const OpenOp *create))
{
    OpenOp *create = (OpenOp *)op;
    g_auto(QosInodeRef) parent = {0};
    g_autoptr(QosOpenFile) open_file = NULL;
    int error = qos_inodes_get(op->fs->inodes, create->ino, &parent);
    int fd;

    if (error == 0)
        error = qos_inodes_find_room(op->fs->inodes, op->entry.request.user);
    if (error == 0)
        error = qos_op_new_open_file(op, &open_file);
    if (error != 0)
        return error;
    qos_cred_umask(fuse_req_ctx(op->fuse)->umask);
    if ((create->mode & S_ISGID) != 0)
        qos_rights_claim(op, QOS_CAPABILITY(CAP_FSETID));
    fd = make(parent.fd, create);
    return fd < 0 ? fd : reply_create(op, g_steal_pointer(&open_file), fd);
}

static int run_create(QosOp *op)
{
    return run_make(op, make_named);
}

void qosfs_op_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *info)
{
    OpenOp *create;

    if (qos_control_owns(parent) || qos_control_is_name(parent, name)) {
        fuse_reply_err(request, qos_control_owns(parent) ? EPERM : EEXIST);
        return;
    }
    create = open_op_new(request, parent, info, QOS_OP_CREATE, run_create);
    create->name = create->op.target.name = qos_op_strdup(&create->op, name);
    qos_op_lock_directory(&create->op, parent);
    create->mode = mode;
    qos_op_submit(&create->op);
}

static int make_unnamed(int parent, const OpenOp *create)
{
    int flags = create->op.reply.info.flags & ~(O_CREAT | O_NOFOLLOW | O_DIRECT);
    int fd = openat(parent, ".", flags | O_TMPFILE | O_CLOEXEC, create->mode);

    return fd < 0 ? -errno : fd;
}

static int run_tmpfile(QosOp *op)
{
    return run_make(op, make_unnamed);
}

void qosfs_op_tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode,
                      struct fuse_file_info *info)
{
    OpenOp *create;

    if (qos_control_owns(parent)) {
        fuse_reply_err(request, EPERM);
        return;
    }
    create = open_op_new(request, parent, info, QOS_OP_CREATE, run_tmpfile);
    create->mode = mode;
    qos_op_submit(&create->op);
}

/* --- closing --- */

typedef struct {
    QosOp op;
    guint64 owner; /* of locks */
} FlushOp;

/* A close() of one of the caller's descriptors: tells the store, and hears its errors. If there is
 * no descriptor left for the copy, the caller's close() must not fail for that. */
static int run_flush(QosOp *op)
{
    int copy = dup(op->open_file->fd);

    qos_filelock_flush(op->fs, op->open_file, ((FlushOp *)op)->owner);
    if (copy < 0)
        return fdatasync(op->open_file->fd) == 0 ? 0 : -errno;
    return close(copy) == 0 ? 0 : -errno;
}

void qosfs_op_flush(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    QosOpenFile *open_file = qos_open_file_from(info);
    FlushOp *flush;

    if (qos_control_owns(ino)) {
        fuse_reply_err(request, 0);
        return;
    }
    if (!wants_flush(open_file)) { /* it is for the locks alone, and does not reach the store */
        qos_open_file_note_use(open_file);
        qos_filelock_flush(qos_fs(request), open_file, info->lock_owner);
        fuse_reply_err(request, 0);
        return;
    }
    flush = qos_op_new(request, sizeof(*flush), QOS_OP_FLUSH, run_flush);
    flush->owner = info->lock_owner;
    qos_op_use_open_file(&flush->op, info);
    g_atomic_int_set(&open_file->is_close_paid, TRUE);
    qos_op_submit_urgent(&flush->op);
}

/* Gives back the kernel's reference; the operation's own is the last. */
static int run_release(QosOp *op)
{
    qos_passthrough_leave(&op->open_file->passthrough);
    qos_open_file_unref(op->open_file);
    return 0;
}

void qosfs_op_release(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info)
{
    QosOp *op;

    if (qos_control_owns(ino)) {
        qos_control_release(request, ino, info);
        return;
    }
    op = qos_op_new(request, sizeof(*op), QOS_OP_CLOSE, run_release);
    qos_op_use_open_file(op, info);
    op->entry.request.is_free = g_atomic_int_get(&op->open_file->is_close_paid);
    qos_filelock_release(op->fs, op->open_file); /* its locks do not wait for the job's debt */
    qos_op_submit_release(op);
}
