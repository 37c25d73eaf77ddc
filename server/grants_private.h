/*
 * What server/grants.c and server/grants_control.c share: the state of the grants, and the
 * functions that an administrator's command needs.
 */
#pragma once

#include "db/db_server.h"
#include "net/complaint.h"
#include "server/deadlocks.h"
#include "server/grants.h"

struct QosGrants {
    QosGrantsOutput output;
    QosServerSettings configured; /* by the options */
    QosServerSettings settings;   /* in force */
    QosServerSettings next;       /* with the next start */
    GHashTable *set;              /* name -> text: by the administrator */
    QosTime resend, started;
    QosTime advised; /* no advice in the log before */
    QosServerDb *db;
    QosOwner *owner;
    QosPool pool;
    QosClients clients;
    QosDeadlocks *waits;
    char *store;
    char *trouble;
    gint64 claimable; /* bytes that one client may have, or have had before the restart */
    gboolean is_paid; /* the pool has granted what is counted next */
    gboolean was_in_grace;
    guint64 resumed; /* the sequence of the signal that the pool goes on from; 0: none */
    guint64 received[QOS_MESSAGE_TYPES], sent[QOS_MESSAGE_TYPES];
    guint64 evictions, deadlocks;
    QosComplaints complaints; /* about mounts, when their leases have ended */
    GSource *timer;
    QosTime armed; /* for when the timer is; 0: it is to be set */
};

static inline QosTime qos_grants_now(void)
{
    return g_get_monotonic_time() * QOS_MICROSECOND;
}

/* Clients may have so many bytes from now on, or `falls` no more than that. */
void qos_grants_set_claimable(QosGrants *grants, gint64 bytes, gboolean falls);
/* Lets the client join or leave: it is in the pool as long as it has a connection or credits. */
void qos_grants_keep_in_pool(QosGrants *grants, QosClient *client);
/* Takes what the owner has put out, and sets the timer. */
void qos_grants_settle(QosGrants *grants);
/* It has no connection any more. */
void qos_grants_disconnect(QosGrants *grants, QosClient *client);
