/*
 * The cost of one scheduling decision: enter and leave of a request that may go, through the gate
 * with its lock, by the number of jobs and rules.
 *
 *     build/bench/bench-decision [ROUNDS|--quick]
 *     build/bench/bench-decision POLICY|fair JOBS RULES REQUESTS
 *
 * The cases take turns in each round, so that a noisy machine disturbs all of them alike. The
 * program prints the medians over the rounds, in nanoseconds a request. `tbf` classifies each
 * request by one hash look-up. So its figures may grow with the number of jobs by cache misses, as
 * those of `fifo` do, but not with the number of rules.
 *
 * The aims are 250 ns in one thread and 1 us in sixteen, without adapt. If a row misses its aim,
 * the exit status is 1, except with --quick, which is one round.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "fs/gate/gate.h"

#define REQUESTS 200000

typedef struct {
    const QosPolicyClass *policy;
    guint jobs;
    guint rules;
    guint threads;
    QosAdaptMode adapt;
} Case;

static const Case cases[] = {
    {&qos_policy_fifo, 1, 0, 1, QOS_ADAPT_OFF},    {&qos_policy_tbf, 1, 0, 1, QOS_ADAPT_OFF},
    {&qos_policy_tbf, 1, 1000, 1, QOS_ADAPT_OFF},  {&qos_policy_fifo, 10000, 0, 1, QOS_ADAPT_OFF},
    {&qos_policy_tbf, 10000, 0, 1, QOS_ADAPT_OFF}, {&qos_policy_tbf, 10000, 1000, 1, QOS_ADAPT_OFF},
    {&qos_policy_fifo, 16, 0, 16, QOS_ADAPT_OFF},  {&qos_policy_tbf, 16, 16, 16, QOS_ADAPT_OFF},
    {&qos_policy_tbf, 1, 0, 1, QOS_ADAPT_FAIR},    {&qos_policy_tbf, 10000, 0, 1, QOS_ADAPT_FAIR},
    /* None of adapt=fair with many threads: it lets requests wait for shares of a store that takes
     * no time, and then it is not the decision that is measured. */
};
#define CASES G_N_ELEMENTS(cases)

/* The aim of a case, ns; 0: it has none. */
static double aim(const Case *what)
{
    if (what->adapt != QOS_ADAPT_OFF)
        return 0;
    return what->threads == 1 ? 250 : 1000;
}

typedef struct {
    QosGate *gate;
    QosJob **jobs;
    guint job_count;
    guint first;
    guint requests;
} Runner;

static void never(QosEntry *entry G_GNUC_UNUSED)
{
    abort(); /* no rule binds: nothing waits */
}

static void *run(void *arg)
{
    Runner *runner = arg;
    QosEntry entry = {.run = never};
    for (guint i = 0; i < runner->requests; i++) {
        entry.request.job = runner->jobs[(runner->first + i) % runner->job_count];
        entry.request.opcode = QOS_OP_READ;
        entry.request.bytes = 4096;
        if (!qos_gate_enter(runner->gate, &entry))
            abort();
        qos_gate_leave(runner->gate, &entry, 4096, 0);
    }
    return NULL;
}

/* Rules that match their jobs, and never bind. */
static void set_rules(QosGate *gate, guint count)
{
    QosRules *rules = qos_rules_new();
    for (guint i = 0; i < count; i++) {
        g_autofree char *command =
            g_strdup_printf("start r%u jobid={j*.%u} rate=999999 depth=1000000", i, i);
        QosRules *next = qos_rules_apply(rules, command, qos_clock_now(), NULL);
        if (next == NULL)
            abort();
        qos_rules_unref(rules);
        rules = next;
    }
    QosSched *sched = qos_gate_lock(gate);
    qos_sched_set_rules(sched, rules, qos_clock_now());
    qos_gate_unlock_and_wake(gate);
    qos_rules_unref(rules);
}

static double measure(const Case *what, guint requests)
{
    QosGate *gate = qos_gate_new(what->policy, 1024, 0);
    g_autofree QosJob **jobs = g_new0(QosJob *, what->jobs);
    Runner runners[16];
    pthread_t threads[16];

    set_rules(gate, what->rules);
    QosSched *sched = qos_gate_lock(gate);
    qos_sched_set_adapt(sched, &(QosAdaptConfig){.mode = what->adapt, .period = QOS_ADAPT_PERIOD},
                        qos_clock_now());
    qos_gate_unlock_and_wake(gate);
    for (guint i = 0; i < what->jobs; i++) {
        g_autofree char *id = g_strdup_printf("j%u.%u", i, i % 1000);
        jobs[i] = qos_gate_job(gate, NULL, id, 0);
    }
    Runner warm = {gate, jobs, what->jobs, 0, what->jobs};
    run(&warm);

    QosTime start = qos_clock_now();
    for (guint i = 0; i < what->threads; i++) {
        runners[i] = (Runner){gate, jobs, what->jobs, i, requests / what->threads};
        pthread_create(&threads[i], NULL, run, &runners[i]);
    }
    for (guint i = 0; i < what->threads; i++)
        pthread_join(threads[i], NULL);
    QosTime elapsed = qos_clock_now() - start;

    for (guint i = 0; i < what->jobs; i++)
        qos_job_unref(jobs[i]);
    qos_gate_free(gate);
    return (double)elapsed / requests;
}

/* One case alone, for a tool that counts instructions (docs/design/performance.md). */
static int run_one(char **words)
{
    gboolean is_fair = strcmp(words[0], "fair") == 0; /* over tbf, as in a mount */
    Case one = {.policy = qos_policy_by_name(is_fair ? "tbf" : words[0]),
                .threads = 1,
                .adapt = is_fair ? QOS_ADAPT_FAIR : QOS_ADAPT_OFF};
    one.jobs = (guint)strtoul(words[1], NULL, 10);
    one.rules = (guint)strtoul(words[2], NULL, 10);
    guint requests = (guint)strtoul(words[3], NULL, 10);
    if (one.policy == NULL || one.jobs == 0 || requests == 0)
        return -1;
    printf("%.0f ns a request\n", measure(&one, requests));
    return 0;
}

static const char *name(const Case *what)
{
    return what->adapt == QOS_ADAPT_FAIR ? "tbf, adapt=fair" : what->policy->name;
}

/* `medians` has each case's, in ns. Returns whether they are as they are to be. */
static gboolean print(const double *medians)
{
    printf("| policy | jobs | rules | threads | ns a request |\n|---|---|---|---|---|\n");
    for (guint i = 0; i < CASES; i++) {
        printf("| %s | %u | %u | %u | %.0f |\n", name(&cases[i]), cases[i].jobs, cases[i].rules,
               cases[i].threads, medians[i]);
    }
    gboolean is_met = TRUE;
    fflush(stdout);
    for (guint i = 0; i < CASES; i++) {
        if (aim(&cases[i]) == 0 || medians[i] <= aim(&cases[i]))
            continue;
        fprintf(stderr,
                "MISSED: %s, %u jobs, %u rules, %u threads: %.0f ns, at most %.0f is the aim\n",
                name(&cases[i]), cases[i].jobs, cases[i].rules, cases[i].threads, medians[i],
                aim(&cases[i]));
        is_met = FALSE;
    }
    return is_met;
}

int main(int argc, char **argv)
{
    if (argc == 5 && run_one(argv + 1) == 0)
        return 0;
    gboolean is_quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
    guint rounds = is_quick ? 1 : argc > 1 ? (guint)strtoul(argv[1], NULL, 10) : 9;
    if (rounds == 0 || argc > 2) {
        fprintf(stderr,
                "usage: bench-decision [ROUNDS|--quick] | POLICY|fair JOBS RULES REQUESTS\n");
        return 2;
    }
    g_autofree double *times = g_new(double, rounds *CASES);
    for (guint round = 0; round < rounds; round++) {
        for (guint i = 0; i < CASES; i++)
            times[i * rounds + round] = measure(&cases[i], REQUESTS);
    }
    double medians[CASES];
    for (guint i = 0; i < CASES; i++)
        medians[i] = median(&times[i * rounds], rounds);
    return print(medians) || is_quick ? 0 : 1;
}
