/*
 * What a coordinator and a combiner know of their members: core/budget.c and core/budget_tree.c.
 */
#pragma once

#include "core/budget.h"

typedef struct {
    guint64 id, weight;
    guint64 floor;          /* lent for as long as the member is known */
    QosBudgetReport report; /* the latest; its ticket is the member's latest */
    gboolean is_fresh;      /* it waits for an answer */
    gboolean is_passed;     /* at a combiner: it is in the report that the parent has */
    gboolean is_expected;   /* it was answered, and has not reported since */
    QosTime heard;          /* the latest report */
    guint64 bound;          /* the most that it may use until `until`, by this node's clock */
    QosTime until;
    guint64 ghost; /* likewise, of what the member lent on in a former incarnation, and has not
                      reported in this one */
    QosTime ghost_until;
    double assumed; /* an amount: counted as served while the member was silent */
} QosBudgetMember;

struct QosBudget {
    QosBudgetConfig config;
    GHashTable *by_id;  /* id -> QosBudgetMember, owned */
    GPtrArray *members; /* the same, in a fixed order */
    guint64 floor_pool; /* what all floors together may be; a rate */
    guint64 floors;     /* that are lent */
    QosTime grace;      /* until then members may hold what is not known here; QOS_NEVER: for
                           `grace_lease` from the epoch's end on */
    QosTime grace_lease;
    guint expected;      /* members that are */
    QosBudgetReport sum; /* of the latest epoch */
    double level;
    double served;        /* an amount, since the latest epoch */
    double epoch_served;  /* an amount, in the latest epoch */
    double shown_served;  /* a rate: the mean of the latest window of a second, for people */
    double window_served; /* an amount: in the next window so far, */
    QosTime window;       /* which is so long */
    /* --- a coordinator's --- */
    double factor, debt;
    gboolean is_saturated; /* the store cannot serve more: no reason to hand out more */
    QosTime closed;
    /* --- a combiner's --- */
    guint64 ticket;        /* of the latest report; 0: this is a coordinator */
    gboolean is_open;      /* it is not answered yet */
    gboolean was_idle;     /* the latest report said that nobody wants anything */
    QosTime sent;          /* the latest report */
    guint64 passed_served; /* the amount that it named */
};

/* The two halves of qos_budget_close(), so that the limit can change between them. The first counts
 * what was served under the former limit; returns what is not to be handed out. */
double qos_budget_account(QosBudget *budget, QosTime now);
void qos_budget_hand_out(QosBudget *budget, double silent, QosTime now, GArray *answers);
/* FAIR: the factor and the debt, by budget->served in the `period` (s) that ends. */
void qos_budget_correct(QosBudget *budget, double silent, double period);
/* Lowers the level of a grant to those that are fresh, or passed up, where others that report by
 * turns with them want as much (core/budget_turns.c). */
void qos_budget_cap_level(QosBudget *budget, gboolean passed_only, QosTime now,
                          QosBudgetGrant *grant);
/* What is to be handed out to those that have reported. */
double qos_budget_to_hand_out(const QosBudget *budget, double silent);
/* The most that `member` may use at `now`. */
guint64 qos_budget_share_of(const QosBudget *budget, const QosBudgetMember *member, QosTime now);
/* Of all members; a rate. */
guint64 qos_budget_in_force(const QosBudget *budget, QosTime now);
/* Forgets reports whose members' leases have ended, and adds up the others. */
void qos_budget_sum_up(QosBudget *budget, QosTime now);
/* The largest raise, up to the targets in `grant`, whose allotments to the fresh members (with
 * `passed_only`, to those that were passed up) are `free` at most. Sets both raises of `grant`. */
void qos_budget_solve_raise(const QosBudget *budget, guint64 free, gboolean passed_only,
                            QosBudgetGrant *grant);
/* Counts `epoch_served`, of an epoch of that length, for people. */
void qos_budget_note_served(QosBudget *budget, QosTime epoch);
/* Answers `member`, and notes what it may use from now on. */
void qos_budget_answer(QosBudget *budget, QosBudgetMember *member, const QosBudgetGrant *grant,
                       QosTime now, GArray *answers);
/* Counts on a report of `member`, or not. */
void qos_budget_expect(QosBudget *budget, QosBudgetMember *member, gboolean is_expected);
