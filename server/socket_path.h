/*
 * The places of the server's Unix sockets.
 */
#pragma once

#include <glib.h>

/* Bytes of a path that an address has room for (unix(7)). */
#define QOS_SOCKET_PATH_MAX 107

/*
 * Makes `path` (at most QOS_SOCKET_PATH_MAX bytes) free for bind(2): a socket without a listener,
 * as a killed server leaves it, is removed. Nothing else is. FALSE with an error (QOS_ERROR) that
 * names the path: EADDRINUSE, a program listens there; EEXIST, the file is not a socket; else the
 * kernel's errno.
 */
gboolean qos_socket_path_clear(const char *path, GError **error);
