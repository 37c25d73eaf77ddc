/*
 * One budget for all mounts: a rule's rate R holds for the sum of what many mounts do.
 *
 * The problem: the mounts' hunger changes several times a second, messages are lost, mounts and
 * servers crash, and clocks differ. Yet the sum may not exceed R, and no part of R should lie idle.
 *
 * A resource (a rule and a class) has a coordinator at the root, and members below it: mounts, or
 * combiners that are coordinators of mounts of their own. Each epoch of E:
 *
 *     member                                  coordinator
 *     demand, held, served     REPORT -->
 *                              <-- GRANT      level, raise, lease: the same for all members
 *     takes min(d, level w)
 *
 * An idle member sends nothing. docs/design/budget.md has the law and the figures; core/budget.c
 * says why no more than R is handed out.
 *
 * Units: a rate is in thousandths of a unit (a byte, an operation) a second, an amount in
 * thousandths of a unit, a level in thousandths of a unit a second for each unit of weight. Rates
 * and amounts stop at G_MAXUINT64, which means "no bound".
 *
 * fs/budgets.h uses it at a mount, and server/budgets.h at the lock server.
 *
 * Pure: time is an argument; each node passes the time by its own clock. The caller locks.
 */
#pragma once

#include "base/time.h"

#define QOS_BUDGET_UNIT       1000                          /* a rate of one unit a second */
#define QOS_BUDGET_RATE_MAX   (G_GUINT64_CONSTANT(1) << 60) /* of a rule; 1 PB a second */
#define QOS_BUDGET_WEIGHT_MAX (1u << 24)                    /* of one mount */
#define QOS_BUDGET_NO_BOUND   G_MAXUINT64
#define QOS_BUDGET_STEPS_MAX  512 /* of a histogram: eight for each power of two, 9 % wide */
#define QOS_BUDGET_EPOCH      (100 * QOS_MILLISECOND)
#define QOS_BUDGET_EPOCH_LONG (500 * QOS_MILLISECOND) /* above so many at one coordinator: */
#define QOS_BUDGET_MANY       2000
#define QOS_BUDGET_LEASE_MIN  QOS_SECOND
/* By how much clocks may run wrong: as leases of credits (core/credit.h). */
#define QOS_BUDGET_DRIFT(duration) ((duration) / 100)
/* The digits of a ticket below its sender's incarnation. */
#define QOS_BUDGET_TICKET_BITS 40

typedef enum {
    QOS_BUDGET_FAIR, /* R on average; an overshoot is paid back within 500 ms */
    QOS_BUDGET_HARD, /* at every instant the sum of the rates in force is at most R */
} QosBudgetShare;

/* What a mount may use while it asks in vain for longer than a lease. */
typedef enum {
    QOS_BUDGET_AWAY_FLOOR,
    QOS_BUDGET_AWAY_OPEN, /* no bound; only with QOS_BUDGET_FAIR */
    QOS_BUDGET_AWAY_STOP, /* nothing */
} QosBudgetAway;

typedef struct {
    guint64 limit; /* R, a rate: 1 to QOS_BUDGET_RATE_MAX */
    QosBudgetShare share;
    QosBudgetAway away;
    guint floor;        /* percent of R that all floors together are: 0 to 50 */
    QosTime epoch;      /* E: 1 ms to 10 s */
    QosTime lease;      /* of a rate: at least 5 E and QOS_BUDGET_LEASE_MIN, at most 1 h */
    guint64 registered; /* the weights of all mounts that are on the durable list, summed; > 0 */
} QosBudgetConfig;

/* FALSE where the configuration cannot be kept; *error (QOS_ERROR; EINVAL, ERANGE) says why. */
gboolean qos_budget_config_check(const QosBudgetConfig *config, GError **error);
/* E for so many members at one coordinator; and the lease of a rate: 5 E, at least 1 s. */
QosTime qos_budget_epoch_for(guint members);
QosTime qos_budget_lease_for(QosTime epoch);

/* --- reports (core/budget_report.c) --- */

/* Of the members whose demand, divided by their weight, lies in one step of 9 %: the sums of demand
 * and weight. And of those whose rate in force does: the sums of that rate and of their weight. */
typedef struct {
    guint32 step; /* below QOS_BUDGET_STEPS_MAX */
    guint64 demand, weight;
    guint64 held, held_weight;
} QosBudgetStep;

/*
 * What a member, or any number of them, wants and has. Embedded, all zero is an empty one.
 * `steps` grow strictly, and each has a weight or a held weight.
 */
typedef struct {
    guint64 ticket; /* the sender's: its incarnation, then a count; grows. Not combined */
    guint64 held;   /* the most that they may use until they are granted more; a rate. At least
                       the sum of the steps': members that are silent are in no step */
    guint64 served; /* an amount: since the sender's incarnation began; combined, it adds up */
    guint count;    /* of `steps`; 0: an idle member, which is not answered */
    guint allocated;
    QosBudgetStep *steps; /* owned */
} QosBudgetReport;

void qos_budget_report_clear(QosBudgetReport *report);
/* `to` becomes equal to `from`; its memory is used again. */
void qos_budget_report_copy(QosBudgetReport *to, const QosBudgetReport *from);
gboolean qos_budget_report_equal(const QosBudgetReport *a, const QosBudgetReport *b);
/* The step of a rate for one unit of weight; `weight` > 0. */
guint qos_budget_step(guint64 rate, guint64 weight);
/* Makes `report` that of one mount. `ticket` and `served` are left as they are. */
void qos_budget_report_set(QosBudgetReport *report, guint64 demand, guint64 held, guint64 weight);
/*
 * Adds `other` to `report`: eh_combine of seed 003. Associative and commutative, and an empty
 * report changes nothing. It is a sum, so it is not idempotent: a member that reports again
 * replaces its report at the coordinator (qos_budget_report), which is where repetition ends.
 */
void qos_budget_report_add(QosBudgetReport *report, const QosBudgetReport *other);

/* The most that the members of `report` take at `level`: sum of min(D, level W) over the steps,
 * which is no less than the sum of min(d, level w) over the members. */
double qos_budget_take(const QosBudgetReport *report, double level);
/* The largest level whose qos_budget_take() is at most `budget`; G_MAXDOUBLE where all have
 * enough. */
double qos_budget_level(const QosBudgetReport *report, double budget);

/* Appends `report` as bytes. */
void qos_budget_report_encode(const QosBudgetReport *report, GByteArray *bytes);
/* `ret_report` is an empty report or another one, whose memory is used again. FALSE, and it is
 * empty, where the bytes are not exactly one report. */
gboolean qos_budget_report_decode(const guint8 *bytes, gsize length, QosBudgetReport *ret_report);

/* --- grants --- */

/*
 * The answer to a report. A mount's target is min(d, level w); where `level` is G_MAXDOUBLE all
 * have enough, and it is d + rest w. What a mount has beyond its target it gives up at once. Below
 * it the mount takes more only up to what `raise` and `raise_rest` say in the same way: these are
 * what others are known to have given up.
 */
typedef struct {
    guint64 ticket;           /* of the report that is answered */
    double level, rest;       /* >= 0 */
    double raise, raise_rest; /* >= 0; at most the above */
    QosTime lease;            /* > 0; counts from when the report was sent */
} QosBudgetGrant;

/* By how much the sender of `report` may raise what it holds. */
guint64 qos_budget_allotment(const QosBudgetReport *report, double raise, double raise_rest);

void qos_budget_grant_encode(const QosBudgetGrant *grant, GByteArray *bytes);
/* Of a grant that is encoded: to the sender of another report. */
void qos_budget_grant_set_ticket(GByteArray *bytes, guint64 ticket);
gboolean qos_budget_grant_decode(const guint8 *bytes, gsize length, QosBudgetGrant *ret_grant);

/* --- a mount (core/budget_member.c) --- */

/* Of one resource, embedded. Nothing is owned. */
typedef struct {
    QosBudgetShare share;
    QosBudgetAway away;
    guint64 weight; /* as the server says */
    guint64 floor;  /* a rate: lent to the mount for as long as it is on the durable list */
    QosTime lease;
    guint64 rate;   /* while the lease runs */
    QosTime until;  /* the end of the lease, less the drift */
    guint64 demand; /* of the latest report, */
    guint64 held;   /* as this */
    double rest;    /* of the latest grant */
    guint64 ticket; /* of the latest report */
    QosTime sent;   /* the latest report */
    QosTime asking; /* since when no report was answered; QOS_NEVER: none is open */
} QosBudgetMount;

/* `incarnation` > 0 grows with each start. `weight`: 1 to QOS_BUDGET_WEIGHT_MAX. */
void qos_budget_mount_init(QosBudgetMount *mount, const QosBudgetConfig *config, guint64 weight,
                           guint64 floor, guint32 incarnation);
/* There has been no way to the server since `since`: the mount asks in vain, without reports, from
 * then on at the latest. QOS_NEVER: it asks no more, because it wants nothing. */
void qos_budget_mount_ask(QosBudgetMount *mount, QosTime since);
/* The mount's clock stood still for a while, as it does while the machine sleeps: the lease may
 * have ended at the server. So it ends here, and the answer to the latest report is void. */
void qos_budget_mount_end_lease(QosBudgetMount *mount, QosTime now);
/*
 * The rule has changed, or the mount's floor has: share, away, lease and floor are the new ones
 * from now on. The rate in force stays, but for what is beyond the new limit. With QOS_BUDGET_HARD
 * it loses what the floor loses, for others have that as theirs; and the answer to an open report,
 * which does not know of it, is void: the mount reports again.
 */
void qos_budget_mount_configure(QosBudgetMount *mount, const QosBudgetConfig *config,
                                guint64 floor);
/*
 * Fills in the report that is to be sent now. `demand` is a rate: what was served since the report
 * before, and what waits, per E; 0: the mount is idle, and there is no answer. `served` is an
 * amount, all in all in this incarnation. What is not used is given up with the report.
 */
void qos_budget_mount_report(QosBudgetMount *mount, guint64 demand, guint64 served, QosTime now,
                             QosBudgetReport *report);
/* FALSE: the grant answers no open report, and nothing happened. */
gboolean qos_budget_mount_grant(QosBudgetMount *mount, const QosBudgetGrant *grant, QosTime now);
/* The rate in force; QOS_BUDGET_NO_BOUND with QOS_BUDGET_AWAY_OPEN while the server is away. It
 * changes by itself at mount->until. */
guint64 qos_budget_mount_rate(const QosBudgetMount *mount, QosTime now);
/* TRUE: the mount has asked in vain for longer than a lease. */
gboolean qos_budget_mount_is_away(const QosBudgetMount *mount, QosTime now);

/* --- a coordinator or combiner (core/budget.c, core/budget_tree.c) --- */

typedef struct QosBudget QosBudget;

/* To the member `to`. */
typedef struct {
    guint64 to;
    QosBudgetGrant grant;
} QosBudgetAnswer;

/* What a coordinator knows, for reports and tests. */
typedef struct {
    guint members, reporting,
        silent;       /* in all; in the latest epoch; of those with a lease not in it */
    guint64 in_force; /* the most that all may use now, with `reserved`; a rate */
    guint64 reserved; /* QOS_BUDGET_HARD: floors of mounts that are no members; a rate */
    double demand;    /* of all whose leases run, by their latest reports; a rate */
    double served;    /* by the reports, the mean of a second; a rate */
    double level;     /* of the latest epoch */
    double factor;    /* a; 1 with QOS_BUDGET_HARD */
    double debt;      /* an amount that was served beyond R */
} QosBudgetState;

/*
 * Free with qos_budget_free(). `config` has passed the check. A coordinator that may have been
 * there before raises no share until all leases of its former life have ended: `is_first` FALSE.
 */
QosBudget *qos_budget_new(const QosBudgetConfig *config, gboolean is_first, QosTime now);
/*
 * A combiner: what it hands out is its parent's. `floor` is lent to it by its parent, and is what
 * it lends to its members; `config->registered` is the sum of their weights. `incarnation` > 0
 * grows with each start.
 */
QosBudget *qos_budget_combiner_new(const QosBudgetConfig *config, guint64 floor,
                                   guint32 incarnation, QosTime now);
/* Of a combiner that may have been freed at rest, and made again, in this incarnation: its reports
 * have tickets above `ticket`. */
void qos_budget_continue(QosBudget *budget, guint64 ticket);
/* Of a combiner: another floor is lent to it. To be followed by qos_budget_configure(). */
void qos_budget_lend(QosBudget *budget, guint64 floor);
/* NULL is allowed. */
void qos_budget_free(QosBudget *budget);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QosBudget, qos_budget_free)

/*
 * Another limit, share or number of parts (`registered`) from the next epoch on; members' floors
 * are lent anew. `config` has passed the check. Where floors become smaller, the mounts hear of it
 * later; with QOS_BUDGET_HARD nobody may have a floor out of what they are to give back before all
 * of them have put it in force.
 */
void qos_budget_configure(QosBudget *budget, const QosBudgetConfig *config);

/*
 * The member `id`, with the sum of the weights behind it, is on the durable list: returns the
 * floor that it is lent (a rate): its part, or what is left of the floors. To be called before its
 * first report; with QOS_BUDGET_HARD its floor is reserved from the start, so it may have used it
 * before. Again: for another weight, or a floor that grows when others have left.
 */
guint64 qos_budget_join(QosBudget *budget, guint64 id, guint64 weight, QosTime now);
/* It is taken off the durable list, and uses nothing any more: its floor may be lent to others. Or
 * its leases have ended, and it will join again: then its floor is reserved for it still. */
void qos_budget_leave(QosBudget *budget, guint64 id, QosTime now);
/* How many they are. */
guint qos_budget_members(const QosBudget *budget);
/* Members whose leases ended before `before` leave, so that they cost nothing. They join again with
 * their next reports. */
void qos_budget_forget_silent(QosBudget *budget, QosTime before);
/* TRUE: no report waits for an answer, and no member's lease runs, so that only floors are in
 * force. A coordinator that is freed now is made anew as one that is the first. */
gboolean qos_budget_is_at_rest(const QosBudget *budget, QosTime now);

/*
 * A report has come from `id`; a copy is taken. FALSE, and nothing happened, where `id` is unknown,
 * the report is late or repeated, or it names more weight than the member has. With QOS_BUDGET_HARD
 * also where it says that it holds more than it can have (its bound, or its floor and what is
 * reserved), but for a lease after a restart. Such a member is at its floor when its lease has
 * ended, and welcome then.
 */
gboolean qos_budget_report(QosBudget *budget, guint64 id, const QosBudgetReport *report,
                           QosTime now);
/* TRUE: all members that were answered in the epoch before have reported, so that there is nothing
 * to wait for. */
gboolean qos_budget_is_complete(const QosBudget *budget);
/* Of a coordinator: ends the epoch, and appends an answer for each member that has reported. */
void qos_budget_close(QosBudget *budget, QosTime now, GArray *answers);

/* Of a combiner: fills in the report of its members, which is to be passed up now. FALSE: none has
 * reported and none is owed anything, so nothing is to be sent. */
gboolean qos_budget_pass_up(QosBudget *budget, QosTime now, QosBudgetReport *report);
/* Of a combiner: its parent's answer. Appends the answers to those that were in the report.
 * FALSE: it answers no open report, and nothing happened. */
gboolean qos_budget_pass_down(QosBudget *budget, const QosBudgetGrant *grant, QosTime now,
                              GArray *answers);

QosBudgetState qos_budget_state(const QosBudget *budget, QosTime now);

/* A member, by its latest report. */
typedef struct {
    guint64 id;
    guint64 demand, held; /* rates */
    guint64 bound;        /* the most that it may use now; a rate */
    gboolean is_silent;   /* its lease runs, and it has not reported in the latest epoch */
} QosBudgetMemberState;
typedef void (*QosBudgetMemberFunc)(const QosBudgetMemberState *member, gpointer arg);
void qos_budget_each_member(const QosBudget *budget, QosTime now, QosBudgetMemberFunc func,
                            gpointer arg);
