/*
 * A scenario of the simulator: a store, and the clients that send requests to it. It is read from a
 * key file; qosfs-sim(1) says what each key means, and sim/scenarios/ has examples.
 *
 *     [scenario]  title, duration, seed, bin
 *     [store]     capacity (op/s), bandwidth (bytes/s), latency, jitter, noise, slots, steps,
 *                 stall_start, stall_length, stall_every
 *     [adapt]     capacity (what the scheduler is told, "auto" = nothing), period (one or more)
 *     [job NAME]  weight
 *     [client N]  job, jobs, processes, start, stop, spread, life, size, sizes, think, burst,
 *                 every, pause, requests, tail, on, off, rate
 *     [replay]    file: what a mount has written down of its jobs (sim/replay.h)
 *     [rules]     what is done to the rules, and when (sim/rule_changes.h)
 *     [figures]   timeline, bars, records, rates
 */
#pragma once

#include "base/time.h"

/* Of a client's requests, a part of this size. */
typedef struct {
    gint64 size;
    double weight; /* > 0 */
} QosSizePart;

/* Processes that all do the same, of one job or of one job each. */
typedef struct {
    char *name;
    char *job;        /* its JobID; with `jobs` > 1, the number of the copy is added */
    guint jobs;       /* copies, each a job of its own */
    guint processes;  /* of each job */
    QosTime start;    /* when it begins, */
    QosTime spread;   /* and how much later, at random, at most */
    QosTime stop;     /* when it issues no more, QOS_NEVER */
    QosTime life;     /* the same, after its own start */
    gint64 size;      /* bytes of a request, 0 = metadata */
    GArray *sizes;    /* of QosSizePart, in its place where there are any: at random */
    QosTime think;    /* between a reply and the next request */
    guint burst;      /* requests in a burst, 0 = no bursts */
    QosTime every;    /* from the start of a burst to the start of the next, */
    QosTime pause;    /* or from its end */
    guint64 requests; /* that each process makes, 0 = no end */
    double tail; /* of a Pareto distribution with these means, the shape (> 1): bursts, requests
                    of a process, and phases; 0 = all are as long, and phases exponential */
    QosTime on;  /* mean length of the phases in which it issues requests, 0 = always; */
    QosTime off; /* and of those in which it does not */
    int opcode;  /* QosOpcode; -1 = write, or of requests without bytes getattr */
    double rate; /* open loop: requests a second of each process, Poisson; 0 = closed loop */
    gboolean is_counted; /* of an open loop: makes `requests` until `stop`, at random times */
} QosScenarioClient;

/* From `time` on, the store serves so much. */
typedef struct {
    QosTime time;
    double capacity;
} QosStep;

typedef struct {
    char *name;   /* the file's, without folder and suffix */
    char *folder; /* where that lies, from the root on */
    char *title;
    QosTime duration;
    gboolean has_duration; /* the file says so */
    guint32 seed;
    QosTime bin; /* of the timelines; 0 while it is not told */
    /* The store: see sim/store.h. */
    double capacity;
    GArray *steps;    /* of QosStep, in order of time */
    double bandwidth; /* 0 = sizes do not matter */
    QosTime latency;
    double jitter; /* each latency is that one, more or less by this part at most; 0 to 1 */
    double noise;  /* relative standard deviation of a request's time */
    guint slots;
    QosTime stall_start; /* QOS_NEVER = no stall */
    QosTime stall_length;
    QosTime stall_every; /* from the start of a stall to the next; 0 = there is one */
    /* What the scheduler is told. */
    double told_capacity; /* 0 = auto */
    GArray *periods;      /* of QosTime: it is run with each of them */
    QosTime period;       /* the one that it is run with; the caller sets it */
    GHashTable *weights;  /* JobID (of the client's `job`) -> guint */
    GPtrArray *clients;   /* of QosScenarioClient, owned */
    GArray *rules;        /* of QosRuleChange */
    guint unknown;        /* QosField: what of its requests is not known */
    /* The figures that are drawn of it: names of files, without folder and suffix; NULL = none. */
    char *timeline; /* what each job gets, by time */
    char *bars;     /* in all, and against No BW */
    char *records;  /* and demand, by time */
    char *rates;    /* in all, by period */
} QosScenario;

/* Errors (QOS_ERROR): what is wrong, in which group of which file. */
QosScenario *qos_scenario_load(const char *path, GError **error);
/* From a text like such a file. */
QosScenario *qos_scenario_parse(const char *name, const char *text, GError **error);
/* One without clients, and with the defaults (qosfs-sim(1)); `path` gives name and folder. */
QosScenario *qos_scenario_new(const char *path);
void qos_scenario_free(QosScenario *scenario); /* NULL is allowed */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosScenario, qos_scenario_free)

/* Adds a client: one process of one job that makes requests without end. The caller sets the job's
 * name. */
QosScenarioClient *qos_scenario_add_client(QosScenario *scenario, const char *name);
/* Of the JobID as written in the file; 1 where it is not given. */
guint qos_scenario_weight(const QosScenario *scenario, const char *job);
/* Takes periods as they are written, "5ms 100ms", in place of the scenario's. */
gboolean qos_scenario_set_periods(QosScenario *scenario, const char *text, GError **error);
