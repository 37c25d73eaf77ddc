/*
 * The Unix socket by which `qosfsctl server` asks for the state, and an administrator changes
 * things. Only root and the server's own user may use it, and admin-uid for requests of the
 * cluster: with that setting all users can connect, and the others are shut out at once.
 *
 * Each connection carries one request: a line of at most 70,000 bytes.
 *
 *     state               the state, as JSON (server/report.h)
 *     metrics             Prometheus text
 *     set NAME VALUE      a tunable; "default": as the options say. The answer: what speaks
 *                         against it, or nothing
 *     evict ID            a mount, by its id in hexadecimal
 *     cluster REQUEST     of the cluster (server/cluster.h); a change is answered when it is
 * durable
 *
 * The answer is a line, "ok" or "ERRNO what is wrong", then the text. Then the server closes.
 */
#pragma once

#include "server/cluster.h"
#include "server/grants.h"
#include "server/listener.h"

typedef struct QosServerControl QosServerControl;

/* Listens at `options->control` (server/socket_path.h). NULL with an error (QOS_ERROR) that names
 * it. All are there for as long. */
QosServerControl *qos_server_control_new(const QosServerOptions *options, QosGrants *grants,
                                         QosCluster *cluster, const QosListener *listener,
                                         GError **error);
/* Removes the socket. NULL is allowed. */
void qos_server_control_free(QosServerControl *control);
