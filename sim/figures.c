/*
 * Each figure is one gnuplot program with its data in it (here-documents), so that it can be drawn
 * again. A line has at most POINTS points, whatever the bins, so a figure of four panels stays
 * below 100 KB.
 *
 *     timeline  what each job gets, by time; a panel for each run
 *     bars      what each job and all of them get; and more or less than the first run, in percent
 *     records   record and demand, by time; a panel for each job, a line for each adaptive run
 *     rates     what all jobs get, by period
 */
#include "sim/figures.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define POINTS     100
#define JOBS_DRAWN 8
#define COLORS                                                                                     \
    "set linetype 1 lc rgb '#0072b2' lw 1.5\n"                                                     \
    "set linetype 2 lc rgb '#d55e00' lw 1.5\n"                                                     \
    "set linetype 3 lc rgb '#009e73' lw 1.5\n"                                                     \
    "set linetype 4 lc rgb '#cc79a7' lw 1.5\n"                                                     \
    "set linetype 5 lc rgb '#e69f00' lw 1.5\n"                                                     \
    "set linetype 6 lc rgb '#56b4e9' lw 1.5\n"                                                     \
    "set linetype 7 lc rgb '#999999' lw 1.5\n"                                                     \
    "set linetype 8 lc rgb '#000000' lw 1.5\n"

typedef struct {
    const QosExperiment *experiment;
    const char *title; /* the scenario's, quoted */
    guint jobs;        /* that are drawn */
    guint step;        /* bins in a point */
    guint points;
    GString *program;
} Figure;

static const QosRun *run_at(const Figure *figure, guint index)
{
    return figure->experiment->runs->pdata[index];
}

static const QosSimulatedJob *job_at(const Figure *figure, guint run, guint job)
{
    return run_at(figure, run)->simulation->jobs->pdata[job];
}

static guint run_count(const Figure *figure)
{
    return figure->experiment->runs->len;
}

static char *run_title(const Figure *figure, guint run)
{
    return qos_experiment_run_title(figure->experiment, run_at(figure, run));
}

static void add(const Figure *figure, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void add(const Figure *figure, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    g_string_append_vprintf(figure->program, format, arguments);
    va_end(arguments);
}

/* What stands for `text` between a pair of '; free with g_free. */
static char *quoted(const char *text)
{
    GString *inside = g_string_new(NULL);

    for (; *text != '\0'; text++) {
        if (*text == '\'')
            g_string_append(inside, "''");
        else
            g_string_append_c(inside, g_ascii_iscntrl(*text) ? ' ' : *text);
    }
    return g_string_free(inside, FALSE);
}

static void begin(Figure *figure, const char *name, guint width, guint height)
{
    g_string_truncate(figure->program, 0);
    add(figure,
        "set terminal svg size %u,%u font 'sans-serif,12' background 'white'\n"
        "set output '%s.svg'\n" COLORS "set grid ytics lc rgb '#dddddd'\n"
        "set key noenhanced\nset title noenhanced\n",
        width, height, name);
}

/* --- data --- */

static double point_seconds(const Figure *figure)
{
    return (double)figure->step * (double)figure->experiment->scenario->bin / (double)QOS_SECOND;
}

static const QosBin *bin_at(const QosSimulatedJob *job, guint index)
{
    return qos_timeline_bin(&job->bins, MIN(index, job->bins.count - 1));
}

/* One line a point: its time, and for each job what it was served, in op/s. */
static void add_timeline(const Figure *figure, guint run)
{
    double seconds = point_seconds(figure);

    add(figure, "$run%u << EOD\n", run);
    for (guint point = 0; point < figure->points; point++) {
        add(figure, "%g", ((double)point + 0.5) * seconds);
        for (guint i = 0; i < figure->jobs; i++) {
            guint64 served = 0;
            for (guint k = 0; k < figure->step; k++)
                served += bin_at(job_at(figure, run, i), point * figure->step + k)->served;
            add(figure, " %.4g", (double)served / seconds);
        }
        add(figure, "\n");
    }
    add(figure, "EOD\n");
}

/* One line a point: its time, and for each job its demand in op/s and its record in operations. */
static void add_records(const Figure *figure, guint run)
{
    double seconds = point_seconds(figure);

    add(figure, "$run%u << EOD\n", run);
    for (guint point = 0; point < figure->points; point++) {
        add(figure, "%g", (double)(point + 1) * seconds);
        for (guint i = 0; i < figure->jobs; i++) {
            const QosSimulatedJob *job = job_at(figure, run, i);
            guint64 issued = 0;
            for (guint k = 0; k < figure->step; k++)
                issued += bin_at(job, point * figure->step + k)->issued;
            gint64 record = bin_at(job, (point + 1) * figure->step - 1)->record;
            add(figure, " %.4g %.4g", (double)issued / seconds,
                (double)record / (double)QOS_COST_UNIT);
        }
        add(figure, "\n");
    }
    add(figure, "EOD\n");
}

/* --- figures --- */

static void draw_timeline(Figure *figure, const char *name)
{
    guint rows = (run_count(figure) + 1) / 2;

    begin(figure, name, 960, 60 + 300 * rows);
    for (guint run = 0; run < run_count(figure); run++)
        add_timeline(figure, run);
    add(figure,
        "set multiplot layout %u,2 title '%s' noenhanced\n"
        "set xlabel 'time (s)'\nset ylabel 'served (op/s)'\nset xrange [0:%g]\nset yrange [0:%g]\n"
        "set key outside bottom center horizontal\n",
        rows, figure->title, (double)figure->experiment->scenario->duration / (double)QOS_SECOND,
        1.1 * figure->experiment->scenario->capacity);
    for (guint run = 0; run < run_count(figure); run++) {
        g_autofree char *title = run_title(figure, run);
        add(figure, "set title '(%c) %s'\nplot ", 'a' + run, title);
        for (guint i = 0; i < figure->jobs; i++)
            add(figure, "%s$run%u using 1:%u with lines lt %u title '%s'", i > 0 ? ", " : "", run,
                i + 2, i + 1, job_at(figure, run, i)->name);
        add(figure, "\n");
    }
    add(figure, "unset multiplot\n");
}

/* The lines of a group of bars: jobs and all, a column for each run from `first` on. */
static void add_bars(const Figure *figure, const char *block, guint first, gboolean is_gain)
{
    add(figure, "$%s << EOD\n", block);
    for (guint i = 0; i <= figure->jobs; i++) {
        gboolean is_sum = i == figure->jobs;
        add(figure, "\"%s\"", is_sum ? "all" : job_at(figure, 0, i)->name);
        for (guint run = first; run < run_count(figure); run++) {
            double rate = is_sum ? run_at(figure, run)->metrics.rate
                                 : qos_experiment_job_rate(job_at(figure, run, i));
            double base = is_sum ? run_at(figure, 0)->metrics.rate
                                 : qos_experiment_job_rate(job_at(figure, 0, i));
            if (is_gain)
                add(figure, " %.4g", base > 0 ? 100 * (rate / base - 1) : 0.0);
            else
                add(figure, " %.4g", rate);
        }
        add(figure, "\n");
    }
    add(figure, "EOD\n");
}

static void plot_bars(const Figure *figure, const char *block, guint first)
{
    add(figure, "plot ");
    for (guint run = first; run < run_count(figure); run++) {
        g_autofree char *title = run_title(figure, run);
        add(figure, "%s$%s using %u:xtic(1) lt %u title '%s'", run > first ? ", " : "", block,
            run - first + 2, run + 1, title);
    }
    add(figure, "\n");
}

static void draw_bars(Figure *figure, const char *name)
{
    g_autofree char *base = run_title(figure, 0);

    begin(figure, name, 960, 380);
    add_bars(figure, "rates", 0, FALSE);
    if (run_count(figure) > 1)
        add_bars(figure, "gains", 1, TRUE);
    add(figure,
        "set multiplot layout 1,2 title '%s' noenhanced\n"
        "set style data histogram\nset style histogram cluster gap 1\n"
        "set style fill solid 0.9 noborder\nset xtics noenhanced\n"
        "set key outside bottom center horizontal\n"
        "set title '(a) from the first request to the last reply'\nset ylabel 'served (op/s)'\n"
        "set yrange [0:*]\n",
        figure->title);
    plot_bars(figure, "rates", 0);
    if (run_count(figure) > 1) {
        add(figure,
            "set title '(b) against %s'\nset ylabel 'more (%%)'\nset xzeroaxis\nset yrange [*:*]\n",
            base);
        plot_bars(figure, "gains", 1);
    }
    add(figure, "unset multiplot\n");
}

static gboolean has_records(const QosRun *run)
{
    return run->sharing->adapt != QOS_ADAPT_OFF;
}

static void plot_record(const Figure *figure, guint job)
{
    add(figure, "set title '(%c) %s'\nplot ", 'a' + job, job_at(figure, 0, job)->name);
    for (guint run = 0; run < run_count(figure); run++) {
        g_autofree char *title = run_title(figure, run);
        if (has_records(run_at(figure, run)))
            add(figure,
                "$run%u using 1:%u axes x1y2 with lines lt %u dt 3 lw 1 title 'demand, %s', "
                "$run%u using 1:%u with lines lt %u lw 2 title 'record, %s', ",
                run, 2 * job + 2, run + 1, title, run, 2 * job + 3, run + 1, title);
    }
    add(figure, "0 lc rgb '#888888' lw 0.5 notitle\n");
}

static void draw_records(Figure *figure, const char *name)
{
    guint rows = (figure->jobs + 1) / 2;

    begin(figure, name, 960, 60 + 300 * rows);
    for (guint run = 0; run < run_count(figure); run++) {
        if (has_records(run_at(figure, run)))
            add_records(figure, run);
    }
    add(figure,
        "set multiplot layout %u,2 title '%s' noenhanced\n"
        "set xlabel 'time (s)'\nset ylabel 'record: lent > 0 (op)'\nset y2label 'demand (op/s)'\n"
        "set ytics nomirror\nset y2tics\nset xrange [0:%g]\nset y2range [0:*]\n"
        "set key outside bottom center horizontal maxcols 2\n",
        rows, figure->title, (double)figure->experiment->scenario->duration / (double)QOS_SECOND);
    for (guint i = 0; i < figure->jobs; i++)
        plot_record(figure, i);
    add(figure, "unset multiplot\n");
}

/* A line by period for each adaptive way of sharing, the others as levels. */
static void draw_rates(Figure *figure, const char *name)
{
    const QosSharing *last = NULL;
    guint color = 0;

    begin(figure, name, 720, 420);
    for (guint i = 0; i < run_count(figure); i++) {
        const QosRun *run = run_at(figure, i);
        if (run->sharing != last)
            add(figure, "%s$%s << EOD\n", last != NULL ? "EOD\n" : "", run->sharing->name);
        last = run->sharing;
        add(figure, "%g %.5g\n", (double)run->period / (double)QOS_MILLISECOND, run->metrics.rate);
    }
    add(figure,
        "EOD\nset title '%s'\nset logscale x\nset xlabel 'period (ms)'\n"
        "set ylabel 'served, all jobs (op/s)'\nset key outside bottom center horizontal\n"
        "set offsets graph 0.05, graph 0.05, graph 0.1, graph 0.1\nplot ",
        figure->title);
    last = NULL;
    for (guint i = 0; i < run_count(figure); i++) {
        const QosRun *run = run_at(figure, i);
        if (run->sharing == last)
            continue;
        color++;
        if (run->period > 0)
            add(figure, "%s$%s using 1:2 with linespoints pt 7 lt %u title '%s'",
                last != NULL ? ", " : "", run->sharing->name, color, run->sharing->title);
        else
            add(figure, "%s%.5g with lines lt %u dt 2 title '%s'", last != NULL ? ", " : "",
                run->metrics.rate, color, run->sharing->title);
        last = run->sharing;
    }
    add(figure, "\n");
}

/* --- files --- */

static gboolean run_gnuplot(const char *directory, const char *file, GError **error)
{
    char program[] = "gnuplot";
    g_autofree char *script = g_strdup(file);
    char *arguments[] = {program, script, NULL};
    g_autofree char *messages = NULL;
    g_autoptr(GError) failure = NULL;
    int status;

    if (!g_spawn_sync(directory, arguments, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, &messages,
                      &status, &failure)) {
        qos_set_error(error, ENOENT, "cannot run gnuplot, which draws the figures: %s",
                      failure->message);
        return FALSE;
    }
    if (!g_spawn_check_wait_status(status, NULL)) {
        qos_set_error(error, EIO, "gnuplot cannot draw %s/%s: %s", directory, file, messages);
        return FALSE;
    }
    return TRUE;
}

static gboolean finish(const Figure *figure, const char *directory, const char *name,
                       GError **error)
{
    g_autofree char *file = g_strconcat(name, ".gnuplot", NULL);
    g_autofree char *path = g_build_filename(directory, file, NULL);

    return g_file_set_contents(path, figure->program->str, (gssize)figure->program->len, error) &&
           run_gnuplot(directory, file, error);
}

gboolean qos_figures_draw(const QosExperiment *experiment, const char *directory, GError **error)
{
    const QosScenario *scenario = experiment->scenario;
    const QosSimulation *first = ((const QosRun *)experiment->runs->pdata[0])->simulation;
    guint bins = ((const QosSimulatedJob *)first->jobs->pdata[0])->bins.count;
    g_autofree char *title = quoted(scenario->title);
    Figure figure = {.experiment = experiment,
                     .title = title,
                     .jobs = MIN(first->jobs->len, JOBS_DRAWN),
                     .step = (bins + POINTS - 1) / POINTS,
                     .program = g_string_new(NULL)};
    struct {
        const char *name;
        void (*draw)(Figure *figure, const char *name);
    } figures[] = {{scenario->timeline, draw_timeline},
                   {scenario->bars, draw_bars},
                   {scenario->records, draw_records},
                   {scenario->rates, draw_rates}};
    gboolean ok = TRUE;

    figure.points = bins / figure.step;
    for (guint i = 0; i < G_N_ELEMENTS(figures) && ok; i++) {
        if (figures[i].name == NULL)
            continue;
        figures[i].draw(&figure, figures[i].name);
        ok = finish(&figure, directory, figures[i].name, error);
    }
    g_string_free(figure.program, TRUE);
    return ok;
}
