/*
 * File systems that only one machine has mounted. Their id tells them apart, and a close() sends
 * nothing of what was written.
 */
#pragma once

#include <glib.h>
#include <linux/magic.h>
#include <sys/vfs.h>

/* FALSE also of those of which it is not known. */
static inline gboolean qos_local_store(const struct statfs *statfs)
{
    switch (statfs->f_type) {
    case BTRFS_SUPER_MAGIC:
    case EXT4_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case XFS_SUPER_MAGIC:
        return TRUE;
    default:
        return FALSE;
    }
}
