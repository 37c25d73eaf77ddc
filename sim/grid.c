/*
 * The grid of stores (sim/grid.h). Its points are all combinations of values that lie far apart,
 * because past defects showed where the round trip is long, the slots are many, or the jitter is
 * large.
 */
#include "sim/grid.h"

#include <math.h>
#include <string.h>

#include "sim/scenario.h"
#include "sim/simulator.h"

#define ROUND_TRIPS  20
#define REQUESTS_MIN 100
#define DEADLINE_MIN (2 * QOS_SECOND)
#define PIECES       10     /* at least, of a stretch and of the time until the deadline */
#define BINS_MAX     100000 /* of a run */
#define LONG_TIME    (3600 * QOS_SECOND)
#define CHANCE       2    /* standard deviations of what jitter makes of a stretch, */
#define CHANCE_PART  0.01 /* which is as long as this takes */
#define HEAVY        1    /* the job of weight 3, by its place */
#define SHARE        0.75 /* due to it */
#define SHARE_ERROR  0.01 /* and some requests, which cannot be divided */
#define SHARE_COUNT  8

static const QosTime latencies[] = {100 * QOS_MICROSECOND, 1 * QOS_MILLISECOND,
                                    10 * QOS_MILLISECOND,  50 * QOS_MILLISECOND,
                                    200 * QOS_MILLISECOND, 2 * QOS_SECOND};
static const double jitters[] = {0, 0.3, 1};
static const guint slots[] = {16, 128, 1024, 4096};
static const guint capacities[] = {10, 1000, 1000000};

enum {
    POINTS = G_N_ELEMENTS(latencies) * G_N_ELEMENTS(jitters) * G_N_ELEMENTS(slots) *
             G_N_ELEMENTS(capacities)
};

const QosGridPoint *qos_grid_points(guint *ret_count)
{
    static QosGridPoint points[POINTS];

    for (guint i = 0; i < POINTS; i++) {
        guint rest = i;
        points[i].capacity = capacities[rest % G_N_ELEMENTS(capacities)];
        rest /= G_N_ELEMENTS(capacities);
        points[i].slots = slots[rest % G_N_ELEMENTS(slots)];
        rest /= G_N_ELEMENTS(slots);
        points[i].jitter = jitters[rest % G_N_ELEMENTS(jitters)];
        points[i].latency = latencies[rest / G_N_ELEMENTS(jitters)];
    }
    *ret_count = POINTS;
    return points;
}

gboolean qos_grid_is_long(const QosGridPoint *point)
{
    const gboolean is_small = point->capacity == 10 && point->slots == 128;
    const gboolean is_large = point->capacity == 1000 && point->slots == 4096;

    return (is_small || is_large) && (point->jitter == 0 || point->jitter == 1);
}

static QosTime round_trip(const QosGridPoint *point)
{
    return point->latency + QOS_SECOND / point->capacity;
}

static QosTime to_serve(double requests, double rate)
{
    return (QosTime)ceil(requests / rate * (double)QOS_SECOND);
}

/* The number of requests beyond which jitter matters little: CHANCE standard deviations are
 * CHANCE_PART of them. In a closed loop the count varies by as much as the latency. */
static double requests_that_tell(const QosGridPoint *point)
{
    const double deviation = CHANCE * point->jitter / sqrt(3);

    return MAX(REQUESTS_MIN, deviation * deviation / (CHANCE_PART * CHANCE_PART));
}

static QosScenario *scenario_of(const QosGridPoint *point, QosTime duration, QosTime bin)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strdup_printf(
        "[store]\ncapacity=%u\njitter=%g\nslots=%u\n[adapt]\ncapacity=auto\n"
        "[job heavy]\nweight=3\n[client light]\nprocesses=%u\n[client heavy]\nprocesses=%u\n",
        point->capacity, point->jitter, point->slots, point->slots, point->slots);
    QosScenario *scenario = qos_scenario_parse("grid", text, &error);

    if (scenario == NULL)
        g_error("a point of the grid: %s", error->message);
    scenario->latency = point->latency;
    scenario->duration = duration;
    scenario->bin = bin;
    return scenario;
}

/* Requests served in the bins from `begin` to before `end`; of the job, or with -1 of all. */
static double served(const QosSimulation *simulation, int job, guint begin, guint end)
{
    double sum = 0;

    for (guint i = 0; i < simulation->jobs->len; i++) {
        const QosSimulatedJob *result = simulation->jobs->pdata[i];

        for (guint bin = begin; bin < end && (job < 0 || (guint)job == i); bin++)
            sum += qos_timeline_bin(&result->bins, bin)->served;
    }
    return sum;
}

/* What the store serves with all slots in use; a queue needs no time to find that out. */
static double rate_without_sharing(const QosGridPoint *point)
{
    const double most =
        MIN(point->capacity, (double)point->slots * (double)QOS_SECOND / (double)round_trip(point));
    const QosTime bin =
        MAX(ROUND_TRIPS * round_trip(point), to_serve(10 * requests_that_tell(point), most));
    g_autoptr(QosScenario) scenario = scenario_of(point, 2 * bin, bin);
    g_autoptr(QosSimulation) simulation = qos_simulate(scenario, qos_sharing_named("none"), NULL);

    return MIN(served(simulation, -1, 1, 2) * (double)QOS_SECOND / (double)bin, most);
}

/* A run. */
typedef struct {
    guint pieces;  /* bins of a stretch */
    double enough; /* requests that a stretch has to serve */
    guint last;    /* bin at which it may begin */
    double all;    /* requests in the bins of the present stretch, */
    double heavy;  /* and those of the job of weight 3 */
    guint bins;    /* so far */
    int reached;   /* the first bin of the first that is right, -1: there is none yet */
    gboolean goes_on;
} Run;

static gboolean is_shared(double heavy, double all)
{
    return fabs(heavy - SHARE * all) <= SHARE_ERROR * all + SHARE_COUNT;
}

/* Called after each bin. */
static gboolean follow(const QosSimulation *simulation, guint bins, gpointer arg)
{
    Run *run = arg;

    run->bins = bins;
    if (run->reached >= 0)
        return !run->goes_on;
    run->all += served(simulation, -1, bins - 1, bins);
    run->heavy += served(simulation, HEAVY, bins - 1, bins);
    if (bins > run->pieces) {
        const guint past = bins - run->pieces - 1;

        run->all -= served(simulation, -1, past, past + 1);
        run->heavy -= served(simulation, HEAVY, past, past + 1);
    }
    if (bins >= run->pieces && run->all >= run->enough && is_shared(run->heavy, run->all))
        run->reached = (int)(bins - run->pieces);
    return run->reached >= 0 ? !run->goes_on : bins >= run->last + run->pieces;
}

void qos_grid_run(const QosGridPoint *point, QosTime duration, QosGridResult *ret_result)
{
    const double rate = rate_without_sharing(point);
    const QosTime deadline = MAX(ROUND_TRIPS * round_trip(point), DEADLINE_MIN);
    const QosTime stretch =
        MAX(MIN(ROUND_TRIPS * round_trip(point), to_serve(QOS_GRID_REQUESTS, rate)),
            to_serve(requests_that_tell(point), rate));
    const QosTime bin = MAX(MAX(MIN(stretch, deadline) / PIECES, duration / BINS_MAX), 1);
    Run run = {.pieces = (guint)MAX(stretch / bin, 1), .reached = -1};
    const double requests = rate * (double)run.pieces * (double)bin / (double)QOS_SECOND;
    const double chance = CHANCE * point->jitter / sqrt(3) * sqrt(requests);

    run.enough = QOS_GRID_PART * requests - MAX(chance, 1);
    run.last = (guint)(deadline / bin);
    run.goes_on = duration > 0;
    g_autoptr(QosScenario) scenario =
        scenario_of(point, MAX(duration, deadline + stretch + 2 * bin), bin);
    g_autoptr(QosSimulation) simulation =
        qos_simulate_until(scenario, qos_sharing_named("fair"), follow, &run);

    const guint begin = run.reached >= 0 ? (guint)run.reached : run.last;
    const guint end = duration > 0 ? run.bins : begin + run.pieces;
    const double all = served(simulation, -1, begin, end);
    const double heavy = served(simulation, HEAVY, begin, end);
    *ret_result = (QosGridResult){
        .expected = rate,
        .part = all * (double)QOS_SECOND / (double)bin / (end - begin) / rate,
        .share = heavy / MAX(all, 1),
        .reached = run.reached >= 0 ? (QosTime)run.reached * bin : QOS_NEVER,
        .deadline = deadline,
    };
    ret_result->is_right =
        run.reached >= 0 && (QosTime)run.reached * bin <= deadline &&
        (duration == 0 || (ret_result->part >= QOS_GRID_PART && is_shared(heavy, all)));
}

static void print_point(const QosGridPoint *point, const QosGridResult *result, FILE *out)
{
    g_autofree char *reached = result->reached == QOS_NEVER
                                   ? g_strdup("not")
                                   : g_strdup_printf("%.3f s", (double)result->reached / 1e9);

    fprintf(out, "| %g ms | %.0f %% | %u | %u | %.1f | %.1f %% | %.1f %% | %s | %.1f s |%s\n",
            (double)point->latency / 1e6, 100 * point->jitter, point->slots, point->capacity,
            result->expected, 100 * result->part, 100 * result->share, reached,
            (double)result->deadline / 1e9, result->is_right ? "" : " MISSED");
}

guint qos_grid_print(guint hours, FILE *out)
{
    guint count, missed = 0;
    const QosGridPoint *points = qos_grid_points(&count);

    fputs("| latency | jitter | slots | capacity, op/s | `none`, op/s | of that | of 75 % due | "
          "reached | in at most |\n|---|---|---|---|---|---|---|---|---|\n",
          out);
    for (guint i = 0; i < count; i++) {
        const QosTime duration = qos_grid_is_long(&points[i]) ? LONG_TIME : 0;
        QosGridResult result;

        qos_grid_run(&points[i], MAX(duration, hours * LONG_TIME), &result);
        print_point(&points[i], &result, out);
        missed += !result.is_right;
    }
    fprintf(out, "%u points; missed: %u\n", count, missed);
    return missed;
}
