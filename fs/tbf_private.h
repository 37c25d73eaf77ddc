/*
 * What the files of the policy `tbf` share:
 *
 *     tbf.c         which request goes when
 *     tbf_class.c   the classes: how a request finds its own; when they are made and freed
 *     tbf_line.c    the turns of queues that share a class
 *     tbf_budget.c  the mount's part of the cluster's rates
 */
#pragma once

#include "base/heap.h"
#include "fs/bucket.h"
#include "fs/policy.h"

/* Free requests that a class may have for each one that is charged, and save up. A rename(2), which
 * costs two, makes the kernel ask for some four. */
#define QOS_TBF_FREE_SHARE 4
#define QOS_TBF_FREE_MAX   64

#define QOS_TBF_LAYERS     2    /* the mount's own rules, and the cluster's */
#define QOS_TBF_OPERATION  1000 /* tokens of an operation in a bucket of the cluster's layer */

typedef struct QosTbfQueue QosTbfQueue;

/* What decides a class or a flow; unused fields are zero. */
typedef struct {
    guint64 rule_id; /* 0 in a flow */
    QosJob *job;
    guint32 uid;
    guint32 gid;
    guint32 opcode; /* plus one */
    guint32 per;    /* QosPer of a class: the same number may be a uid and a gid */
} QosTbfKey;

/* One of a class's buckets. */
typedef struct {
    QosBucket bucket;
    gint64 per_operation; /* tokens that an operation takes; 0: each byte takes one */
} QosTbfBound;

/* The mount's part of what a cluster rule allows; the numbers by QosUnit. */
typedef struct {
    guint64 id;
    gint64 limit[QOS_UNITS]; /* the rule's, for all mounts: tokens a second, 0 = none */
    gint64 depth[QOS_UNITS]; /* likewise: tokens, 0 = the default */
    gint64 weight;           /* the rule's; 0 = not given */
    gboolean is_dryrun;
    gboolean is_resting;       /* its next use is to be told: qos_sched_rest_budget() */
    guint64 served[QOS_UNITS]; /* operations, bytes */
    guint64 waiting[QOS_UNITS];
    guint64 waiters; /* requests that wait, also for what they need none of */
} QosTbfShare;

/* A class: one rule of one layer, and one value of what the rule is `per`. */
typedef struct QosTbfClass {
    QosTbfKey key;                /* holds a reference to the job */
    gboolean is_bound[QOS_UNITS]; /* which of `bounds` there are */
    QosTbfBound bounds[QOS_UNITS];
    QosRuleState *counters; /* owned by QosTbf.counters */
    gint64 weight;          /* for fs/adapt.h; 0 = not given */
    gint64 minimum;         /* likewise, op/s */
    QosPer per;             /* of `key` */
    guint queues;           /* that refer to it */
    QosTbfShare *share;     /* owned; NULL in the layer of the mount's own rules */
    struct QosTbf *tbf;
    /* tbf_line.c: */
    QosHeap *line; /* owned; of QosTbfQueue, by `turn`: wait for this class; NULL: unused yet */
    QosTbfQueue *first; /* of these: stands in QosTbf.heap for the class */
    char rule_name[QOS_RULE_NAME_MAX + 1];
} QosTbfClass;

typedef struct QosTbfFlow {
    QosTbfKey key;       /* holds a reference to the job */
    guint64 generation;  /* of the rules that `queue` and `dryrun` were matched by */
    QosTbfQueue *queue;  /* counted in its `flows` */
    QosTbfQueue *dryrun; /* or NULL; likewise */
    QosTime used;        /* last, to USED_STEP */
    GList link;          /* in QosTbf.idle */
} QosTbfFlow;

struct QosTbfQueue {
    GQueue requests;        /* of QosRequest, by its link: wait for a token, and hold nothing */
    QosRuleState *counters; /* of the mount's own rule */
    gint64 weight;          /* for fs/adapt.h; 0 = not given */
    gint64 minimum;         /* likewise, op/s */
    guint waiting;          /* in all lines */
    guint running;          /* let go, to be settled */
    QosTbfClass *cluster;   /* of a cluster rule, or NULL */
    guint flows;            /* bound to it */
    guint bound_count;
    QosTbfBound *bounds[QOS_TBF_LAYERS * QOS_UNITS]; /* of its classes */
    guint counts_operations : 1;                     /* one of these does */
    guint is_turn_of_write_backs : 1;
    guint is_paying : 1; /* payers have been passed over: they take turns with all others */
    guint allowance : 7; /* free requests that may still go (QOS_TBF_FREE_MAX) */
    QosHeapNode heap;
    GQueue lock_holders; /* likewise */
    guint contended;     /* of these: wait only until the class owes no more than QOS_DEBT_MAX */
    QosTime lead;        /* where they take turns: what `requests` had more of the rule's time than
                            all others; while it is positive, those go first */
    GQueue write_backs;  /* likewise */
    /* Payers: those that wait for a token, `requests` and lock holders of uncontended locks. */
    QosTime passed;      /* what others took of the rule's time while payers waited, less
                            PASSED_PART times what these have had since; 0 to QOS_DEBT_MAX */
    QosTime level;       /* while `is_paying`: the debt at which one of them may go */
    guint to_pay;        /* while `is_paying`: so many payers are to go, ... */
    QosTime at_points;   /* ... and those at pay points have had so much of the rule's time */
    QosTime first_since; /* when the first payer came, or the one before it went; while they are
                            passed over it stays */
    /* By layer; NULL: none. A queue of dry runs may have none of the mount's own, all others have
     * one. */
    QosTbfClass *classes[QOS_TBF_LAYERS];
    QosTbfClass *latest; /* of these: the one with tokens last, when that was last looked at */
    /* tbf_line.c: */
    QosTbfClass *line; /* where it waits, or NULL */
    QosHeapNode turn;
    QosTime limit;  /* when it goes whether it is its turn or not */
    QosTime served; /* when a request that had waited last went */
};

typedef struct QosTbf {
    const QosPolicyContext *context;
    guint64 generation;               /* of the rules */
    guint fields;                     /* that the rules look at */
    GHashTable *flows;                /* QosTbfKey -> QosTbfFlow */
    QosTbfFlow *recent[QOS_OP_COUNT]; /* see recent_flow() */
    GQueue idle;                      /* of QosTbfFlow, by `used` */
    GHashTable *queues;               /* QosTbfQueue.classes -> QosTbfQueue */
    GHashTable *classes;              /* QosTbfKey -> QosTbfClass; freed with its last queue */
    GHashTable *shares;               /* QosTbfShare.id -> QosTbfClass */
    guint64 last_share;               /* id */
    GHashTable *counters;             /* rule id -> QosRuleState */
    QosHeap heap;                     /* of QosTbfQueue, non-empty, by deadline */
    GQueue rematching;    /* of QosRequest: queued when the rules changed; their queue is NULL */
    gboolean has_orphans; /* some queue has no flow, but is not as new */
} QosTbf;

/* The tables of a zeroed `tbf`. */
void qos_tbf_classes_init(QosTbf *tbf);
void qos_tbf_classes_clear(QosTbf *tbf);

/* The flow of a request, matched by the rules in force. */
QosTbfFlow *qos_tbf_flow(QosTbf *tbf, const QosRequest *request, QosTime now);
/* The rules were changed: all classes take the new rates; what they have of tokens stays. */
void qos_tbf_classes_set_rules(QosTbf *tbf, QosTime now);
/* Forgets the counters of rules that are gone, with all their queues. */
void qos_tbf_forget_counters(QosTbf *tbf);
/* QosPolicyClass.expire: frees flows that have been idle, and the queues that only they kept. */
void qos_tbf_expire(void *self, QosTime now);

/* --- tbf_line.c --- */

/* The queue waits in the class's line, or stays there with another turn: by `turn`, equal ones in
 * order of coming. */
void qos_tbf_line_join(QosTbf *tbf, QosTbfQueue *queue, QosTbfClass *class, QosTime turn,
                       QosTime now);
/* It waits there no more; nothing where it is in no line. */
void qos_tbf_line_leave(QosTbf *tbf, QosTbfQueue *queue, QosTime now);
/* The queue's place in QosTbf.heap; QOS_NEVER: it has none. */
void qos_tbf_set_deadline(QosTbf *tbf, QosTbfQueue *queue, QosTime deadline);
/* The class, which may be NULL, may have more tokens than its line knows of. */
void qos_tbf_line_look(QosTbf *tbf, QosTbfClass *class, QosTime now);
/* TRUE where a queue before this one has waited so long for a class of both that no lock holder may
 * pass it over. */
gboolean qos_tbf_line_is_due(const QosTbfQueue *queue, QosTime now);

/* --- tbf_budget.c --- */

/* The rates of a cluster class: those of the rule, as far as the mount has a part of them. */
void qos_tbf_share_set_rule(QosTbfClass *class, const QosRule *rule, QosTime now);
/* One more such request of the class waits (1), or one less (-1). */
void qos_tbf_share_waits(QosTbfClass *class, const QosRequest *request, gint change);
/* So much of the class went. */
void qos_tbf_share_served(QosTbfClass *class, guint64 operations, guint64 bytes);
/* QosPolicyClass.rest_budget, QosPolicyClass.set_budget, QosPolicyClass.each_budget. */
void qos_tbf_rest_budget(void *self, guint64 id);
gboolean qos_tbf_set_budget(void *self, guint64 id, QosUnit unit, guint64 rate, QosTime now);
void qos_tbf_each_budget(void *self, QosBudgetFunc func, void *arg);
