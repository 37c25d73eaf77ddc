/*
 * How much of a bounded common resource a job and a user may have, so that no job takes all of it.
 *
 * One job may have QOS_QUOTA_SHARE times as many units as it leaves free. So a job alone gets
 * seven eighths of all, and each further job that takes what it can leaves some to the next. This
 * is a dynamic threshold (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
 * packet switches", 1998). In the same way one user may have QOS_QUOTA_USER_SHARE times as many,
 * however many jobs the user names.
 *
 * Pure; the caller locks.
 */
#pragma once

#include "fs/jobs.h"

#define QOS_QUOTA_SHARE      7
#define QOS_QUOTA_USER_SHARE 15

typedef enum {
    QOS_QUOTA_FREE,
    QOS_QUOTA_EXHAUSTED, /* all are taken */
    QOS_QUOTA_OF_JOB,    /* the job has its share */
    QOS_QUOTA_OF_USER,   /* the user has its share, the job has not */
} QosQuotaVerdict;

/* Whether a job may have one more unit. `left` units are free, the job has `of_job` and its user
 * `of_user`; that is 0 for a user without bounds. */
QosQuotaVerdict qos_quota_check(guint left, guint of_job, guint of_user);

/* The units, and how many each job and user has. */
typedef struct {
    guint most;
    guint taken;
    GHashTable *counts; /* QosJob or QosUser -> how many units it has */
} QosQuota;

void qos_quota_init(QosQuota *quota, guint most);
void qos_quota_clear(QosQuota *quota);
/* FALSE: there is none for `job` and `user` (NULL: one without bounds). Both are borrowed until the
 * unit is given back. */
gboolean qos_quota_take(QosQuota *quota, QosJob *job, QosUser *user);
void qos_quota_give_back(QosQuota *quota, QosJob *job, QosUser *user);
