/*
 * The jobs of a mount, their users, and what each job did, waited for and got. job_stats, the
 * metrics and `qosfsctl why` report from here.
 *
 * There is one QosJob for each JobID. It is found by name only when a caller is first seen, and by
 * pointer from then on. References are held by the table, open files, the cache of callers and
 * waiting requests. A job that only the table holds is dropped when it has been idle for the
 * cleanup interval, as in Lustre (600 s).
 *
 * A job can take only a bounded part of what all jobs share (fs/sched.h). But a JobID costs nothing
 * if it comes from an environment variable. So a QosUser stands above all the jobs of a user, and
 * has bounds of its own. A uid is not free, and an entry is small, so it stays as long as the
 * registry does. Limit: a user with subordinate uids (subuid(5)) counts as that many users. Root
 * and the daemon's own user have no bounds; where a QosUser is expected, NULL stands for them.
 *
 * Locking: everything but `id` and what is atomic belongs to the gate's lock. Pure: no lock in
 * here.
 */
#pragma once

#include "base/histogram.h"
#include "base/opcode.h"
#include "base/time.h"
#include "fs/adapt.h"

#define QOS_JOB_ID_MAX 63 /* bytes, without the terminator; Lustre has 31 */
/* Rules that one job's waiting is told apart by; the rest is summed up. */
#define QOS_JOB_WAITS_MAX 8

/* Used in place of a rule's name for waits that no rule, or no single rule, caused; no rule can
 * have these names. */
#define QOS_WAIT_SLOTS  "(slots)"  /* of the store, or the job's part of them: rule_id 0 */
#define QOS_WAIT_SHARE  "(share)"  /* its turn, while there were slots: rule_id 0 */
#define QOS_WAIT_CREDIT "(credit)" /* that another mount has, or stale pages to go: rule_id 0 */
#define QOS_WAIT_OTHERS "(others)"

/* Jobs that are made for one user, some 3 KiB each; beyond that the user's uid names the job. */
#define QOS_USER_JOBS_MAX 4096

/* A Lustre statistics line: microseconds for times, bytes for sizes. */
typedef struct {
    guint64 samples;
    guint64 minimum;
    guint64 maximum;
    guint64 sum;
    double sum_of_squares; /* a double, because the exact sum overflows in seconds */
} QosSample;

/* How long a job waited for one rule (or for slots, or its share: rule_id 0). */
typedef struct {
    guint64 rule_id;
    char rule_name[16];
    guint64 count;  /* requests that waited */
    QosTime waited; /* their sum, ns */
    QosTime longest;
    QosTime first; /* when the first and the last of them began to wait */
    QosTime last;
} QosWait;

/* How much one job or one user takes of what all share. */
typedef struct {
    guint running;        /* slots held now */
    guint background;     /* requests that wait, and may be the kernel's in the background */
    guint over_limit;     /* in the store without a slot */
    guint waiting;        /* requests that wait; of a job alone */
    guint64 parked_bytes; /* of memory that requests take which wait, with their data */
} QosUse;

/* A user, with all the jobs that the user's programs work for. */
typedef struct {
    guint32 uid;
    guint open_files;    /* atomic, as in a job */
    guint opens_refused; /* atomic */
    guint known_files;   /* the table of inodes': files that this user has found and that keep a
                            descriptor */
    guint removed_files; /* likewise: of these, the ones that have lost their last name */
    gsize open_texts;    /* the control's: bytes of the texts of .qosfs that the user has open */
    guint jobs;          /* that were made for the user and are there */
    QosUse use;
    GQueue
        user_queue; /* the scheduler's, of QosRequest: due, but the user has its share of slots */
} QosUser;

/* What a job has open; written by fs/store/open_file.c alone, without the gate's lock: atomic. */
typedef struct {
    guint count;   /* of files and directories */
    guint refused; /* opens, since it had too many of them */
} QosJobFiles;

/* The scheduler's part of a job that each request needs; written by fs/sched*.c and fs/slots.c
 * alone. */
typedef struct {
    GQueue job_queue; /* of QosRequest: due, but the job has its share of slots */
    QosUse use;
} QosJobSched;

/* The same, of what few requests need. */
typedef struct {
    GList at_limit_link; /* among the jobs that have requests at their limit */
    guint64 refused;     /* requests that failed because there was no room for them to wait */
} QosJobSchedRare;

/* Written by fs/tbf_class.c alone. */
typedef struct {
    struct QosTbfFlow *flow; /* the last one of a request of the job, or NULL */
} QosJobTbf;

/* Each part is written by its subject alone, once fs/jobs.c has made the job. All the rest belongs
 * to the books, and is written by fs/jobs.c; but the gate notes `nodes` and `passthrough`. */
typedef struct QosJob {
    gint references;   /* atomic; first, as the next, for qos_sched_copy_job() */
    QosJobFiles files; /* atomic */
    guint nodes;       /* the job's node count, 0 = unknown */
    guint wait_count;  /* of `wait`, in use */
    QosJobSched sched;
    QosTime seen;       /* last request */
    QosTime store_time; /* sum, ns */
    QosTime wait_time;  /* sum, ns: all reasons */
    guint64 requests;
    guint64 waits;           /* requests that waited */
    QosTime rate_time;       /* the decaying rates below hold as of this time */
    guint64 rate_operations; /* since rate_time, not yet in the rates */
    guint64 rate_bytes;
    double operation_rate; /* op/s, decaying over about 2 s */
    double byte_rate;      /* bytes/s */
    QosJobTbf tbf;
    QosShare share; /* written by fs/adapt*.c alone */
    QosWait wait[QOS_JOB_WAITS_MAX];

    QosJobSchedRare sched_rare;
    QosSample operation[QOS_OP_COUNT]; /* the store's time, us */
    QosSample read_bytes;              /* copies inside the store count as both */
    QosSample write_bytes;
    QosHistogram read_sizes;
    QosHistogram write_sizes;
    QosTime started; /* first request since the last clear */
    guint64 errors;
    guint passthrough; /* open files that the kernel reads and writes by itself */
    QosUser *maker;    /* the user that it was made for; NULL: one without bounds */
    char id[QOS_JOB_ID_MAX + 1];
} QosJob;

typedef struct {
    GHashTable *users;        /* uid -> QosUser, owned */
    GHashTable *by_id;        /* id -> QosJob, one reference each */
    QosTime cleanup_interval; /* idle jobs are dropped after this; 0 = never */
} QosJobs;

void qos_jobs_init(QosJobs *jobs, QosTime cleanup_interval);
void qos_jobs_clear(QosJobs *jobs);

/* The user, made if need be; borrowed from the registry. */
QosUser *qos_jobs_user(QosJobs *jobs, guint32 uid);
/* The job named `id` (cut to QOS_JOB_ID_MAX), made if need be. A new reference. */
QosJob *qos_jobs_job(QosJobs *jobs, const char *id, QosTime now);
/* The same for `user`. Beyond QOS_USER_JOBS_MAX jobs of the user, it is the job named by the uid.
 * NULL: a user without bounds. */
QosJob *qos_jobs_job_for(QosJobs *jobs, QosUser *user, const char *id, QosTime now);
/* NULL where there is none; a new reference. */
QosJob *qos_jobs_find(QosJobs *jobs, const char *id);
QosJob *qos_job_ref(QosJob *job);
void qos_job_unref(QosJob *job);           /* NULL is allowed */
GPtrArray *qos_job_list_new(guint length); /* empty, with room for so many references */

/* Books a request that has come. */
static inline void qos_job_comes(QosJob *job, QosTime now)
{
    job->seen = now;
}
/* Books a request that begins to wait for `rule_id`, so that why shows while it lasts. */
void qos_job_waits(QosJob *job, guint64 rule_id, const char *rule_name, QosTime now);
/* Books that it stopped, after `waited` ns. */
void qos_job_waited(QosJob *job, guint64 rule_id, const char *rule_name, QosTime waited,
                    QosTime now);
/* Books a finished request: its store time in ns, the bytes it moved, and its errno (0 = none). */
void qos_job_served(QosJob *job, QosOpcode opcode, QosTime store_time, guint64 bytes, int error,
                    QosTime now);
/* The decaying rates as of `now`. */
void qos_job_rates(const QosJob *job, QosTime now, double *ret_operations, double *ret_bytes);

/* Gives `job` the counters of `totals`, with times that are ages before `now`; for a job restored
 * after a remount. */
void qos_job_restore(QosJob *job, const QosJob *totals, QosTime now);

/* Forgets what `id` did (NULL: what all did); a job in use stays, with totals of zero. Returns the
 * number. */
guint qos_jobs_reset(QosJobs *jobs, const char *id, QosTime now);
/* Drops the jobs that have been idle for the cleanup interval and have no other references. Returns
 * the number. */
guint qos_jobs_expire(QosJobs *jobs, QosTime now);
/* All jobs, one new reference each. */
GPtrArray *qos_jobs_list(const QosJobs *jobs);
