/*
 * The places of the server's Unix sockets.
 */
#pragma once

#include <glib.h>

/* Bytes of a path that an address has room for (unix(7)). */
#define QOS_SOCKET_PATH_MAX 107

/*
 * Makes `path` (at most QOS_SOCKET_PATH_MAX bytes) free for bind(2): a socket that nobody listens
 * on any more, as a killed server leaves it, is removed. Nothing else is. FALSE with an error
 * (QOS_ERROR) that names the path: EADDRINUSE, somebody listens there; EEXIST, what is there is no
 * socket; else what the kernel says.
 */
gboolean qos_socket_path_clear(const char *path, GError **error);
