/*
 * What the mounts of the store forbid: nosuid, nodev, noexec, nosymfollow.
 *
 * These flags belong to a mount, not to a file system, and may change at any time (mount -o
 * remount). Each question is answered by what holds now. The kernel tells by poll() whether its
 * table of mounts has changed, and the table is read again only then. No file system is asked,
 * because some would let the daemon wait.
 *
 * A mount that is not in the table was detached, or belongs to another namespace. As for the
 * kernel, it gives no set-user-ID rights. What else it forbids the kernel tells for a file on it.
 *
 * Lock: `lock`, also while /proc is read.
 */
#pragma once

#include <glib.h>
#include <sys/mount.h>

typedef struct QosMountFlags QosMountFlags;

/* New in Linux 5.10; older headers do not have it. */
#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif
/* All that is known here, as flags of mount(2). */
#define QOS_MOUNT_FORBIDS (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOSYMFOLLOW)

/* Makes the table of the mounts in this process's namespace. */
QosMountFlags *qos_mount_flags_new(void);
void qos_mount_flags_free(QosMountFlags *flags); /* NULL is allowed */

/* What the mount `id` (from statx(2); 0: unknown) forbids now, of QOS_MOUNT_FORBIDS. `fd` is a file
 * on it, or -1. */
gulong qos_mount_flags_of(QosMountFlags *flags, guint64 id, int fd);
