/*
 * The clients of a server: mounts, by owner id.
 *
 * An id belongs to the principal that first used it as long as the client is on the durable list,
 * has a connection or has credits. After that the client is idle: its counts are kept until there
 * are too many clients, and the next principal that uses the id takes it over.
 */
#pragma once

#include "core/credit.h"

typedef struct {
    QosOwnerId id;
    char *principal;     /* its identity, as the sockets have verified it */
    char *name;          /* for people */
    guint32 incarnation; /* of its last HELLO; 0: none since the server's start */
    gboolean is_connected;
    gboolean is_durable; /* on the durable list, or on its way there */
    gboolean is_in_pool;
    QosPoolClient pool;
    QosTime connected;      /* when */
    QosTime expelled_until; /* by the administrator */
    guint64 credits;
    guint64 lost; /* of these, since it was last heard of */
    guint64 received, sent;
    guint64 called_back; /* credits */
    GList link;          /* of QosClients.idle */
} QosClient;

/* Embedded. */
typedef struct {
    GHashTable *by_id; /* QosOwnerId -> QosClient */
    GQueue idle;       /* the longest idle first */
} QosClients;

/* More than a cluster has mounts. */
#define QOS_CLIENTS_MAX 65536

void qos_clients_init(QosClients *clients);
void qos_clients_clear(QosClients *clients);
/* NULL: unknown. */
QosClient *qos_clients_find(const QosClients *clients, QosOwnerId id);
/* A new one; of the idle ones the oldest makes way. NULL: there are too many. */
QosClient *qos_clients_add(QosClients *clients, QosOwnerId id, const char *principal,
                           const char *name);
void qos_client_rename(QosClient *client, const char *name);
/* Of an idle one: it belongs to another principal now. */
void qos_client_hand_over(QosClient *client, const char *principal);
gboolean qos_client_is_idle(const QosClient *client);
/* To be called when it was connected or disconnected, put on the durable list or taken off, or has
 * got or lost credits: finds out whether it is idle from now on. */
void qos_clients_note(QosClients *clients, QosClient *client);
/* How many there are that are not idle. */
guint qos_clients_count(const QosClients *clients);
