/*
 * A mount's part of what the cluster's rules allow: the rates of their classes, and what a mount
 * needs to know to ask for other ones.
 *
 * A share may be a small part of an operation a second. So operations count in thousandths here,
 * and a request that finds any token goes and leaves a debt, as with bytes. The depth follows the
 * share: with the default it is what 80 ms bring, and depth= is divided as the rate is. So all
 * mounts together save up what the rule says.
 *
 * A class that is new has its part of the rule's floor at once. From then on the caller tells its
 * rates. If a rate falls, the debt stays: others have less because of it.
 */
#include "fs/tbf_private.h"

#define THOUSAND 1000
/* Beyond any limit: the bucket is full whenever it is looked at. */
#define RATE_MOST (G_GINT64_CONSTANT(1) << 60)

static gint64 part_of(gint64 whole, double part)
{
    return (gint64)MIN((double)whole * part, (double)RATE_MOST);
}

/* Tokens that a bucket saves up at `rate`. */
static gint64 depth_at(const QosTbfShare *share, QosUnit unit, gint64 rate)
{
    const gint64 depth = share->depth[unit];

    if (rate == 0 || rate == RATE_MOST) /* with 0, what was saved goes too */
        return rate;
    if (depth == 0 || rate >= share->limit[unit])
        return depth == 0 ? qos_bucket_default_depth(rate, 1) : depth;
    return MAX(part_of(depth, (double)rate / (double)share->limit[unit]), 1);
}

static void set_limit(QosTbfClass *class, QosUnit unit, gint64 limit, const QosRule *rule,
                      QosTime now)
{
    QosTbfShare *share = class->share;
    QosBucket *bucket = &class->bounds[unit].bucket;

    if (class->is_bound[unit] && limit != 0) {
        const gboolean is_other = share->limit[unit] != limit;
        const gint64 rate = is_other ? MIN(bucket->rate, limit) : bucket->rate;

        share->limit[unit] = limit;
        qos_bucket_change(bucket, rate, depth_at(share, unit, rate), now);
        if (is_other) /* as in the mount's own layer */
            bucket->tokens = MAX(bucket->tokens, -limit * (QOS_DEBT_MAX / QOS_SECOND));
    } else if (limit != 0) {
        const double floors = rule->floor / 100.0 * class->tbf->context->floor_part;
        const gint64 rate = part_of(limit, MIN(floors, 1));

        share->limit[unit] = limit;
        qos_bucket_init(bucket, rate, depth_at(share, unit, rate), now);
    }
    share->limit[unit] = limit;
    class->is_bound[unit] = limit != 0;
}

void qos_tbf_share_set_rule(QosTbfClass *class, const QosRule *rule, QosTime now)
{
    QosTbfShare *share = class->share;

    share->weight = rule->weight;
    share->is_dryrun = rule->dryrun;
    share->depth[QOS_UNIT_OPERATIONS] = rule->depth_ops * QOS_TBF_OPERATION;
    share->depth[QOS_UNIT_BYTES] = rule->depth_bytes;
    class->bounds[QOS_UNIT_OPERATIONS].per_operation = QOS_TBF_OPERATION;
    set_limit(class, QOS_UNIT_OPERATIONS, rule->rate * QOS_TBF_OPERATION, rule, now);
    set_limit(class, QOS_UNIT_BYTES, rule->bps, rule, now);
}

/* The class is used. */
static void wake(QosTbfClass *class)
{
    const QosPolicyContext *context = class->tbf->context;

    if (!class->share->is_resting)
        return;
    class->share->is_resting = FALSE;
    if (context->budget_woken != NULL)
        context->budget_woken(context->budget_arg);
}

void qos_tbf_share_waits(QosTbfClass *class, const QosRequest *request, gint change)
{
    guint64 *const waiting = class->share->waiting;

    wake(class);
    class->share->waiters += (guint64)change;
    waiting[QOS_UNIT_OPERATIONS] += (guint64)(change * (gint)!request->is_free);
    waiting[QOS_UNIT_BYTES] += (guint64)change * request->bytes;
}

void qos_tbf_share_served(QosTbfClass *class, guint64 operations, guint64 bytes)
{
    wake(class);
    class->share->served[QOS_UNIT_OPERATIONS] += operations;
    class->share->served[QOS_UNIT_BYTES] += bytes;
}

void qos_tbf_rest_budget(void *self, guint64 id)
{
    const QosTbf *tbf = self;
    QosTbfClass *class = g_hash_table_lookup(tbf->shares, &id);

    if (class != NULL)
        class->share->is_resting = TRUE;
}

gboolean qos_tbf_set_budget(void *self, guint64 id, QosUnit unit, guint64 rate, QosTime now)
{
    QosTbf *tbf = self;
    QosTbfClass *class = g_hash_table_lookup(tbf->shares, &id);

    if (class == NULL || !class->is_bound[unit])
        return FALSE;
    const guint64 most = unit == QOS_UNIT_BYTES ? rate / THOUSAND : rate;
    const gint64 tokens = (gint64)MIN(most, (guint64)RATE_MOST);
    qos_bucket_change(&class->bounds[unit].bucket, tokens, depth_at(class->share, unit, tokens),
                      now);
    qos_tbf_line_look(tbf, class, now);
    return TRUE;
}

/* In thousandths. */
static guint64 thousandths(guint64 number)
{
    return number > G_MAXUINT64 / THOUSAND ? G_MAXUINT64 : number * THOUSAND;
}

/* Tokens in thousandths of the unit. */
static guint64 from_tokens(QosUnit unit, gint64 tokens)
{
    return unit == QOS_UNIT_BYTES ? thousandths((guint64)tokens) : (guint64)tokens;
}

/* The tokens that the bucket lacks before any request that waits may go, as of the bucket's last
 * change: its debt, and the one token that each request must find, also one that takes none. */
static gint64 lack(const QosTbfClass *class, QosUnit unit)
{
    return class->share->waiters > 0 ? MAX(1 - class->bounds[unit].bucket.tokens, 0) : 0;
}

static char *class_name(const QosTbfClass *class, QosPer per)
{
    const QosTbfKey *key = &class->key;

    switch (per) {
    case QOS_PER_JOBID:
        return g_strdup(key->job->id);
    case QOS_PER_UID:
        return g_strdup_printf("%u", key->uid);
    case QOS_PER_GID:
        return g_strdup_printf("%u", key->gid);
    case QOS_PER_JOBID_OPCODE:
        return g_strdup_printf("%s:%s", qos_opcode_name(key->opcode - 1), key->job->id);
    case QOS_PER_RULE:
        break;
    }
    return g_strdup("");
}

void qos_tbf_each_budget(void *self, QosBudgetFunc func, void *arg)
{
    QosTbf *tbf = self;
    GHashTableIter iter;
    QosTbfClass *class;

    g_hash_table_iter_init(&iter, tbf->shares);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&class)) {
        const QosTbfShare *share = class->share;
        g_autofree char *name = class_name(class, class->per);
        QosClassBudget budget = {.id = share->id,
                                 .rule_id = class->key.rule_id,
                                 .rule_name = class->rule_name,
                                 .name = name,
                                 .weight = share->weight,
                                 .is_dryrun = share->is_dryrun,
                                 .is_resting = share->is_resting};

        for (guint unit = 0; unit < QOS_UNITS; unit++) {
            if (!class->is_bound[unit])
                continue;
            budget.units[unit].limit = from_tokens(unit, share->limit[unit]);
            budget.units[unit].rate = from_tokens(unit, class->bounds[unit].bucket.rate);
            budget.units[unit].served = share->served[unit] * THOUSAND;
            budget.units[unit].waiting = thousandths(share->waiting[unit]);
            budget.units[unit].lacking = from_tokens(unit, lack(class, unit));
        }
        func(&budget, arg);
    }
}
