/*
 * Adaptive sharing (seed 004): divides the capacity of the store among the jobs by weight. What one
 * job leaves idle is lent to the others, and paid back.
 *
 * It stands between the policy and the slots (fs/sched.c). The policy says when a request may go
 * (rate= and bps= stay hard ceilings); adaptive sharing says which job is next. A job takes part
 * while it sends requests. Its requests wait in the job; qos_adapt_next() names the job to be
 * served next.
 *
 * Costs are in units: QOS_COST_UNIT is the base cost of an operation, so that rounding does not
 * matter even at 10 op/s. Pure: time is an argument. The caller locks (fs/gate/gate.c).
 */
#pragma once

#include "base/heap.h"
#include "base/opcode.h"
#include "base/time.h"
#include "fs/bucket.h"
#include "fs/share_totals.h"

struct QosJob;

#define QOS_COST_UNIT          G_GINT64_CONSTANT(1000000)
#define QOS_ADAPT_PERIOD       (100 * QOS_MILLISECOND) /* seed 004, IV-H */
#define QOS_ADAPT_PERIOD_MIN   (5 * QOS_MILLISECOND)
#define QOS_ADAPT_PERIOD_MAX   (10 * QOS_SECOND)
#define QOS_ADAPT_CAPACITY_MAX G_GINT64_CONSTANT(100000000) /* op/s */
#define QOS_ADAPT_COST_MIN     (QOS_COST_UNIT / 1000)       /* of an operation's base */
#define QOS_ADAPT_COST_MAX     (QOS_COST_UNIT * 1000)
#define QOS_ADAPT_BYTES_MAX    (G_GINT64_CONSTANT(1) << 40)

typedef enum {
    QOS_ADAPT_OFF,
    QOS_ADAPT_PAPER, /* fs/adapt_paper.h; counts requests, whatever they cost */
    QOS_ADAPT_FAIR,  /* fs/adapt_fair.h */
    QOS_ADAPT_MODES,
} QosAdaptMode;

extern const char *const qos_adapt_mode_names[QOS_ADAPT_MODES]; /* as people set and read them */

/* What a request costs: base(class of its opcode) + bytes / bytes_per_cost. */
typedef struct {
    QosAdaptMode mode;
    QosTime period;
    gint64 capacity;       /* op/s of base cost: all that paper gives out, and what fair takes the
                              store for at least; 0 = found out */
    gint64 bytes_per_cost; /* bytes that cost as much as one operation; 0 = bytes are free */
    gint64 data_cost;      /* base of READ, WRITE and copies, in units; 0 = QOS_COST_UNIT */
    gint64 metadata_cost;  /* base of all others, likewise */
} QosAdaptConfig;

/* FALSE: it is out of range; says what, and what to do (EINVAL, ERANGE). */
gboolean qos_adapt_config_check(const QosAdaptConfig *config, GError **error);
/* What a request costs, in units. */
gint64 qos_adapt_config_cost(const QosAdaptConfig *config, QosOpcode opcode, guint64 bytes);

/* One job's part in it; embedded in the job. Mode fair needs no more than begins it. */
typedef struct {
    guint member;       /* index plus one among the members; 0 = it takes no part */
    guint is_ruled : 1; /* paper: it has an allocation, which may be 0 */
    guint place : 2;    /* the heap where it waits, see fs/adapt_private.h */
    QosHeapNode order;  /* in the heap while it waits and may be served; its key: see adapt.c */
    union {
        gint64 finish;    /* fair: virtual time at which what it was served would end, ns */
        QosBucket bucket; /* paper: its tokens, where it is more */
    };
    QosShareTotals totals; /* while it takes no part; paper: before it did */
} QosShare;

/* What a job has and had, for the reports; in units, per period where it is no total. */
typedef struct {
    gint64 weight;
    gint64 entitlement;
    gint64 demand;
    gint64 allocation;
    gint64 repayment; /* fair: what it is to have above its entitlement (> 0), or below it, while
                         all want theirs, because it is paid back or pays back */
    gint64 flow;      /* in the last period: lent or repaid (> 0), borrowed or got back (< 0) */
    gint64 record;    /* lent (> 0) or borrowed (< 0), and not yet paid back */
    QosShareTotals totals;
    const struct QosJob *partner; /* the job with most of the other side of `flow`, or NULL; to be
                                     used under the caller's lock */
} QosShareState;

typedef struct QosAdapt QosAdapt;

QosAdapt *qos_adapt_new(guint slots, QosTime now); /* off */
void qos_adapt_free(QosAdapt *adapt);              /* nothing waits; NULL is allowed */
/* `config` is right. Jobs that take part go on with their records; those of another mode begin
 * anew. */
void qos_adapt_configure(QosAdapt *adapt, const QosAdaptConfig *config, QosTime now);
const QosAdaptConfig *qos_adapt_config(const QosAdapt *adapt);

gint64 qos_adapt_cost(const QosAdapt *adapt, QosOpcode opcode, guint64 bytes);

/* A request of `job` begins to wait; weight and minimum (op/s) are its rule's, 0 = not given. */
void qos_adapt_wait(QosAdapt *adapt, struct QosJob *job, gint64 cost, gint64 weight, gint64 minimum,
                    QosTime now);
/* It waits no longer. */
void qos_adapt_stop_waiting(QosAdapt *adapt, struct QosJob *job, gint64 cost);
/* `job` may be served now or not: it has requests waiting, and slots. */
void qos_adapt_set_ready(QosAdapt *adapt, struct QosJob *job, gboolean is_ready, QosTime now);
/* The next job to be served, of those that are ready; or NULL with *ret_wake lowered to when to ask
 * again. */
struct QosJob *qos_adapt_next(QosAdapt *adapt, QosTime now, QosTime *ret_wake);
/* The job that will probably be served next; or NULL. */
const struct QosJob *qos_adapt_first(const QosAdapt *adapt);
/* TRUE where a request of `job` that comes now may go at once: no job is to be served before it. */
gboolean qos_adapt_may_go(QosAdapt *adapt, struct QosJob *job, QosTime now);
/* A request of `job` goes; one that waited is told of by qos_adapt_stop_waiting() afterwards. */
void qos_adapt_serve(QosAdapt *adapt, struct QosJob *job, gint64 cost, gint64 weight,
                     gint64 minimum, QosTime now);
/* A request that went cost `difference` more than was thought. */
void qos_adapt_settle(QosAdapt *adapt, struct QosJob *job, gint64 difference);

/* The store's slots: qos_adapt_depth() is never more. */
void qos_adapt_set_slots(QosAdapt *adapt, guint slots, QosTime now);
/* The sum of all members' reservations (min=), in op/s; 0 except in mode fair. */
double qos_adapt_reserved(const QosAdapt *adapt);
/* How many requests may be in the store, and also of one job: as few as the store needs for its
 * whole throughput. */
guint qos_adapt_depth(const QosAdapt *adapt);
/* A request that has been in the store for longer than this may hang; `inside` is the cost of all
 * requests in the store. */
QosTime qos_adapt_patience(const QosAdapt *adapt, gint64 inside);
/* A request that has been in the store for longer than that has stalled (QosCapacity.stall). */
QosTime qos_adapt_stall(const QosAdapt *adapt);
/* From `now` on requests that the policies have let go wait, or none does; and the slots up to the
 * depth are taken, or not. While both hold, the store serves all that it can. */
void qos_adapt_set_waiting(QosAdapt *adapt, gboolean is_waiting, gboolean is_full, QosTime now);
/* The store has replied to a request that cost so much; so many are still inside. */
void qos_adapt_replied(QosAdapt *adapt, struct QosJob *job, gint64 cost, QosTime took, guint inside,
                       QosTime now);
/* Ends the period where its time has come. */
void qos_adapt_tick(QosAdapt *adapt, QosTime now);
/* When to call it next; QOS_NEVER while no job takes part. */
QosTime qos_adapt_next_tick(const QosAdapt *adapt);

/* How many jobs take part. */
guint qos_adapt_count(const QosAdapt *adapt);
/* They, one new reference each. */
GPtrArray *qos_adapt_list(const QosAdapt *adapt);
/* How often the records and totals may have changed. */
typedef struct {
    guint64 members; /* of the jobs that take part: once a period, while a job lends or owes */
    guint64
        others; /* of jobs that no longer take part, and of records that were restored or cleared */
} QosShareChanges;
QosShareChanges qos_adapt_changes(const QosAdapt *adapt);
/* FALSE where the job takes no part: its totals are there even so. */
gboolean qos_adapt_share_state(const QosAdapt *adapt, const struct QosJob *job,
                               QosShareState *ret_state);
/* What the job lent (> 0) or borrowed (< 0), and is not paid back; in units. */
gint64 qos_adapt_record(const QosAdapt *adapt, const struct QosJob *job);
/* Gives a job the record and the totals that it had before a remount. Records that do not add up to
 * 0 are cut in proportion at the next period's end; negative totals, and records of more than
 * QOS_FAIR_UNITS_MAX, count as 0. With mode off the record is lost. */
void qos_adapt_restore(QosAdapt *adapt, struct QosJob *job, gint64 record,
                       const QosShareTotals *totals, QosTime now);
/* Forgets its totals; its record stays. */
void qos_adapt_clear_totals(QosAdapt *adapt, struct QosJob *job);
/* In op/s of base cost: as told, or as found out; fair: the larger. */
double qos_adapt_capacity(const QosAdapt *adapt);
