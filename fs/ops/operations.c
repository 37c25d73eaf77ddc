/*
 * The table of operations, and what the mount asks of the kernel at its start.
 *
 * Without a lock server the table has no getlk, setlk and flock, so that the kernel keeps the locks
 * of the mount's processes by itself. bmap and poll have no meaning here.
 */
#include "fs/ops/operations.h"

#include "fs/transport/devfuse.h"

/* Parked read-ahead must not block other jobs' (docs/design/isolation.md, "What one job can
 * take, and one user"). */
#define MAX_BACKGROUND 65535 /* the kernel's own bound */

/* Asked for where the kernel has it. */
static const guint64 wanted[] = {
    FUSE_CAP_ASYNC_READ,
    FUSE_CAP_ATOMIC_O_TRUNC,
    FUSE_CAP_DIRECT_IO_ALLOW_MMAP,
    FUSE_CAP_DONT_MASK, /* the store applies the umask: only it knows of default ACLs */
    FUSE_CAP_HANDLE_KILLPRIV_V2,
    FUSE_CAP_IOCTL_DIR,
    FUSE_CAP_NO_EXPORT_SUPPORT, /* node ids do not outlive the mount */
    FUSE_CAP_PARALLEL_DIROPS,
    FUSE_CAP_PASSTHROUGH,
    FUSE_CAP_POSIX_ACL,
    FUSE_CAP_READDIRPLUS,
    FUSE_CAP_READDIRPLUS_AUTO,
};

/* Never: the data of a request that waits must not lie in a pipe; a file's writers must be known.
 */
static const guint64 unwanted[] = {
    FUSE_CAP_SPLICE_MOVE, FUSE_CAP_SPLICE_READ, FUSE_CAP_SPLICE_WRITE,  FUSE_CAP_WRITEBACK_CACHE,
    FUSE_CAP_POSIX_LOCKS, FUSE_CAP_FLOCK_LOCKS, FUSE_CAP_OVER_IO_URING,
};

/* Whether the kernel may keep what a list tells of files. It drops a name that is never to be
 * believed at once, and looks it up again for a program that wants more than the name. */
static gboolean are_lists_kept(const QosFs *fs)
{
    return qos_fs_is_shared(fs) ? fs->config.cache != QOS_CACHE_NONE : fs->config.entry_timeout > 0;
}

static void init(void *user_data, struct fuse_conn_info *connection)
{
    QosFs *fs = user_data;

    for (guint i = 0; i < G_N_ELEMENTS(wanted); i++)
        fuse_set_feature_flag(connection, wanted[i]);
    for (guint i = 0; i < G_N_ELEMENTS(unwanted); i++)
        fuse_unset_feature_flag(connection, unwanted[i]);
    fs->knows_fsetid = fuse_get_feature_flag(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
    if (!are_lists_kept(fs))
        fuse_unset_feature_flag(connection, FUSE_CAP_READDIRPLUS);
    if (fs->filelocks != NULL) {
        fuse_set_feature_flag(connection, FUSE_CAP_POSIX_LOCKS);
        fuse_set_feature_flag(connection, FUSE_CAP_FLOCK_LOCKS);
    }
    /* A node id is one file for ever, and so one target. */
    if (fs->config.cache != QOS_CACHE_NONE)
        fuse_set_feature_flag(connection, FUSE_CAP_CACHE_SYMLINKS);
    for (guint i = 0; i < QOS_HOOKS_COUNT; i++) {
        if (qos_hooks[i]->connect != NULL)
            qos_hooks[i]->connect(fs, connection);
    }
    if (!qos_fs_is_shared(fs) && fs->config.cache == QOS_CACHE_ALWAYS) {
        fuse_unset_feature_flag(connection, FUSE_CAP_AUTO_INVAL_DATA);
        fuse_set_feature_flag(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
    }
    connection->no_interrupt = 1; /* libfuse hears of none: fs/transport/devfuse.c */
    connection->max_write = QOS_MAX_WRITE;
    connection->max_background = MAX_BACKGROUND;
    connection->congestion_threshold = MAX_BACKGROUND - MAX_BACKGROUND / 4;
    connection->time_gran = 1;
}

const struct fuse_lowlevel_ops qosfs_operations = {
    .init = init,
    .lookup = qosfs_op_lookup,
    .forget = qosfs_op_forget,
    .forget_multi = qosfs_op_forget_multi,
    .getattr = qosfs_op_getattr,
    .setattr = qosfs_op_setattr,
    .access = qosfs_op_access,
    .statx = qosfs_op_statx,
    .statfs = qosfs_op_statfs,
    .readlink = qosfs_op_readlink,
    .mknod = qosfs_op_mknod,
    .mkdir = qosfs_op_mkdir,
    .symlink = qosfs_op_symlink,
    .link = qosfs_op_link,
    .unlink = qosfs_op_unlink,
    .rmdir = qosfs_op_rmdir,
    .rename = qosfs_op_rename,
    .open = qosfs_op_open,
    .create = qosfs_op_create,
    .tmpfile = qosfs_op_tmpfile,
    .read = qosfs_op_read,
    .write = qosfs_op_write,
    .flush = qosfs_op_flush,
    .release = qosfs_op_release,
    .fsync = qosfs_op_fsync,
    .getlk = qosfs_op_getlk,
    .setlk = qosfs_op_setlk,
    .flock = qosfs_op_flock,
    .fallocate = qosfs_op_fallocate,
    .lseek = qosfs_op_lseek,
    .copy_file_range = qosfs_op_copy_file_range,
    .opendir = qosfs_op_opendir,
    .readdir = qosfs_op_readdir,
    .readdirplus = qosfs_op_readdirplus,
    .releasedir = qosfs_op_releasedir,
    .fsyncdir = qosfs_op_fsyncdir,
    .setxattr = qosfs_op_setxattr,
    .getxattr = qosfs_op_getxattr,
    .listxattr = qosfs_op_listxattr,
    .removexattr = qosfs_op_removexattr,
    .ioctl = qosfs_op_ioctl,
};
