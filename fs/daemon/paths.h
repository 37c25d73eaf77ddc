/*
 * The paths on mount.qosfs's command line: SRC, DIR, the database, and a lock server's socket. They
 * are made absolute before the daemon leaves its folder. A path is refused if the daemon would wait
 * for its own mount there.
 */
#pragma once

#include "fs/daemon/options.h"

/* Enters the mount namespace that is asked for, and clears mounts with dead daemons off DIR. Sets
 * *ret_source and *ret_mountpoint to SRC and DIR, absolute, without symbolic links. Each is NULL or
 * to be freed by g_free(), also after an error (QOS_ERROR). The database's path is set in
 * `options`; its folder is made where it is the usual one. */
gboolean qos_paths_resolve(QosOptions *options, char **ret_source, char **ret_mountpoint,
                           GError **error);
