/*
 * The mountpoint: what the kernel says is mounted there, and taking a mount away from it.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

/* Whether `path` lies below `directory`, as they are written; both are absolute. */
gboolean qos_mountpoint_is_below(const char *path, const char *directory);

/* Whether `path` leads below `mountpoint` (absolute, without symbolic links), be it by symbolic
 * links, also the last of them to what is not there: the mount will hide it from the daemon. */
gboolean qos_mountpoint_hides(const char *mountpoint, const char *path);

/* The device ("0:53") of the topmost mount on `path` (absolute, without symbolic links), or NULL
 * where there is none. *ret_type (may be NULL): the type of its file system, to be freed. */
char *qos_mountpoint_device(const char *path, char **ret_type);

/* The user and group that made the topmost mount on `path`; FALSE where it is none by FUSE. */
gboolean qos_mountpoint_owner(const char *path, uid_t *ret_uid, gid_t *ret_gid);

/* The same as stat(2) has it of files there; 0: there is none. */
dev_t qos_mountpoint_device_number(const char *path);

/* Whether the topmost mount on `path` (as above) is one of qosfs. */
gboolean qos_mountpoint_is_taken(const char *path);

/* Ends the connection of root's own mount on `path` and detaches it, if `device` is still the
 * topmost there. Programs that are in the mount get ENOTCONN. `is_disconnected`: the kernel has
 * ended the connection. If because of an unmount, the next mount may have the same device. */
void qos_mountpoint_detach(const char *path, const char *device, gboolean is_disconnected);

/* Clears away mounts of qosfs on `path` with dead daemons, so that a new mount finds the place as
 * the first one did. TRUE also where there is none. Errors (QOS_ERROR): ENOTCONN, another program's
 * mount is dead there, or it cannot be unmounted. */
gboolean qos_mountpoint_clear(const char *path, GError **error);

/* Whether /dev/fuse is there and open to the caller; else an error (QOS_ERROR) with what to do. */
gboolean qos_mountpoint_check_device(GError **error);

/* Why an ordinary user's mount failed, and what to do, as far as that can be seen; or NULL. */
const char *qos_mountpoint_obstacle(void);
