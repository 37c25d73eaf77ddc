/*
 * The sizes of jobs, as the prolog of a batch system tells them: how many nodes a job has, and what
 * one of its nodes weighs.
 *
 * The server sees a job only where it does I/O, which may be one node of many, or more mounts than
 * nodes. Where shares go by size, what the batch system says decides. An entry goes at its time, so
 * that an epilog that never ran leaves nothing for ever. At QOS_SERVER_JOBS_MAX entries no other is
 * taken.
 *
 * Pure: times are of the wall clock, in ns, and arguments.
 */
#pragma once

#include "base/time.h"

#define QOS_SERVER_JOBS_MAX    100000
#define QOS_SERVER_JOB_ID_MAX  255                            /* bytes of text */
#define QOS_SERVER_JOB_MAX     1000000                        /* nodes, and weight */
#define QOS_SERVER_JOB_KEPT    (7 * 24 * 3600 * QOS_SECOND)   /* without expire= */
#define QOS_SERVER_JOB_EXPIRES (366 * 24 * 3600 * QOS_SECOND) /* at most */

typedef struct {
    char *id;
    guint nodes, weight; /* 1 to QOS_SERVER_JOB_MAX */
    QosTime expires;     /* wall time */
} QosServerJob;

typedef struct QosServerJobs QosServerJobs;

QosServerJobs *qos_server_jobs_new(void);
/* NULL is allowed. */
void qos_server_jobs_free(QosServerJobs *jobs);

/*
 * Reads "ID [nodes=N] [weight=W] [expire=DURATION|TIME]": both are 1 where they are not given. TIME
 * is in ISO 8601. *ret_job is cleared by qos_server_job_clear(). FALSE: *error (QOS_ERROR, EINVAL)
 * says what is wrong.
 */
gboolean qos_server_job_parse(const char *text, QosTime wall, QosServerJob *ret_job,
                              GError **error);
void qos_server_job_clear(QosServerJob *job);

/* Copies the job; one with that id is replaced. FALSE (ENOSPC): there are too many. */
gboolean qos_server_jobs_set(QosServerJobs *jobs, const QosServerJob *job, GError **error);
/* FALSE: there is none of that id. */
gboolean qos_server_jobs_clear(QosServerJobs *jobs, const char *id);
/* Calls `expired` for each entry whose time has come, and takes it off. Returns when to call again.
 */
QosTime qos_server_jobs_expire(QosServerJobs *jobs, QosTime wall,
                               void (*expired)(const char *id, gpointer arg), gpointer arg);
/* NULL: nothing was told of it. */
const QosServerJob *qos_server_jobs_find(const QosServerJobs *jobs, const char *id);
/* By id; free with g_ptr_array_unref(), items borrowed. */
GPtrArray *qos_server_jobs_list(const QosServerJobs *jobs);
guint qos_server_jobs_count(const QosServerJobs *jobs);
