/*
 * How C is divided among jobs: the law of fs/adapt_fair.c over the sums of all mounts.
 *
 * With weights w, the jobs' demands D, and B to hand out, a job's limit is
 *
 *     L = min(D, level w)           sum L = B, where all together want more than B
 *     L = D + rest w                sum L = B, where all have enough
 *
 * which is max-min fairness with weights (core/budget_report.c has the references). It is solved
 * exactly, by sorting: jobs are few. So a job that wants less than its part has what it wants,
 * nothing is left while another job wants more, and jobs that want more have the same for each unit
 * of weight. A job's demand is a sum over its mounts, so on how many it works makes no difference.
 *
 * Two things are corrected, by the law of core/budget.c (FAIR). Within a job: mounts do not use all
 * that they are given, so a job's budget hands out more until the job is served its limit; and a
 * job that was served beyond its limit pays that back. Over all jobs: a job that drops below its
 * demand leaves its limit unused for an epoch, so B = C a - debt / REPAY, where a makes the sum
 * served C. The entitlements add up to C; the limits add up to B, which is C on average.
 *
 * A job's served amount is set against the limit that it had meanwhile, not against the new one:
 * so an epoch is counted first, then the limits change, then rates are handed out.
 *
 * Limits. Nothing is lent and paid back between jobs beyond that debt: fs/adapt_fair.c keeps
 * records of loans for 20 s, this does not. The work of a close is O(n log n) in the jobs and O(m)
 * in their mounts.
 */
#include "core/budget_shares.h"

#include "core/budget_private.h"

typedef struct {
    guint64 id, weight;
    QosBudget *budget;
    double demand, limit, silent;
    double entitlement;
} Job;

struct QosBudgetShares {
    QosBudgetConfig config;
    gboolean is_first;
    QosBudget *whole;  /* C's factor and debt; it has no members */
    GHashTable *by_id; /* id -> Job, owned */
    GPtrArray *jobs;   /* the same, in the order in which they came */
    GPtrArray *sorted; /* scratch: those that want anything */
    GArray *answers;   /* scratch: of one job */
};

static void free_job(gpointer data)
{
    Job *job = data;

    qos_budget_free(job->budget);
    g_free(job);
}

QosBudgetShares *qos_budget_shares_new(const QosBudgetConfig *config, gboolean is_first,
                                       QosTime now)
{
    QosBudgetShares *shares = g_new0(QosBudgetShares, 1);

    g_assert(config->share == QOS_BUDGET_FAIR);
    shares->config = *config;
    shares->is_first = is_first;
    shares->whole = qos_budget_new(config, is_first, now);
    shares->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    shares->jobs = g_ptr_array_new_with_free_func(free_job);
    shares->sorted = g_ptr_array_new();
    shares->answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));
    return shares;
}

void qos_budget_shares_free(QosBudgetShares *shares)
{
    if (shares == NULL)
        return;
    qos_budget_free(shares->whole);
    g_hash_table_unref(shares->by_id);
    g_ptr_array_unref(shares->jobs);
    g_ptr_array_unref(shares->sorted);
    g_array_unref(shares->answers);
    g_free(shares);
}

void qos_budget_shares_configure(QosBudgetShares *shares, const QosBudgetConfig *config)
{
    g_assert(config->share == QOS_BUDGET_FAIR);
    shares->config = *config;
    qos_budget_configure(shares->whole, config);
}

static Job *find(const QosBudgetShares *shares, guint64 id)
{
    return g_hash_table_lookup(shares->by_id, &id);
}

QosBudget *qos_budget_shares_job(QosBudgetShares *shares, guint64 id, guint64 weight, QosTime now)
{
    Job *job = find(shares, id);

    if (job == NULL) {
        job = g_new0(Job, 1);
        job->id = id;
        job->budget = qos_budget_new(&shares->config, shares->is_first, now);
        g_hash_table_insert(shares->by_id, &job->id, job);
        g_ptr_array_add(shares->jobs, job);
    }
    job->weight = CLAMP(weight, 1, QOS_BUDGET_WEIGHT_MAX);
    return job->budget;
}

void qos_budget_shares_end(QosBudgetShares *shares, guint64 id)
{
    Job *job = find(shares, id);

    if (job == NULL)
        return;
    g_hash_table_remove(shares->by_id, &id);
    g_ptr_array_remove(shares->jobs, job);
}

/* --- the division --- */

/* By demand for a unit of weight; by id where that is the same, so that a run repeats. */
static gint compare_jobs(gconstpointer a, gconstpointer b)
{
    const Job *left = *(Job *const *)a, *right = *(Job *const *)b;
    const double x = left->demand * (double)right->weight, y = right->demand * (double)left->weight;

    if (x != y)
        return x < y ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* Those that want anything, sorted; returns the sum of their weights. */
static double collect(QosBudgetShares *shares)
{
    double weight = 0;

    g_ptr_array_set_size(shares->sorted, 0);
    for (guint i = 0; i < shares->jobs->len; i++) {
        Job *job = shares->jobs->pdata[i];
        job->limit = job->entitlement = 0;
        if (job->demand <= 0)
            continue;
        g_ptr_array_add(shares->sorted, job);
        weight += (double)job->weight;
    }
    g_ptr_array_sort(shares->sorted, compare_jobs);
    return weight;
}

/* Sets the limits; returns the level, G_MAXDOUBLE where all have enough. */
static double divide(QosBudgetShares *shares, double to_hand_out)
{
    const double all = collect(shares);
    double left = to_hand_out, weight = all, level = G_MAXDOUBLE;

    for (guint i = 0; i < shares->sorted->len; i++) {
        Job *job = shares->sorted->pdata[i];
        job->entitlement = (double)shares->config.limit * (double)job->weight / all;
        if (level == G_MAXDOUBLE && job->demand * weight > left * (double)job->weight)
            level = left / weight;
        job->limit = level < G_MAXDOUBLE ? level * (double)job->weight : job->demand;
        left -= job->demand;
        weight -= (double)job->weight;
    }
    for (guint i = 0; level == G_MAXDOUBLE && i < shares->sorted->len; i++) {
        Job *job = shares->sorted->pdata[i];
        job->limit += left * (double)job->weight / all;
    }
    return level;
}

/* Counts the epoch that ends. */
static void account(QosBudgetShares *shares, QosTime now)
{
    double silent = 0;

    for (guint i = 0; i < shares->jobs->len; i++) {
        Job *job = shares->jobs->pdata[i];
        job->silent = qos_budget_account(job->budget, now);
        job->demand = qos_budget_state(job->budget, now).demand;
        shares->whole->served += job->budget->epoch_served;
        silent += job->silent;
    }
    qos_budget_correct(shares->whole, silent, (double)(now - shares->whole->closed) / QOS_SECOND);
    shares->whole->epoch_served = shares->whole->served;
    qos_budget_note_served(shares->whole, now - shares->whole->closed);
    shares->whole->served = 0;
    shares->whole->closed = now;
}

static void hand_out(QosBudgetShares *shares, Job *job, QosTime now, GArray *answers)
{
    QosBudgetConfig config = shares->config;

    config.limit = CLAMP((guint64)job->limit, 1, QOS_BUDGET_RATE_MAX);
    qos_budget_configure(job->budget, &config);
    qos_budget_hand_out(job->budget, job->silent, now, shares->answers);
    for (guint i = 0; i < shares->answers->len; i++) {
        const QosBudgetSharesAnswer answer = {
            .job = job->id, .answer = g_array_index(shares->answers, QosBudgetAnswer, i)};
        g_array_append_val(answers, answer);
    }
    g_array_set_size(shares->answers, 0);
}

void qos_budget_shares_close(QosBudgetShares *shares, QosTime now, GArray *answers)
{
    account(shares, now);
    shares->whole->level = divide(shares, qos_budget_to_hand_out(shares->whole, 0));
    for (guint i = 0; i < shares->jobs->len; i++)
        hand_out(shares, shares->jobs->pdata[i], now, answers);
}

void qos_budget_shares_set_saturated(QosBudgetShares *shares, gboolean is_saturated)
{
    shares->whole->is_saturated = is_saturated;
    for (guint i = 0; i < shares->jobs->len; i++) {
        const Job *job = shares->jobs->pdata[i];
        job->budget->is_saturated = is_saturated;
    }
}

/* --- reports --- */

gboolean qos_budget_shares_find(const QosBudgetShares *shares, guint64 id, QosTime now,
                                QosBudgetSharesJob *ret_job)
{
    const Job *job = find(shares, id);

    if (job == NULL)
        return FALSE;
    *ret_job = (QosBudgetSharesJob){.weight = job->weight,
                                    .entitlement = (guint64)job->entitlement,
                                    .demand = (guint64)job->demand,
                                    .limit = (guint64)job->limit,
                                    .budget = qos_budget_state(job->budget, now)};
    return TRUE;
}

QosBudgetState qos_budget_shares_state(const QosBudgetShares *shares, QosTime now)
{
    QosBudgetState state = qos_budget_state(shares->whole, now);

    for (guint i = 0; i < shares->jobs->len; i++) {
        const Job *job = shares->jobs->pdata[i];
        const QosBudgetState one = qos_budget_state(job->budget, now);
        state.members += one.members;
        state.reporting += one.reporting;
        state.silent += one.silent;
        state.in_force += one.in_force;
        state.demand += one.demand;
    }
    return state;
}
