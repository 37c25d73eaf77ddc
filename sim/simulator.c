/*
 * The event loop. Three sources of events: the store's replies, in order; timers of the clients, in
 * a heap; and the time at which the scheduler wants to be asked again. After each, what the
 * scheduler hands out enters the store, as a worker of the mount would do it (fs/gate.c).
 *
 * The store serves one request after the other; with `slots` of them inside, the rest waits in the
 * scheduler. A closed-loop process issues its next request when the last is answered; an open-loop
 * one does not wait.
 */
#include "sim/simulator.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"

#define EXPIRE_INTERVAL (5 * QOS_SECOND) /* as the gate's housekeeping */

typedef struct {
    QosSimulatedJob *result;
    QosJob *job;
    guint outstanding;
    QosTime idle_since; /* with none outstanding */
    guint burst_left;   /* requests of the burst that is under way, and its start */
    QosTime burst_start;
} Job;

typedef struct {
    QosHeapNode timer;
    const QosClient *client;
    Job *job;
    QosTime stop;
    guint64 left;     /* requests to issue, G_MAXUINT64 = no end */
    guint burst_left; /* to issue in this burst */
    QosTime burst;    /* start of this burst */
} Process;

typedef struct {
    QosRequest request; /* first: the scheduler hands it out */
    Process *process;
    QosTime issued;
    QosTime done;
    GList link; /* among the waiting, the ones in the store, or the free ones */
} Request;

typedef struct {
    const QosScenario *scenario;
    QosSimulation *result;
    GRand *random;
    QosSched *sched;
    QosTime now;
    QosTime wake;
    QosTime expire;
    QosTime store_free; /* when the store has served all that it took */
    GArray *jobs;       /* of Job */
    GArray *processes;  /* of Process */
    QosHeap timers;
    GQueue waiting;  /* of Request */
    GQueue in_store; /* of Request, by the time of its reply */
    GQueue unused;
} Simulator;

const QosSharing qos_sharings[] = {
    {.name = "none", .title = "No BW", .policy = &qos_policy_fifo},
    {.name = "static", .title = "Static BW", .policy = &qos_policy_tbf, .is_static = TRUE},
    {.name = "paper", .title = "AdapTBF", .policy = &qos_policy_tbf, .adapt = QOS_ADAPT_PAPER},
    {.name = "fair", .title = "fair", .policy = &qos_policy_tbf, .adapt = QOS_ADAPT_FAIR},
    {.name = NULL},
};

/* --- results --- */

static guint bin_of(const Simulator *sim, QosTime time)
{
    return (guint)(time / sim->scenario->bin);
}

static guint bin_count(const QosScenario *scenario)
{
    return (guint)((scenario->duration + scenario->bin - 1) / scenario->bin);
}

static QosSimulatedJob *result_new(const QosScenario *scenario, char *name, gint64 weight)
{
    QosSimulatedJob *result = g_new0(QosSimulatedJob, 1);
    guint bins = bin_count(scenario);

    result->name = name;
    result->weight = weight;
    result->bins = g_array_sized_new(FALSE, TRUE, sizeof(guint32), bins);
    g_array_set_size(result->bins, bins);
    result->wanted = g_array_sized_new(FALSE, TRUE, sizeof(guint8), bins);
    g_array_set_size(result->wanted, bins);
    memset(result->wanted->data, 1, bins);
    result->bursts = g_array_new(FALSE, FALSE, sizeof(QosTime));
    result->first = QOS_NEVER;
    return result;
}

static void result_free(QosSimulatedJob *result)
{
    g_array_unref(result->bins);
    g_array_unref(result->wanted);
    g_array_unref(result->bursts);
    g_free(result->name);
    g_free(result);
}

/* The job wanted nothing from idle_since to now. */
static void mark_idle(const Simulator *sim, Job *job)
{
    GArray *wanted = job->result->wanted;

    if (job->idle_since == sim->now)
        return;
    for (guint bin = bin_of(sim, job->idle_since); bin <= bin_of(sim, sim->now); bin++) {
        if (bin < wanted->len)
            g_array_index(wanted, guint8, bin) = 0;
    }
}

static void book_reply(const Simulator *sim, const Request *request)
{
    Job *job = request->process->job;
    QosSimulatedJob *result = job->result;
    QosTime latency = sim->now - request->issued;
    guint bin = bin_of(sim, sim->now);

    result->served++;
    result->bytes += request->request.bytes;
    result->longest = MAX(result->longest, latency);
    result->last = sim->now;
    qos_histogram_add(&result->latency, (guint64)latency);
    if (bin < result->bins->len)
        g_array_index(result->bins, guint32, bin)++;
    sim->result->served++;
    if (job->burst_left > 0 && --job->burst_left == 0) {
        QosTime took = sim->now - job->burst_start;
        g_array_append_val(result->bursts, took);
    }
}

/* --- the store --- */

static void start(Simulator *sim, Request *request)
{
    const QosScenario *scenario = sim->scenario;
    double seconds = 1 / scenario->capacity;

    if (scenario->bandwidth > 0)
        seconds += (double)request->request.bytes / scenario->bandwidth;
    if (scenario->noise > 0) /* uniform, of that standard deviation */
        seconds *=
            MAX(1 + scenario->noise * sqrt(3) * g_rand_double_range(sim->random, -1, 1), 0.01);
    QosTime begin = MAX(sim->now, sim->store_free);
    if (begin >= scenario->stall_start && begin < scenario->stall_start + scenario->stall_length)
        begin = scenario->stall_start + scenario->stall_length;
    QosTime service = (QosTime)(seconds * 1e9);
    sim->store_free = begin + service;
    sim->result->busy += service;
    request->done = sim->store_free + scenario->latency;
    g_queue_push_tail_link(&sim->in_store, &request->link);
}

/* --- clients --- */

static Request *request_new(Simulator *sim, Process *process)
{
    GList *link = g_queue_pop_head_link(&sim->unused);
    Request *request = link != NULL ? link->data : g_new0(Request, 1);

    request->link.data = request;
    request->process = process;
    request->issued = sim->now;
    request->request =
        (QosRequest){.job = process->job->job,
                     .opcode = process->client->size > 0 ? QOS_OP_WRITE : QOS_OP_GETATTR,
                     .bytes = (guint64)process->client->size};
    return request;
}

static void issue(Simulator *sim, Process *process)
{
    Request *request = request_new(sim, process);
    Job *job = process->job;
    QosTime wake;

    if (job->outstanding++ == 0)
        mark_idle(sim, job);
    job->result->first = MIN(job->result->first, sim->now);
    sim->result->requests++;
    if (process->left != G_MAXUINT64)
        process->left--;
    if (qos_sched_enter(sim->sched, &request->request, sim->now, &wake) == QOS_GO)
        start(sim, request);
    else
        g_queue_push_tail_link(&sim->waiting, &request->link);
    sim->wake = MIN(sim->wake, wake);
}

static void set_timer(Simulator *sim, Process *process, QosTime when)
{
    if (when < process->stop && when < sim->scenario->duration)
        qos_heap_push(&sim->timers, &process->timer, when);
}

static QosTime open_loop_gap(const Simulator *sim, const Process *process)
{
    double uniform = 1 - g_rand_double(sim->random); /* (0, 1] */
    return (QosTime)(-log(uniform) / process->client->rate * 1e9);
}

/* A burst begins, late where the last took longer than the interval. */
static void begin_burst(Simulator *sim, Process *process)
{
    process->burst = sim->now;
    process->burst_left = process->client->burst;
    if (process->job->burst_left == 0)
        process->job->burst_start = sim->now;
    process->job->burst_left += process->client->burst;
}

/* The timer of a process: it issues its next request. */
static void act(Simulator *sim, Process *process)
{
    const QosClient *client = process->client;

    if (process->left == 0)
        return;
    if (client->burst > 0 && process->burst_left == 0)
        begin_burst(sim, process);
    if (client->burst > 0)
        process->burst_left--;
    issue(sim, process);
    if (client->rate > 0)
        set_timer(sim, process, sim->now + open_loop_gap(sim, process));
}

/* A request of a closed-loop process was answered. */
static void go_on(Simulator *sim, Process *process)
{
    const QosClient *client = process->client;
    QosTime next = sim->now + client->think;

    if (client->rate > 0 || process->left == 0)
        return;
    if (client->burst > 0 && process->burst_left == 0)
        next = MAX(process->burst + client->every, sim->now);
    if (next == sim->now && next < process->stop)
        act(sim, process); /* not by way of the heap: most requests are of this kind */
    else
        set_timer(sim, process, next);
}

static void complete(Simulator *sim, Request *request)
{
    Process *process = request->process;

    qos_sched_leave(sim->sched, &request->request, request->request.bytes, 0, sim->now);
    book_reply(sim, request);
    g_queue_push_head_link(&sim->unused, &request->link);
    if (--process->job->outstanding == 0)
        process->job->idle_since = sim->now;
    go_on(sim, process);
}

/* --- the run --- */

static void dispatch(Simulator *sim)
{
    QosRequest *next;

    while ((next = qos_sched_next(sim->sched, sim->now, &sim->wake)) != NULL) {
        Request *request = (Request *)next;
        g_queue_unlink(&sim->waiting, &request->link);
        start(sim, request);
    }
}

/* The next event: TRUE where there is one before the end. */
static gboolean step(Simulator *sim)
{
    const Request *first = g_queue_peek_head(&sim->in_store);
    QosHeapNode *timer = qos_heap_peek(&sim->timers);
    QosTime reply = first != NULL ? first->done : QOS_NEVER;
    QosTime act_time = timer != NULL ? timer->key : QOS_NEVER;

    QosTime next = MIN(MIN(reply, act_time), MAX(sim->wake, sim->now));
    if (next >= sim->scenario->duration)
        return FALSE;
    sim->now = next;
    if (sim->now >= sim->expire) {
        qos_sched_expire(sim->sched, sim->now);
        sim->expire = sim->now + EXPIRE_INTERVAL;
    }
    if (reply == next) {
        complete(sim, g_queue_pop_head_link(&sim->in_store)->data);
    } else if (act_time == next) {
        qos_heap_remove(&sim->timers, timer);
        act(sim, (Process *)timer); /* its first member */
    }
    dispatch(sim);
    return TRUE;
}

/* One rule a job, as an administrator who knows all jobs would write them. */
static void set_static_rules(Simulator *sim)
{
    gint64 weights = 0;
    for (guint i = 0; i < sim->jobs->len; i++)
        weights += g_array_index(sim->jobs, Job, i).result->weight;

    QosRules *rules = qos_rules_ref(qos_sched_rules(sim->sched));
    for (guint i = 0; i < sim->jobs->len; i++) {
        const QosSimulatedJob *job = g_array_index(sim->jobs, Job, i).result;
        double rate = sim->scenario->capacity * (double)job->weight / (double)weights;
        g_autofree char *command = g_strdup_printf("start j%u jobid={%s} rate=%.0f", i, job->name,
                                                   CLAMP(rate, 1, (double)QOS_RATE_MAX));
        QosRules *next = qos_rules_apply(rules, command, 0, NULL);
        g_assert(next != NULL);
        qos_rules_unref(rules);
        rules = next;
    }
    qos_sched_set_rules(sim->sched, rules, 0);
    qos_rules_unref(rules);
}

static void set_adapt(Simulator *sim)
{
    const QosScenario *scenario = sim->scenario;
    QosAdaptConfig config = {
        .mode = sim->result->sharing->adapt,
        .period = scenario->period,
        .capacity = (gint64)scenario->told_capacity,
        .bytes_per_cost =
            scenario->bandwidth > 0 ? (gint64)(scenario->bandwidth / scenario->capacity) : 0};

    qos_sched_set_adapt(sim->sched, &config, 0);
}

/* The job named so, made if need be; its index. */
static guint job_index(Simulator *sim, char *name, gint64 weight)
{
    for (guint i = 0; i < sim->jobs->len; i++) {
        if (strcmp(g_array_index(sim->jobs, Job, i).result->name, name) == 0) {
            g_free(name);
            return i;
        }
    }
    Job job = {.result = result_new(sim->scenario, name, weight)};
    job.job = qos_account_job(qos_sched_account(sim->sched), name, 0);
    job.job->nodes = (guint)weight;
    g_ptr_array_add(sim->result->jobs, job.result);
    g_array_append_val(sim->jobs, job);
    return sim->jobs->len - 1;
}

static void add_processes(Simulator *sim, const QosClient *client, guint job)
{
    QosTime delay =
        client->spread > 0 ? (QosTime)(g_rand_double(sim->random) * (double)client->spread) : 0;
    QosTime begin = client->start + delay;

    for (guint i = 0; i < client->processes; i++) {
        Process process = {.timer.key = begin,
                           .client = client,
                           .job = GUINT_TO_POINTER(job),
                           .stop = MIN(client->stop, qos_time_add(begin, client->life)),
                           .left = client->requests > 0 ? client->requests : G_MAXUINT64};
        g_array_append_val(sim->processes, process);
    }
}

static void add_clients(Simulator *sim)
{
    for (guint i = 0; i < sim->scenario->clients->len; i++) {
        const QosClient *client = sim->scenario->clients->pdata[i];
        gint64 weight = qos_scenario_weight(sim->scenario, client->job);
        for (guint copy = 0; copy < client->jobs; copy++) {
            char *name = client->jobs == 1 ? g_strdup(client->job)
                                           : g_strdup_printf("%s.%u", client->job, copy);
            guint job = client->jobs == 1 ? job_index(sim, name, weight) : sim->jobs->len;
            if (client->jobs > 1)
                job = job_index(sim, name, weight);
            add_processes(sim, client, job);
        }
    }
    /* The arrays do not move any more. */
    for (guint i = 0; i < sim->processes->len; i++) {
        Process *process = &g_array_index(sim->processes, Process, i);
        QosTime begin = process->timer.key;
        process->job = &g_array_index(sim->jobs, Job, GPOINTER_TO_UINT(process->job));
        process->timer = (QosHeapNode){0};
        set_timer(sim, process, begin);
    }
}

static void finish(Simulator *sim)
{
    GList *link;

    for (guint i = 0; i < sim->jobs->len; i++) {
        Job *job = &g_array_index(sim->jobs, Job, i);
        if (job->outstanding == 0)
            mark_idle(sim, job);
    }
    while ((link = g_queue_pop_head_link(&sim->waiting)) != NULL) {
        qos_sched_cancel(sim->sched, &((Request *)link->data)->request, sim->now);
        g_free(link->data);
    }
    while ((link = g_queue_pop_head_link(&sim->in_store)) != NULL) {
        qos_sched_leave(sim->sched, &((Request *)link->data)->request, 0, 0, sim->now);
        g_free(link->data);
    }
    while ((link = g_queue_pop_head_link(&sim->unused)) != NULL)
        g_free(link->data);
    for (guint i = 0; i < sim->jobs->len; i++)
        qos_job_unref(g_array_index(sim->jobs, Job, i).job);
}

QosSimulation *qos_simulate(const QosScenario *scenario, const QosSharing *sharing)
{
    Simulator sim = {.scenario = scenario,
                     .wake = QOS_NEVER,
                     .expire = EXPIRE_INTERVAL,
                     .random = g_rand_new_with_seed(scenario->seed)};

    sim.result = g_new0(QosSimulation, 1);
    sim.result->sharing = sharing;
    sim.result->jobs = g_ptr_array_new_with_free_func((GDestroyNotify)(void (*)(void))result_free);
    sim.jobs = g_array_new(FALSE, FALSE, sizeof(Job));
    sim.processes = g_array_new(FALSE, FALSE, sizeof(Process));
    sim.sched = qos_sched_new(sharing->policy, scenario->slots, "sim", 600 * QOS_SECOND, 0);
    qos_heap_init(&sim.timers);
    set_adapt(&sim);
    add_clients(&sim);
    if (sharing->is_static)
        set_static_rules(&sim);
    while (step(&sim)) {
        /* until the end */
    }
    sim.now = scenario->duration;
    finish(&sim);
    qos_heap_clear(&sim.timers);
    qos_sched_free(sim.sched);
    g_array_unref(sim.jobs);
    g_array_unref(sim.processes);
    g_rand_free(sim.random);
    return sim.result;
}

void qos_simulation_free(QosSimulation *simulation)
{
    if (simulation == NULL)
        return;
    g_ptr_array_unref(simulation->jobs);
    g_free(simulation);
}
