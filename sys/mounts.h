/*
 * Whether a FUSE mount is gone for good, as seen from a process other than its daemon. The helper
 * of umount(8) asks this, and so does a new mount that wants the old one's database.
 *
 * When umount(2) returns, the daemon has yet to save its data and to close the store. It can no
 * longer be asked anything, and a mount that is gone from one directory may go on at another, or in
 * another mount namespace. So this code looks for the file system: among the mounts of this
 * namespace and of the daemon's and, where fusectl is mounted, among the kernel's connections. The
 * kernel reuses the device number for the next file system that is mounted, so type and source
 * belong to the identity.
 *
 * Limit: without fusectl, this code does not see a mount that is left only in a third namespace, or
 * that was detached while programs use it.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

/* The identity of what is topmost on `directory` (absolute, without symbolic links): its device,
 * type and source, as /proc/self/mountinfo has them, with blanks between; NULL: nothing is. Free
 * with g_free(). */
char *qos_mounts_identify(const char *directory);
/* `daemon`: the process that serves it, as known here; or 0. */
gboolean qos_mounts_has(const char *identity, pid_t daemon);
