/*
 * The Unix socket by which `qosfsctl server` asks for the state, and an administrator changes
 * things. Only root and the server's own user may use it.
 *
 * Each connection carries one request: a line of at most 1024 bytes.
 *
 *     state               the state, as JSON (server/report.h)
 *     metrics             Prometheus text
 *     set NAME VALUE      a tunable; "default": as the options say. The answer: what speaks
 *                         against it, or nothing
 *     evict ID            a mount, by its id in hexadecimal
 *
 * The answer is a line, "ok" or "ERRNO what is wrong", then the text. Then the server closes.
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
