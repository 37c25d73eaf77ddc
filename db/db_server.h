/*
 * What outlives a server: its incarnation, who may have credits, the store's name and the tunables,
 * in SQLite (db/server.sql). Opening, its errors and its lock are those of a mount's database
 * (db/db_open.c).
 *
 * Nothing but opening waits for the disk: changes are handed over and written by the database's own
 * thread, all that there are in one transaction, each as it is last. While that fails, as on a full
 * disk, it is tried again each second, and what was handed over waits.
 *
 * All functions are for the thread of the main context in which the database was opened, and the
 * functions that it is given are called there.
 */
#pragma once

#include "core/credit.h"

#define QOS_SERVER_LEASE_MAX (3600 * QOS_SECOND)

typedef struct QosServerDb QosServerDb;

typedef struct {
    QosOwnerId id;
    char *principal;
    char *name;
} QosServerDbClient;

/* As it was when the database was opened. */
typedef struct {
    QosOwnerId id;
    guint32 incarnation;  /* of this start: durable already, larger than that of any before */
    QosTime lease;        /* that its clients may have; 0: none was saved */
    guint64 key[2];       /* secret; of proofs (core/proof.h) */
    gint64 claimable;     /* bytes of credits that one client may have; 0: none was saved */
    char *store;          /* NULL: not yet known */
    GPtrArray *clients;   /* of QosServerDbClient */
    GHashTable *tunables; /* name -> text */
} QosServerRecord;

typedef struct {
    /* The client is on the durable list. */
    void (*saved)(QosOwnerId client, gpointer arg);
    /* Writing fails, and why; NULL: it works again. Once for each change of this. */
    void (*trouble)(const char *message, gpointer arg);
    gpointer arg;
} QosServerDbCalls;

/* Opens or makes the database at `path`, whose folder must be there. NULL with an error
 * (QOS_ERROR), as of qos_db_open(); EOVERFLOW: it was started as often as it can be. */
QosServerDb *qos_server_db_open(const char *path, const QosServerDbCalls *calls, GError **error);
/* Tries once more to write what is pending; calls nothing any more. NULL is allowed. */
void qos_server_db_close(QosServerDb *db);
/* Borrowed, until the database is closed. */
const QosServerRecord *qos_server_db_record(const QosServerDb *db);

void qos_server_db_save_client(QosServerDb *db, QosOwnerId id, const char *principal,
                               const char *name);
void qos_server_db_forget_client(QosServerDb *db, QosOwnerId id);
/* Is durable before any client is that is handed over later. */
void qos_server_db_save_lease(QosServerDb *db, QosTime lease);
/* Likewise. */
void qos_server_db_save_claimable(QosServerDb *db, gint64 bytes);
void qos_server_db_save_store(QosServerDb *db, const char *store);
/* NULL: it is not set any more. */
void qos_server_db_save_tunable(QosServerDb *db, const char *name, const char *value);
