/*
 * A store that fails as it is told: a directory passed on, but for the faults.
 *
 *     faulty-store DIR FAULTS MOUNTPOINT
 *
 * FAULTS is a file of lines "OPERATION NAME ERRNO": that operation on files of that name ("*": on
 * all) fails, until the line goes. With 0 it hangs so long, and says so on stdout. The operation
 * "answer" is the end of a read, which has its data by then. Nothing is cached: each request of a
 * program arrives here. "sync-write" is one that is to be on the disk when it returns. Runs in the
 * foreground until it is unmounted or killed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HANG 0
#define NONE (-1)

static int top;
static const char *faults;

/* The file as openat(top) takes it. */
static const char *below(const char *path)
{
    return path[1] == '\0' ? "." : path + 1;
}

/* What is said of the operation: an errno, HANG, or NONE. */
static int find_fault(const char *operation, const char *path)
{
    FILE *file = fopen(faults, "re");
    char operation_read[32], name[256];
    int error, found = NONE;

    while (file != NULL && fscanf(file, "%31s %255s %d", operation_read, name, &error) == 3) {
        if (strcmp(operation_read, operation) == 0 &&
            (strcmp(name, "*") == 0 || strcmp(name, strrchr(path, '/') + 1) == 0))
            found = error;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* 0, or the -errno with which the operation is to fail. */
static int fault(const char *operation, const char *path)
{
    int found = find_fault(operation, path);

    if (found == HANG)
        printf("%s %s\n", operation, path);
    for (; found == HANG; found = find_fault(operation, path))
        usleep(10000);
    return found == NONE ? 0 : -found;
}

static int result(int value)
{
    return value < 0 ? -errno : value;
}

static void *init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->direct_io = 1;
    config->use_ino = 1;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

static int op_getattr(const char *path, struct stat *stat, struct fuse_file_info *info)
{
    (void)info;
    return fault("getattr", path) ?: result(fstatat(top, below(path), stat, AT_SYMLINK_NOFOLLOW));
}

static int op_mkdir(const char *path, mode_t mode)
{
    return fault("mkdir", path) ?: result(mkdirat(top, below(path), mode));
}

static int op_mknod(const char *path, mode_t mode, dev_t device)
{
    return fault("mknod", path) ?: result(mknodat(top, below(path), mode, device));
}

static int op_symlink(const char *target, const char *path)
{
    return fault("symlink", path) ?: result(symlinkat(target, top, below(path)));
}

static int op_link(const char *from, const char *to)
{
    return fault("link", from) ?: result(linkat(top, below(from), top, below(to), 0));
}

static int op_readlink(const char *path, char *target, size_t size)
{
    ssize_t length = readlinkat(top, below(path), target, size - 1);

    if (length >= 0)
        target[length] = '\0';
    return fault("readlink", path) ?: length < 0 ? -errno : 0;
}

static int op_rmdir(const char *path)
{
    return fault("rmdir", path) ?: result(unlinkat(top, below(path), AT_REMOVEDIR));
}

static int op_unlink(const char *path)
{
    return fault("unlink", path) ?: result(unlinkat(top, below(path), 0));
}

static int op_rename(const char *from, const char *to, unsigned flags)
{
    return fault("rename", from)
               ?: flags != 0 ? -EINVAL
                             : result(renameat(top, below(from), top, below(to)));
}

static int op_chmod(const char *path, mode_t mode, struct fuse_file_info *info)
{
    (void)info;
    return fault("chmod", path) ?: result(fchmodat(top, below(path), mode, 0));
}

static int op_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *info)
{
    (void)info;
    return fault("chown", path)
               ?: result(fchownat(top, below(path), user, group, AT_SYMLINK_NOFOLLOW));
}

static int op_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info)
{
    (void)info;
    return fault("utimens", path)
               ?: result(utimensat(top, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int truncate_file(const char *path, off_t size)
{
    int fd = openat(top, below(path), O_WRONLY | O_CLOEXEC);
    int done = result(fd < 0 ? fd : ftruncate(fd, size));

    if (fd >= 0)
        close(fd);
    return done;
}

static int op_truncate(const char *path, off_t size, struct fuse_file_info *info)
{
    (void)info;
    return fault("truncate", path) ?: truncate_file(path, size);
}

static int keep(int fd, struct fuse_file_info *info)
{
    info->fh = (uint64_t)fd;
    return fd < 0 ? -errno : 0;
}

static int op_open(const char *path, struct fuse_file_info *info)
{
    return fault("open", path) ?: keep(openat(top, below(path), info->flags | O_CLOEXEC), info);
}

static int op_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return fault("create", path)
               ?: keep(openat(top, below(path), info->flags | O_CREAT | O_CLOEXEC, mode), info);
}

static int op_read(const char *path, char *data, size_t size, off_t offset,
                   struct fuse_file_info *info)
{
    int error = fault("read", path);
    int length = error == 0 ? result((int)pread((int)info->fh, data, size, offset)) : error;

    return fault("answer", path) ?: length;
}

static int op_write(const char *path, const char *data, size_t size, off_t offset,
                    struct fuse_file_info *info)
{
    int error = fault("write", path);

    if (error == 0 && (info->flags & O_DSYNC) != 0)
        error = fault("sync-write", path);
    return error ?: result((int)pwrite((int)info->fh, data, size, offset));
}

static int op_fallocate(const char *path, int mode, off_t offset, off_t length,
                        struct fuse_file_info *info)
{
    return fault("fallocate", path) ?: result(fallocate((int)info->fh, mode, offset, length));
}

static int op_flush(const char *path, struct fuse_file_info *info)
{
    (void)info;
    return fault("flush", path);
}

static int op_fsync(const char *path, int data_only, struct fuse_file_info *info)
{
    (void)data_only;
    return fault("fsync", path) ?: result(fsync((int)info->fh));
}

static int op_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    return result(close((int)info->fh));
}

static int op_statfs(const char *path, struct statvfs *statfs)
{
    return fault("statfs", path) ?: result(fstatvfs(top, statfs));
}

static int op_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    int error = fault("readdir", path);
    struct dirent *entry;
    DIR *directory;

    (void)offset;
    (void)info;
    (void)flags;
    if (error != 0)
        return error;
    directory = fdopendir(openat(top, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory == NULL)
        return -errno;
    while ((entry = readdir(directory)) != NULL)
        fill(buffer, entry->d_name, NULL, 0, 0);
    closedir(directory);
    return 0;
}

static const struct fuse_operations operations = {
    .init = init,
    .getattr = op_getattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .symlink = op_symlink,
    .link = op_link,
    .rmdir = op_rmdir,
    .unlink = op_unlink,
    .rename = op_rename,
    .chmod = op_chmod,
    .chown = op_chown,
    .utimens = op_utimens,
    .truncate = op_truncate,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .fallocate = op_fallocate,
    .flush = op_flush,
    .fsync = op_fsync,
    .release = op_release,
    .statfs = op_statfs,
    .readdir = op_readdir,
};

int main(int argc, char **argv)
{
    char foreground[] = "-f", options[] = "-odefault_permissions,allow_other";
    char *arguments[] = {argv[0], argv[argc - 1], foreground, options, NULL};

    if (argc != 4) {
        fputs("usage: faulty-store DIR FAULTS MOUNTPOINT\n", stderr);
        return 2;
    }
    setlinebuf(stdout);
    faults = argv[2];
    top = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        perror(argv[1]);
        return 1;
    }
    return fuse_main(4, arguments, &operations, NULL);
}
