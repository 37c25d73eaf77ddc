/*
 * The coordinator's law: what each epoch hands out. core/budget.h has the messages and the units.
 *
 * One level. With B to hand out, the level solves sum min(d, level w) = B over the members that
 * have reported (core/budget_report.c); where all have enough, what is left goes by weight. B is
 * what the members that have not reported may not use, so nobody's silence is lent on before the
 * silent member's lease has ended.
 *
 * HARD: why the rates in force never exceed R. For each member the coordinator has a bound:
 *   - from a report: what the member says that it holds. Until it is answered it only falls;
 *   - from an answer: that, and the allotment that follows from this report and the raise that is
 *     granted. The member works out the same (core/budget_member.c);
 *   - from silence: the bound stays until the lease has ended, then it is the floor;
 *   - from a restart of the member: a combiner's mounts live on, and tell its new life by and by
 *     what they hold. So the bound of the former life, less that, stays beside the new one until
 *     its lease has ended.
 * A mount may use its floor before it has ever reported. So the floors of all mounts are reserved:
 * the part of them that is lent to no member counts as used (reserve_of()), and a mount becomes a
 * member with its first report. That leaves the sum as it is.
 * So at every instant the rates in force are at most the sum of the bounds and this reserve. An
 * epoch raises bounds by at most R less that. Level and raise are two numbers for that reason:
 * those above the level come down at once, and those below come up as far as what has come back,
 * the lowest first. A restarted coordinator, which knows no bounds, raises none until each lease of
 * its former life has ended. POOL of R is left out of B, so that members that wake find something
 * at once.
 *
 * FAIR: R on average. B = R a - debt / REPAY: what was served beyond R is debt, paid back within
 * 500 ms. Members do not use all that they are given, since their hunger changes within an epoch:
 * so a is moved until the sum that was served is R (an integrator; Astrom and Hagglund, PID
 * Controllers, 1995, 3.1). It stands still while more than 1 % of R is with silent members, as what
 * these do is not known, and goes back to 1 where all have enough (no wind-up).
 *
 * When the floors are divided into more parts, the coordinator is told first, then each mount. A
 * mount that hears of it gives up at once, of the rate in force, what its floor loses
 * (qos_budget_mount_configure()). When all have said so, that is free for the floors of new mounts.
 *
 * Limits. HARD leaves idle what floors of idle mounts, POOL, and members that want less than an
 * epoch before do not use. It takes clocks that are at most 1 % wrong, and a durable list of
 * members. While R falls, the floors grow or FAIR becomes HARD, it holds from a lease after the
 * last mount has heard of it. FAIR exceeds R where many members wake at once, by what they are
 * given for one epoch. The bound is on rates: a mount's bucket adds its depth to what is served in
 * a window, once.
 */
#include "core/budget.h"

#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "core/budget_private.h"

#define POOL         0.01 /* of R, with HARD: a newcomer among 100 finds its share */
#define GAIN         0.15 /* of the integrator, in an epoch */
#define FACTOR_MAX   3.0
#define DEBT_MAX     1.0  /* s of R: what the sum of all leases may overshoot by */
#define CREDIT_MAX   0.1  /* s of R that was left and may be made up for: one epoch's noise */
#define REPAY        0.5  /* s */
#define SILENT_PART  0.01 /* of R */
#define BUDGET_MIN   0.1  /* of R that is handed out, whatever the debt: nobody stands still */
#define RAISE_STEPS  24   /* of a bisection: to 6e-8 of the level */
#define FLOOR_MAX    50
#define EPOCH_MIN    QOS_MILLISECOND
#define SHOWN_WINDOW QOS_SECOND /* people are shown the mean of this: one epoch's is noise */
#define EPOCH_MAX    (10 * QOS_SECOND)
#define LEASE_EPOCHS 5
#define LEASE_MAX    (3600 * QOS_SECOND)

/* --- configuration --- */

gboolean qos_budget_config_check(const QosBudgetConfig *config, GError **error)
{
    const char *reason = NULL;

    if (config->limit < 1 || config->limit > QOS_BUDGET_RATE_MAX)
        reason = "the limit must be from 0.001 to 2^60 / 1000 a second";
    else if (config->floor > FLOOR_MAX)
        reason = "the floor must be from 0 to 50 %";
    else if (config->epoch < EPOCH_MIN || config->epoch > EPOCH_MAX)
        reason = "the epoch must be from 1 ms to 10 s";
    else if (config->lease < LEASE_EPOCHS * config->epoch || config->lease < QOS_BUDGET_LEASE_MIN ||
             config->lease > LEASE_MAX)
        reason = "the lease must be from 5 epochs, and 1 s, to 1 h";
    else if (config->registered < 1)
        reason = "the members must have a weight";
    if (reason != NULL)
        qos_set_error(error, ERANGE, "budget: %s", reason);
    else if (config->share == QOS_BUDGET_HARD && config->away == QOS_BUDGET_AWAY_OPEN)
        qos_set_error(error, EINVAL,
                      "share=hard cannot be kept with away=open: a mount that does not reach its "
                      "server would have no bound; choose away=floor or away=stop, or share=fair");
    else
        return TRUE;
    return FALSE;
}

QosTime qos_budget_epoch_for(guint members)
{
    return members > QOS_BUDGET_MANY ? QOS_BUDGET_EPOCH_LONG : QOS_BUDGET_EPOCH;
}

QosTime qos_budget_lease_for(QosTime epoch)
{
    return MAX(LEASE_EPOCHS * epoch, QOS_BUDGET_LEASE_MIN);
}

static gboolean is_hard(const QosBudget *budget)
{
    return budget->config.share == QOS_BUDGET_HARD;
}

static double seconds(QosTime duration)
{
    return (double)duration / QOS_SECOND;
}

/* When a lease that is counted from now on has ended at the member, by any clock. */
static QosTime end_of_lease(QosTime now, QosTime lease)
{
    return qos_time_add(now, lease + QOS_BUDGET_DRIFT(lease));
}

/* --- members --- */

static void free_member(gpointer data)
{
    QosBudgetMember *member = data;

    qos_budget_report_clear(&member->report);
    g_free(member);
}

static QosBudgetMember *find(const QosBudget *budget, guint64 id)
{
    return g_hash_table_lookup(budget->by_id, &id);
}

void qos_budget_expect(QosBudget *budget, QosBudgetMember *member, gboolean is_expected)
{
    budget->expected += (guint)is_expected - (guint)member->is_expected;
    member->is_expected = is_expected;
}

guint64 qos_budget_share_of(const QosBudget *budget, const QosBudgetMember *member, QosTime now)
{
    guint64 share = now < member->until ? member->bound : 0;
    const guint64 ghost = now < member->ghost_until ? member->ghost : 0;

    if (is_hard(budget))
        share = MAX(share, member->floor);
    return share > G_MAXUINT64 - ghost ? G_MAXUINT64 : share + ghost;
}

/* Of the floors, what is lent to no member: with HARD, mounts that never reported may use it. */
static guint64 reserve_of(const QosBudget *budget)
{
    return is_hard(budget) ? budget->floor_pool - MIN(budget->floors, budget->floor_pool) : 0;
}

guint64 qos_budget_in_force(const QosBudget *budget, QosTime now)
{
    guint64 sum = reserve_of(budget);

    for (guint i = 0; i < budget->members->len; i++) {
        const guint64 share = qos_budget_share_of(budget, budget->members->pdata[i], now);
        sum = share > G_MAXUINT64 - sum ? G_MAXUINT64 : sum + share;
    }
    return sum;
}

static QosBudget *new_budget(const QosBudgetConfig *config, guint64 floor_pool)
{
    QosBudget *budget = g_new0(QosBudget, 1);

    budget->config = *config;
    budget->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    budget->members = g_ptr_array_new_with_free_func(free_member);
    budget->floor_pool = floor_pool;
    budget->factor = 1;
    return budget;
}

QosBudget *qos_budget_new(const QosBudgetConfig *config, gboolean is_first, QosTime now)
{
    QosBudget *budget = new_budget(config, config->limit / 100 * config->floor);

    budget->grace = is_first ? now : end_of_lease(now, config->lease);
    budget->closed = now;
    return budget;
}

QosBudget *qos_budget_combiner_new(const QosBudgetConfig *config, guint64 floor,
                                   guint32 incarnation, QosTime now)
{
    QosBudget *budget = new_budget(config, floor);

    budget->ticket = (guint64)incarnation << QOS_BUDGET_TICKET_BITS;
    budget->grace = end_of_lease(now, config->lease);
    budget->closed = now;
    return budget;
}

void qos_budget_continue(QosBudget *budget, guint64 ticket)
{
    budget->ticket = MAX(budget->ticket, ticket);
}

void qos_budget_lend(QosBudget *budget, guint64 floor)
{
    budget->floor_pool = floor;
}

void qos_budget_free(QosBudget *budget)
{
    if (budget == NULL)
        return;
    g_hash_table_unref(budget->by_id);
    g_ptr_array_unref(budget->members);
    qos_budget_report_clear(&budget->sum);
    g_free(budget);
}

/* Lends the member its part of the floors, or what the others have left of them. In whole numbers:
 * a combiner that has so many parts of a floor counts on each of them. */
static void set_floor(QosBudget *budget, QosBudgetMember *member)
{
    const guint64 registered = budget->config.registered;
    const guint64 weight = MIN(member->weight, registered);
    const guint64 others = budget->floors - member->floor;
    const guint64 left = budget->floor_pool - MIN(others, budget->floor_pool);

    member->floor =
        MIN((guint64)((unsigned __int128)budget->floor_pool * weight / registered), left);
    budget->floors = others + member->floor;
}

void qos_budget_configure(QosBudget *budget, const QosBudgetConfig *config)
{
    if (!is_hard(budget) && config->share == QOS_BUDGET_HARD) {
        /* What FAIR's answers allowed is not in the bounds. The next epoch's end has the time. */
        budget->grace = QOS_NEVER;
        budget->grace_lease = MAX(budget->config.lease, config->lease);
    }
    budget->config = *config;
    if (budget->ticket == 0)
        budget->floor_pool = config->limit / 100 * config->floor;
    /* Twice: what a later one gives back is there for an earlier one. */
    for (guint i = 0; i < 2 * budget->members->len; i++)
        set_floor(budget, budget->members->pdata[i % budget->members->len]);
}

guint64 qos_budget_join(QosBudget *budget, guint64 id, guint64 weight, QosTime now G_GNUC_UNUSED)
{
    QosBudgetMember *member = find(budget, id);

    if (member == NULL) {
        member = g_new0(QosBudgetMember, 1);
        member->id = id;
        g_hash_table_insert(budget->by_id, &member->id, member);
        g_ptr_array_add(budget->members, member);
    }
    member->weight = weight;
    set_floor(budget, member);
    return member->floor;
}

void qos_budget_leave(QosBudget *budget, guint64 id, QosTime now G_GNUC_UNUSED)
{
    QosBudgetMember *member = find(budget, id);

    if (member == NULL)
        return;
    qos_budget_expect(budget, member, FALSE);
    budget->floors -= member->floor;
    g_hash_table_remove(budget->by_id, &id);
    g_ptr_array_remove(budget->members, member);
}

guint qos_budget_members(const QosBudget *budget)
{
    return budget->members->len;
}

/* Nothing of it is in force but its floor. */
static gboolean has_ended(const QosBudgetMember *member, QosTime now)
{
    return !member->is_fresh && now >= member->until && now >= member->ghost_until;
}

void qos_budget_forget_silent(QosBudget *budget, QosTime before)
{
    for (guint i = budget->members->len; i > 0; i--) {
        const QosBudgetMember *member = budget->members->pdata[i - 1];
        if (has_ended(member, before))
            qos_budget_leave(budget, member->id, before);
    }
}

gboolean qos_budget_is_at_rest(const QosBudget *budget, QosTime now)
{
    for (guint i = 0; i < budget->members->len; i++) {
        if (!has_ended(budget->members->pdata[i], now))
            return FALSE;
    }
    return TRUE;
}

/* --- reports --- */

static gboolean names_more_weight(const QosBudgetReport *report, guint64 limit)
{
    guint64 weight = 0, held = 0;

    for (guint i = 0; i < report->count; i++) {
        weight += report->steps[i].weight;
        held += report->steps[i].held_weight;
        if (report->steps[i].weight > limit || report->steps[i].held_weight > limit ||
            weight > limit || held > limit)
            return TRUE;
    }
    return FALSE;
}

/* The member has started again: the share of its former life is a ghost until its lease ends. */
static void note_restart(const QosBudget *budget, QosBudgetMember *member, QosTime now)
{
    const guint64 share = qos_budget_share_of(budget, member, now);
    const guint64 floor = is_hard(budget) ? MIN(member->floor, share) : 0;

    member->ghost = share - floor;
    member->ghost_until = MAX(member->until, member->ghost_until);
    member->bound = floor;
    member->report.served = 0;
}

/* What the member holds now. More than before is what mounts behind it have told its new life: of
 * the ghost, so that nothing is counted twice, and no report makes the sum larger. */
static void set_bound(QosBudget *budget, QosBudgetMember *member, guint64 held, QosTime now)
{
    const guint64 before = MAX(now < member->until ? member->bound : 0, member->floor);

    if (held > before)
        member->ghost -= MIN(member->ghost, held - before);
    member->bound = held;
    member->heard = now;
    /* A rate that was granted with a longer lease has that. */
    member->until = MAX(member->until, end_of_lease(now, budget->config.lease));
}

/* HARD: what a member may say that it holds. A mount may still have the larger floor of a division
 * into fewer parts; together they have no more than there is. */
static gboolean holds_too_much(const QosBudget *budget, const QosBudgetMember *member, guint64 held,
                               QosTime now)
{
    return is_hard(budget) && now >= budget->grace &&
           held > MAX(qos_budget_share_of(budget, member, now), member->floor + reserve_of(budget));
}

/* What was served since the report before, less what was assumed while the member was silent. */
static void count_served(QosBudget *budget, QosBudgetMember *member, const QosBudgetReport *report)
{
    if (report->served > member->report.served)
        budget->served += (double)(report->served - member->report.served);
    budget->served -= member->assumed;
    member->assumed = 0;
}

gboolean qos_budget_report(QosBudget *budget, guint64 id, const QosBudgetReport *report,
                           QosTime now)
{
    QosBudgetMember *member = find(budget, id);

    if (member == NULL || report->ticket <= member->report.ticket ||
        names_more_weight(report, member->weight) ||
        holds_too_much(budget, member, report->held, now))
        return FALSE;
    if (report->ticket >> QOS_BUDGET_TICKET_BITS !=
        member->report.ticket >> QOS_BUDGET_TICKET_BITS) {
        if (member->report.ticket != 0)
            note_restart(budget, member, now);
        member->is_passed = FALSE;
    }
    count_served(budget, member, report);
    qos_budget_report_copy(&member->report, report);
    qos_budget_expect(budget, member, FALSE);
    member->is_fresh = report->count > 0;
    member->is_passed &= member->is_fresh;
    set_bound(budget, member, report->held, now);
    return TRUE;
}

gboolean qos_budget_is_complete(const QosBudget *budget)
{
    return budget->expected == 0;
}

void qos_budget_sum_up(QosBudget *budget, QosTime now)
{
    if (budget->grace == QOS_NEVER)
        budget->grace = end_of_lease(now, budget->grace_lease);
    budget->sum.count = 0;
    budget->sum.held = budget->sum.served = 0;
    for (guint i = 0; i < budget->members->len; i++) {
        QosBudgetMember *member = budget->members->pdata[i];
        if (member->is_fresh && now >= member->until)
            member->is_fresh = member->is_passed = FALSE;
        if (member->is_fresh)
            qos_budget_report_add(&budget->sum, &member->report);
    }
}

/* --- raises --- */

/* Whether the allotments fit. */
static gboolean fits(const QosBudget *budget, guint64 free, gboolean passed_only, double raise,
                     double raise_rest)
{
    guint64 left = free;

    for (guint i = 0; i < budget->members->len; i++) {
        const QosBudgetMember *member = budget->members->pdata[i];
        if (passed_only ? !member->is_passed : !member->is_fresh)
            continue;
        const guint64 part = qos_budget_allotment(&member->report, raise, raise_rest);
        if (part > left)
            return FALSE;
        left -= part;
    }
    return TRUE;
}

/* A level that is too high, and not by much. */
static double highest_raise(const QosBudget *budget, guint64 free)
{
    double highest = 0;

    for (guint i = 0; i < budget->sum.count; i++) {
        const QosBudgetStep *step = &budget->sum.steps[i];
        if (step->weight > 0)
            highest = (double)step->demand / (double)step->weight;
    }
    /* Nobody is raised by more than what is free, from the highest that is held. */
    return 2 * highest + (double)free;
}

void qos_budget_solve_raise(const QosBudget *budget, guint64 free, gboolean passed_only,
                            QosBudgetGrant *grant)
{
    double low = 0, high;
    gboolean is_rest = FALSE;

    grant->raise = grant->level;
    grant->raise_rest = grant->rest;
    if (fits(budget, free, passed_only, grant->raise, grant->raise_rest))
        return;
    if (grant->level >= G_MAXDOUBLE && grant->rest > 0 &&
        fits(budget, free, passed_only, G_MAXDOUBLE, 0)) {
        is_rest = TRUE;
        high = grant->rest;
    } else {
        high = MIN(grant->level, highest_raise(budget, free));
    }
    for (guint i = 0; i < RAISE_STEPS; i++) {
        const double middle = low + (high - low) / 2;
        const double raise = is_rest ? G_MAXDOUBLE : middle;
        if (fits(budget, free, passed_only, raise, is_rest ? middle : 0))
            low = middle;
        else
            high = middle;
    }
    grant->raise = is_rest ? G_MAXDOUBLE : low;
    grant->raise_rest = is_rest ? low : 0;
}

void qos_budget_answer(QosBudget *budget, QosBudgetMember *member, const QosBudgetGrant *grant,
                       QosTime now, GArray *answers)
{
    QosBudgetAnswer answer = {.to = member->id, .grant = *grant};

    answer.grant.ticket = member->report.ticket;
    g_array_append_val(answers, answer);
    if (is_hard(budget))
        member->bound = member->report.held +
                        qos_budget_allotment(&member->report, grant->raise, grant->raise_rest);
    member->until = MAX(member->until, end_of_lease(now, grant->lease));
    member->is_fresh = member->is_passed = FALSE;
    qos_budget_expect(budget, member, TRUE);
}

/* --- an epoch --- */

/* What is not to be handed out: shares of members that are silent, and of such behind combiners;
 * and the reserve. */
static double silent_share(const QosBudget *budget, QosTime now)
{
    double sum = (double)reserve_of(budget);

    for (guint i = 0; i < budget->members->len; i++) {
        const QosBudgetMember *member = budget->members->pdata[i];
        double share = (double)qos_budget_share_of(budget, member, now);
        if (member->is_fresh) {
            for (guint j = 0; j < member->report.count; j++)
                share -= (double)member->report.steps[j].held;
        }
        sum += MAX(share, 0);
    }
    return sum;
}

/* FAIR: a silent member is taken to use what it may; its next report puts that right. */
static void assume_served(QosBudget *budget, QosTime now, double period)
{
    for (guint i = 0; i < budget->members->len; i++) {
        QosBudgetMember *member = budget->members->pdata[i];
        if (member->is_fresh || member->report.count == 0 || now >= member->until)
            continue;
        const double amount = (double)member->bound * period;
        member->assumed += amount;
        budget->served += amount;
    }
}

void qos_budget_correct(QosBudget *budget, double silent, double period)
{
    const double limit = (double)budget->config.limit;

    budget->debt += budget->served - limit * period;
    budget->debt = CLAMP(budget->debt, -limit * CREDIT_MAX, limit * DEBT_MAX);
    if (budget->is_saturated)
        budget->debt = MAX(budget->debt, 0);
    if (budget->level >= G_MAXDOUBLE || budget->is_saturated)
        budget->factor += (1 - budget->factor) * GAIN;
    else if (silent <= limit * SILENT_PART && period > 0)
        budget->factor += GAIN * (1 - budget->served / (limit * period));
    budget->factor = CLAMP(budget->factor, 1, FACTOR_MAX);
}

double qos_budget_to_hand_out(const QosBudget *budget, double silent)
{
    const double limit = (double)budget->config.limit;

    if (is_hard(budget))
        return MAX(limit * (1 - POOL) - silent, 0);
    return MAX(limit * budget->factor - budget->debt / REPAY - silent, limit * BUDGET_MIN);
}

static void set_targets(QosBudget *budget, double to_hand_out, QosBudgetGrant *grant)
{
    double weight = 0;

    grant->level = qos_budget_level(&budget->sum, to_hand_out);
    budget->level = grant->level;
    if (grant->level < G_MAXDOUBLE)
        return;
    for (guint i = 0; i < budget->sum.count; i++)
        weight += (double)budget->sum.steps[i].weight;
    if (weight > 0)
        grant->rest = (to_hand_out - qos_budget_take(&budget->sum, G_MAXDOUBLE)) / weight;
}

void qos_budget_note_served(QosBudget *budget, QosTime epoch)
{
    budget->window_served += budget->epoch_served;
    budget->window += epoch;
    if (budget->window < SHOWN_WINDOW)
        return;
    budget->shown_served = MAX(budget->window_served, 0) / seconds(budget->window);
    budget->window_served = 0;
    budget->window = 0;
}

double qos_budget_account(QosBudget *budget, QosTime now)
{
    const double period = seconds(now - budget->closed);

    qos_budget_sum_up(budget, now);
    const double silent = silent_share(budget, now);
    if (!is_hard(budget)) {
        assume_served(budget, now, period);
        qos_budget_correct(budget, silent, period);
    }
    budget->epoch_served = budget->served;
    budget->served = 0;
    qos_budget_note_served(budget, now - budget->closed);
    budget->closed = now;
    return silent;
}

void qos_budget_hand_out(QosBudget *budget, double silent, QosTime now, GArray *answers)
{
    QosBudgetGrant grant = {.lease = budget->config.lease};

    set_targets(budget, qos_budget_to_hand_out(budget, silent), &grant);
    qos_budget_cap_level(budget, FALSE, now, &grant);
    if (is_hard(budget)) {
        const guint64 used = now < budget->grace ? G_MAXUINT64 : qos_budget_in_force(budget, now);
        qos_budget_solve_raise(budget, budget->config.limit - MIN(used, budget->config.limit),
                               FALSE, &grant);
    } else {
        grant.raise = grant.level;
        grant.raise_rest = grant.rest;
    }
    for (guint i = 0; i < budget->members->len; i++) {
        QosBudgetMember *member = budget->members->pdata[i];
        if (member->is_fresh)
            qos_budget_answer(budget, member, &grant, now, answers);
        else
            qos_budget_expect(budget, member, FALSE);
    }
}

void qos_budget_close(QosBudget *budget, QosTime now, GArray *answers)
{
    qos_budget_hand_out(budget, qos_budget_account(budget, now), now, answers);
}

/* What all want whose leases run, by their latest reports. */
static double demand_of(const QosBudget *budget, QosTime now)
{
    double sum = 0;

    for (guint i = 0; i < budget->members->len; i++) {
        const QosBudgetMember *member = budget->members->pdata[i];
        for (guint j = 0; now < member->until && j < member->report.count; j++)
            sum += (double)member->report.steps[j].demand;
    }
    return sum;
}

/* It may use more than its floor, and has not reported in the latest epoch. */
static gboolean is_silent(const QosBudgetMember *member, QosTime now)
{
    return !member->is_fresh && !member->is_expected && now < member->until &&
           member->bound > member->floor;
}

QosBudgetState qos_budget_state(const QosBudget *budget, QosTime now)
{
    QosBudgetState state = {
        .members = budget->members->len,
        .in_force = qos_budget_in_force(budget, now),
        .reserved = reserve_of(budget),
        .demand = demand_of(budget, now),
        .served = budget->shown_served,
        .level = budget->level,
        .factor = budget->factor,
        .debt = budget->debt,
    };

    for (guint i = 0; i < budget->members->len; i++) {
        const QosBudgetMember *member = budget->members->pdata[i];
        state.reporting += member->is_fresh || member->is_expected;
        state.silent += is_silent(member, now);
    }
    return state;
}

void qos_budget_each_member(const QosBudget *budget, QosTime now, QosBudgetMemberFunc func,
                            gpointer arg)
{
    for (guint i = 0; i < budget->members->len; i++) {
        const QosBudgetMember *member = budget->members->pdata[i];
        QosBudgetMemberState state = {.id = member->id,
                                      .held = member->report.held,
                                      .bound = qos_budget_share_of(budget, member, now),
                                      .is_silent = is_silent(member, now)};

        for (guint j = 0; j < member->report.count; j++)
            state.demand += member->report.steps[j].demand;
        func(&state, arg);
    }
}
