/*
 * Requests for the tests of the gate, which count how they end.
 */
#pragma once

#include "fs/gate/state.h"

#include <pthread.h>

typedef struct {
    QosEntry entry;
    QosGate *gate;
    gint *runs;      /* atomic, shared: entries that ran */
    gint *cancelled; /* atomic, shared */
    gint *given_up;  /* atomic, shared: read-ahead */
    gint *inside;    /* atomic, shared: running now */
    gint *most;      /* atomic, shared: the most that ever ran at once */
} TestEntry;

typedef struct {
    QosGate *gate;
    gint runs;
    gint cancelled;
    gint given_up;
    gint inside;
    gint most;
    guint64 bytes; /* of each entry; 0: one */
} Shared;

#define DAYS (1 << 20) /* bytes: at one a second none comes after one of these */

static inline void free_entry(TestEntry *entry)
{
    qos_job_unref(entry->entry.request.job);
    g_free(entry);
}

/* Runs an entry and all that leaving hands over, as fs/ops/dispatch.c does. */
static inline void run_entry(QosEntry *base)
{
    while (base != NULL) {
        TestEntry *entry = (TestEntry *)base;
        gint inside = g_atomic_int_add(entry->inside, 1) + 1;
        gint most = g_atomic_int_get(entry->most);
        while (inside > most && !g_atomic_int_compare_and_exchange(entry->most, most, inside))
            most = g_atomic_int_get(entry->most);
        g_atomic_int_inc(entry->runs);
        g_atomic_int_add(entry->inside, -1);
        QosGate *gate = entry->gate;
        gboolean do_others_wait = qos_gate_leave(gate, base, 1, 0);
        free_entry(entry);
        base = do_others_wait ? qos_gate_next(gate) : NULL;
    }
}

static inline void cancel_entry(QosEntry *base, int error)
{
    TestEntry *entry = (TestEntry *)base;
    g_assert_true(error == ENOTCONN || error == EAGAIN);
    g_atomic_int_inc(error == EAGAIN ? entry->given_up : entry->cancelled);
    free_entry(entry);
}

static inline TestEntry *new_entry(Shared *shared, const char *job)
{
    TestEntry *entry = g_new0(TestEntry, 1);
    entry->entry.run = run_entry;
    entry->entry.cancelled = cancel_entry;
    entry->entry.request.job = qos_gate_job(shared->gate, NULL, job, 0);
    entry->entry.request.opcode = QOS_OP_READ;
    entry->entry.request.bytes = shared->bytes ?: 1;
    entry->gate = shared->gate;
    entry->runs = &shared->runs;
    entry->cancelled = &shared->cancelled;
    entry->given_up = &shared->given_up;
    entry->inside = &shared->inside;
    entry->most = &shared->most;
    return entry;
}

/* What a reader thread does with a request. */
static inline void submit(Shared *shared, const char *job)
{
    TestEntry *entry = new_entry(shared, job);
    if (qos_gate_enter(shared->gate, &entry->entry) || qos_gate_park(shared->gate, &entry->entry))
        run_entry(&entry->entry);
}

static inline QosRules *copy_rules(QosGate *gate)
{
    QosRules *rules = qos_rules_ref(qos_sched_rules(qos_gate_lock(gate)));

    qos_gate_unlock(gate);
    return rules;
}

static inline void set_rule(QosGate *gate, const char *command)
{
    GError *error = NULL;
    QosRules *old = copy_rules(gate);
    QosRules *rules = qos_rules_apply(old, command, qos_clock_now(), &error);
    g_assert_no_error(error);
    QosSched *sched = qos_gate_lock(gate);
    qos_sched_set_rules(sched, rules, qos_clock_now());
    qos_gate_unlock_and_wake(gate);
    qos_rules_unref(rules);
    qos_rules_unref(old);
}

static inline void wait_for_runs(Shared *shared, gint count)
{
    while (g_atomic_int_get(&shared->runs) < count)
        g_thread_yield();
}
