/*
 * What the server decides: which mount may have which credit. It is one QosOwner, the root, and
 * what the server knows of its clients. Everything happens in the main loop's thread.
 *
 * The sockets (server/listener.h) call the functions below with messages of peers that they have
 * identified, and send the output. A client is named by its owner id.
 */
#pragma once

#include "core/wire.h"
#include "db/db_server.h"
#include "server/clients.h"
#include "server/tunable.h"

typedef struct QosGrants QosGrants;

typedef struct {
    const char *database;       /* a directory */
    QosServerSettings settings; /* unless others are in the database */
    QosTime resend;
} QosGrantsConfig;

/* Where output goes. Called from within the functions below and from the main loop; the id is of a
 * client that is connected. */
typedef struct {
    gpointer arg;
    void (*send)(QosOwnerId id, const QosCreditMessage *message, gpointer arg);
    /* Closes the connection with that reason; qos_grants_disconnected() is not called. */
    void (*drop)(QosOwnerId id, QosWireRefusal code, const char *reason, gpointer arg);
} QosGrantsOutput;

/* NULL with an error (QOS_ERROR) where the server may not start. */
QosGrants *qos_grants_new(const QosGrantsConfig *config, const QosGrantsOutput *output,
                          GError **error);
/* NULL is allowed. */
void qos_grants_free(QosGrants *grants);
/* The server's database, which the grants have opened and will close. */
QosServerDb *qos_grants_database(QosGrants *grants);

/*
 * A client said HELLO. `principal` is its identity ("uid 0", "CN=node1"), which the sockets have
 * verified. FALSE: it is refused with *ret_refused, and not connected. It may be connected already:
 * then this connection replaces the other one, which is not reported as disconnected.
 */
gboolean qos_grants_connected(QosGrants *grants, const QosWireHello *hello, const char *principal,
                              QosWireWelcome *ret_welcome, QosWireRefused *ret_refused);
/* Messages of a client that is connected, in the order in which they came. They stay the caller's.
 */
void qos_grants_received(QosGrants *grants, QosOwnerId id, const QosCreditMessage *messages,
                         guint count);
/* A process of a client that is connected waits for a file lock (server/deadlocks.h); takes the
 * items. TRUE: for ever. */
gboolean qos_grants_waits(QosGrants *grants, QosOwnerId id, QosWireWait *wait);
void qos_grants_disconnected(QosGrants *grants, QosOwnerId id);

/*
 * For the administrator.
 */

/* Borrowed from the grants, until the next call of any function above. */
typedef struct {
    QosOwnerId id;
    guint32 incarnation;
    const char *store;    /* NULL: no mount has come yet */
    QosTime started, now; /* monotonic */
    gboolean in_grace;
    guint awaited; /* clients that the grace waits for */
    guint64 lent;  /* credits */
    const QosPool *pool;
    const QosClients *clients;
    const QosServerSettings *settings; /* in force */
    const QosServerSettings *next;     /* with the next start */
    GHashTable *set;                   /* name -> text: by the administrator */
    const char *trouble;               /* of the database; NULL: none */
    const guint64 *received, *sent;    /* messages, by QosMessageType */
    guint64 evictions;                 /* of clients that had credits */
    guint waits;                       /* for file locks, of processes that have others */
    guint64 deadlocks;                 /* of these */
} QosGrantsState;

void qos_grants_state(const QosGrants *grants, QosGrantsState *ret_state);
/* Sets a tunable, for good. "default" takes back what was set. FALSE: *error says what is wrong,
 * and nothing has changed. */
gboolean qos_grants_set(QosGrants *grants, const char *name, const char *text, GError **error);
/* Closes the client's connection, and lets it connect again only when its lease has ended, by which
 * all that it had is free. FALSE (ENOENT): there is no such client. */
gboolean qos_grants_expel(QosGrants *grants, QosOwnerId id, GError **error);
