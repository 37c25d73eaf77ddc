/*
 * Figures from the bins of the timelines. A window is one second of whole bins; it slides by one
 * bin.
 */
#include "sim/metrics.h"

#include <math.h>
#include <stdlib.h>

#define WINDOW  QOS_SECOND
#define SETTLED 0.95

typedef struct {
    const QosScenario *scenario;
    const QosSimulation *simulation;
    guint bins;   /* of the run */
    guint window; /* bins in a window */
} View;

static const QosSimulatedJob *job_at(const View *view, guint index)
{
    return view->simulation->jobs->pdata[index];
}

static double served_in(const View *view, const QosSimulatedJob *job, guint first)
{
    double sum = 0;
    for (guint bin = first; bin < first + view->window; bin++)
        sum += g_array_index(job->bins, guint32, bin);
    return sum;
}

static gboolean wanted_in(const View *view, const QosSimulatedJob *job, guint first)
{
    for (guint bin = first; bin < first + view->window; bin++) {
        if (!g_array_index(job->wanted, guint8, bin))
            return FALSE;
    }
    return TRUE;
}

/* It has had its first request, and not its last reply. */
static gboolean is_there(const View *view, const QosSimulatedJob *job, guint first)
{
    QosTime begin = (QosTime)first * view->scenario->bin;
    return job->first <= begin && job->last >= begin + (QosTime)view->window * view->scenario->bin;
}

/* --- windows --- */

typedef struct {
    double share_error;
    double least;
    GArray *jain; /* of double */
} Worst;

/* Jain's index of served / weight over the jobs that wanted more; NaN with less than two. */
static double jain_of(const View *view, guint first)
{
    double sum = 0;
    double squares = 0;
    guint count = 0;

    for (guint i = 0; i < view->simulation->jobs->len; i++) {
        const QosSimulatedJob *job = job_at(view, i);
        if (!wanted_in(view, job, first))
            continue;
        double part = served_in(view, job, first) / (double)job->weight;
        sum += part;
        squares += part * part;
        count++;
    }
    return count >= 2 && squares > 0 ? sum * sum / (count * squares) : NAN;
}

static void look_at_window(const View *view, guint first, Worst *worst)
{
    double all_served = 0;
    double weights = 0;
    double wanting_weights = 0;
    guint there = 0;
    guint wanting = 0;

    for (guint i = 0; i < view->simulation->jobs->len; i++) {
        const QosSimulatedJob *job = job_at(view, i);
        all_served += served_in(view, job, first);
        if (!is_there(view, job, first))
            continue;
        there++;
        weights += (double)job->weight;
        if (wanted_in(view, job, first)) {
            wanting++;
            wanting_weights += (double)job->weight;
        }
    }
    for (guint i = 0; i < view->simulation->jobs->len && all_served > 0; i++) {
        const QosSimulatedJob *job = job_at(view, i);
        if (!is_there(view, job, first) || !wanted_in(view, job, first))
            continue;
        double part = served_in(view, job, first) / all_served;
        double share = (double)job->weight / weights;
        worst->least = MIN(worst->least, part / share);
        if (wanting == there && there >= 2)
            worst->share_error = MAX(worst->share_error, fabs(part / share - 1));
    }
    double jain = jain_of(view, first);
    if (!isnan(jain))
        g_array_append_val(worst->jain, jain);
}

static int compare_doubles(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

static double median(GArray *values)
{
    if (values->len == 0)
        return NAN;
    qsort(values->data, values->len, sizeof(double), compare_doubles);
    return g_array_index(values, double, values->len / 2);
}

/* --- bursts --- */

static int compare_times(const void *a, const void *b)
{
    const QosTime *left = a;
    const QosTime *right = b;
    return (*left > *right) - (*left < *right);
}

static void look_at_bursts(const QosSimulation *simulation, QosMetrics *metrics)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(QosTime));

    for (guint i = 0; i < simulation->jobs->len; i++) {
        const QosSimulatedJob *job = simulation->jobs->pdata[i];
        g_array_append_vals(all, job->bursts->data, job->bursts->len);
    }
    metrics->burst_median = metrics->burst_p99 = metrics->burst_longest = -1;
    if (all->len == 0)
        return;
    qsort(all->data, all->len, sizeof(QosTime), compare_times);
    metrics->burst_median = g_array_index(all, QosTime, all->len / 2);
    metrics->burst_p99 = g_array_index(all, QosTime, (guint)(0.99 * (all->len - 1)));
    metrics->burst_longest = g_array_index(all, QosTime, all->len - 1);
}

void qos_metrics(const QosScenario *scenario, const QosSimulation *simulation,
                 const QosSimulation *base, QosMetrics *ret_metrics)
{
    View view = {.scenario = scenario,
                 .simulation = simulation,
                 .bins = (guint)(scenario->duration / scenario->bin),
                 .window = (guint)MAX(WINDOW / scenario->bin, 1)};
    Worst worst = {.share_error = -1, .least = INFINITY};
    g_autoptr(GArray) jain = worst.jain = g_array_new(FALSE, FALSE, sizeof(double));

    for (guint first = 0; first + view.window <= view.bins; first++)
        look_at_window(&view, first, &worst);
    *ret_metrics = (QosMetrics){
        .rate = (double)simulation->served * 1e9 / (double)scenario->duration,
        .utilization = (double)simulation->busy / (double)base->busy,
        .share_error = worst.share_error >= 0 ? worst.share_error : NAN,
        .least = isinf(worst.least) ? NAN : worst.least,
        .jain = median(jain),
    };
    look_at_bursts(simulation, ret_metrics);
}
