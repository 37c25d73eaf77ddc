/*
 * What the two files of the policy `tbf` share. tbf_class.c has the classes: how a request finds
 * its own, and how classes are made and freed. tbf.c decides which request goes when.
 */
#pragma once

#include "base/heap.h"
#include "fs/bucket.h"
#include "fs/policy.h"

/* Free requests that a class may have for each one that is charged, and save up. A rename(2), which
 * costs two, makes the kernel ask for some four. */
#define QOS_TBF_FREE_SHARE 4
#define QOS_TBF_FREE_MAX   64

typedef struct QosTbfQueue QosTbfQueue;

/* What decides a class or a flow; unused fields are zero. */
typedef struct {
    guint64 rule_id; /* 0 in a flow */
    QosJob *job;
    guint32 uid;
    guint32 gid;
    guint32 opcode; /* plus one */
    guint32 padding;
} QosTbfKey;

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
    QosRuleState *counters; /* owned by QosTbf.counters */
    gint64 weight;          /* for fs/adapt.h; 0 = not given */
    gint64 minimum;         /* likewise, op/s */
    guint waiting;          /* in all lines */
    guint running;          /* let go, to be settled */
    guint flows;            /* bound to it */
    guint has_operations : 1;
    guint has_bytes : 1;
    guint is_turn_of_write_backs : 1;
    guint is_paying : 1; /* payers have been passed over: they take turns with all others */
    guint allowance : 7; /* free requests that may still go (QOS_TBF_FREE_MAX) */
    QosHeapNode heap;
    QosBucket operations;
    QosBucket bytes;
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
    QosTbfKey key;       /* holds a reference to the job */
    char rule_name[QOS_RULE_NAME_MAX + 1];
};

typedef struct {
    const QosPolicyContext *context;
    guint64 generation;               /* of the rules */
    guint fields;                     /* that the rules look at */
    GHashTable *flows;                /* QosTbfKey -> QosTbfFlow */
    QosTbfFlow *recent[QOS_OP_COUNT]; /* see recent_flow() */
    GQueue idle;                      /* of QosTbfFlow, by `used` */
    GHashTable *queues;               /* QosTbfKey -> QosTbfQueue */
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
/* The rule of a queue was changed; what it has of tokens stays. */
void qos_tbf_queue_set_rule(QosTbfQueue *queue, const QosRule *rule, QosTime now);
/* Forgets the counters of rules that are gone, with all their queues. */
void qos_tbf_forget_counters(QosTbf *tbf);
/* QosPolicyClass.expire: frees flows that have been idle, and the queues that only they kept. */
void qos_tbf_expire(void *self, QosTime now);
