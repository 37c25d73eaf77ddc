/*
 * The event loop. Three sources of events: the store's replies, in order; timers of the clients, in
 * a heap; and the time at which the scheduler wants to be asked again. After each, what the
 * scheduler hands out enters the store, as a worker of the mount would do it (fs/gate.c).
 *
 * The store (sim/store.h) has `slots` requests inside at most, the rest waits in the scheduler. A
 * closed-loop process issues its next request when the last is answered; an open-loop one does not
 * wait.
 */
#include "sim/simulator.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "sim/store.h"

#define EXPIRE_INTERVAL (5 * QOS_SECOND)        /* as the gate's housekeeping */
#define PAUSE           (100 * QOS_MILLISECOND) /* who was idle for so long wakes */
#define CACHE_LINE      64

/* What a job did since the last bin was over. These of all jobs stand together: with thousands of
 * them, bins are cache misses. */
typedef struct {
    guint32 issued;
    guint32 served;
    QosTime work;
    QosBin *bin; /* where it is to be written */
} Tally;

typedef struct {
    QosSimulatedJob result; /* its end is changed by each request */
    QosJob *job;
    guint index; /* in `jobs` */
    guint outstanding;
    QosTime idle_since;  /* with none outstanding; */
    QosTime clear_since; /* with none waiting in the scheduler */
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

typedef struct Request {
    QosRequest request; /* first: the scheduler hands it out */
    Process *process;
    Job *job; /* its */
    QosTime done;
    struct Request *next; /* among those in the store, or those that can be used anew */
    gboolean wakes;       /* its job was idle before */
} Request;

/* In order of arrival. */
typedef struct {
    Request *first;
    Request *last;
} Line;

typedef struct {
    const QosScenario *scenario;
    QosSimulation *result;
    GRand *random;
    QosSched *sched;
    QosTime now;
    QosTime wake;
    QosTime expire;
    QosStore store;
    guint sampled;     /* bins that have their records */
    GArray *jobs;      /* of Job */
    GArray *tallies;   /* of Tally, by the same index */
    GHashTable *index; /* name -> index in `jobs` */
    GArray *processes; /* of Process */
    QosHeap timers;
    GPtrArray *requests; /* all that were made */
    Line in_store;       /* by the time of the reply */
    Request *unused;
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

static QosBin *bin_at(const QosSimulatedJob *job, guint index)
{
    return index < job->bins->len ? &g_array_index(job->bins, QosBin, index) : NULL;
}

/* Takes `name`. */
static QosSimulatedJob begin_result(const QosScenario *scenario, char *name, const char *label)
{
    guint bins = bin_count(scenario);
    QosSimulatedJob result = {.name = name,
                              .label = label,
                              .weight = qos_scenario_weight(scenario, label),
                              .bins = g_array_sized_new(FALSE, TRUE, sizeof(QosBin), bins),
                              .bursts = g_array_new(FALSE, FALSE, sizeof(QosTime)),
                              .first = QOS_NEVER,
                              .waking = -1};

    g_array_set_size(result.bins, bins);
    for (guint i = 0; i < bins; i++)
        bin_at(&result, i)->is_busy = bin_at(&result, i)->is_backlogged = TRUE;
    return result;
}

static void result_free(QosSimulatedJob *result)
{
    g_array_unref(result->bins);
    g_array_unref(result->bursts);
    g_free(result->name);
    g_free(result);
}

/* Nothing of the job waited from clear_since to now. */
static void mark_clear(const Simulator *sim, const Job *job)
{
    if (job->clear_since == sim->now)
        return;
    for (guint i = bin_of(sim, job->clear_since); i <= bin_of(sim, sim->now - 1); i++) {
        QosBin *bin = bin_at(&job->result, i);
        if (bin != NULL)
            bin->is_backlogged = FALSE;
    }
}

/* It wanted nothing from idle_since to now. */
static void mark_idle(const Simulator *sim, const Job *job)
{
    if (job->idle_since == sim->now)
        return;
    for (guint i = bin_of(sim, job->idle_since); i <= bin_of(sim, sim->now - 1); i++) {
        QosBin *bin = bin_at(&job->result, i);
        if (bin != NULL)
            bin->is_busy = FALSE;
    }
}

static Tally *tally_of(const Simulator *sim, const Job *job)
{
    return &g_array_index(sim->tallies, Tally, job->index);
}

static void book_issue(const Simulator *sim, Job *job)
{
    tally_of(sim, job)->issued++;
    job->result.first = MIN(job->result.first, sim->now);
    sim->result->requests++;
}

static void book_reply(const Simulator *sim, const Request *request)
{
    Job *job = request->job;
    Tally *tally = tally_of(sim, job);
    QosTime work = qos_store_work(sim->scenario, request->request.bytes);

    tally->served++;
    tally->work += work;
    job->result.served++;
    job->result.bytes += request->request.bytes;
    job->result.largest = MAX(job->result.largest, work);
    job->result.last = sim->now;
    sim->result->served++;
    sim->result->last = sim->now;
}

static double repayment_of(const QosAdapt *adapt, const QosJob *job)
{
    QosShareState state;

    if (!qos_adapt_share_state(adapt, job, &state) || state.entitlement == 0)
        return 0;
    return (double)state.repayment / (double)state.entitlement;
}

/* Ends the bin for each job. */
static void end_bin(const Simulator *sim)
{
    const QosAdapt *adapt = qos_sched_adapt(sim->sched);
    gboolean has_records = qos_adapt_count(adapt) > 0;

    for (guint i = 0; i < sim->jobs->len; i++) {
        Tally *tally = &g_array_index(sim->tallies, Tally, i);
        QosBin *bin = tally->bin;
        bin->issued = tally->issued;
        bin->served = tally->served;
        bin->work = tally->work;
        *tally = (Tally){.bin = bin + 1};
        if (!has_records)
            continue;
        const QosJob *job = g_array_index(sim->jobs, Job, i).job;
        bin->record = qos_adapt_record(adapt, job);
        bin->repayment = bin->record != 0 ? repayment_of(adapt, job) : 0;
    }
}

/* Writes down what was, at the end of each bin that is over by now. */
static void sample(Simulator *sim)
{
    const QosAdapt *adapt = qos_sched_adapt(sim->sched);

    for (; (QosTime)(sim->sampled + 1) * sim->scenario->bin <= sim->now; sim->sampled++) {
        QosSimulatedCapacity capacity = {.estimate = qos_adapt_capacity(adapt),
                                         .actual = qos_store_capacity(&sim->store, sim->now)};
        g_array_append_val(sim->result->capacity, capacity);
        end_bin(sim);
    }
}

/* --- the store --- */

static void start(Simulator *sim, Request *request)
{
    QosService service = qos_store_take(&sim->store, request->request.bytes, sim->now);

    if (request->wakes)
        request->job->result.waking =
            MAX(request->job->result.waking, service.begin - request->request.arrival);
    request->done = service.reply;
    request->next = NULL;
    if (sim->in_store.first == NULL)
        sim->in_store.first = request;
    else
        sim->in_store.last->next = request;
    sim->in_store.last = request;
}

/* --- clients --- */

static Request *request_new(Simulator *sim, Process *process)
{
    Request *request = sim->unused;
    Job *job = process->job;

    if (request != NULL) {
        sim->unused = request->next;
    } else {
        request = g_aligned_alloc(1, sizeof(Request), CACHE_LINE);
        g_ptr_array_add(sim->requests, request);
    }
    request->process = process;
    request->job = job;
    request->wakes = job->outstanding == 0 && job->result.first != QOS_NEVER &&
                     sim->now - job->idle_since >= PAUSE;
    request->request =
        (QosRequest){.job = job->job,
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
    book_issue(sim, job);
    if (process->left != G_MAXUINT64)
        process->left--;
    if (qos_sched_enter(sim->sched, &request->request, sim->now, &wake) == QOS_GO) {
        start(sim, request);
    } else if (job->job->waiting == 1) {
        mark_clear(sim, job);
    }
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
static void begin_burst(const Simulator *sim, Process *process)
{
    process->burst = sim->now;
    process->burst_left = process->client->burst;
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

    if (client->burst > 0 && process->burst_left == 0) {
        QosTime took = sim->now - process->burst;
        g_array_append_val(process->job->result.bursts, took);
        next = client->every > 0 ? MAX(process->burst + client->every, sim->now)
                                 : sim->now + client->pause;
    }
    if (client->rate > 0 || process->left == 0)
        return;
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
    request->next = sim->unused;
    sim->unused = request;
    if (--request->job->outstanding == 0)
        request->job->idle_since = sim->now;
    go_on(sim, process);
}

/* --- the run --- */

static void dispatch(Simulator *sim)
{
    QosRequest *next;

    while ((next = qos_sched_next(sim->sched, sim->now, &sim->wake)) != NULL) {
        Request *request = (Request *)next;
        Job *job = request->job;
        if (job->job->waiting == 0)
            job->clear_since = sim->now;
        start(sim, request);
    }
}

/* The next event: TRUE where there is one before the end. */
static gboolean step(Simulator *sim)
{
    Request *first = sim->in_store.first;
    QosHeapNode *timer = qos_heap_peek(&sim->timers);
    QosTime reply = first != NULL ? first->done : QOS_NEVER;
    QosTime act_time = timer != NULL ? timer->key : QOS_NEVER;

    QosTime next = MIN(MIN(reply, act_time), MAX(sim->wake, sim->now));
    if (next >= sim->scenario->duration)
        return FALSE;
    sim->now = next;
    sample(sim);
    if (sim->now >= sim->expire) {
        qos_sched_expire(sim->sched, sim->now);
        sim->expire = sim->now + EXPIRE_INTERVAL;
    }
    if (first != NULL && reply == next) {
        sim->in_store.first = first->next;
        complete(sim, first);
    } else if (timer != NULL && act_time == next) {
        qos_heap_remove(&sim->timers, timer);
        act(sim, (Process *)timer); /* its first member */
    }
    dispatch(sim);
    return TRUE;
}

/* As an administrator who knows all jobs would write them: its part of the capacity for each. One
 * rule serves all copies of a job, each has a bucket of its own. */
static void set_static_rules(Simulator *sim)
{
    g_autoptr(GHashTable) ruled = g_hash_table_new(g_str_hash, g_str_equal);
    QosRules *rules = qos_rules_ref(qos_sched_rules(sim->sched));
    double weights = 0;

    for (guint i = 0; i < sim->jobs->len; i++)
        weights += (double)g_array_index(sim->jobs, Job, i).result.weight;
    for (guint i = 0; i < sim->jobs->len; i++) {
        const QosSimulatedJob *job = &g_array_index(sim->jobs, Job, i).result;
        double rate = sim->scenario->capacity * (double)job->weight / weights;
        if (!g_hash_table_add(ruled, (gpointer)job->label))
            continue;
        g_autofree char *command = g_strdup_printf(
            "start j%u jobid={%s%s} rate=%.0f", i, job->label,
            strcmp(job->name, job->label) == 0 ? "" : ".*", CLAMP(rate, 1, (double)QOS_RATE_MAX));
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
static guint job_index(Simulator *sim, char *name, const char *label)
{
    gpointer known;

    if (g_hash_table_lookup_extended(sim->index, name, NULL, &known)) {
        g_free(name);
        return GPOINTER_TO_UINT(known);
    }
    Job job = {.result = begin_result(sim->scenario, name, label),
               .index = sim->jobs->len,
               .job = qos_account_job(qos_sched_account(sim->sched), name, 0)};
    job.job->nodes = (guint)job.result.weight;
    Tally tally = {.bin = bin_at(&job.result, 0)};
    g_array_append_val(sim->jobs, job);
    g_array_append_val(sim->tallies, tally);
    g_hash_table_insert(sim->index, name, GUINT_TO_POINTER(job.index));
    return job.index;
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

/* The jobs of a client and their processes; of its copies only the first `copies`. */
static void add_client(Simulator *sim, const QosClient *client, guint copies)
{
    for (guint copy = 0; copy < copies; copy++) {
        char *name =
            client->jobs == 1 ? g_strdup(client->job) : g_strdup_printf("%s.%u", client->job, copy);
        add_processes(sim, client, job_index(sim, name, client->job));
    }
}

static void add_clients(Simulator *sim, const char *label)
{
    for (guint i = 0; i < sim->scenario->clients->len; i++) {
        const QosClient *client = sim->scenario->clients->pdata[i];
        if (label == NULL || strcmp(label, client->job) == 0)
            add_client(sim, client, label == NULL ? client->jobs : 1);
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

/* Takes back what is still under way at the end. */
static void take_back(const Simulator *sim, Request *request)
{
    switch (request->request.state) {
    case QOS_REQUEST_QUEUED:
    case QOS_REQUEST_HELD:
    case QOS_REQUEST_READY:
        qos_sched_cancel(sim->sched, &request->request, sim->now);
        break;
    case QOS_REQUEST_RUNNING:
    case QOS_REQUEST_PAUSED:
        qos_sched_leave(sim->sched, &request->request, 0, 0, sim->now);
        break;
    case QOS_REQUEST_NEW:
    case QOS_REQUEST_DONE:
        break;
    }
}

static void finish(const Simulator *sim)
{
    for (guint i = 0; i < sim->jobs->len; i++) {
        Job *job = &g_array_index(sim->jobs, Job, i);
        if (job->outstanding == 0)
            mark_idle(sim, job);
        if (job->job->waiting == 0)
            mark_clear(sim, job);
    }
    if (sim->sampled < bin_count(sim->scenario)) /* it is cut off */
        end_bin(sim);
    for (guint i = 0; i < sim->requests->len; i++)
        take_back(sim, sim->requests->pdata[i]);
    for (guint i = 0; i < sim->jobs->len; i++) {
        Job *job = &g_array_index(sim->jobs, Job, i);
        qos_job_unref(job->job);
        g_ptr_array_add(sim->result->jobs, g_memdup2(&job->result, sizeof(job->result)));
    }
}

QosSimulation *qos_simulate(const QosScenario *scenario, const QosSharing *sharing,
                            const char *label)
{
    Simulator sim = {.scenario = scenario,
                     .wake = QOS_NEVER,
                     .expire = EXPIRE_INTERVAL,
                     .random = g_rand_new_with_seed(scenario->seed)};

    sim.result = g_new0(QosSimulation, 1);
    sim.result->sharing = sharing;
    sim.result->jobs = g_ptr_array_new_with_free_func((GDestroyNotify)(void (*)(void))result_free);
    sim.result->capacity = g_array_new(FALSE, FALSE, sizeof(QosSimulatedCapacity));
    sim.jobs = g_array_new(FALSE, FALSE, sizeof(Job));
    sim.tallies = g_array_new(FALSE, FALSE, sizeof(Tally));
    sim.index = g_hash_table_new(g_str_hash, g_str_equal);
    sim.requests = g_ptr_array_new_with_free_func(g_aligned_free);
    sim.processes = g_array_new(FALSE, FALSE, sizeof(Process));
    sim.sched = qos_sched_new(sharing->policy, scenario->slots, "sim", 600 * QOS_SECOND, 0);
    qos_heap_init(&sim.timers);
    qos_store_init(&sim.store, scenario, sim.random);
    set_adapt(&sim);
    add_clients(&sim, label);
    if (sharing->is_static)
        set_static_rules(&sim);
    while (step(&sim)) {
        /* until the end */
    }
    sim.now = scenario->duration;
    sample(&sim);
    sim.result->busy = sim.store.busy - MAX(sim.store.free - sim.now, 0);
    finish(&sim);
    qos_heap_clear(&sim.timers);
    qos_sched_free(sim.sched);
    g_array_unref(sim.jobs);
    g_array_unref(sim.tallies);
    g_hash_table_unref(sim.index);
    g_array_unref(sim.processes);
    g_ptr_array_unref(sim.requests);
    g_rand_free(sim.random);
    return sim.result;
}

void qos_simulation_free(QosSimulation *simulation)
{
    if (simulation == NULL)
        return;
    g_ptr_array_unref(simulation->jobs);
    g_array_unref(simulation->capacity);
    g_free(simulation);
}
