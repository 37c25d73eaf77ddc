/*
 * File handles: files named without a descriptor (name_to_handle_at), so that a mount can know more
 * files than a process may hold open.
 *
 * A handle is opened through a descriptor of the mount on which the file lies: of the directory by
 * which that mount was entered. Not every store has handles, and opening them needs
 * CAP_DAC_READ_SEARCH. So it is tried when a mount is entered. The descriptor stays open, and the
 * mount busy, until the mount is left.
 *
 * Lock: `lock` of the table of mounts; no system call is made under it.
 */
#pragma once

#include <glib.h>

#include "fs/store/closer.h"

typedef struct QosMounts QosMounts;
typedef struct QosFileHandle QosFileHandle;

/* `closer` is borrowed. */
QosMounts *qos_mounts_new(QosCloser *closer);
void qos_mounts_free(QosMounts *mounts); /* NULL is allowed */
/* `fd` (O_PATH) is the root of the mount `id`, or a directory that stands for it. */
void qos_mounts_enter(QosMounts *mounts, guint64 id, int fd);
/* No file of that mount will be looked for any more; handles that there are stay good. */
void qos_mounts_leave(QosMounts *mounts, guint64 id);

/* TRUE on NFS: a file that loses its last name keeps another one (.nfs...) for as long as this
 * machine has a descriptor of it. */
gboolean qos_mounts_keep_removed(QosMounts *mounts, guint64 id);

/* The handle of the file that `fd` (O_PATH) is, on the mount `mount_id`; NULL where it can have
 * none that opens. */
QosFileHandle *qos_file_handle_new(QosMounts *mounts, guint64 mount_id, int fd);
void qos_file_handle_free(QosFileHandle *handle); /* NULL is allowed */
/* An O_PATH descriptor, owned by the caller, or -errno: -ESTALE where the file is gone. */
int qos_file_handle_open(const QosFileHandle *handle);
/* FALSE where either is NULL. */
gboolean qos_file_handle_equal(const QosFileHandle *a, const QosFileHandle *b);
