/*
 * Decides which request goes when: the local request scheduler (LRS) of seed 003, section 4, and
 * the slots of the store.
 *
 * A QosRequest (fs/request.h) is offered with qos_sched_enter(): it may go at once, or it waits.
 * The caller reports the end of each request with qos_sched_leave(), and qos_sched_next() hands out
 * requests that have become due. A policy (`fifo`, `tbf`, `jrr`, `grr`) decides the order. The
 * scheduler around it bounds the requests inside the store:
 *
 *   - At most `slots` requests are inside. Beyond that, the policy keeps them, in its own order.
 *   - One job has at most `slots` less an eighth (at least one less) inside, so that no job ever
 *     holds all slots. Due requests beyond that wait in the job's queue, in order, and go as other
 *     requests of the job leave.
 *   - A request that the store has not answered for QOS_STALL_TIME no longer takes a slot from
 *     other jobs (fs/slots.h).
 *   - One user has at most as many requests inside, with all jobs, as two jobs. Due requests beyond
 *     that wait in the user's queue, and go as other requests of the user leave.
 *
 * Lock holders. While some requests are under way, the kernel holds a lock that other jobs may want
 * (`holds_lock`). Such a request goes before its class has a token, because those jobs would wait
 * with it. If need be it goes without a slot. Its class pays with its next requests. There are two
 * bounds. If the class owes QOS_DEBT_MAX already, the request waits until it owes no more than
 * that, and the jobs behind its lock wait with it: the rule's limit comes first. And at most
 * QOS_OVER_LIMIT_MAX such requests of one job, QOS_OVER_LIMIT_USER of one user and
 * QOS_OVER_LIMIT_ALL in all may be inside without a slot; a further one waits until one of these
 * ends.
 *
 * So in any window of t seconds a class gets at most rate x (t + 2 s), the depth of its bucket, and
 * one request more for each that waits: that one may be larger than what is left.
 *
 * Write-back. The kernel has room for so many changed pages of mappings, for the whole mount, and a
 * page counts until its write-back is answered. Beyond that room every thread that touches a page
 * of any mapping stands still. So write-back goes into debt too (`writes_back`).
 *
 * A request that ends something (`cannot_fail`: a close) goes into debt like a lock holder. It is
 * always kept while it waits, whatever memory there is.
 *
 * A request that the program did not ask for (`is_free`) costs no operation, and waits for no token
 * of operations. Bytes that it moves are charged. A class has a bounded allowance of such requests;
 * beyond it they are charged like lock holders.
 *
 * Background requests. The kernel has room for so many of them: its read-ahead and write-back, and
 * asynchronous requests of programs. If the room is full, no job's background requests go on. Only
 * READs and WRITEs may be in the background (a release that waits is answered before). So of READs
 * and WRITEs seven eighths of that room may wait; of these one job may have seven eighths, and one
 * user fifteen sixteenths. Further ones fail. If a failed one was read-ahead, the kernel asks again
 * when a program wants the page.
 *
 * Memory. Requests that wait, and the data of WRITEs, have `parked_max` bytes of memory. One job
 * has at most seven eighths of that, and one user fifteen sixteenths. Beyond half of these bounds,
 * the data goes to the store at once and only the answer waits. So the caller is held to the rule,
 * and the data takes no memory. There are two exceptions in which memory fills up to the bound: the
 * store does not take the data, because QOS_OVER_LIMIT_MAX requests of the job hang there already;
 * or the requests alone are too many. At the bound further requests fail, except those that end
 * something.
 *
 * Switching the policy loses and releases nothing. The old policy takes no more requests, and hands
 * out what it holds at its own pace (docs/reference/rules.md, "Unlike Lustre"). Switching back to a
 * policy that is still draining takes it up again, tokens and all.
 *
 * Pure: time is an argument. The caller locks (qos_gate_lock() in fs/gate/gate.h).
 */
#pragma once

#include "fs/policy.h"

#define QOS_OVER_LIMIT_MAX  8 /* threads that one job may tie up beyond its slots */
#define QOS_OVER_LIMIT_USER 32
#define QOS_OVER_LIMIT_ALL  64 /* that all jobs may; a mount has so many more */
#define QOS_STALL_TIME      (5 * QOS_SECOND)
#define QOS_STALLED_MAX     256 /* of all jobs; a mount has threads for so many more */
/* Threads that requests may tie up beyond the slots. */
#define QOS_THREADS_BESIDE (QOS_OVER_LIMIT_ALL + QOS_STALLED_MAX)
typedef enum { QOS_GO, QOS_WAIT } QosVerdict;

typedef struct QosSched QosSched;

/* `slots` >= 1; `host` is copied. Starts with `policy` and rules of nothing but `default`. */
QosSched *qos_sched_new(const QosPolicyClass *policy, guint slots, const char *host,
                        QosTime job_cleanup_interval, QosTime now);
/* Nothing may be queued or running. */
void qos_sched_free(QosSched *sched);

/* Offers a request. QOS_GO: it has a slot, run it. QOS_WAIT: qos_sched_next() will hand it out.
 * *ret_wake: when qos_sched_next() is to be asked, QOS_NEVER = after the next enter or leave. */
QosVerdict qos_sched_enter(QosSched *sched, QosRequest *request, QosTime now, QosTime *ret_wake);
/* TRUE where a rule bounds the class of the request, or counts it: what it costs matters. */
gboolean qos_sched_is_limited(QosSched *sched, const QosRequest *request, QosTime now);
/* Another job wants the lock of a request that waits (`lock`): it `holds_lock` from now on, and
 * goes into debt. Where its class owes as much as it may the request stays QOS_REQUEST_QUEUED, as
 * if it had met that bound when it came. */
void qos_sched_boost(QosSched *sched, QosRequest *request, QosTime now);
/* A running request begins to wait for something else than the store, such as a credit. Its slot is
 * free meanwhile, because other requests of its job may have to go first. If there is no room for
 * it among the waiting requests, it keeps the slot. */
void qos_sched_pause(QosSched *sched, QosRequest *request, QosTime now);
/* It goes on, with a slot, whether one is free or not: it was let go. Nothing, if it is not paused.
 */
void qos_sched_go_on(QosSched *sched, QosRequest *request, QosTime now);
/* A running request is done: `bytes` were moved, `error` is its errno or 0. Books it with its job.
 */
void qos_sched_leave(QosSched *sched, QosRequest *request, guint64 bytes, int error, QosTime now);
typedef enum {
    QOS_PARK_IN_MEMORY,
    QOS_PARK_IN_STORE, /* write it now, without a slot, then call qos_sched_note_stored() */
    QOS_PARK_NOWHERE,  /* take it back with qos_sched_cancel(): it fails */
    QOS_PARK_TOO_MANY, /* likewise; it is not memory that there is too little of */
} QosParkPlace;
/* Where to keep a request that has to wait, and its data; without `may_be_early` that must not be
 * in the store before its turn. */
QosParkPlace qos_sched_park_place(QosSched *sched, QosRequest *request, gboolean may_be_early);
/* Its data is in the store. */
void qos_sched_note_stored(QosSched *sched, QosRequest *request);
/* TRUE where some wait: qos_sched_next() may hand one out. */
gboolean qos_sched_has_waiting(const QosSched *sched);
/* When qos_sched_next() is to be asked though nothing waits. */
QosTime qos_sched_next_period(const QosSched *sched);
/* The next waiting request that may go now (it has a slot then), or NULL with *ret_wake set to when
 * to ask again (QOS_NEVER: after the next enter or leave). */
QosRequest *qos_sched_next(QosSched *sched, QosTime now, QosTime *ret_wake);
/* Takes back a request that waits: it never enters the store. Its waiting is booked, and what its
 * data cost that is there already. */
void qos_sched_cancel(QosSched *sched, QosRequest *request, QosTime now);
/* Frees what has been idle and jobs that are gone; to be called every few seconds. */
void qos_sched_expire(QosSched *sched, QosTime now);
/* The jobs, for the caller to look at and to book (under its lock). */
QosJobs *qos_sched_jobs(QosSched *sched);

void qos_sched_set_policy(QosSched *sched, const QosPolicyClass *policy, QosTime now);
/* Takes a reference. */
void qos_sched_set_rules(QosSched *sched, QosRules *rules, QosTime now);
QosRules *qos_sched_rules(const QosSched *sched); /* borrowed */
/* Rules for all mounts together (qos_rules_new_cluster()); takes a reference. NULL: there are none.
 * A class that is new has `floor_part` of its rule's floor: this mount's weight over that of all
 * registered ones. */
void qos_sched_set_cluster_rules(QosSched *sched, QosRules *rules, double floor_part, QosTime now);
QosRules *qos_sched_cluster_rules(const QosSched *sched); /* borrowed */
/* Calls `func` for the classes of cluster rules that were used lately. It must not change the
 * scheduler. */
void qos_sched_each_budget(QosSched *sched, QosBudgetFunc func, void *arg);
/* The class (QosClassBudget.id) rests: its next use is told to the waker, as is the first one of a
 * class that is new. Where there is no such class, nothing happens. */
void qos_sched_rest_budget(QosSched *sched, guint64 id);
/* `func` is called when a class of a cluster rule that rests is used, within qos_sched_enter() and
 * the like. It must not call the scheduler. NULL: none. */
void qos_sched_set_budget_waker(QosSched *sched, void (*func)(void *arg), void *arg);
/* The rate of a class (QosClassBudget.id) from `now` on, in thousandths of the unit a second; 0:
 * nothing goes; G_MAXUINT64: no bound. FALSE where there is no such class, or its rule does not
 * bound the unit. qos_sched_next() is to be asked afterwards. */
gboolean qos_sched_set_budget(QosSched *sched, guint64 id, QosUnit unit, guint64 rate, QosTime now);
/* Policies that ask for epochs (fs/grr.c) share them with peers from now on: `handler` takes part
 * for this scheduler, and puts what is to be sent into `actions`; both are the caller's. `waker` is
 * called when there is something, within any function of the scheduler: it must not call the
 * scheduler. `handler` NULL: each policy has epochs of its own again. */
void qos_sched_set_epochs(QosSched *sched, QosEpochHandler *handler, GArray *actions,
                          void (*waker)(void *arg), void *waker_arg, QosTime now);
/* The call-back of such a handler, as QosPolicyClass.start_epoch. */
void qos_sched_start_epoch(QosSched *sched, gint64 epoch, const void *data, gsize length,
                           QosTime now);
/* TRUE where the policy follows the rules, and these let the kernel do `opcodes` by itself for the
 * caller of `request` (qos_rules_pass_through). */
gboolean qos_sched_passes_through(const QosSched *sched, const QosRequest *request,
                                  QosOpcodeSet opcodes);
void qos_sched_set_slots(QosSched *sched, guint slots, QosTime now);
/* Bytes of memory that requests which wait may take, with their data. */
void qos_sched_set_parked_max(QosSched *sched, guint64 bytes);
/* Requests that the kernel lets be under way in the background; no bound in a new scheduler. */
void qos_sched_set_background_room(QosSched *sched, guint requests);
/* Bytes that each of these takes beside its data; 0 in a new scheduler. */
void qos_sched_set_request_memory(QosSched *sched, guint64 bytes);
/* No request waits longer for its tokens (QOS_NEVER = any time; so in a new scheduler): to stay
 * under fs.fuse.default_request_timeout. */
void qos_sched_set_max_wait(QosSched *sched, QosTime max_wait);
/* Adaptive sharing of what the policies let go (fs/adapt.h); off in a new scheduler. */
void qos_sched_set_adapt(QosSched *sched, const QosAdaptConfig *config, QosTime now);
const QosAdapt *qos_sched_adapt(const QosSched *sched); /* borrowed */
/* Forgets what `id` did, lent and borrowed (NULL: what all did). Returns the number of jobs. */
guint qos_sched_clear_jobs(QosSched *sched, const char *id, QosTime now);
/* qos_adapt_restore() */
void qos_sched_restore_share(QosSched *sched, QosJob *job, gint64 record,
                             const QosShareTotals *totals, QosTime now);

/* How many requests are where, and the memory that waiting requests take. */
typedef struct {
    guint slots;
    guint running;
    guint stalled;  /* of these */
    QosTime oldest; /* since when one of these is in the store: 0 = for long, QOS_NEVER = none is */
    guint over_limit; /* in the store without a slot */
    guint at_limit;
    guint draining; /* queued in policies that are being left */
    guint64 parked_bytes;
    guint64 parked_max;
    guint64 refused;
} QosSchedState;
void qos_sched_state(const QosSched *sched, QosSchedState *ret_state);
/* Requests queued in `policy`, and whether it is in force, draining or off. */
QosPolicyState qos_sched_policy_state(const QosSched *sched, const QosPolicyClass *policy,
                                      guint *ret_queued);

/* By the policy in force or by one that is being left; FALSE where the rule was never matched (all
 * zero then). */
gboolean qos_sched_rule_state(const QosSched *sched, guint64 rule_id, QosRuleState *ret_state);

/* The adaptive sharing at one moment. */
typedef struct {
    QosAdaptConfig config;
    double capacity; /* op/s: as told, or as found out */
    double reserved; /* op/s: what all that take part reserve */
    guint depth;     /* requests that may be in the store */
    guint members;   /* jobs that take part */
} QosSchedAdapt;
void qos_sched_adapt_state(const QosSched *sched, QosSchedAdapt *ret_adapt);

/* The part of a job in the adaptive sharing. */
typedef struct {
    char job[QOS_JOB_ID_MAX + 1];
    char partner[QOS_JOB_ID_MAX + 1]; /* the name of state.partner, "" = none */
    gboolean takes_part;
    QosTime period;      /* of what `state` has */
    QosShareState state; /* without the partner */
} QosSchedShare;
/* FALSE: the job takes no part, and never lent or borrowed. *ret_share is set even so. */
gboolean qos_sched_share_state(const QosSched *sched, const QosJob *job, QosSchedShare *ret_share);
/* The jobs with shares that may have changed since `seen`, which is brought up to date. One
 * reference each (free with g_ptr_array_unref); NULL if none has. *ret_is_all: they are all jobs,
 * else those that take part. */
GPtrArray *qos_sched_changed_shares(const QosSched *sched, QosShareChanges *seen,
                                    gboolean *ret_is_all);
/* A consistent copy of the job's counters, rates as of now. The copy's `sched.job_queue`,
 * `references` and `share` mean nothing, but for share.totals, which are as of now too. *ret_share
 * is of the same moment; returns what qos_sched_share_state() does. */
gboolean qos_sched_copy_job(const QosSched *sched, const QosJob *job, QosJob *ret_copy,
                            QosSchedShare *ret_share, QosTime now);
