/*
 * How qosfsctl talks to a mount: finding it, its xattrs user.qosfs.*, and the files of its .qosfs/.
 *
 * Errors (QOS_ERROR):
 *     ENOENT         there is no mount or no such name
 *     ENOTCONN       the daemon behind the mount is gone; the message says how to unmount it
 *     EPERM, EACCES  the message says which users may do it
 *     others         the errno of the mount, with the mount's own reason
 */
#pragma once

#include <glib.h>

/*
 * The mountpoint that `directory` (absolute, canonical) lies in, by the text of
 * /proc/self/mountinfo, or NULL where it is not on a qosfs. A bind mount of a part of a qosfs
 * counts as the whole. Free with g_free.
 */
char *qos_ctl_mount_containing(const char *mountinfo, const char *directory);
/* The mountpoints of all qosfs mounts (owned), each file system once. */
GPtrArray *qos_ctl_mount_all(const char *mountinfo);

/* The mountpoint to talk to: the one `option` (-m) lies in; where NULL, that of the current
 * directory, else the only one. Free with g_free. */
char *qos_ctl_mount_find(const char *option, GError **error);

/* The text of the file `name` in .qosfs/; free with g_free. `ret_length` may be NULL. */
char *qos_ctl_mount_read(const char *mountpoint, const char *name, gsize *ret_length,
                         GError **error);
/* What the mount knows of one job, JSON. NULL without an error: it knows none of that id, or does
 * not tell of one alone. */
char *qos_ctl_mount_read_job(const char *mountpoint, const char *id, gsize *ret_length,
                             GError **error);
gboolean qos_ctl_mount_write(const char *mountpoint, const char *name, const char *text,
                             GError **error);
/*
 * The value of the xattr user.qosfs.`name`, which the lock server may have been asked for: so the
 * mount has words for a failure. Free with g_free. ERANGE: the name or the value is too long.
 */
char *qos_ctl_mount_get(const char *mountpoint, const char *name, GError **error);
/* Sets the xattr user.qosfs.`name`. */
gboolean qos_ctl_mount_set(const char *mountpoint, const char *name, const char *value,
                           GError **error);
