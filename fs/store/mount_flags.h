/*
 * What the mounts of the store forbid: nosuid, nodev, noexec, nosymfollow.
 *
 * These belong to a mount, not to a file system, and may change at any time (mount -o remount). So
 * who asks gets what holds now: the kernel tells, by poll(), whether its table of mounts has
 * changed, and only then the table is read again. No file system is asked, as some would let the
 * daemon wait.
 *
 * A mount that is not in the table (it was detached, or belongs to another namespace) gives nobody
 * set-user-ID rights, as for the kernel; what else it forbids the kernel tells of a file on it.
 *
 * Lock: `lock`, also while /proc is read.
 */
#pragma once

#include <glib.h>
#include <sys/mount.h>

typedef struct QosMountFlags QosMountFlags;

/* Of Linux 5.10; older headers do not have it. */
#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif
/* All that is known here, as flags of mount(2). */
#define QOS_MOUNT_FORBIDS (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOSYMFOLLOW)

/* Of the mounts of this process' namespace. */
QosMountFlags *qos_mount_flags_new(void);
void qos_mount_flags_free(QosMountFlags *flags); /* NULL is allowed */

/* What mount `id` (as statx(2) has it; 0: it does not tell) forbids now: of QOS_MOUNT_FORBIDS. `fd`
 * is a file on it, or -1. */
gulong qos_mount_flags_of(QosMountFlags *flags, guint64 id, int fd);
