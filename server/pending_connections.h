/*
 * Connections before their HELLO ("pending"), and the order of their handshakes.
 *
 *     add -> (knock -> waiting -> qos_connection_shake() -> shaken) -> remove: HELLO, or the end
 *
 * The problem: a handshake occupies a thread for as long as the peer likes, up to the patience. So
 * at most QOS_PENDING_CONNECTIONS_SHAKING handshakes run at a time, and one host with many silent
 * connections could keep out all others. Therefore the next handshake is for the host that has
 * fewest under way, and within a host for its oldest connection. If all places are taken, the host
 * that has most gives one up for a host that has fewer by at least two: its oldest handshake is
 * closed. So a crowd from one host keeps out only itself. A thousand mounts that come back at once,
 * from as many hosts or from one, wait in their order, and none makes another begin anew.
 */
#pragma once

#include "server/connection.h"

#define QOS_PENDING_CONNECTIONS_SHAKING  64 /* handshakes under way */
#define QOS_PENDING_CONNECTIONS_TOO_MANY "too many others wait to say HELLO"

/* Embedded. Of connections it has no references: they are removed before they go. */
typedef struct {
    GQueue all;        /* the oldest first */
    GQueue waiting;    /* of these; likewise */
    GQueue shaking;    /* likewise */
    GHashTable *hosts; /* by name; those with any pending one */
    gboolean is_serving;
} QosPendingConnections;

void qos_pending_connections_init(QosPendingConnections *pending);
/* Of none. */
void qos_pending_connections_clear(QosPendingConnections *pending);
void qos_pending_connections_add(QosPendingConnections *pending, QosConnection *connection);
/* Takes the connection out; it is no pending one any more. Does nothing if it was none. */
void qos_pending_connections_remove(QosPendingConnections *pending, QosConnection *connection);

/* For QosConnectionUser. */
void qos_pending_connections_knock(QosPendingConnections *pending, QosConnection *connection);
void qos_pending_connections_shaken(QosPendingConnections *pending, QosConnection *connection);

/* The connection that makes way if there is no room for one more: the oldest of the host that has
 * most. NULL: each has one at most. */
QosConnection *qos_pending_connections_to_go(const QosPendingConnections *pending);
guint qos_pending_connections_count(const QosPendingConnections *pending);
