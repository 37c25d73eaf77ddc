/*
 * The jobs that divide what the store can do, over all mounts (adapt=fair): one group of
 * core/budget_shares.h, and when its epoch ends.
 *
 * Each class of other rules has an epoch of its own. Jobs that divide one rate need one for all of
 * them: what a job leaves is known only when all have said what they want. The epoch ends when all
 * mounts that are awaited have reported, whatever their jobs, but not sooner than half an epoch
 * after the one before; and when E has passed.
 *
 * A job's weight is not what a mount says of it. The weigher is asked for it before each division.
 *
 * Pure: time is an argument. One thread, the main loop's.
 */
#pragma once

#include "core/budget_shares.h"

typedef struct QosServerSharing QosServerSharing;

/* A job in the group; embedded, all zero is none. */
typedef struct {
    guint64 number; /* in the group; 0: it is in none */
    gpointer owner; /* what it is embedded in */
    const char *job;
    guint64 factor;    /* of what the weigher says: at least 1 */
    QosBudget *budget; /* the group's */
    gboolean is_awaited;
} QosServerShare;

/* The weight of a job that so many mounts have reported; at least 1. */
typedef guint64 (*QosServerWeigher)(const char *job, guint mounts, gpointer arg);

/* Free with qos_server_sharing_free(). `config` has passed the check and is FAIR. */
QosServerSharing *qos_server_sharing_new(const QosBudgetConfig *config, gboolean is_first,
                                         QosTime now);
/* Its jobs have been removed, or are never looked at again. NULL is allowed. */
void qos_server_sharing_free(QosServerSharing *sharing);
/* From the next division on. */
void qos_server_sharing_configure(QosServerSharing *sharing, const QosBudgetConfig *config);
/* NULL: a job's weight is the number of its mounts, as before the first call. */
void qos_server_sharing_set_weigher(QosServerSharing *sharing, QosServerWeigher weigher,
                                    gpointer arg);

/* Makes `share` a job of the group. `job` is borrowed for as long as it is one. `factor` may be
 * changed there at any time. */
void qos_server_sharing_add(QosServerSharing *sharing, QosServerShare *share, gpointer owner,
                            const char *job, guint64 factor, QosTime now);
void qos_server_sharing_remove(QosServerSharing *sharing, QosServerShare *share);
/* Its budget has another report (`is_open`: one that waits for an answer), or a member less. */
void qos_server_sharing_note(QosServerSharing *sharing, QosServerShare *share, gboolean is_open);

/* When the epoch ends; QOS_NEVER: no report waits for an answer. */
QosTime qos_server_sharing_due(const QosServerSharing *sharing);
/* What is answered to the mounts of one job: `answers` of QosBudgetAnswer, borrowed. */
typedef void (*QosServerSharingFunc)(gpointer owner, const GArray *answers, QosTime now,
                                     gpointer arg);
/* Ends the epoch of all jobs. */
void qos_server_sharing_close(QosServerSharing *sharing, QosTime now, QosServerSharingFunc func,
                              gpointer arg);

/* What is known of the job. */
QosBudgetSharesJob qos_server_sharing_job(const QosServerSharing *sharing,
                                          const QosServerShare *share, QosTime now);
