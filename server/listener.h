/*
 * The server's sockets: which peers may connect, which are connected, and what went wrong with
 * peers.
 *
 *     Unix   the peer's uid is root's, the server's own, or one that is allowed
 *     TCP    TLS or MUNGE, both ways: server/handshake.h
 *
 * The number of connections is bounded. At the bound, a connection that has not yet said HELLO
 * makes way for a new one: the oldest of the host that has most of them
 * (server/pending_connections.h).
 */
#pragma once

#include "server/cluster.h"
#include "server/connection.h"
#include "server/grants.h"
#include "server/options.h"

typedef struct QosListener QosListener;

typedef struct {
    guint connections; /* now, all */
    guint pending;     /* now, before their HELLO */
    guint64 accepted;
    guint64 welcomed;
    guint64 ended[QOS_WIRE_REFUSALS]; /* by QosWireRefusal; [0]: they just went */
} QosListenerStatistics;

/* Listens where the options say. NULL with an error (QOS_ERROR) that names the address or file.
 * `options` stay the caller's, and are there as long. */
QosListener *qos_listener_new(const QosServerOptions *options, GError **error);
/* Before the main loop runs. The grants are the caller's. */
void qos_listener_set_grants(QosListener *listener, QosGrants *grants);
/* Likewise. */
void qos_listener_set_cluster(QosListener *listener, QosCluster *cluster);
/* Closes all. NULL is allowed. */
void qos_listener_free(QosListener *listener);

/* For QosGrantsOutput: `arg` is the listener. */
void qos_listener_send(QosOwnerId id, const QosCreditMessage *message, gpointer arg);
void qos_listener_drop(QosOwnerId id, QosWireRefusal code, const char *reason, gpointer arg);

/* For QosClusterOutput: likewise. */
void qos_listener_send_urgent(QosOwnerId id, const guint8 *frames, gsize length, gpointer arg);
void qos_listener_send_bulk(QosOwnerId id, GBytes *frames, gpointer arg);

QosListenerStatistics qos_listener_statistics(const QosListener *listener);
