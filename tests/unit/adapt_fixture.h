/*
 * Closed-loop jobs under adaptive sharing, in virtual time, on a store that serves one request
 * after the other.
 */
#pragma once

#include <string.h>

#include "fs/sched.h"

typedef struct {
    QosRequest request; /* first */
    guint job;
    QosTime done;
} Access;

typedef struct {
    QosSched *sched;
    QosTime now;
    QosTime wake;
    double rate;   /* of the store, requests/s */
    QosTime free;  /* when it has served all that it has */
    GQueue inside; /* of Access, by time of reply */
    guint waiting;
    gboolean never_idle; /* the store is not, while somebody waits */
    guint count;
    QosJob *jobs[40];
    guint processes[40]; /* that are to be there; */
    guint running[40];   /* and are */
    guint parked[40];    /* of these that wait */
    gboolean paused[40]; /* none waited, once */
    guint64 served[40];
} World;

static void world_init(World *world, const QosPolicyClass *policy, guint slots, double rate)
{
    *world = (World){.now = 1000 * QOS_SECOND, .wake = QOS_NEVER, .rate = rate};
    world->sched = qos_sched_new(policy, slots, "node7", 600 * QOS_SECOND, world->now);
}

static void begin_access(World *world, Access *access)
{
    world->free = MAX(world->free, world->now) + (QosTime)(1e9 / world->rate);
    access->done = world->free;
    g_queue_push_tail(&world->inside, access);
}

static void park(World *world, const Access *access, gint change)
{
    world->waiting += (guint)change;
    world->parked[access->job] += (guint)change;
}

static void issue(World *world, guint job)
{
    Access *access = g_new0(Access, 1);
    QosTime wake;

    access->job = job;
    access->request.job = qos_job_ref(world->jobs[job]);
    access->request.opcode = QOS_OP_GETATTR;
    world->running[job]++;
    if (qos_sched_enter(world->sched, &access->request, world->now, &wake) == QOS_GO)
        begin_access(world, access);
    else
        park(world, access, 1);
    world->wake = MIN(world->wake, wake);
}

static guint world_job(World *world, const char *id, guint nodes, guint processes)
{
    guint job = world->count++;
    world->jobs[job] = qos_jobs_job(qos_sched_jobs(world->sched), id, world->now);
    world->jobs[job]->nodes = nodes;
    world->processes[job] = processes;
    return job;
}

static void set_processes(World *world, guint job, guint processes)
{
    world->processes[job] = processes;
}

static void end_access(World *world, Access *access)
{
    guint job = access->job;

    qos_sched_leave(world->sched, &access->request, 0, 0, world->now);
    qos_job_unref(access->request.job);
    g_free(access);
    world->served[job]++;
    world->running[job]--;
}

static void dispatch(World *world)
{
    Access *access;

    for (guint job = 0; job < world->count; job++) {
        while (world->running[job] < world->processes[job])
            issue(world, job);
    }
    while ((access = (Access *)qos_sched_next(world->sched, world->now, &world->wake)) != NULL) {
        park(world, access, -1);
        begin_access(world, access);
    }
    g_assert_true(!world->never_idle || world->waiting == 0 || world->inside.length > 0);
    for (guint job = 0; job < world->count; job++)
        world->paused[job] |= world->parked[job] == 0;
}

static void run(World *world, QosTime duration)
{
    QosTime end = world->now + duration;

    dispatch(world);
    for (;;) {
        const Access *first = g_queue_peek_head(&world->inside);
        QosTime next = MIN(first != NULL ? first->done : QOS_NEVER, world->wake);
        if (next > end)
            break;
        world->now = MAX(world->now, next);
        if (first != NULL && first->done <= world->now)
            end_access(world, g_queue_pop_head(&world->inside));
        dispatch(world);
    }
    world->now = end;
}

/* Runs, and forgets what was served before. */
static void run_anew(World *world, QosTime duration)
{
    memset(world->served, 0, sizeof(world->served));
    memset(world->paused, 0, sizeof(world->paused));
    run(world, duration);
}

static void world_clear(World *world)
{
    memset(world->processes, 0, sizeof(world->processes));
    while (world->waiting > 0 || world->inside.length > 0)
        run(world, QOS_SECOND);
    for (guint job = 0; job < world->count; job++) {
        g_assert_cmpuint(world->running[job], ==, 0);
        qos_job_unref(world->jobs[job]);
    }
    qos_sched_free(world->sched);
}

static void set_adapt(World *world, QosAdaptMode mode, gint64 capacity, QosTime period)
{
    QosAdaptConfig config = {.mode = mode, .capacity = capacity, .period = period};
    g_assert_true(qos_adapt_config_check(&config, NULL));
    qos_sched_set_adapt(world->sched, &config, world->now);
}
