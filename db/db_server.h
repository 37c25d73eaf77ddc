/*
 * What outlives a server, in SQLite (db/server.sql): its incarnation, the clients that may have
 * credits, the store's name, the tunables, and the rules of the cluster with their log. Opening,
 * its errors and its lock are those of a mount's database (db/db_open.c).
 *
 * Only opening waits for the disk. Changes are handed over, and the database's own thread writes
 * all pending changes in one transaction, each in its latest version. If that fails, for example
 * because the disk is full, the thread tries again each second, and the changes wait.
 *
 * Rules are otherwise: a list comes into force only once it is durable, and an administrator waits
 * for the answer. So each list is a transaction of its own, tried once, and the caller is told how
 * it ended. Nothing in these functions is SQLite's, so that another engine can stand behind them.
 *
 * All functions are called in the thread of the main context in which the database was opened, and
 * the call-backs run there too.
 */
#pragma once

#include "core/credit.h"

#define QOS_SERVER_LEASE_MAX (3600 * QOS_SECOND)
/* Entries of the log of rules; beyond that the oldest go. */
#define QOS_SERVER_DB_LOG_MAX   1000
#define QOS_SERVER_DB_PARTS_MAX (1 << 24)
#define QOS_SERVER_DB_JOB_MAX   1000000

typedef struct QosServerDb QosServerDb;

typedef struct {
    QosOwnerId id;
    char *principal;
    char *name;
} QosServerDbClient;

/* A rule of the cluster. */
typedef struct {
    guint64 id;      /* 1 to the version of the list */
    QosTime expires; /* wall time, > 0; QOS_NEVER */
    char *command;   /* owned */
} QosServerDbRule;

/* The list of them. */
typedef struct {
    guint64 version;  /* at most G_MAXINT64; 0: none was ever set */
    GPtrArray *rules; /* of QosServerDbRule, owned, in the order of matching */
} QosServerDbRules;

/* A change of that list, or an attempt. */
typedef struct {
    QosTime time; /* wall time */
    char *principal, *command;
    guint error;  /* errno; 0: it was done */
    char *result; /* in words */
} QosServerDbLogEntry;

/* A mount that may use one of `parts` parts of the floors of rules. */
typedef struct {
    QosOwnerId id;
    char *name;
    guint parts; /* 1 to QOS_SERVER_DB_PARTS_MAX */
} QosServerDbBudgetClient;

/* The size of a job, as a batch system told it. */
typedef struct {
    char *id;
    guint nodes, weight; /* 1 to QOS_SERVER_DB_JOB_MAX */
    QosTime expires;     /* wall time, > 0 */
} QosServerDbJob;

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
    QosServerDbRules rules;
    GPtrArray *log; /* of QosServerDbLogEntry, the oldest first; QOS_SERVER_DB_LOG_MAX at most */
    GPtrArray *budget_clients; /* of QosServerDbBudgetClient */
    GPtrArray *jobs;           /* of QosServerDbJob */
} QosServerRecord;

typedef struct {
    /* The client is on the durable list. */
    void (*saved)(QosOwnerId client, gpointer arg);
    /* Writing fails, and why; NULL: it works again. Once for each change of this. */
    void (*trouble)(const char *message, gpointer arg);
    gpointer arg;
} QosServerDbCalls;

/* Opens or makes the database at `path`, in a folder that exists. NULL with an error (QOS_ERROR),
 * as of qos_db_open(); EOVERFLOW: it was started as often as it can be. */
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

/* Each returns the number of the change, which grows; qos_server_db_watch() tells when it is
 * durable. A change that replaces one of the same mount or job makes both so. */
guint64 qos_server_db_save_budget_client(QosServerDb *db, QosOwnerId id, const char *name,
                                         guint parts);
guint64 qos_server_db_forget_budget_client(QosServerDb *db, QosOwnerId id);
guint64 qos_server_db_save_job(QosServerDb *db, const char *id, guint nodes, guint weight,
                               QosTime expires);
guint64 qos_server_db_forget_job(QosServerDb *db, const char *id);
/* `durable` is called when all changes up to that number are. One watcher; NULL: none. */
void qos_server_db_watch(QosServerDb *db, void (*durable)(guint64 number, gpointer arg),
                         gpointer arg);

QosServerDbRules qos_server_db_rules_new(void);
/* Copies the command. */
void qos_server_db_rules_add(QosServerDbRules *rules, guint64 id, const char *command,
                             QosTime expires);
void qos_server_db_rules_clear(QosServerDbRules *rules);
/* Copies the texts; free with qos_server_db_log_entry_free(). */
QosServerDbLogEntry *qos_server_db_log_entry_new(const QosServerDbLogEntry *entry);
void qos_server_db_log_entry_free(QosServerDbLogEntry *entry);

/* How it ended: NULL: it is durable; else nothing of it is, and why (QOS_ERROR). */
typedef void (*QosServerDbRulesSaved)(const GError *error, gpointer arg);
/* The rules of the cluster and their log, as they were when the database was opened: borrowed. */
const QosServerDbRules *qos_server_db_load_rules(const QosServerDb *db);
/*
 * Saves all of `rules` (taken over and emptied; NULL: the saved list stays) and an entry of the log
 * (copied), both or neither. `done` is called once, later, unless the database is closed first.
 * No other call may be under way.
 */
void qos_server_db_save_rules(QosServerDb *db, QosServerDbRules *rules,
                              const QosServerDbLogEntry *entry, QosServerDbRulesSaved done,
                              gpointer arg);
