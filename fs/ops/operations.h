/*
 * The handlers of the FUSE operations, by theme, and the few answers that they share. libfuse calls
 * them through the table in operations.c. Each fills a QosOp and submits it (fs/ops/dispatch.h).
 */
#pragma once

#include "fs/ops/dispatch.h"
#include "fs/request/fs.h"
#include "fs/request/op.h"
#include "fs/store/inode.h"

/* What all the handlers share: the table for fuse_session_new(). */
extern const struct fuse_lowlevel_ops qosfs_operations;

/* --- attr.c --- */
void qosfs_op_getattr(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qosfs_op_setattr(fuse_req_t request, fuse_ino_t ino, struct stat *stat, int to_set,
                      struct fuse_file_info *info);
void qosfs_op_access(fuse_req_t request, fuse_ino_t ino, int mask);
void qosfs_op_statx(fuse_req_t request, fuse_ino_t ino, int flags, int mask,
                    struct fuse_file_info *info);
void qosfs_op_statfs(fuse_req_t request, fuse_ino_t ino);

/* Takes the suid bit, and the sgid bit of a program, from the file `fd` (open or O_PATH): for a
 * caller without CAP_FSETID where the thread has it; else the store does it. 0 or -errno. */
int qos_attr_kill_privileges(int fd);

/* --- name.c --- */
void qosfs_op_lookup(fuse_req_t request, fuse_ino_t parent, const char *name);
void qosfs_op_forget(fuse_req_t request, fuse_ino_t ino, uint64_t count);
void qosfs_op_forget_multi(fuse_req_t request, size_t count, struct fuse_forget_data *forgets);
void qosfs_op_readlink(fuse_req_t request, fuse_ino_t ino);
void qosfs_op_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                    dev_t device);
void qosfs_op_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode);
void qosfs_op_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name);
void qosfs_op_link(fuse_req_t request, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void qosfs_op_unlink(fuse_req_t request, fuse_ino_t parent, const char *name);
void qosfs_op_rmdir(fuse_req_t request, fuse_ino_t parent, const char *name);
void qosfs_op_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                     const char *new_name, unsigned flags);

/* --- open.c --- */
void qosfs_op_open(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qosfs_op_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *info);
void qosfs_op_tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode,
                      struct fuse_file_info *info);
void qosfs_op_flush(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qosfs_op_release(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);

/* --- data.c --- */
void qosfs_op_read(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                   struct fuse_file_info *info);
void qosfs_op_write(fuse_req_t request, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                    struct fuse_file_info *info);
void qosfs_op_fsync(fuse_req_t request, fuse_ino_t ino, int data_only, struct fuse_file_info *info);
void qosfs_op_fallocate(fuse_req_t request, fuse_ino_t ino, int mode, off_t offset, off_t length,
                        struct fuse_file_info *info);
void qosfs_op_lseek(fuse_req_t request, fuse_ino_t ino, off_t offset, int whence,
                    struct fuse_file_info *info);
void qosfs_op_copy_file_range(fuse_req_t request, fuse_ino_t ino_in, off_t offset_in,
                              struct fuse_file_info *info_in, fuse_ino_t ino_out, off_t offset_out,
                              struct fuse_file_info *info_out, size_t length, int flags);

/* --- dir.c --- */
void qosfs_op_opendir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qosfs_op_readdir(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *info);
void qosfs_op_readdirplus(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                          struct fuse_file_info *info);
void qosfs_op_releasedir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qosfs_op_fsyncdir(fuse_req_t request, fuse_ino_t ino, int data_only,
                       struct fuse_file_info *info);

/* --- xattr.c --- */
void qosfs_op_setxattr(fuse_req_t request, fuse_ino_t ino, const char *name, const char *value,
                       size_t size, int flags);
void qosfs_op_getxattr(fuse_req_t request, fuse_ino_t ino, const char *name, size_t size);
void qosfs_op_listxattr(fuse_req_t request, fuse_ino_t ino, size_t size);
void qosfs_op_removexattr(fuse_req_t request, fuse_ino_t ino, const char *name);

/* --- ioctl.c --- */
void qosfs_op_ioctl(fuse_req_t request, fuse_ino_t ino, unsigned int command, void *argument,
                    struct fuse_file_info *info, unsigned flags, const void *input,
                    size_t input_size, size_t output_size);

/* An OPEN or OPENDIR is about to be submitted: it may be the kernel's own for such a call. */
void qos_ioctl_note_open(QosOp *op, fuse_ino_t ino, const struct fuse_file_info *info);

/* --- filelock.c; with a lock server --- */
void qosfs_op_getlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                    struct flock *lock);
void qosfs_op_setlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                    struct flock *lock, int sleep);
void qosfs_op_flock(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info, int operation);

/* The lock owner has closed the file: its record locks on it end. */
void qos_filelock_flush(const QosFs *fs, const QosOpenFile *open_file, guint64 owner);
/* The last close of the open file. */
void qos_filelock_release(const QosFs *fs, const QosOpenFile *open_file);
