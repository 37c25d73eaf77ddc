/*
 * Computes the metrics in one pass over the timeline: a window slides over the bins of all jobs,
 * one bin at a time. Each job keeps what it got in the window (Window), so the pass is linear in
 * the bins.
 */
#include "sim/metrics.h"

#include <math.h>
#include <stdlib.h>

#include "sim/fluid.h"

#define WINDOW          QOS_SECOND
#define WINDOW_REQUESTS 10               /* of the smallest share, in a window at least */
#define SETTLED         0.95             /* of the share */
#define CAPACITY_TIME   (5 * QOS_SECOND) /* to find out the capacity */
#define REPAID          0.1              /* of the record, left */

struct QosReference {
    const QosScenario *scenario;
    QosSimulation *none;
    GHashTable *alone; /* label, the scenario's -> double: median of its bursts alone, seconds */
    double ideal;      /* QosMetrics.burst_ideal */
};

/* What a job got in the window, and how it stands. */
typedef struct {
    double work;
    double repayment; /* due, sum of the bins */
    guint backlogged; /* bins */
    gboolean is_settled;
    double settle; /* so far */
} Window;

typedef struct {
    const QosScenario *scenario;
    const QosSimulation *simulation;
    guint length;    /* bins in a window */
    Window *windows; /* of each job */
    double jain_sum;
    guint jain_count;
    QosMetrics *metrics;
} View;

static const QosSimulatedJob *job_at(const QosSimulation *simulation, guint index)
{
    return simulation->jobs->pdata[index];
}

static const QosBin *bin_at(const QosSimulatedJob *job, guint index)
{
    return qos_timeline_bin(&job->bins, index);
}

static double seconds(QosTime time)
{
    return (double)time / (double)QOS_SECOND;
}

/* The larger; NaN stands for nothing yet. */
static double larger(double value, double other)
{
    return fmax(value, other);
}

/* --- numbers --- */

static int compare(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

/* Of doubles, sorted; by the nearest rank. */
static double quantile(const GArray *values, double fraction)
{
    if (values->len == 0)
        return NAN;
    guint rank = (guint)ceil(fraction * values->len);
    return g_array_index(values, double, MAX(rank, 1) - 1);
}

static void add_bursts(const QosSimulatedJob *job, double unit, GArray *values)
{
    for (guint i = 0; i < job->bursts->len; i++) {
        double took = seconds(g_array_index(job->bursts, QosTime, i)) / unit;
        g_array_append_val(values, took);
    }
}

/* --- the reference --- */

static double median_burst_alone(const QosScenario *scenario, const char *label)
{
    g_autoptr(QosSimulation) alone = qos_simulate(scenario, &qos_sharings[0], label);
    g_autoptr(GArray) values = g_array_new(FALSE, FALSE, sizeof(double));

    add_bursts(job_at(alone, 0), 1, values);
    g_array_sort(values, compare);
    return quantile(values, 0.5);
}

/* 99th percentile of what bursts take at best, against alone. */
static double ideal_factor(const QosReference *reference)
{
    g_autoptr(GArray) values = g_array_new(FALSE, FALSE, sizeof(double));

    if (!qos_fluid_is_defined(reference->scenario))
        return NAN;
    g_autoptr(GArray) bursts = qos_fluid_bursts(reference->scenario);
    for (guint i = 0; i < bursts->len; i++) {
        const QosFluidBurst *burst = &g_array_index(bursts, QosFluidBurst, i);
        const double *alone = g_hash_table_lookup(reference->alone, burst->label);
        double factor = burst->took / *alone;
        g_array_append_val(values, factor);
    }
    g_array_sort(values, compare);
    return quantile(values, 0.99);
}

QosReference *qos_reference_new(const QosScenario *scenario)
{
    QosReference *reference = g_new0(QosReference, 1);

    reference->scenario = scenario;
    reference->none = qos_simulate(scenario, &qos_sharings[0], NULL);
    reference->alone = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
    for (guint i = 0; i < scenario->clients->len; i++) {
        const QosScenarioClient *client = scenario->clients->pdata[i];
        if (client->burst == 0 || g_hash_table_contains(reference->alone, client->job))
            continue;
        double median = median_burst_alone(scenario, client->job);
        g_hash_table_insert(reference->alone, client->job, g_memdup2(&median, sizeof(median)));
    }
    reference->ideal = ideal_factor(reference);
    return reference;
}

void qos_reference_free(QosReference *reference)
{
    if (reference == NULL)
        return;
    qos_simulation_free(reference->none);
    g_hash_table_unref(reference->alone);
    g_free(reference);
}

/* --- windows --- */

static QosTime time_of(const View *view, guint bin)
{
    return (QosTime)bin * view->scenario->bin;
}

static gboolean is_backlogged(const View *view, guint index)
{
    return view->windows[index].backlogged == view->length;
}

/* Its first period is over when the window begins. */
static gboolean is_started(const View *view, const QosSimulatedJob *job, guint first)
{
    return job->first <= time_of(view, first) - view->scenario->period;
}

/* Moves the windows on, so that they end with the bin `last`. */
static void slide(View *view, guint last)
{
    for (guint i = 0; i < view->simulation->jobs->len; i++) {
        const QosSimulatedJob *job = job_at(view->simulation, i);
        Window *window = &view->windows[i];
        window->work += (double)bin_at(job, last)->work;
        window->repayment += bin_at(job, last)->repayment;
        window->backlogged += bin_at(job, last)->is_backlogged ? 1 : 0;
        if (last < view->length)
            continue;
        window->work -= (double)bin_at(job, last - view->length)->work;
        window->repayment -= bin_at(job, last - view->length)->repayment;
        window->backlogged -= bin_at(job, last - view->length)->is_backlogged ? 1 : 0;
    }
}

/* One that comes later than the others, and is backlogged from then on: did it get its share in
 * this window? */
static void look_at_newcomer(const View *view, guint index, double part, guint first)
{
    const QosSimulatedJob *job = job_at(view->simulation, index);
    Window *window = &view->windows[index];

    if (window->is_settled || job->first == 0 || time_of(view, first) < job->first)
        return;
    if (is_backlogged(view, index))
        window->settle = seconds(time_of(view, first) - job->first);
    window->is_settled = !is_backlogged(view, index) || part >= SETTLED;
}

/* The weight by which a job is due its share in the window: its own, changed by repayments. */
static double due_weight(const View *view, guint index)
{
    double repayment = view->windows[index].repayment / view->length;
    return (double)job_at(view->simulation, index)->weight * (1 + repayment);
}

typedef struct {
    double work; /* of all jobs */
    double weights;
    double due; /* weights, with what is paid back */
    guint jobs;
    gboolean is_full; /* all, and they have started */
} Sum;

static Sum sum_up(const View *view, guint first)
{
    Sum sum = {.is_full = TRUE};

    for (guint i = 0; i < view->simulation->jobs->len; i++) {
        const QosSimulatedJob *job = job_at(view->simulation, i);
        gboolean backlogged = is_backlogged(view, i);
        if (view->windows[i].work <= 0 && !backlogged)
            continue;
        sum.work += view->windows[i].work;
        sum.weights += (double)job->weight;
        sum.due += due_weight(view, i);
        sum.jobs++;
        sum.is_full = sum.is_full && backlogged && is_started(view, job, first);
    }
    return sum;
}

/* All jobs are backlogged: how far is this one from what it is to have, a request more or less? */
static void look_at_error(const View *view, guint index, const Sum *sum)
{
    const QosSimulatedJob *job = job_at(view->simulation, index);
    QosMetrics *metrics = view->metrics;
    double got = view->windows[index].work;
    double request = (double)job->largest;
    double share = sum->work * (double)job->weight / sum->weights;
    double due = sum->work * due_weight(view, index) / sum->due;

    metrics->share_error = larger(metrics->share_error, MAX(fabs(got - due) - request, 0) / share);
    metrics->raw_error = larger(metrics->raw_error, MAX(fabs(got - share) - request, 0) / share);
}

static void look_at_window(View *view, guint first)
{
    Sum sum = sum_up(view, first);
    double parts = 0;
    double squares = 0;
    guint count = 0;

    if (sum.jobs < 2 || sum.work <= 0)
        return;
    for (guint i = 0; i < view->simulation->jobs->len; i++) {
        const QosSimulatedJob *job = job_at(view->simulation, i);
        double share = sum.work * (double)job->weight / sum.weights;
        double got = view->windows[i].work;
        double request = (double)job->largest;
        look_at_newcomer(view, i, (got + request) / share, first);
        if (!is_backlogged(view, i) || !is_started(view, job, first))
            continue;
        view->metrics->least = fmin(view->metrics->least, MIN((got + request) / share, 1));
        if (sum.is_full)
            look_at_error(view, i, &sum);
        parts += got / (double)job->weight;
        squares += pow(got / (double)job->weight, 2);
        count++;
    }
    if (count >= 2 && squares > 0) {
        view->jain_sum += parts * parts / (count * squares);
        view->jain_count++;
    }
}

/* The part of the lightest job when as many jobs are busy at once as ever are. */
static double smallest_share(const QosSimulation *simulation)
{
    guint bins = job_at(simulation, 0)->bins.count;
    double smallest = INFINITY;
    double most = 0;

    for (guint i = 0; i < simulation->jobs->len; i++)
        smallest = MIN(smallest, (double)job_at(simulation, i)->weight);
    for (guint bin = 0; bin < bins; bin++) {
        double weights = 0;
        for (guint i = 0; i < simulation->jobs->len; i++) {
            const QosSimulatedJob *job = job_at(simulation, i);
            weights += bin_at(job, bin)->is_busy ? (double)job->weight : 0;
        }
        most = MAX(most, weights);
    }
    return smallest / MAX(most, smallest);
}

/* Bins in a window. */
static guint window_length(const QosScenario *scenario, const QosSimulation *simulation)
{
    double rate = scenario->capacity * smallest_share(simulation);
    double length = MAX(WINDOW_REQUESTS / rate, seconds(WINDOW));
    return (guint)MAX(ceil(length / seconds(scenario->bin) - 1e-9), 1);
}

static void look_at_windows(View *view)
{
    guint bins = job_at(view->simulation, 0)->bins.count;
    g_autofree Window *windows = g_new0(Window, view->simulation->jobs->len);

    view->windows = windows;
    for (guint i = 0; i < view->simulation->jobs->len; i++)
        windows[i].settle = NAN;
    for (guint last = 0; last < bins; last++) {
        slide(view, last);
        if (last + 1 >= view->length)
            look_at_window(view, last + 1 - view->length);
    }
    for (guint i = 0; i < view->simulation->jobs->len; i++)
        view->metrics->settle = larger(view->metrics->settle, windows[i].settle);
    if (view->jain_count > 0)
        view->metrics->jain = view->jain_sum / view->jain_count;
}

/* --- lenders --- */

/* How long the lender that wants all from bin `first` on was owed more than a tenth of what it had
 * lent; NaN where it stopped wanting before. */
static double repayment(const QosScenario *scenario, const QosSimulatedJob *job, guint first)
{
    gint64 record = bin_at(job, first - 1)->record;

    for (guint i = first; i < job->bins.count; i++) {
        if (!bin_at(job, i)->is_busy)
            return NAN;
        if ((double)bin_at(job, i)->record <= REPAID * (double)record)
            return seconds((QosTime)(i - first + 1) * scenario->bin);
    }
    return seconds((QosTime)(job->bins.count - first) * scenario->bin);
}

/* A record worth being looked at: a tenth of a second of the capacity, the whole of it. */
static void look_at_lender(const View *view, const QosSimulatedJob *job)
{
    double least = view->scenario->capacity * (double)QOS_COST_UNIT / 10;

    if (job->waking >= 0)
        view->metrics->waking = larger(view->metrics->waking, seconds(job->waking));
    for (guint i = 1; i < job->bins.count; i++) {
        if (bin_at(job, i)->is_busy && !bin_at(job, i - 1)->is_busy &&
            (double)bin_at(job, i - 1)->record >= least)
            view->metrics->repayment =
                larger(view->metrics->repayment, repayment(view->scenario, job, i));
    }
}

/* --- the capacity --- */

static double capacity_error(const QosScenario *scenario, const QosSimulation *simulation)
{
    double error = NAN;
    double last = 0;
    QosTime since = 0; /* the last change */

    if (scenario->told_capacity > 0 || simulation->sharing->adapt == QOS_ADAPT_OFF)
        return NAN;
    for (guint i = 0; i < simulation->capacity->len; i++) {
        const QosSimulatedCapacity *capacity =
            &g_array_index(simulation->capacity, QosSimulatedCapacity, i);
        QosTime time = (QosTime)(i + 1) * scenario->bin;
        if (capacity->actual != last)
            since = time - scenario->bin;
        last = capacity->actual;
        if (time - since >= CAPACITY_TIME && last > 0)
            error = larger(error, fabs(capacity->estimate / capacity->actual - 1));
    }
    return error;
}

/* --- all --- */

static void look_at_bursts(const QosReference *reference, const QosSimulation *simulation,
                           QosMetrics *metrics)
{
    g_autoptr(GArray) times = g_array_new(FALSE, FALSE, sizeof(double));
    g_autoptr(GArray) factors = g_array_new(FALSE, FALSE, sizeof(double));

    for (guint i = 0; i < simulation->jobs->len; i++) {
        const QosSimulatedJob *job = job_at(simulation, i);
        const double *alone = g_hash_table_lookup(reference->alone, job->label);
        add_bursts(job, 1, times);
        if (alone != NULL && *alone > 0)
            add_bursts(job, *alone, factors);
    }
    g_array_sort(times, compare);
    g_array_sort(factors, compare);
    metrics->burst_median = quantile(times, 0.5);
    metrics->burst_p99 = quantile(times, 0.99);
    metrics->burst_longest = quantile(times, 1);
    metrics->burst_factor = quantile(factors, 0.99);
    metrics->burst_ideal = reference->ideal;
}

/* Part of the time until the last reply in which the store served. */
static double use(const QosSimulation *simulation)
{
    return simulation->last > 0 ? (double)simulation->busy / (double)simulation->last : NAN;
}

void qos_metrics(const QosReference *reference, const QosSimulation *simulation,
                 QosMetrics *ret_metrics)
{
    const QosScenario *scenario = reference->scenario;
    View view = {.scenario = scenario,
                 .simulation = simulation,
                 .length = window_length(scenario, simulation),
                 .metrics = ret_metrics};

    *ret_metrics = (QosMetrics){
        .rate = simulation->last > 0 ? (double)simulation->served / seconds(simulation->last) : 0,
        .utilization = use(simulation) / use(reference->none),
        .share_error = NAN,
        .raw_error = NAN,
        .jain = NAN,
        .least = NAN,
        .settle = NAN,
        .waking = NAN,
        .repayment = NAN,
        .capacity_error = capacity_error(scenario, simulation)};
    look_at_windows(&view);
    for (guint i = 0; i < simulation->jobs->len; i++)
        look_at_lender(&view, job_at(simulation, i));
    look_at_bursts(reference, simulation, ret_metrics);
}
