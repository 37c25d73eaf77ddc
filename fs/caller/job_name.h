/*
 * How the JobID of a process is named: by the options jobid_var and jobid_name, as in Lustre
 * (docs/user/jobs.md).
 *
 * jobid_var   NAME          that environment variable
 *               auto          the first of SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID, JOB_ID
 *               cgroup:REGEX  what REGEX finds in /proc/TID/cgroup: its first group that matches
 *                             something, or else the whole match; a user cannot forge it
 *               nodelocal     jobid_name alone, `%j` is never set
 *               procname_uid  `%e.%u`, whatever jobid_name says
 *               disable       all requests belong to one job, "-"
 * jobid_name  %e comm, %g gid, %h host, %H host up to its first dot, %j the job that jobid_var
 *               found, %p pid, %u uid, %% percent; %.Nx takes N characters at most; %j?REST is the
 *               job where there is one, else REST. Default: "%j?%e.%u"
 *
 * An empty name is replaced by `%e.%u`. A name that needs something unknown, such as the comm of a
 * process that cannot be seen, is replaced by `%u`. Bytes that are not printable become `?`, so
 * that an id is always valid UTF-8 on one line.
 *
 * These functions do no I/O: the caller hands in what /proc says (fs/caller/caller.c).
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

#include "fs/caller/proc.h"

#define QOS_JOBID_VAR_DEFAULT  "auto"
#define QOS_JOBID_NAME_DEFAULT "%j?%e.%u"

/* How jobs are named. Immutable, reference counted. */
typedef struct QosJobNaming QosJobNaming;

/* Errors (QOS_ERROR): EINVAL with the reason, e.g. a variable that is no name, a bad REGEX, an
 * unknown code. */
QosJobNaming *qos_job_naming_new(const char *jobid_var, const char *jobid_name, const char *host,
                                 GError **error);
QosJobNaming *qos_job_naming_ref(QosJobNaming *naming);
void qos_job_naming_unref(QosJobNaming *naming); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosJobNaming, qos_job_naming_unref)

/* What must be read to name a process (fs/caller/proc.h); nothing where all are one job. */
QosProcWants qos_job_naming_wants(const QosJobNaming *naming);
/* TRUE where both find the same jobs, whatever they call them. */
gboolean qos_job_naming_finds_the_same(const QosJobNaming *naming, const QosJobNaming *other);

/* What /proc says of a process, as far as the naming needs it. Each pointer may be NULL:
 * unreadable. */
typedef struct {
    const char *comm;
    const char *environment; /* NAME=VALUE strings, each ended by NUL */
    gsize environment_length;
    const char *cgroup; /* the text of /proc/TID/cgroup */
    pid_t pid;          /* 0 = unknown */
    uid_t uid;
    gid_t gid;
} QosProcess;

/* Its job, to be freed; NULL: it has none. *ret_nodes: the job's node count where it is found in
 * the environment, from SLURM_JOB_NUM_NODES, SLURM_NNODES, PBS_NUM_NODES, FLUX_JOB_NNODES or the
 * number of hosts in LSB_HOSTS; 0 = unknown. */
char *qos_job_find(const QosJobNaming *naming, const QosProcess *process, guint *ret_nodes);
/* Writes the JobID of a process of `job` (NULL: of none), at most QOS_JOB_ID_MAX bytes, to `ret_id`
 * (of QOS_JOB_ID_MAX + 1). TRUE where it had to be cut, which leaves UTF-8 sequences whole. */
gboolean qos_job_name(const QosJobNaming *naming, const QosProcess *process, const char *job,
                      char *ret_id);
/* Both. */
gboolean qos_job_name_process(const QosJobNaming *naming, const QosProcess *process, char *ret_id,
                              guint *ret_nodes);
