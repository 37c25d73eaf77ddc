/*
 * What the mount tells about itself: a snapshot of the gate, and the texts made of it.
 *
 * A QosReport is taken once, with the gate's lock held for a short while for each job. The formats
 * are pure functions of it: report_stats.c, report_table.c, report_metrics.c, report_json.c,
 * report_cluster.c and report_shares.c.
 */
#pragma once

#include "fs/cluster/shared_rules.h"
#include "fs/control/tunable.h"
#include "fs/history.h"
#include "fs/lockclient/client.h"

#define QOS_REPORT_POLICIES_MAX 8

typedef struct {
    const QosPolicyClass *policy;
    QosPolicyState state;
    guint queued;
} QosReportPolicy;

/* One job's part in the adaptive sharing. Rates are op/s as of the last period, the others
 * operations, both of base cost. */
typedef struct {
    gboolean takes_part;
    gint64 weight;
    double entitlement;
    double demand;
    double allocation;
    double repayment;                 /* to it (> 0) or by it (< 0), beside its entitlement */
    double flow;                      /* lent (> 0) or borrowed (< 0) */
    char partner[QOS_JOB_ID_MAX + 1]; /* the job that had most of the other side of it; "" = none */
    double record;                    /* lent (> 0) or borrowed (< 0), and not yet paid back */
    double lent;                      /* totals */
    double returned;
    double borrowed;
    double repaid;
} QosReportShare;

typedef struct {
    QosAdaptMode mode;
    QosTime period;
    double capacity; /* op/s */
    double told;     /* op/s: what it was said to be; 0 = nothing */
    double reserved; /* op/s, by all that take part */
    guint depth;
    guint members;
    GHashTable *shares; /* JobID -> QosReportShare, both owned */
} QosReportAdapt;

/* TRUE until the store has been measured. */
static inline gboolean qos_report_is_told(const QosReportAdapt *adapt)
{
    return adapt->told > 0 && adapt->capacity == adapt->told;
}

/* How much of the jobs a report has. */
typedef enum {
    QOS_REPORT_NO_JOBS,
    QOS_REPORT_JOB_COUNTS,
    QOS_REPORT_ALL_JOBS,
} QosReportJobs;

/* How many jobs there are; of these, have requests in the store or waiting, or had lately; wait. */
typedef struct {
    guint all;
    guint active;
    guint waiting;
} QosReportJobCounts;

/* The rules for all mounts together, and this mount's part of their rates (fs/budgets.h). */
typedef struct {
    QosBudgetsTerms terms; /* version 0: the mount has no such rules; the rest is empty */
    gboolean is_away;      /* there has been no server for a lease: what away= says is in force */
    QosRules *rules;       /* a reference, with `default`; NULL: there are none */
    QosRuleState *rule_states; /* as QosReport has them; owned */
    GArray *classes; /* of QosBudgetsClass, with strings of their own; NULL: none were asked for */
    char fault[QOS_SHARED_RULES_FAULT_MAX + 1]; /* qos_shared_rules_fault() */
} QosReportCluster;

typedef struct {
    QosTime now;        /* monotonic; the jobs' times and the rules' expiry are on this clock */
    QosTime wall;       /* the same moment, ns since 1970 */
    QosTime started;    /* of the mount, ns since 1970 */
    const char *source; /* borrowed from the mount */
    const char *mountpoint;
    pid_t pid;
    guint inodes;
    guint callers;
    QosTunables tunables;

    QosSchedState slots;
    QosReportPolicy policies[QOS_REPORT_POLICIES_MAX];
    guint policy_count;
    QosRules *rules;           /* a reference */
    QosRuleState *rule_states; /* one for each rule, in the same order; owned */
    QosReportCluster cluster;
    GPtrArray *jobs;           /* of QosJob, copies with g_free, most recently seen first */
    QosReportJobCounts counts; /* with QOS_REPORT_JOB_COUNTS */
    QosGateHistograms histograms;
    QosReportAdapt adapt;
    gboolean is_shared;          /* with other mounts: */
    QosLockclientStatus sharing; /* borrowed from the mount */
} QosReport;

/* `tunables` is copied; `started` as above; but with QOS_REPORT_ALL_JOBS it has no jobs and shares.
 */
QosReport *qos_report_new(QosFs *fs, const QosTunables *tunables, QosTime started,
                          QosReportJobs jobs);
/* A copy of the job with that id, for qos_report_job_state(); NULL: there is none. The report gets
 * the job's share. Free with g_free(). */
QosJob *qos_report_take_job(QosReport *report, QosGate *gate, const char *id);
void qos_report_free(QosReport *report); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosReport, qos_report_free)

/* Copies of all jobs, most recently seen first; with `adapt` (or NULL) it gets their shares. */
GPtrArray *qos_report_copy_jobs(QosGate *gate, QosReportAdapt *adapt);

/* Lustre's YAML (docs/reference/reports.md). */
GString *qos_report_job_stats(const QosReport *report);
/* Tables for people. */
GString *qos_report_jobs(const QosReport *report);
GString *qos_report_rules(const QosReport *report);
/* The adaptive sharing, YAML. */
GString *qos_report_shares(const QosReport *report);
/* Prometheus text format, version 0.0.4. */
GString *qos_report_metrics(const QosReport *report);
/* One JSON object: all of it. */
GString *qos_report_state(const QosReport *report);
/* Parts of the same shape, with empty lists for what is left out. They are: the mount, with the
 * counts of the jobs; the mount and the rules; the mount and what a list of jobs shows of each; the
 * mount and one job, with the rules that it waited for. */
GString *qos_report_status(const QosReport *report);
GString *qos_report_rules_state(const QosReport *report);
GString *qos_report_jobs_state(const QosReport *report);
GString *qos_report_job_state(const QosReport *report, const QosJob *job);
/* Lustre's nrs_tbf_rule and nrs_policies. */
GString *qos_report_nrs_tbf_rule(const QosReport *report);
GString *qos_report_nrs_policies(const QosReport *report);

/* The history, CSV: its first line, and a row of it. */
GString *qos_report_history_head(void);
void qos_report_append_history(GString *text, const QosHistoryRow *row);

/* Takes the adaptive sharing as it is in the gate, as yet without shares. */
void qos_report_take_adapt(QosReportAdapt *adapt, QosGate *gate);
/* Nothing where sharing is off. */
void qos_report_add_share(QosReportAdapt *adapt, const QosSchedShare *share);
void qos_report_adapt_clear(QosReportAdapt *adapt);

/* --- the cluster's rules (report_cluster.c) --- */

/* Takes them as they are in the gate, with all classes or with none. */
void qos_report_take_cluster(QosReportCluster *cluster, QosGate *gate, gboolean has_classes);
/* Adds the classes that `job` may be in: its own, and those that jobs share. */
void qos_report_take_job_classes(QosReportCluster *cluster, QosGate *gate, const QosJob *job);
void qos_report_cluster_clear(QosReportCluster *cluster);
/* Their number, without `default`. */
guint qos_report_cluster_count(const QosReportCluster *cluster);
/* TRUE where the job waited for a rule of the cluster, not of the mount. */
gboolean qos_report_is_cluster_wait(const QosWait *wait);
/* Appends their metrics. */
void qos_report_append_cluster_metrics(GString *text, const QosReport *report);

/* --- shared by the formats --- */

/* Appends a job id for tables and CSV, bytes outside Lustre's set as \xHH. */
void qos_report_append_id(GString *text, const char *id);
/* Appends a job id as a scalar of YAML, in quotes; or plain where that does, as Lustre does. */
void qos_report_append_quoted_id(GString *text, const char *id);
void qos_report_append_yaml_id(GString *text, const char *id);
/* The job id that `text` is in quotes, as in YAML above or as Lustre writes it (\xHH is a byte);
 * NULL if it is not quoted, or not in that form. Owned by the caller. */
char *qos_report_read_quoted_id(const char *text);
/* The rule that holds the job up now or did within 10 s (or one of QOS_WAIT_*), or NULL. */
const char *qos_report_limit(const QosReport *report, const QosJob *job);
/* The part of a job in the adaptive sharing; NULL where it has none, or sharing is off. */
const QosReportShare *qos_report_share(const QosReport *report, const char *id);
/* ns since 1970 of a monotonic time. */
QosTime qos_report_wall(const QosReport *report, QosTime time);
