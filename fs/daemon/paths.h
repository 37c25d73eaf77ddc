/*
 * What mount.qosfs is given as paths: SRC, DIR, the database, and a lock server's socket. They are
 * made absolute before the daemon leaves its folder, and refused where the daemon would wait for
 * its own mount.
 */
#pragma once

#include "fs/daemon/options.h"

/* Enters the mount namespace that is asked for, and takes mounts of daemons that have died off DIR.
 * *ret_source and *ret_mountpoint: SRC and DIR, absolute, without symbolic links, each NULL or to
 * be freed by g_free(), also after an error (QOS_ERROR). The database's path is set in `options`;
 * its folder is made where it is the usual one. */
gboolean qos_paths_resolve(QosOptions *options, char **ret_source, char **ret_mountpoint,
                           GError **error);
