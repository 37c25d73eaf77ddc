/*
 * Whether a mount of FUSE is gone for good, as seen by another process than its daemon: by the
 * helper of umount(8), and by a new mount that wants the old one's database.
 *
 * When umount(2) returns, the daemon has still to save and to let go of the store. Nothing can be
 * asked of it any more, and a mount that is gone from one directory may go on at another, or in
 * another mount namespace. So this looks for the file system: among the mounts of this namespace
 * and of the daemon's, and, where fusectl is mounted, among the connections of the kernel. The
 * kernel gives the device number to the next file system that is mounted, so type and source belong
 * to the identity. Without fusectl a mount is not seen that is left in a third namespace alone, or
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
