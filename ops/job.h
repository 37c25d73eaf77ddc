/*
 * The JobID of a process: jobid_var and jobid_name, Lustre's words (docs/jobid.md).
 *
 *   jobid_var   NAME              that environment variable; a process without it is named by
 * `%e.%u` auto              the first of SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID, JOB_ID;
 * else `%e.%u` cgroup:REGEX      the first group of REGEX (or the whole match) in /proc/TID/cgroup:
 * a user cannot forge it nodelocal         jobid_name alone procname_uid      `%e.%u` disable no
 * job: all requests belong to the job ""... named "-" jobid_name  a format: %e comm, %g gid, %h
 * host, %H host up to its first dot, %j job from the environment, %p pid, %u uid, %% percent; %.Nx
 * cuts to N characters; %j?REST: the job if it is set, else REST
 *
 * Where jobid_name is set (not the default "%j?%e.%u"), it shapes the result of every jobid_var but
 * `disable` and `procname_uid`.
 */
#pragma once

#include <glib.h>
#include <sys/types.h>

/* How jobs are named. Immutable, reference counted. */
typedef struct QosJobNaming QosJobNaming;

/* Errors (QOS_ERROR): EINVAL with the reason, e.g. a variable that is no name, a bad REGEX, an
 * unknown code. */
QosJobNaming *qos_job_naming_new(const char *jobid_var, const char *jobid_name, const char *host,
                                 GError **error);
QosJobNaming *qos_job_naming_ref(QosJobNaming *naming);
void qos_job_naming_unref(QosJobNaming *naming); /* NULL is allowed */
const char *qos_job_naming_var(const QosJobNaming *naming);
const char *qos_job_naming_name(const QosJobNaming *naming);

/* What /proc says of a process, as far as the naming needs it. Each may be NULL: unreadable. */
typedef struct {
    const char *comm;
    const char *environment; /* NAME=VALUE strings, each ended by NUL */
    gsize environment_length;
    const char *cgroup; /* the text of /proc/TID/cgroup */
    pid_t pid;
    uid_t uid;
    gid_t gid;
} QosProcess;

/* Writes the JobID, at most QOS_JOB_ID_MAX bytes, to `ret_id` (of QOS_JOB_ID_MAX + 1). TRUE where
 * it had to be cut. *ret_nodes: the job's node count from SLURM_JOB_NUM_NODES, SLURM_NNODES,
 * PBS_NUM_NODES, FLUX_JOB_NNODES or the number of hosts in LSB_HOSTS; 0 = unknown. */
gboolean qos_job_name_process(const QosJobNaming *naming, const QosProcess *process, char *ret_id,
                              guint *ret_nodes);
/* What the naming needs: whether the environment, the cgroup must be read. */
gboolean qos_job_naming_wants_environment(const QosJobNaming *naming);
gboolean qos_job_naming_wants_cgroup(const QosJobNaming *naming);
