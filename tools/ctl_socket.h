/*
 * Asks a qosfs-server by its control socket (server/control.h): one line, one answer.
 */
#pragma once

#include <glib.h>

#define QOS_CTL_SOCKET_DEFAULT "/run/qosfs/control.sock"

/*
 * The answer's text, without the line that says whether it worked; free with g_free. `request` has
 * no line break.
 *
 * Errors (QOS_ERROR):
 *     ENOENT                 nobody listens at `path`
 *     EACCES, EPERM          the caller may not ask; EPERM also where the server refuses a request
 *     EAGAIN                 no answer within 30 s
 *     others                 the server's, with its words, escaped
 *
 * *ret_reached (may be NULL) says whether a server was there to judge the request.
 */
char *qos_ctl_socket_ask(const char *path, const char *request, gboolean *ret_reached,
                         GError **error);
