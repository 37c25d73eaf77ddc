/*
 * Reads and writes a server's rules of the cluster and their log, for db/db_server.c: the caller
 * owns the connection.
 */
#pragma once

#include "db/db_private.h"
#include "db/db_server.h"

/* A list, an entry of the log, and who is to be told. */
typedef struct {
    QosServerDbRules rules;
    gboolean has_rules;
    QosServerDbLogEntry *entry;
    QosServerDbRulesSaved done;
    gpointer arg;
    gboolean is_ended; /* it was tried */
    GError *error;     /* how that ended */
} QosServerDbSave;

/* NULL is allowed. */
void qos_server_db_save_free(QosServerDbSave *save);
/* One transaction. FALSE with *error: nothing of it was written. */
gboolean qos_server_db_write_save(sqlite3 *sqlite, const char *path, const QosServerDbSave *save,
                                  GError **error);
/* For arrays of QosServerDbBudgetClient and QosServerDbJob. */
void qos_server_db_budget_client_free(gpointer data);
void qos_server_db_job_free(gpointer data);
/* Fills in the rules, their version and the log, the mounts with floors and the jobs, all of which
 * are empty. FALSE with *error: what is
 * there cannot be read, or cannot be. */
gboolean qos_server_db_read_rules(sqlite3 *sqlite, const QosDbSchema *schema, const char *path,
                                  QosServerRecord *record, GError **error);
