/*
 * What a reply tells the kernel of inodes and names, and for how long the kernel may believe it.
 *
 * The run() of a handler calls these functions, because it knows what it tells. Isolation and
 * coherence may shorten the time (fs/request/hooks.h), and so may set-user-ID bits
 * (fs/ops/privileges.h).
 */
#pragma once

#include "fs/request/op.h"
#include "fs/store/inode.h"

/* The reply tells these attributes of `ino`, at which run() has looked. Returns for how long the
 * kernel may believe them, in s. `file`: NULL where it is not referenced. `stored`: its mode in the
 * store. */
double qos_reply_attributes(QosOp *op, fuse_ino_t ino, const QosInodeRef *file,
                            const struct stat *stat, mode_t stored);
/* The reply tells the entry of the directory that `op` works in: sets its time-outs. One below 0
 * says that the attributes are to be asked for. */
void qos_reply_entry(QosOp *op, struct fuse_entry_param *entry);
/* There is no such name: how long the kernel may remember that, in s. */
double qos_reply_absence(QosOp *op);
/* The file `ino` was opened as `open_file`: sets reply.info.keep_cache, and adds the job to those
 * that have it open. */
void qos_reply_open(QosOp *op, fuse_ino_t ino, QosOpenFile *open_file);
/* A directory was opened: sets reply.info.keep_cache and cache_readdir. */
void qos_reply_opendir(QosOp *op);
/* As `list` and `listed` of the hooks. */
gboolean qos_reply_lists(QosOp *op, guint64 number, const char *name, gboolean is_first);
void qos_reply_listed(QosOp *op, int error, const struct stat *stat);
