/*
 * Computes the ideal division (sim/fluid.h) from event to event. An event is a process that begins
 * to want something, or has got all that it wanted. Between events nothing changes: weighted
 * max-min filling, over the jobs and within each job over its processes, says how fast each is
 * served.
 */
#include "sim/fluid.h"

#include <math.h>

#include "sim/store.h"

#define ROUNDING 1e-9 /* seconds of work that are as good as none */

/* A taker of some capacity: a job of the store's, a process of its job's. */
typedef struct {
    double weight;
    double most; /* that it can use */
    double part;
} Taker;

typedef struct {
    const QosScenarioClient *client;
    guint job;
    double fastest; /* part of the store that it can use */
    double next;    /* while it wants nothing: when it will, INFINITY = never */
    double begin;   /* of its burst */
    double left;    /* work, in seconds of the store; INFINITY = no end */
    double speed;   /* part of the store that it has */
} Process;

typedef struct {
    const QosScenario *scenario;
    GPtrArray *labels; /* of the jobs; the scenario's */
    GArray *processes; /* of Process */
    GArray *bursts;    /* of QosFluidBurst */
    double now;
} Fluid;

static double seconds(QosTime time)
{
    return time == QOS_NEVER ? INFINITY : (double)time / (double)QOS_SECOND;
}

static Process *process_at(const Fluid *fluid, guint index)
{
    return &g_array_index(fluid->processes, Process, index);
}

static gboolean wants(const Process *process)
{
    return process->left > 0;
}

/* --- the division --- */

/* Divides `capacity` by weight; what one cannot use goes to the others. */
static void fill(Taker *takers, guint count, double capacity)
{
    gboolean is_done;

    for (guint i = 0; i < count; i++)
        takers[i].part = -1;
    do {
        double left = capacity;
        double weights = 0;
        for (guint i = 0; i < count; i++) {
            left -= MAX(takers[i].part, 0);
            weights += takers[i].part < 0 ? takers[i].weight : 0;
        }
        is_done = TRUE;
        for (guint i = 0; i < count; i++) {
            if (takers[i].part >= 0 || takers[i].most * weights > takers[i].weight * left)
                continue;
            takers[i].part = takers[i].most;
            is_done = FALSE;
        }
        for (guint i = 0; is_done && i < count; i++) {
            if (takers[i].part < 0)
                takers[i].part = takers[i].weight * left / weights;
        }
    } while (!is_done);
}

/* Divides what a job has among its processes. */
static void fill_job(Fluid *fluid, guint job, double capacity)
{
    guint count = fluid->processes->len;
    g_autofree Taker *takers = g_new0(Taker, count);

    for (guint i = 0; i < count; i++) {
        const Process *process = process_at(fluid, i);
        if (process->job == job && wants(process))
            takers[i] = (Taker){.weight = 1, .most = process->fastest};
    }
    fill(takers, count, capacity);
    for (guint i = 0; i < count; i++) {
        if (process_at(fluid, i)->job == job)
            process_at(fluid, i)->speed = takers[i].part;
    }
}

static void set_speeds(Fluid *fluid)
{
    guint count = fluid->labels->len;
    g_autofree Taker *jobs = g_new0(Taker, count);

    for (guint i = 0; i < fluid->processes->len; i++) {
        const Process *process = process_at(fluid, i);
        jobs[process->job].weight = qos_scenario_weight(fluid->scenario, process->client->job);
        jobs[process->job].most += wants(process) ? process->fastest : 0;
    }
    fill(jobs, count, 1);
    for (guint i = 0; i < count; i++)
        fill_job(fluid, i, jobs[i].part);
}

/* --- processes --- */

static double work_of(const Fluid *fluid, const QosScenarioClient *client)
{
    return seconds(qos_store_work(fluid->scenario, (guint64)client->size));
}

static void begin(const Fluid *fluid, Process *process)
{
    const QosScenarioClient *client = process->client;

    process->begin = fluid->now;
    process->left = client->burst > 0 ? client->burst * work_of(fluid, client) : INFINITY;
    process->next = INFINITY;
}

/* A burst has been served; its last reply takes the latency more. */
static void end_burst(Fluid *fluid, Process *process)
{
    const QosScenarioClient *client = process->client;
    double end = fluid->now + seconds(fluid->scenario->latency);
    QosFluidBurst burst = {.label = client->job, .took = end - process->begin};

    g_array_append_val(fluid->bursts, burst);
    process->left = 0;
    process->next = client->every > 0 ? MAX(process->begin + seconds(client->every), end)
                                      : end + seconds(client->pause);
}

static void add_client(Fluid *fluid, const QosScenarioClient *client)
{
    double work = work_of(fluid, client);
    double round = work + seconds(fluid->scenario->latency) + seconds(client->think);
    Process process = {.client = client,
                       .fastest = client->rate > 0 ? MIN(client->rate * work, 1) : work / round,
                       .next = seconds(client->start)};

    if (!g_ptr_array_find_with_equal_func(fluid->labels, client->job, g_str_equal, &process.job)) {
        process.job = fluid->labels->len;
        g_ptr_array_add(fluid->labels, client->job);
    }
    for (guint i = 0; i < client->processes; i++)
        g_array_append_val(fluid->processes, process);
}

/* --- the run --- */

static double next_event(const Fluid *fluid)
{
    double next = INFINITY;

    for (guint i = 0; i < fluid->processes->len; i++) {
        const Process *process = process_at(fluid, i);
        next = fmin(next,
                    wants(process) ? fluid->now + process->left / process->speed : process->next);
    }
    return next;
}

static void advance(Fluid *fluid, double to)
{
    double elapsed = to - fluid->now;

    fluid->now = to;
    for (guint i = 0; i < fluid->processes->len; i++) {
        Process *process = process_at(fluid, i);
        if (!wants(process)) {
            if (process->next <= to)
                begin(fluid, process);
            continue;
        }
        process->left -= elapsed * process->speed;
        if (process->left < ROUNDING)
            end_burst(fluid, process);
    }
}

gboolean qos_fluid_is_defined(const QosScenario *scenario)
{
    for (guint i = 0; i < scenario->clients->len; i++) {
        const QosScenarioClient *client = scenario->clients->pdata[i];
        if (client->jobs > 1 || client->spread > 0 || client->requests > 0 ||
            client->stop != QOS_NEVER || client->life != QOS_NEVER || client->tail > 0 ||
            client->on > 0 || client->sizes->len > 0)
            return FALSE;
    }
    return scenario->noise <= 0 && scenario->steps->len == 0 && scenario->stall_start == QOS_NEVER;
}

GArray *qos_fluid_bursts(const QosScenario *scenario)
{
    g_autoptr(GPtrArray) labels = g_ptr_array_new();
    g_autoptr(GArray) processes = g_array_new(FALSE, FALSE, sizeof(Process));
    Fluid fluid = {.scenario = scenario,
                   .labels = labels,
                   .processes = processes,
                   .bursts = g_array_new(FALSE, FALSE, sizeof(QosFluidBurst))};

    for (guint i = 0; i < scenario->clients->len; i++)
        add_client(&fluid, scenario->clients->pdata[i]);
    for (double next = next_event(&fluid); next < seconds(scenario->duration);
         next = next_event(&fluid)) {
        advance(&fluid, next);
        set_speeds(&fluid);
    }
    return fluid.bursts;
}
