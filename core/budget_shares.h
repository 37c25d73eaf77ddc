/*
 * adapt=fair over all mounts: what the store can do, C, divided among jobs, and each job's part
 * among its mounts.
 *
 * The problem: each mount divides the store among the jobs that it sees. A job on 50 mounts so has
 * 50 shares, and a job on one mount has one.
 *
 * A group has one QosBudget for each job, whose members are the mounts on which the job works. At
 * each close the jobs' demands are added up, C is divided by these and by weight, and what comes
 * out is the limit of the job's budget for the next epoch:
 *
 *     reports of (job, mount) -> QosBudget of the job -- sum --> C by weight
 *     grants of (job, mount)  <- QosBudget of the job <- limit --
 *
 * Units and limits are those of core/budget.h. The law and its reasons are in core/budget_shares.c,
 * and docs/design/budget.md has figures.
 *
 * Limit: QOS_BUDGET_FAIR only. What rules reserve or hold back is the caller's to take from C.
 *
 * Pure: time is an argument. The caller locks.
 */
#pragma once

#include "core/budget.h"

typedef struct QosBudgetShares QosBudgetShares;

/* To the mount `answer.to`, of the class of `job`. */
typedef struct {
    guint64 job;
    QosBudgetAnswer answer;
} QosBudgetSharesAnswer;

/* What is known of a job since the latest close, for reports and tests. Rates. */
typedef struct {
    guint64 weight;
    guint64 entitlement; /* its part of C by weight among the jobs that want anything; 0: it does
                            not */
    guint64 demand;      /* of its mounts together */
    guint64 limit;       /* what it was given: its demand or its part, and what others leave */
    QosBudgetState budget;
} QosBudgetSharesJob;

/*
 * Free with qos_budget_shares_free(). `config` has passed the check and is FAIR; its limit is C.
 * `is_first` as in qos_budget_new(). What is more is the same for each job's budget; `floor` is in
 * percent of the job's limit, which changes with each close, so that it is best 0.
 */
QosBudgetShares *qos_budget_shares_new(const QosBudgetConfig *config, gboolean is_first,
                                       QosTime now);
/* NULL is allowed. */
void qos_budget_shares_free(QosBudgetShares *shares);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosBudgetShares, qos_budget_shares_free)

/* Another C, epoch, lease or number of mounts from the next close on. */
void qos_budget_shares_configure(QosBudgetShares *shares, const QosBudgetConfig *config);

/*
 * The budget of the job `id`: for qos_budget_join(), qos_budget_leave(), qos_budget_report() and
 * qos_budget_is_complete(). It is made where it is not there, and stays the group's. `weight`, 1 to
 * QOS_BUDGET_WEIGHT_MAX, is the job's from the next close on: its nodes times its weight for each
 * node, say. What it does not depend on is on how many mounts the job works.
 */
QosBudget *qos_budget_shares_job(QosBudgetShares *shares, guint64 id, guint64 weight, QosTime now);
/* The job has ended: no mount uses anything of it any more. */
void qos_budget_shares_end(QosBudgetShares *shares, guint64 id);

/* In the epoch that ends the store was saturated (core/budget_capacity.h), or not: what was not
 * served then is not handed out once more. */
void qos_budget_shares_set_saturated(QosBudgetShares *shares, gboolean is_saturated);

/* Ends the epoch of all jobs, and appends the answers (QosBudgetSharesAnswer). */
void qos_budget_shares_close(QosBudgetShares *shares, QosTime now, GArray *answers);

/* FALSE: there is no such job. */
gboolean qos_budget_shares_find(const QosBudgetShares *shares, guint64 id, QosTime now,
                                QosBudgetSharesJob *ret_job);
/* All jobs together: `level` is a rate for one unit of weight, and `factor` and `debt` are C's. */
QosBudgetState qos_budget_shares_state(const QosBudgetShares *shares, QosTime now);
