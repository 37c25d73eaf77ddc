/*
 * The event loop. It has four sources of events: the store's replies, the clients' timers, the time
 * at which the scheduler wants to be asked again, and changes of the rules. Timers are in a heap,
 * and replies are in order, or in a heap if there is jitter. After each event, the requests that
 * the scheduler hands out enter the store, as a worker of the mount would make them do
 * (fs/gate/workers.c).
 *
 * The store (sim/store.h) has at most `slots` requests inside; the others wait in the scheduler. A
 * closed-loop process issues its next request when the last is answered; an open-loop one does not
 * wait.
 */
#include "sim/simulator.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "sim/gps.h"
#include "sim/replay.h"
#include "sim/rule_changes.h"
#include "sim/store.h"

#define LONGEST         1000                    /* times the mean, of what is random */
#define EXPIRE_INTERVAL (5 * QOS_SECOND)        /* as the gate's housekeeping */
#define PAUSE           (100 * QOS_MILLISECOND) /* a job that was idle for so long wakes */

typedef struct {
    QosJob *job;
    guint index; /* of its result, in `jobs` */
    guint outstanding;
    guint32 issued; /* since the last bin was over, */
    guint32 served;
    QosTime work;        /* likewise */
    guint64 bytes;       /* in all */
    QosTime last;        /* reply */
    QosTime idle_since;  /* with none outstanding; */
    QosTime clear_since; /* with none waiting in the scheduler */
} Job;

typedef struct {
    QosHeapNode timer;
    const QosScenarioClient *client;
    Job *job;
    QosTime stop;
    guint64 left;     /* requests to issue, G_MAXUINT64 = no end */
    guint burst_left; /* to issue in this burst */
    gboolean has_replied;
    QosTime burst; /* start of this burst */
} Process;

/* The phase of a process, if its client has phases. */
typedef struct {
    QosTime begin; /* of one in which it issues requests, */
    QosTime end;   /* and of the pause after it */
} Phase;

typedef struct Request {
    QosRequest request; /* first: the scheduler hands it out */
    Process *process;
    Job *job;           /* its */
    QosService service; /* of the last that went into the store; not of the ideal */
    QosTime done;
    struct Request *next; /* among those in the store, or those that can be used anew */
    QosHeapNode reply;    /* in `replies`, or before that in `gps` */
    QosTime issued;
    gboolean wakes; /* its job was idle before */
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
    guint sampled; /* bins that have their records */
    QosTime end;
    QosEnoughFunc is_enough; /* may be NULL */
    gpointer arg;            /* of it */
    Job *jobs;               /* as many as there are results */
    GHashTable *index;       /* name -> Job */
    Process *processes;
    Phase *phases; /* by index of the processes */
    guint process_count;
    QosHeap timers;
    GPtrArray *requests; /* all that were made */
    gboolean is_ideal;   /* `gps` stands in for the scheduler and the store's queue */
    QosGps gps;
    QosGpsJob *ideal;   /* by index of the jobs */
    double ideal_work;  /* sum of what came into it */
    Line in_store;      /* by the time of the reply, */
    QosHeap replies;    /* or with jitter here */
    guint rule_changes; /* that were made */
    Request *unused;
} Simulator;

/* --- results --- */

static guint bin_of(const Simulator *sim, QosTime time)
{
    return (guint)(time / sim->scenario->bin);
}

static guint bin_count(const QosScenario *scenario)
{
    return (guint)((scenario->duration + scenario->bin - 1) / scenario->bin);
}

/* Takes `name`. */
static QosSimulatedJob *result_new(const QosScenario *scenario, char *name, const char *label)
{
    QosSimulatedJob *result = g_new(QosSimulatedJob, 1);

    *result = (QosSimulatedJob){.name = name,
                                .label = label,
                                .weight = qos_scenario_weight(scenario, label),
                                .bursts = g_array_new(FALSE, FALSE, sizeof(QosTime)),
                                .first = QOS_NEVER,
                                .waking = -1};
    return result;
}

static void result_free(QosSimulatedJob *result)
{
    g_array_unref(result->bursts);
    g_free(result->name);
    g_free(result);
}

static QosSimulatedJob *result_of(const Simulator *sim, const Job *job)
{
    return sim->result->jobs->pdata[job->index];
}

static QosGpsJob *ideal_of(const Simulator *sim, const Job *job)
{
    return &sim->ideal[job->index];
}

static void begin_bins(const Simulator *sim)
{
    guint jobs = sim->result->jobs->len;
    guint count = bin_count(sim->scenario);
    gsize all = (gsize)jobs * count;

    sim->result->bins = g_new0(QosBin, all);
    for (gsize i = 0; i < all; i++)
        sim->result->bins[i].is_busy = sim->result->bins[i].is_backlogged = TRUE;
    for (guint i = 0; i < jobs; i++)
        result_of(sim, &sim->jobs[i])->bins =
            (QosTimeline){.first = &sim->result->bins[i], .step = jobs, .count = count};
}

/* Nothing of the job waited from clear_since to now. */
static void mark_clear(const Simulator *sim, const Job *job)
{
    if (job->clear_since == sim->now)
        return;
    for (guint i = bin_of(sim, job->clear_since); i <= bin_of(sim, sim->now - 1); i++)
        qos_timeline_bin(&result_of(sim, job)->bins, i)->is_backlogged = FALSE;
}

/* It wanted nothing from idle_since to now. */
static void mark_idle(const Simulator *sim, const Job *job)
{
    if (job->idle_since == sim->now)
        return;
    for (guint i = bin_of(sim, job->idle_since); i <= bin_of(sim, sim->now - 1); i++)
        qos_timeline_bin(&result_of(sim, job)->bins, i)->is_busy = FALSE;
}

/* Notes what a request took beyond its own work and the latency. */
static void note_delay(QosSimulatedJob *result, QosTime delay)
{
    result->delay += (double)MAX(delay, 0);
    result->longest_delay = MAX(result->longest_delay, delay);
}

static void book_reply(const Simulator *sim, const Request *request)
{
    Job *job = request->job;
    QosTime work = qos_store_work(sim->scenario, request->request.bytes);

    job->served++;
    job->work += work;
    job->bytes += request->request.bytes;
    job->last = sim->now;
    if (!request->process->has_replied || request->process->client->sizes->len > 0) {
        QosSimulatedJob *result = result_of(sim, job);
        result->largest = MAX(result->largest, work);
        request->process->has_replied = TRUE; /* others of it are of the same size */
    }
    note_delay(result_of(sim, job), sim->now - request->issued - work - sim->scenario->latency);
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

    for (guint i = 0; i < sim->result->jobs->len; i++) {
        Job *job = &sim->jobs[i];
        QosBin *bin = qos_timeline_bin(&result_of(sim, job)->bins, sim->sampled);
        bin->issued = job->issued;
        bin->served = job->served;
        bin->work = job->work;
        result_of(sim, job)->served += job->served;
        job->issued = job->served = 0;
        job->work = 0;
        if (!has_records)
            continue;
        bin->record = qos_adapt_record(adapt, job->job);
        bin->repayment = bin->record != 0 ? repayment_of(adapt, job->job) : 0;
    }
}

/* Writes down what was, at the end of each bin that is over by now. */
static void sample(Simulator *sim)
{
    const QosAdapt *adapt = qos_sched_adapt(sim->sched);

    for (; (QosTime)(sim->sampled + 1) * sim->scenario->bin <= MIN(sim->now, sim->end);
         sim->sampled++) {
        QosSimulatedCapacity capacity = {.estimate = qos_adapt_capacity(adapt),
                                         .actual = qos_store_capacity(&sim->store, sim->now)};
        g_array_append_val(sim->result->capacity, capacity);
        end_bin(sim);
        if (sim->is_enough != NULL && sim->is_enough(sim->result, sim->sampled + 1, sim->arg))
            sim->end = (QosTime)(sim->sampled + 1) * sim->scenario->bin;
    }
}

/* --- the store --- */

/* Its reply comes at `done`. */
static void await_reply(Simulator *sim, Request *request, QosTime done)
{
    request->done = done;
    request->next = NULL;
    if (sim->scenario->jitter > 0)
        qos_heap_push(&sim->replies, &request->reply, request->done);
    else if (sim->in_store.first == NULL)
        sim->in_store.first = request;
    else
        sim->in_store.last->next = request;
    sim->in_store.last = request;
}

static void start(Simulator *sim, Request *request)
{
    request->service = qos_store_take(&sim->store, request->request.bytes, sim->now);
    if (request->wakes) {
        QosSimulatedJob *result = result_of(sim, request->job);
        result->waking = MAX(result->waking, request->service.begin - request->request.arrival);
    }
    await_reply(sim, request, request->service.reply);
}

/* The next that the store replies to, or NULL. */
static Request *first_in_store(const Simulator *sim)
{
    const QosHeapNode *node = qos_heap_peek(&sim->replies);

    if (node != NULL)
        return (Request *)((char *)node - G_STRUCT_OFFSET(Request, reply));
    return sim->in_store.first;
}

static void remove_first(Simulator *sim, Request *first)
{
    if (qos_heap_contains(&first->reply))
        qos_heap_remove(&sim->replies, &first->reply);
    else
        sim->in_store.first = first->next;
}

/* --- clients --- */

/* A random length with that mean: exponential, or with a shape by Pareto. Very long ones are cut,
 * so that a single one cannot fill the run. */
static double random_length(const Simulator *sim, double mean, double shape)
{
    const double uniform = 1 - g_rand_double(sim->random); /* (0, 1] */
    const double length =
        shape > 0 ? mean * (shape - 1) / shape * pow(uniform, -1 / shape) : -log(uniform) * mean;

    return MIN(length, LONGEST * mean);
}

/* When an open-loop process issues its next request, after `from`: in a Poisson process, or of what
 * is left, at random times until its stop, the first. */
static QosTime next_arrival(const Simulator *sim, const Process *process, QosTime from)
{
    const QosScenarioClient *client = process->client;

    if (!client->is_counted)
        return from + (QosTime)random_length(sim, 1e9 / client->rate, 0);
    const double uniform = 1 - g_rand_double(sim->random); /* (0, 1] */
    const double part = 1 - pow(uniform, 1 / (double)process->left);
    return from + (QosTime)(part * (double)(process->stop - from));
}

/* `count`, or with a tail a number with that mean; 1 at least. */
static guint64 random_count(const Simulator *sim, guint64 count, double tail)
{
    if (tail <= 0)
        return count;
    const gint64 random = llrint(random_length(sim, (double)count, tail));
    return (guint64)MAX(random, 1);
}

static gint64 size_of(const Simulator *sim, const QosScenarioClient *client)
{
    double sum = 0;

    if (client->sizes->len == 0)
        return client->size;
    for (guint i = 0; i < client->sizes->len; i++)
        sum += g_array_index(client->sizes, QosSizePart, i).weight;
    double place = g_rand_double(sim->random) * sum;
    for (guint i = 0; i < client->sizes->len; i++) {
        const QosSizePart *part = &g_array_index(client->sizes, QosSizePart, i);

        place -= part->weight;
        if (place < 0)
            return part->size;
    }
    return g_array_index(client->sizes, QosSizePart, client->sizes->len - 1).size;
}

static QosOpcode opcode_of(const QosScenarioClient *client, guint64 bytes)
{
    if (client->opcode >= 0)
        return (QosOpcode)client->opcode;
    return bytes > 0 ? QOS_OP_WRITE : QOS_OP_GETATTR;
}

static Request *request_new(Simulator *sim, Process *process)
{
    Request *request = sim->unused;
    Job *job = process->job;

    if (request != NULL) {
        sim->unused = request->next;
    } else {
        request = g_new0(Request, 1);
        g_ptr_array_add(sim->requests, request);
    }
    request->process = process;
    request->job = job;
    request->wakes = FALSE;
    request->request.job = job->job;
    request->request.bytes = (guint64)size_of(sim, process->client);
    request->request.opcode = opcode_of(process->client, request->request.bytes);
    request->issued = sim->now;
    return request;
}

/* A request of a job that has none outstanding. */
static void wake_up(const Simulator *sim, Request *request)
{
    const Job *job = request->job;
    QosSimulatedJob *result = result_of(sim, job);

    request->wakes = result->first != QOS_NEVER && sim->now - job->idle_since >= PAUSE;
    result->first = MIN(result->first, sim->now);
    mark_idle(sim, job);
}

/* It is served from now on, at its job's part of the store. */
static void begin_ideally(Simulator *sim, Request *request)
{
    Job *job = request->job;
    const QosTime work = qos_store_time(&sim->store, request->request.bytes);

    if (ideal_of(sim, job)->inside == 0)
        mark_clear(sim, job);
    sim->ideal_work += (double)work;
    qos_gps_enter(&sim->gps, ideal_of(sim, job), work, &request->reply, sim->now);
    if (request->wakes)
        result_of(sim, job)->waking = MAX(result_of(sim, job)->waking, 0);
}

/* Where the store is far away, as many requests as it has slots bring less than it can serve: while
 * there are more, each slot takes one of the mean work and brings its reply. */
static void set_ideal_speed(Simulator *sim)
{
    const double most = qos_store_capacity(&sim->store, sim->now) / sim->scenario->capacity;
    const double outstanding = (double)(sim->result->requests - sim->result->served);
    double speed = most;

    if (most > 0 && outstanding > sim->scenario->slots) {
        const double work = sim->ideal_work / (double)sim->result->requests;
        const double round = work / most + (double)sim->scenario->latency;

        speed = MIN(most, sim->scenario->slots * work / round);
    }
    qos_gps_set_speed(&sim->gps, speed, most, sim->now);
}

/* Requests that the ideal store has served by now get their replies on the way. */
static void end_ideally(Simulator *sim)
{
    QosHeapNode *node;

    while ((node = qos_gps_take(&sim->gps, sim->now)) != NULL) {
        Request *request = (Request *)((char *)node - G_STRUCT_OFFSET(Request, reply));

        qos_gps_leave(&sim->gps, ideal_of(sim, request->job));
        if (ideal_of(sim, request->job)->inside == 0)
            request->job->clear_since = sim->now;
        await_reply(sim, request, sim->now + qos_store_latency(&sim->store));
    }
    set_ideal_speed(sim);
}

static void issue(Simulator *sim, Process *process)
{
    Request *request = request_new(sim, process);
    Job *job = process->job;
    QosTime wake;

    if (job->outstanding++ == 0)
        wake_up(sim, request);
    job->issued++;
    sim->result->requests++;
    if (sim->requests->len > QOS_SIMULATION_REQUESTS_MAX) {
        sim->result->is_overloaded = TRUE;
        sim->end = sim->now;
    }
    if (process->left != G_MAXUINT64)
        process->left--;
    if (sim->is_ideal) {
        begin_ideally(sim, request);
        return;
    }
    if (qos_sched_enter(sim->sched, &request->request, sim->now, &wake) == QOS_GO) {
        start(sim, request);
    } else if (job->job->sched.use.waiting == 1) {
        mark_clear(sim, job);
    }
    sim->wake = MIN(sim->wake, wake);
}

/* `when`, or where the process pauses until then, the first time after the pause: in an open loop,
 * which has no memory, an interval later. */
static QosTime in_phase(const Simulator *sim, const Process *process, QosTime when)
{
    const QosScenarioClient *client = process->client;
    Phase *phase = &sim->phases[process - sim->processes];

    if (client->on == 0)
        return when;
    while (when >= phase->end && phase->end < sim->scenario->duration) {
        phase->begin = phase->end + (QosTime)random_length(sim, (double)client->off, client->tail);
        phase->end =
            phase->begin + 1 + (QosTime)random_length(sim, (double)client->on, client->tail);
        when =
            client->rate > 0 ? next_arrival(sim, process, phase->begin) : MAX(when, phase->begin);
    }
    return when;
}

/* The phase in which a process is at `begin`, or the pause. */
static Phase first_phase(const Simulator *sim, const QosScenarioClient *client, QosTime begin)
{
    Phase phase = {.begin = begin, .end = begin};

    if (client->on > 0 &&
        g_rand_double(sim->random) * (double)(client->on + client->off) < (double)client->on)
        phase.end += 1 + (QosTime)random_length(sim, (double)client->on, client->tail);
    return phase;
}

static void set_timer(Simulator *sim, Process *process, QosTime when)
{
    when = in_phase(sim, process, when);
    if (when < process->stop && when < sim->scenario->duration)
        qos_heap_push(&sim->timers, &process->timer, when);
}

/* A burst begins, late where the last took longer than the interval. */
static void begin_burst(const Simulator *sim, Process *process)
{
    process->burst = sim->now;
    process->burst_left = (guint)random_count(sim, process->client->burst, process->client->tail);
}

/* The timer of a process: it issues its next request. */
static void act(Simulator *sim, Process *process)
{
    const QosScenarioClient *client = process->client;

    if (process->left == 0)
        return;
    if (client->burst > 0 && process->burst_left == 0)
        begin_burst(sim, process);
    if (client->burst > 0)
        process->burst_left--;
    issue(sim, process);
    if (client->rate > 0 && process->left > 0)
        set_timer(sim, process, next_arrival(sim, process, sim->now));
}

/* A request of a closed-loop process was answered. */
static void go_on(Simulator *sim, Process *process)
{
    const QosScenarioClient *client = process->client;
    QosTime next = sim->now + client->think;

    if (client->burst > 0 && process->burst_left == 0) {
        QosTime took = sim->now - process->burst;
        g_array_append_val(result_of(sim, process->job)->bursts, took);
        next = client->every > 0 ? MAX(process->burst + client->every, sim->now)
                                 : sim->now + client->pause;
    }
    if (client->rate > 0 || process->left == 0)
        return;
    if (next == sim->now && next < process->stop && client->on == 0)
        act(sim, process); /* not by way of the heap: most requests are of this kind */
    else
        set_timer(sim, process, next);
}

static void complete(Simulator *sim, Request *request)
{
    Process *process = request->process;

    if (!sim->is_ideal)
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
        if (next->job->sched.use.waiting == 0)
            request->job->clear_since = sim->now;
        start(sim, request);
    }
}

/* The next event: TRUE where there is one before the end. */
static gboolean step(Simulator *sim)
{
    const GArray *rules = sim->scenario->rules;
    Request *first = first_in_store(sim);
    QosHeapNode *timer = qos_heap_peek(&sim->timers);
    QosTime reply = first != NULL ? first->done : QOS_NEVER;
    QosTime act_time = timer != NULL ? timer->key : QOS_NEVER;

    QosTime next = MIN(MIN(reply, act_time), MAX(sim->wake, sim->now));
    if (sim->is_ideal)
        next =
            MIN(next, MIN(qos_gps_next(&sim->gps), qos_store_next_change(&sim->store, sim->now)));
    if (sim->result->sharing->has_rules)
        next =
            MIN(next, MAX(qos_rule_changes_next(rules, sim->rule_changes, sim->sched), sim->now));
    if (next >= sim->end)
        return FALSE;
    sim->now = next;
    sample(sim);
    if (sim->now >= sim->end)
        return FALSE;
    if (sim->now >= sim->expire) {
        qos_sched_expire(sim->sched, sim->now);
        sim->expire = sim->now + EXPIRE_INTERVAL;
    }
    if (sim->result->sharing->has_rules)
        qos_rule_changes_make(rules, &sim->rule_changes, sim->sched, sim->now);
    if (first != NULL && reply == next) {
        remove_first(sim, first);
        complete(sim, first);
    } else if (timer != NULL && act_time == next) {
        qos_heap_remove(&sim->timers, timer);
        act(sim, (Process *)timer); /* its first member */
    }
    if (sim->is_ideal)
        end_ideally(sim);
    else
        dispatch(sim);
    return TRUE;
}

/* The job named so, made if need be. Takes `name`. */
static Job *job_named(Simulator *sim, char *name, const char *label)
{
    Job *job = g_hash_table_lookup(sim->index, name);

    if (job != NULL) {
        g_free(name);
        return job;
    }
    QosSimulatedJob *result = result_new(sim->scenario, name, label);
    g_autofree char *id = qos_replay_job_id(name);
    guint index = sim->result->jobs->len;
    job = &sim->jobs[index];
    *job = (Job){.job = qos_jobs_job(qos_sched_jobs(sim->sched), id, 0), .index = index};
    sim->ideal[index].weight = result->weight;
    job->job->nodes = (guint)result->weight;
    g_ptr_array_add(sim->result->jobs, result);
    g_hash_table_insert(sim->index, name, job);
    return job;
}

static void add_processes(Simulator *sim, const QosScenarioClient *client, Job *job)
{
    QosTime delay =
        client->spread > 0 ? (QosTime)(g_rand_double(sim->random) * (double)client->spread) : 0;
    QosTime begin = client->start + delay;

    for (guint i = 0; i < client->processes; i++) {
        Process *process = &sim->processes[sim->process_count++];
        *process = (Process){.client = client,
                             .job = job,
                             .stop = MIN(client->stop, qos_time_add(begin, client->life)),
                             .left = client->requests > 0
                                         ? random_count(sim, client->requests, client->tail)
                                         : G_MAXUINT64};
        sim->phases[sim->process_count - 1] = first_phase(sim, client, begin);
        set_timer(sim, process, client->rate > 0 ? next_arrival(sim, process, begin) : begin);
    }
}

/* How many copies of a client's job there are; with `label`, only its first counts. */
static guint copies_of(const QosScenarioClient *client, const char *label)
{
    if (label == NULL)
        return client->jobs;
    return strcmp(label, client->job) == 0 ? 1 : 0;
}

static void add_client(Simulator *sim, const QosScenarioClient *client, guint copies)
{
    for (guint copy = 0; copy < copies; copy++) {
        char *name =
            client->jobs == 1 ? g_strdup(client->job) : g_strdup_printf("%s.%u", client->job, copy);
        add_processes(sim, client, job_named(sim, name, client->job));
    }
}

static void add_clients(Simulator *sim, const char *label)
{
    const GPtrArray *clients = sim->scenario->clients;
    guint jobs = 0; /* at most: some clients may have one in common */
    guint processes = 0;

    for (guint i = 0; i < clients->len; i++) {
        const QosScenarioClient *client = clients->pdata[i];
        jobs += copies_of(client, label);
        processes += copies_of(client, label) * client->processes;
    }
    sim->jobs = g_new0(Job, MAX(jobs, 1));
    sim->ideal = g_new0(QosGpsJob, MAX(jobs, 1));
    sim->processes = g_new0(Process, MAX(processes, 1));
    sim->phases = g_new0(Phase, MAX(processes, 1));
    for (guint i = 0; i < clients->len; i++)
        add_client(sim, clients->pdata[i], copies_of(clients->pdata[i], label));
    begin_bins(sim);
}

/* Takes back what is still under way at the end. */
static void take_back(const Simulator *sim, Request *request)
{
    switch (request->request.state) {
    case QOS_REQUEST_QUEUED:
    case QOS_REQUEST_AT_LIMIT:
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

/* How long the store served until now: without what it has yet to do for requests inside. */
static QosTime busy_time(const Simulator *sim)
{
    QosTime busy = sim->is_ideal ? (QosTime)sim->gps.busy : sim->store.busy;

    for (guint i = 0; i < sim->requests->len; i++) {
        const QosService *service = &((const Request *)sim->requests->pdata[i])->service;

        busy -= MAX(service->end - MAX(service->begin, sim->now), 0);
    }
    return busy;
}

static void finish(const Simulator *sim)
{
    for (guint i = 0; i < sim->result->jobs->len; i++) {
        Job *job = &sim->jobs[i];
        if (job->outstanding == 0)
            mark_idle(sim, job);
        if (sim->is_ideal ? ideal_of(sim, job)->inside == 0 : job->job->sched.use.waiting == 0)
            mark_clear(sim, job);
    }
    if ((QosTime)sim->sampled * sim->scenario->bin < sim->now) /* it is cut off */
        end_bin(sim);
    for (guint i = 0; i < sim->requests->len; i++)
        take_back(sim, sim->requests->pdata[i]);
    for (guint i = 0; i < sim->result->jobs->len; i++) {
        Job *job = &sim->jobs[i];
        QosSimulatedJob *result = result_of(sim, job);
        result->bytes = job->bytes;
        result->last = job->last;
        result->left = job->outstanding;
        result->until = job->outstanding > 0 ? sim->now : job->last;
        qos_job_unref(job->job);
    }
}

static QosSimulation *simulate(const QosScenario *scenario, const QosSharing *sharing,
                               const char *label, QosEnoughFunc is_enough, gpointer arg)
{
    Simulator sim = {.scenario = scenario,
                     .end = scenario->duration,
                     .is_ideal = sharing->is_ideal,
                     .is_enough = is_enough,
                     .arg = arg,
                     .wake = QOS_NEVER,
                     .expire = EXPIRE_INTERVAL,
                     .random = g_rand_new_with_seed(scenario->seed)};

    sim.result = g_new0(QosSimulation, 1);
    sim.result->sharing = sharing;
    sim.result->jobs = g_ptr_array_new_with_free_func((GDestroyNotify)(void (*)(void))result_free);
    sim.result->capacity = g_array_new(FALSE, FALSE, sizeof(QosSimulatedCapacity));
    sim.index = g_hash_table_new(g_str_hash, g_str_equal);
    sim.requests = g_ptr_array_new_with_free_func(g_free);
    sim.sched = qos_sched_new(sharing->policy, scenario->slots, "sim", 600 * QOS_SECOND, 0);
    qos_heap_init(&sim.timers);
    qos_heap_init(&sim.replies);
    qos_gps_init(&sim.gps);
    qos_store_init(&sim.store, scenario, sim.random);
    add_clients(&sim, label);
    if (sim.is_ideal)
        set_ideal_speed(&sim);
    qos_sharing_apply(sharing, scenario, sim.result->jobs, sim.sched);
    while (step(&sim)) {
        /* until the end */
    }
    sim.now = sim.result->end = sim.end;
    sample(&sim);
    sim.result->busy = busy_time(&sim);
    finish(&sim);
    qos_heap_clear(&sim.timers);
    qos_heap_clear(&sim.replies);
    qos_gps_clear(&sim.gps);
    g_free(sim.ideal);
    qos_sched_free(sim.sched);
    g_free(sim.jobs);
    g_hash_table_unref(sim.index);
    g_free(sim.processes);
    g_free(sim.phases);
    g_ptr_array_unref(sim.requests);
    g_rand_free(sim.random);
    return sim.result;
}

QosSimulation *qos_simulate(const QosScenario *scenario, const QosSharing *sharing,
                            const char *label)
{
    return simulate(scenario, sharing, label, NULL, NULL);
}

QosSimulation *qos_simulate_until(const QosScenario *scenario, const QosSharing *sharing,
                                  QosEnoughFunc is_enough, gpointer arg)
{
    return simulate(scenario, sharing, NULL, is_enough, arg);
}

void qos_simulation_free(QosSimulation *simulation)
{
    if (simulation == NULL)
        return;
    g_ptr_array_unref(simulation->jobs);
    g_free(simulation->bins);
    g_array_unref(simulation->capacity);
    g_free(simulation);
}
