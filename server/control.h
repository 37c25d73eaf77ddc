/*
 * The Unix socket by which `qosfsctl server` asks, and an administrator changes things. Only root
 * and the server's own user are listened to.
 *
 * One request a connection: a line, of 1024 bytes at most
 *
 *     state               the state, as JSON (server/report.h)
 *     metrics             Prometheus text
 *     set NAME VALUE      a tunable; "default": as the options say. The answer: what speaks
 *                         against it, or nothing
 *     evict ID            a mount, by its id in hexadecimal
 *
 * The answer is a line "ok", or "ERRNO what is wrong", then the text, and the end.
 */
#pragma once

#include "server/grants.h"
#include "server/listener.h"

typedef struct QosServerControl QosServerControl;

/* Listens at `path` (server/socket_path.h). NULL with an error (QOS_ERROR) that names it. */
QosServerControl *qos_server_control_new(const char *path, QosGrants *grants,
                                         const QosListener *listener, GError **error);
/* Removes the socket. NULL is allowed. */
void qos_server_control_free(QosServerControl *control);
