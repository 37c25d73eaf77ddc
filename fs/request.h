/*
 * A request: one operation on its way to the store, as the policies and the scheduler see it.
 *
 * fs/policy.h says what a policy does with a request. fs/sched.h says what its states and bits mean
 * for the order in which requests go.
 */
#pragma once

#include "fs/jobs.h"
#include "fs/rule.h"

#define QOS_DEBT_MAX (2 * QOS_SECOND) /* that a class may owe, in time at its rate */
/* The debt of a class for pages of files, from which on its threads pay before the next page
 * (fs/isolate/pay_point.h). */
#define QOS_DEBT_UNTOLD (10 * QOS_MILLISECOND)

typedef enum {
    QOS_REQUEST_NEW,
    QOS_REQUEST_QUEUED,   /* in a policy */
    QOS_REQUEST_AT_LIMIT, /* due, queued at its job's or its user's limit */
    QOS_REQUEST_READY, /* due, has a slot or goes over the limit, to be taken by qos_sched_next() */
    QOS_REQUEST_RUNNING, /* in the store */
    QOS_REQUEST_PAUSED,  /* it was let go, and waits for something else than the store, such as a
                            credit */
    QOS_REQUEST_DONE,
} QosRequestState;

/* One operation on its way to the store. Embedded in the operation; the fields above the line are
 * set before it enters, those below are the scheduler's. Small: tens of thousands may wait. */
typedef struct {
    QosOpcode opcode;
    guint32 uid;
    guint32 gid;
    QosOpcode pay_opcode;
    guint thread;  /* that has sent a READ into the page cache; 0: another request, or not known */
    guint64 bytes; /* what it will move; corrected by leave */
    guint64 data;  /* bytes that are to be kept for it while it waits */
    QosJob *job;   /* a reference of the request's */
    QosUser *user; /* the caller's; NULL: one without bounds */
    guint64 lock;  /* of what the kernel holds a lock for it, 0 = of nothing */
    guint holds_lock : 1;      /* and other jobs may want it: it must not wait */
    guint writes_back : 1;     /* pages of a mapping: it goes into debt likewise */
    guint fills_cache : 1;     /* a READ into the kernel's pages */
    guint is_at_pay_point : 1; /* it waits until the class of `pay_opcode` has a token
                          (fs/isolate/pay_point.h) */
    guint is_free : 1;     /* it costs no operation: the program did not ask for it, or has paid */
    guint is_imposed : 1;  /* and another job caused it: so it does not take from the allowance
                              either */
    guint cannot_fail : 1; /* it ends something: it goes into debt likewise, and is always kept */
    /* --- */
    QosRequestState state;
    QosTime arrival;      /* when it entered, or was paused */
    QosTime start;        /* when it went; later by the time for which it was paused */
    GList link;           /* in a queue of the policy, in its job's or user's, among the ready or
                             inside */
    gpointer queue;       /* the policy's own: where it keeps or kept it */
    struct QosLrs *lrs;   /* the policy that took it, until it leaves */
    gint64 cost;          /* that adaptive sharing knows of, 0 = none */
    gint64 weight;        /* of its rule, for adaptive sharing; 0 = none given */
    gint64 minimum;       /* likewise, op/s */
    guint64 parked_bytes; /* bytes of it that count as parked */
    gboolean has_stalled; /* its slot is given to others too. No bit-field, because it is set while
                             the request's own thread may read the bits below without the lock */
    guint has_slot : 1;
    guint is_over_limit : 1; /* inside without a slot, because it must not wait */
    guint is_stored : 1;     /* what it is to write was written while it waited */
    guint owes : 1;          /* it went without a token: its class is in debt, */
    guint owes_much : 1;     /* for more than QOS_DEBT_UNTOLD */
    guint prepays : 1; /* a payment in another class: it takes the token of the next `pay_opcode` */
    guint in_user_queue : 1; /* in which of the two it is queued */
    guint64 wait_rule_id;    /* what it waits or waited for, 0 = the slots */
    char wait_rule_name[QOS_RULE_NAME_MAX + 1];
} QosRequest;

/* It goes before its class has a token, as far as the bound on debt allows. */
static inline gboolean qos_request_owes_first(const QosRequest *request)
{
    return request->holds_lock || request->writes_back || request->cannot_fail || request->is_free;
}
