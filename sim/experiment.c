/*
 * Runs an experiment and prints it. One table of columns serves all three forms of output: it has
 * each metric's name, its place, and the number of digits. Nothing that depends on the machine is
 * printed unless the user asks for it, so that runs can be compared.
 */
#include "sim/experiment.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <time.h>

#include "base/error.h"

#define JOBS_SHOWN 8

typedef struct {
    const char *name;  /* CSV */
    const char *title; /* with the unit */
    size_t offset;     /* in QosMetrics */
    double scale;
    int digits;
} Column;

#define COLUMN(name, title, scale, digits)                                                         \
    {                                                                                              \
#name, title, offsetof(QosMetrics, name), scale, digits                                    \
    }

static const Column columns[] = {
    COLUMN(rate, "op/s", 1, 1),
    COLUMN(utilization, "util. %", 100, 2),
    COLUMN(share_error, "share error %", 100, 2),
    COLUMN(raw_error, "with rep. %", 100, 2),
    COLUMN(jain, "Jain", 1, 4),
    COLUMN(least, "least %", 100, 1),
    COLUMN(settle, "new s", 1, 2),
    COLUMN(waking, "wake ms", 1000, 1),
    COLUMN(repayment, "repaid s", 1, 1),
    COLUMN(burst_median, "burst p50 s", 1, 3),
    COLUMN(burst_p99, "p99 s", 1, 3),
    COLUMN(burst_longest, "max s", 1, 3),
    COLUMN(burst_factor, "p99/alone", 1, 2),
    COLUMN(burst_ideal, "ideal", 1, 2),
    COLUMN(capacity_error, "cap. err. %", 100, 1),
};

/* --- running --- */

static void run_free(QosRun *run)
{
    qos_simulation_free(run->simulation);
    g_free(run);
}

/* FALSE: it was not done to its end. */
static gboolean run(QosExperiment *experiment, const QosReference *reference,
                    const QosSharing *sharing)
{
    QosRun *result = g_new0(QosRun, 1);

    result->sharing = sharing;
    result->period = sharing->adapt != QOS_ADAPT_OFF ? experiment->scenario->period : 0;
    clock_t begin = clock();
    result->simulation = qos_simulate(experiment->scenario, sharing, NULL);
    result->cpu = (double)(clock() - begin) / CLOCKS_PER_SEC;
    qos_metrics(reference, result->simulation, &result->metrics);
    g_ptr_array_add(experiment->runs, result);
    return !result->simulation->is_overloaded;
}

QosExperiment *qos_experiment_run(QosScenario *scenario, const GPtrArray *sharings)
{
    g_autoptr(QosReference) reference = qos_reference_new(scenario);
    QosExperiment *experiment = g_new0(QosExperiment, 1);

    experiment->scenario = scenario;
    experiment->runs = g_ptr_array_new_with_free_func((GDestroyNotify)(void (*)(void))run_free);
    for (guint i = 0; i < sharings->len; i++) {
        const QosSharing *sharing = sharings->pdata[i];
        if (sharing->has_rules && sharing->adapt == QOS_ADAPT_OFF && scenario->rules->len == 0 &&
            sharings->len > 1)
            continue; /* it would be No BW */
        guint periods = sharing->adapt != QOS_ADAPT_OFF ? scenario->periods->len : 1;
        for (guint k = 0; k < periods; k++) {
            scenario->period = g_array_index(scenario->periods, QosTime, k);
            if (!run(experiment, reference, sharing))
                return experiment;
        }
    }
    return experiment;
}

void qos_experiment_free(QosExperiment *experiment)
{
    if (experiment == NULL)
        return;
    g_ptr_array_unref(experiment->runs);
    qos_scenario_free(experiment->scenario);
    g_free(experiment);
}

static const QosRun *run_at(const QosExperiment *experiment, guint index)
{
    return experiment->runs->pdata[index];
}

char *qos_experiment_run_title(const QosExperiment *experiment, const QosRun *run)
{
    if (run->period == 0 || experiment->scenario->periods->len < 2)
        return g_strdup(run->sharing->title);
    return g_strdup_printf("%s, %g ms", run->sharing->title,
                           (double)run->period / (double)QOS_MILLISECOND);
}

double qos_experiment_job_rate(const QosSimulatedJob *job)
{
    const QosTime time = MAX(job->until - job->first, QOS_SECOND);

    return (double)job->served * (double)QOS_SECOND / (double)time;
}

gboolean qos_experiment_check(const QosExperiment *experiment, GError **error)
{
    for (guint i = 0; i < experiment->runs->len; i++) {
        const QosSimulation *simulation = run_at(experiment, i)->simulation;

        if (!simulation->is_overloaded)
            continue;
        qos_set_error(error, ENOMEM,
                      "%s: after %.4g s with %s more than %d requests wait: the load is far beyond "
                      "what is let through; give a shorter duration",
                      experiment->scenario->name, (double)simulation->end / (double)QOS_SECOND,
                      simulation->sharing->title, QOS_SIMULATION_REQUESTS_MAX);
        return FALSE;
    }
    return TRUE;
}

/* --- printing --- */

/* A metric as text, `none` where there is no occasion; free with g_free. */
static char *format(const Column *column, const QosMetrics *metrics, const char *none)
{
    double value = *(const double *)(const void *)((const char *)metrics + column->offset);

    if (isnan(value))
        return g_strdup(none);
    return g_strdup_printf("%.*f", column->digits, value * column->scale);
}

static gboolean is_used(const QosExperiment *experiment, const Column *column)
{
    for (guint i = 0; i < experiment->runs->len; i++) {
        g_autofree char *text = format(column, &run_at(experiment, i)->metrics, "");
        if (*text != '\0')
            return TRUE;
    }
    return FALSE;
}

/* How a row of a table is set. */
typedef struct {
    const char *begin;
    const char *between;
    const char *end;
    int title_width;
    int width;
} Style;

static const Style text_style = {"", " ", "\n", 20, 11};
static const Style markdown_style = {"| ", " | ", " |\n", 0, 0};

/* The metrics of a run; or, without one, the titles of the columns. */
static void print_row(const QosExperiment *experiment, const Style *style, const QosRun *run,
                      FILE *out)
{
    g_autofree char *title = run != NULL ? qos_experiment_run_title(experiment, run) : g_strdup("");

    fprintf(out, "%s%-*s", style->begin, style->title_width, title);
    for (guint k = 0; k < G_N_ELEMENTS(columns); k++) {
        const Column *column = &columns[k];
        g_autofree char *text =
            run != NULL ? format(column, &run->metrics, "-") : g_strdup(column->title);
        if (is_used(experiment, column))
            fprintf(out, "%s%*s", style->between, style->width, text);
    }
    fprintf(out, "%s", style->end);
}

/* op/s of the first jobs. */
static void print_jobs(const QosExperiment *experiment, FILE *out)
{
    guint jobs = run_at(experiment, 0)->simulation->jobs->len;
    guint shown = MIN(jobs, JOBS_SHOWN);

    fprintf(out, "%-20s", "  op/s of each job:");
    for (guint i = 0; i < shown; i++)
        fprintf(out, " %11s",
                ((const QosSimulatedJob *)run_at(experiment, 0)->simulation->jobs->pdata[i])->name);
    fprintf(out, jobs > shown ? "  and %u more jobs\n" : "\n", jobs - shown);
    for (guint k = 0; k < experiment->runs->len; k++) {
        const QosRun *run = run_at(experiment, k);
        g_autofree char *title = qos_experiment_run_title(experiment, run);
        fprintf(out, "%-20s", title);
        for (guint i = 0; i < shown; i++)
            fprintf(out, " %11.1f", qos_experiment_job_rate(run->simulation->jobs->pdata[i]));
        fprintf(out, "\n");
    }
}

/* The delays of the first jobs: what their requests took beyond their work and the store's
 * latency. */
static void print_delays(const QosExperiment *experiment, FILE *out)
{
    guint shown = MIN(run_at(experiment, 0)->simulation->jobs->len, JOBS_SHOWN);

    fprintf(out, "%-20s\n", "  delay of a request, mean/longest, ms:");
    for (guint k = 0; k < experiment->runs->len; k++) {
        const QosRun *run = run_at(experiment, k);
        g_autofree char *title = qos_experiment_run_title(experiment, run);
        fprintf(out, "%-20s", title);
        for (guint i = 0; i < shown; i++) {
            const QosSimulatedJob *job = run->simulation->jobs->pdata[i];
            g_autofree char *text =
                g_strdup_printf("%.4g/%.5g", job->delay / 1e6 / (double)MAX(job->served, 1),
                                (double)job->longest_delay / 1e6);
            fprintf(out, " %11s", text);
        }
        fprintf(out, "\n");
    }
}

static gboolean has_left(const QosExperiment *experiment, guint shown)
{
    for (guint k = 0; k < experiment->runs->len; k++) {
        for (guint i = 0; i < shown; i++) {
            const QosSimulation *simulation = run_at(experiment, k)->simulation;

            if (((const QosSimulatedJob *)simulation->jobs->pdata[i])->left > 0)
                return TRUE;
        }
    }
    return FALSE;
}

/* How many requests of the first jobs had no reply yet. */
static void print_left(const QosExperiment *experiment, FILE *out)
{
    guint shown = MIN(run_at(experiment, 0)->simulation->jobs->len, JOBS_SHOWN);

    if (!has_left(experiment, shown))
        return;
    fprintf(out, "  requests left without a reply at the end:\n");
    for (guint k = 0; k < experiment->runs->len; k++) {
        const QosRun *run = run_at(experiment, k);
        g_autofree char *title = qos_experiment_run_title(experiment, run);
        fprintf(out, "%-20s", title);
        for (guint i = 0; i < shown; i++)
            fprintf(out, " %11u", ((const QosSimulatedJob *)run->simulation->jobs->pdata[i])->left);
        fprintf(out, "\n");
    }
}

static void print_speed(const QosExperiment *experiment, FILE *out)
{
    for (guint i = 0; i < experiment->runs->len; i++) {
        const QosRun *run = run_at(experiment, i);
        g_autofree char *title = qos_experiment_run_title(experiment, run);
        fprintf(out,
                "  %s: %" G_GUINT64_FORMAT " requests in %.3f s of CPU, %.2f million a second\n",
                title, run->simulation->requests, run->cpu,
                (double)run->simulation->requests / MAX(run->cpu, 1e-6) / 1e6);
    }
}

void qos_experiment_print(const QosExperiment *experiment, gboolean with_speed, FILE *out)
{
    const QosScenario *scenario = experiment->scenario;

    fprintf(out, "%s: %s (seed %u)\n", scenario->name, scenario->title, scenario->seed);
    print_row(experiment, &text_style, NULL, out);
    for (guint i = 0; i < experiment->runs->len; i++)
        print_row(experiment, &text_style, run_at(experiment, i), out);
    print_jobs(experiment, out);
    print_delays(experiment, out);
    print_left(experiment, out);
    if (with_speed)
        print_speed(experiment, out);
    fprintf(out, "\n");
}

void qos_experiment_print_csv_header(FILE *out)
{
    fprintf(out, "scenario,seed,policy,period,job,weight,requests,bytes");
    for (guint k = 0; k < G_N_ELEMENTS(columns); k++)
        fprintf(out, ",%s", columns[k].name);
    fprintf(out, "\n");
}

static void print_csv_run(const QosScenario *scenario, const QosRun *run, FILE *out)
{
    const GPtrArray *jobs = run->simulation->jobs;
    g_autofree char *head =
        g_strdup_printf("%s,%u,%s,%.3f", scenario->name, scenario->seed, run->sharing->name,
                        (double)run->period / (double)QOS_SECOND);

    fprintf(out, "%s,,,%" G_GUINT64_FORMAT ",", head, run->simulation->served);
    for (guint k = 0; k < G_N_ELEMENTS(columns); k++) {
        Column plain = columns[k];
        plain.scale = 1;
        plain.digits = 6;
        g_autofree char *text = format(&plain, &run->metrics, "");
        fprintf(out, ",%s", text);
    }
    fprintf(out, "\n");
    for (guint i = 0; i < jobs->len; i++) {
        const QosSimulatedJob *job = jobs->pdata[i];
        fprintf(out, "%s,%s,%" G_GINT64_FORMAT ",%" G_GUINT64_FORMAT ",%" G_GUINT64_FORMAT ",%.6f",
                head, job->name, job->weight, job->served, job->bytes,
                qos_experiment_job_rate(job));
        for (guint k = 1; k < G_N_ELEMENTS(columns); k++)
            fprintf(out, ",");
        fprintf(out, "\n");
    }
}

void qos_experiment_print_csv(const QosExperiment *experiment, FILE *out)
{
    for (guint i = 0; i < experiment->runs->len; i++)
        print_csv_run(experiment->scenario, run_at(experiment, i), out);
}

void qos_experiment_print_markdown(const QosExperiment *experiment, FILE *out)
{
    fprintf(out, "## %s (`%s`)\n\n", experiment->scenario->title, experiment->scenario->name);
    print_row(experiment, &markdown_style, NULL, out);
    fprintf(out, "|---");
    for (guint k = 0; k < G_N_ELEMENTS(columns); k++)
        fprintf(out, "%s", is_used(experiment, &columns[k]) ? "|---" : "");
    fprintf(out, "|\n");
    for (guint i = 0; i < experiment->runs->len; i++)
        print_row(experiment, &markdown_style, run_at(experiment, i), out);
    fprintf(out, "\n");
}
