/*
 * A scheduler with the time stepped by hand, for the tests of the policies.
 */
#pragma once

#include "fs/sched.h"

typedef struct {
    QosSched *sched;
    QosTime now;
    guint next_request;
} Fixture;

static inline void fixture_init(Fixture *fixture, const QosPolicyClass *policy, guint slots)
{
    *fixture = (Fixture){.now = 1000 * QOS_SECOND};
    fixture->sched = qos_sched_new(policy, slots, "node7", 600 * QOS_SECOND, fixture->now);
}

static inline void fixture_clear(Fixture *fixture)
{
    qos_sched_free(fixture->sched);
}

/* Gives a command to the rules in force; it must be right. */
static inline void fixture_rule(Fixture *fixture, const char *command)
{
    GError *error = NULL;
    QosRules *rules =
        qos_rules_apply(qos_sched_rules(fixture->sched), command, fixture->now, &error);
    g_assert_no_error(error);
    qos_sched_set_rules(fixture->sched, rules, fixture->now);
    qos_rules_unref(rules);
}

static inline QosRequest *request_new(Fixture *fixture, const char *job, QosOpcode opcode,
                                      guint64 bytes)
{
    QosRequest *request = g_new0(QosRequest, 1);
    request->job = qos_jobs_job(qos_sched_jobs(fixture->sched), job, fixture->now);
    request->opcode = opcode;
    request->bytes = bytes;
    request->uid = 1000;
    request->gid = 100;
    return request;
}

static inline void request_free(QosRequest *request)
{
    qos_job_unref(request->job);
    g_free(request);
}

/* Offers a read of 4 KiB by `job`. */
static inline QosVerdict enter(Fixture *fixture, QosRequest *request)
{
    QosTime wake;
    return qos_sched_enter(fixture->sched, request, fixture->now, &wake);
}

/* Offers a request that ends something. */
static inline QosVerdict enter_close(Fixture *fixture, QosRequest *request)
{
    request->cannot_fail = TRUE;
    return enter(fixture, request);
}

static inline QosRequest *next(Fixture *fixture)
{
    QosTime wake;
    return qos_sched_next(fixture->sched, fixture->now, &wake);
}

/* Takes back one that waits. */
static inline void drop(Fixture *fixture, QosRequest *request)
{
    qos_sched_cancel(fixture->sched, request, fixture->now);
    request_free(request);
}

static inline void leave(Fixture *fixture, QosRequest *request)
{
    qos_sched_leave(fixture->sched, request, request->bytes, 0, fixture->now);
    request_free(request);
}
