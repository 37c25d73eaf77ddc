/*
 * The mount's entry in the table of mount(8), /run/mount/utab.
 *
 * umount(8) runs a helper, umount.TYPE, which can wait for the daemon's end. But root's umount(8)
 * asks statfs(2) for the type, and that is "fuse" for all FUSE file systems. If the table has an
 * entry for the mount, `uhelper=` in it names the helper instead.
 */
#pragma once

#include <glib.h>

/* Appends one word of -o to *options (made if need be) if the table is to have it. */
void qos_mount_table_collect(GString **options, const char *word);
/* Whether there is to be an entry: root mounts, and the helper is installed. */
gboolean qos_mount_table_is_wanted(void);
/* Adds the mount, by mount(8), with those of its own options that were given (",NAME..."). A
 * failure does no harm. */
void qos_mount_table_add(const char *source, const char *directory, const GString *options);
