/*
 * Control: rules and tunables are set by the xattrs user.qosfs.* of the mountpoint, and reports are
 * read from the hidden directory `.qosfs`.
 *
 * The xattrs are nrs_tbf_rule (write a command, read the list), nrs_policies and the other tunables
 * by name (fs/control/tunable.h), and last_error. Root and the mount's owner may set them; other
 * users get EPERM. `cluster` and `cluster:WHAT` are for the lock server, which decides about users
 * by itself (fs/control/control_cluster.c). The xattrs never reach the store, and are not listed. A
 * set is atomic: it is parsed, made durable (db/db.h), and then put in force. If one step fails,
 * nothing has changed, the caller gets the errno, and last_error has the reason in words, one for
 * each uid that sets.
 *
 * The files of `.qosfs` have mode 0444: job_stats, jobs, rules, shares, metrics, state.json and its
 * parts, history. job_stats has 0644, because writing "clear" or a job id to it clears. Texts are
 * made at the open, by one thread for all readers that wait. So are those of nrs_tbf_rule and
 * nrs_policies. Node ids below QOS_CONTROL_INO_END belong to control. The inode table never gives
 * them out, and a FORGET of one means nothing.
 */
#pragma once

#include <fuse_lowlevel.h>

#include "db/db.h"
#include "fs/control/report.h"
#include "fs/request/op.h"
#include "fs/store/inode.h"

#define QOS_CONTROL_NAME      ".qosfs"
#define QOS_CONTROL_INO       2 /* the directory */
#define QOS_CONTROL_INO_FIRST 3 /* its files follow */
#define QOS_CONTROL_INO_END   QOS_INODE_FIRST
#define QOS_XATTR_PREFIX      "user.qosfs."

static inline gboolean qos_control_owns(fuse_ino_t ino)
{
    return ino >= QOS_CONTROL_INO && ino < QOS_CONTROL_INO_END;
}

/*
 * Brings back what is saved and puts it in force: the rules, the tunables and the jobs' totals. A
 * tunable has its text in `overrides` (name -> text), which holds for this mount and is not saved;
 * else the saved one; else the default. fs->gate and fs->callers must be there. `db` and
 * `overrides` may be NULL (nothing persists then) and are borrowed, `overrides` for the call.
 * Errors: QOS_ERROR with what is wrong where.
 */
QosControl *qos_control_new(QosFs *fs, QosDb *db, GHashTable *overrides, GError **error);
/* Starts the thread that saves the jobs' totals; after the daemon's fork. */
void qos_control_start(QosControl *control);
/* Ends it, and saves the totals for the last time; before the gate goes. */
void qos_control_stop(QosControl *control);
void qos_control_free(QosControl *control); /* stopped, or never started; NULL is allowed */

/* --- shared by the files of control --- */

/* What the mount does now. Owned by the caller. */
QosReport *qos_control_report(QosControl *control, QosReportJobs jobs);
/* TRUE where the caller is root or the mount's owner. */
gboolean qos_control_may_set(fuse_req_t request);
/* When it was mounted, ns since 1970. */
QosTime qos_control_started(const QosControl *control);

/* TRUE for `.qosfs` in the root: fs/ops/name.c refuses to make, remove or rename it (EPERM; EEXIST
 * for making). */
gboolean qos_control_is_name(fuse_ino_t parent, const char *name);

/* --- the operations on control inodes; called by the handlers of fs/ops/ first thing, outside the
 * gate, each replies --- */
void qos_control_lookup(fuse_req_t request, fuse_ino_t parent, const char *name);
void qos_control_getattr(fuse_req_t request, fuse_ino_t ino);
void qos_control_statx(fuse_req_t request, fuse_ino_t ino);
void qos_control_setattr(fuse_req_t request, fuse_ino_t ino, int to_set); /* truncation alone */
void qos_control_open(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qos_control_read(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *info);
void qos_control_write(fuse_req_t request, fuse_ino_t ino, const char *data, size_t size,
                       off_t offset, struct fuse_file_info *info);
void qos_control_release(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qos_control_opendir(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info);
void qos_control_readdir(fuse_req_t request, fuse_ino_t ino, size_t size, off_t offset,
                         gboolean plus);

/* --- xattrs on the root; TRUE where the name was one of ours and the request was answered --- */
gboolean qos_control_setxattr(fuse_req_t request, const char *name, const char *value, size_t size);
gboolean qos_control_getxattr(fuse_req_t request, const char *name, size_t size);
gboolean qos_control_removexattr(fuse_req_t request, const char *name);
