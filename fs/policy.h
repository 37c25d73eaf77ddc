/*
 * What a policy must offer. A policy decides in which order requests go, and how early each may go.
 *
 * A policy is a table of functions (QosPolicyClass). The scheduler (fs/sched.h) calls them, and
 * bounds the requests inside the store. All policies are listed in fs/policy.c.
 *
 * Pure: time is an argument.
 */
#pragma once

#include "core/epoch.h"
#include "fs/request.h"

/* What a rule did, as the tbf policy counted it. */
typedef struct QosRuleState {
    guint64 rule_id;
    guint buckets;    /* classes bound to it now ("ref") */
    guint waiting;    /* requests queued now */
    guint64 requests; /* let through */
    guint64 bytes;
    guint64 waits;        /* of these, that waited */
    QosTime waited;       /* ns, sum */
    guint64 dryrun_waits; /* that a dry run would have made wait */
    guint64 dryrun_bytes;
} QosRuleState;

typedef enum { QOS_UNIT_OPERATIONS, QOS_UNIT_BYTES } QosUnit;
#define QOS_UNITS 2

/*
 * What a mount has and wants of one class of a cluster rule. Rates and amounts are in thousandths
 * of a unit (a second), and stop at G_MAXUINT64.
 */
typedef struct {
    guint64 id; /* of the class in this scheduler; never reused */
    guint64 rule_id;
    const char *rule_name;
    /* The job's id, "UID", "GID", "OPCODE:" and the job's id, or "" with per=rule: the same at each
     * mount. */
    const char *name;
    gint64 weight; /* the rule's; 0 = not given */
    gboolean is_dryrun;
    gboolean is_resting; /* its next use is told to the waker */
    struct {
        guint64 limit;   /* the rule's, for all mounts; 0: it does not bound this unit */
        guint64 rate;    /* in force here */
        guint64 served;  /* an amount, since the class was made, modulo 2^64: differences count.
                            It falls where a request moved less than it said. A dry run's: all
                            that came */
        guint64 waiting; /* an amount: requests that wait for whatever reason */
        guint64 lacking; /* an amount: debt that requests wait for, whatever they need themselves,
                            and a token; it may be there in part by now. 0: none waits */
    } units[QOS_UNITS];  /* by QosUnit */
} QosClassBudget;

/* The strings are borrowed for the call. */
typedef void (*QosBudgetFunc)(const QosClassBudget *budget, void *arg);

/* Given a request by get_next. It is the policy's no longer. */
typedef void (*QosReadyFunc)(QosRequest *request, void *arg);

/* What a policy may ask of its scheduler. Owned by the scheduler. */
typedef struct {
    QosRules *rules;                 /* the rules in force; replaced by qos_sched_set_rules */
    QosRules *cluster_rules;         /* likewise, for all mounts together; NULL = there are none */
    double floor_part;               /* of the cluster rules' floors, that a new class has */
    void (*budget_woken)(void *arg); /* qos_sched_set_budget_waker(); NULL = nobody asks */
    void *budget_arg;
    char *host;                     /* this host's name, for conditions on it */
    QosTime max_wait;               /* no request waits longer for a policy, QOS_NEVER = any time */
    QosEpochHandler *epochs;        /* shared with the peers' schedulers; NULL = there are none */
    GArray *epoch_actions;          /* what it hands out; the policy takes the call-backs alone */
    void (*epoch_waker)(void *arg); /* there are actions; may be NULL */
    void *epoch_waker_arg;
} QosPolicyContext;

/*
 * A policy: seed 003's lrs_* functions, with the time as an argument. `self` is what init returned.
 * None of them blocks or fails.
 */
typedef struct QosPolicyClass {
    const char *name;
    void *(*init)(const QosPolicyContext *context, QosTime now);
    /* No incoming will follow, unless the policy is put in force again; get_next still hands out
     * what is queued. */
    void (*shutdown)(void *self, QosTime now);
    /* Frees; nothing is queued any more. */
    void (*fini)(void *self);
    /* TRUE: lets a request go at once, with the same effect as incoming and then get_next. FALSE,
     * with nothing booked: another request is due before it, or it has to wait. NULL: always
     * FALSE. */
    gboolean (*try_now)(void *self, QosRequest *request, QosTime now);
    /* Queues a request. */
    void (*incoming)(void *self, QosRequest *request, QosTime now);
    /* Calls ready() for the one request that is due first, and returns `now`; with none due,
     * returns when to ask again (QOS_NEVER: not before another incoming). */
    QosTime (*get_next)(void *self, QosTime now, QosReadyFunc ready, void *arg);
    /* The call-back of qos_epoch_next(), for a policy that asks for epochs (seed 003, 4.1): `epoch`
     * begins with the reduced `data`, or -errno and no data. NULL where the policy knows none. */
    void (*start_epoch)(void *self, gint64 epoch, const void *data, gsize length, QosTime now);
    QosEpochReduction reduction; /* of its policy data */
    /* The context has another epoch handler, or none any more. NULL where the policy asks for no
     * epochs. */
    void (*epochs_changed)(void *self, QosTime now);
    /* Books a request that goes into debt, and sets its `owes`. FALSE, with nothing booked, if its
     * class owes as much as it may; never if it `is_done` already, because it must be booked then.
     * NULL where the policy does not count. */
    gboolean (*charge)(void *self, QosRequest *request, gboolean is_done, QosTime now);
    /* Another job wants the lock of a queued request, which `holds_lock` from now on. TRUE: the
     * request goes, booked as by charge. FALSE: its class owes too much for that, and it stays
     * queued. NULL where the policy does not count. */
    gboolean (*boost)(void *self, QosRequest *request, QosTime now);
    /* TRUE where a rule bounds the class of the request, or counts it in a dry run. NULL: never. */
    gboolean (*is_limited)(void *self, const QosRequest *request, QosTime now);
    /* Takes a queued request back. */
    void (*cancel)(void *self, QosRequest *request, QosTime now);
    /* A request that get_next or charge let go is done and moved `bytes`; NULL where the policy
     * does not count. */
    void (*settle)(void *self, QosRequest *request, guint64 bytes, QosTime now);
    /* The rules were replaced; NULL where they do not matter. */
    void (*rules_changed)(void *self, QosTime now);
    /* Frees what has been idle; called every few seconds; NULL where there is nothing to free. */
    void (*expire)(void *self, QosTime now);
    /* What a rule did; NULL where the policy has none. */
    gboolean (*rule_state)(void *self, guint64 rule_id, struct QosRuleState *ret_state);
    /* qos_sched_rest_budget(), qos_sched_set_budget(), qos_sched_each_budget(); NULL where it has
     * no classes. */
    void (*rest_budget)(void *self, guint64 id);
    gboolean (*set_budget)(void *self, guint64 id, QosUnit unit, guint64 rate, QosTime now);
    void (*each_budget)(void *self, QosBudgetFunc func, void *arg);
} QosPolicyClass;

extern const QosPolicyClass qos_policy_fifo; /* fifo.c: in order of arrival */
extern const QosPolicyClass qos_policy_tbf;  /* tbf.c: token buckets, by deadline */
extern const QosPolicyClass qos_policy_jrr;  /* rr.c: round robin over the jobs */
extern const QosPolicyClass qos_policy_grr;  /* grr.c: by groups of jobs, in step with the peers */
extern const gsize qos_grr_data_length;      /* bytes of its policy data */

/* The policy of that name, or NULL. */
const QosPolicyClass *qos_policy_by_name(const char *name);
/* The policies, ended by NULL. */
extern const QosPolicyClass *const qos_policies[];

/* Whether a policy is off, in force, or draining after another one took its place. */
typedef enum { QOS_POLICY_STOPPED, QOS_POLICY_STARTED, QOS_POLICY_STOPPING } QosPolicyState;
extern const char *const qos_policy_state_names[]; /* by state, as in reports */
