/*
 * The group of jobs that divide one rate; server/sharing.h has the contract.
 *
 * How many jobs are awaited is counted as reports come, because to ask all of them at each report
 * would cost the square of their number in an epoch.
 */
#include "server/sharing.h"

struct QosServerSharing {
    QosBudgetShares *shares;
    QosTime epoch;
    QosTime closed;    /* the end of the latest epoch */
    gboolean is_open;  /* a report waits for an answer */
    guint awaited;     /* jobs with mounts that are */
    GHashTable *by_id; /* number -> QosServerShare, borrowed */
    guint64 numbers;   /* so far */
    QosServerWeigher weigher;
    gpointer weigher_arg;
    GArray *answers; /* scratch: of QosBudgetSharesAnswer */
    GArray *one;     /* likewise, of QosBudgetAnswer */
};

QosServerSharing *qos_server_sharing_new(const QosBudgetConfig *config, gboolean is_first,
                                         QosTime now)
{
    QosServerSharing *sharing = g_new0(QosServerSharing, 1);

    sharing->shares = qos_budget_shares_new(config, is_first, now);
    sharing->epoch = config->epoch;
    sharing->closed = now - config->epoch; /* the first report need not wait for a whole epoch */
    sharing->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    sharing->answers = g_array_new(FALSE, FALSE, sizeof(QosBudgetSharesAnswer));
    sharing->one = g_array_new(FALSE, FALSE, sizeof(QosBudgetAnswer));
    return sharing;
}

void qos_server_sharing_free(QosServerSharing *sharing)
{
    if (sharing == NULL)
        return;
    qos_budget_shares_free(sharing->shares);
    g_hash_table_unref(sharing->by_id);
    g_array_unref(sharing->answers);
    g_array_unref(sharing->one);
    g_free(sharing);
}

void qos_server_sharing_configure(QosServerSharing *sharing, const QosBudgetConfig *config)
{
    sharing->epoch = config->epoch;
    qos_budget_shares_configure(sharing->shares, config);
}

void qos_server_sharing_set_weigher(QosServerSharing *sharing, QosServerWeigher weigher,
                                    gpointer arg)
{
    sharing->weigher = weigher;
    sharing->weigher_arg = arg;
}

/* --- jobs --- */

static guint64 weigh(const QosServerSharing *sharing, const QosServerShare *share)
{
    const guint mounts = share->budget != NULL ? qos_budget_members(share->budget) : 0;
    guint64 weight = MAX(mounts, 1);

    if (sharing->weigher != NULL)
        weight = sharing->weigher(share->job, mounts, sharing->weigher_arg);
    return MIN(weight, QOS_BUDGET_WEIGHT_MAX / share->factor) * share->factor;
}

void qos_server_sharing_add(QosServerSharing *sharing, QosServerShare *share, gpointer owner,
                            const char *job, guint64 factor, QosTime now)
{
    *share = (QosServerShare){
        .number = ++sharing->numbers, .owner = owner, .job = job, .factor = factor};
    share->budget =
        qos_budget_shares_job(sharing->shares, share->number, weigh(sharing, share), now);
    g_hash_table_insert(sharing->by_id, &share->number, share);
}

void qos_server_sharing_remove(QosServerSharing *sharing, QosServerShare *share)
{
    sharing->awaited -= share->is_awaited;
    g_hash_table_remove(sharing->by_id, &share->number);
    qos_budget_shares_end(sharing->shares, share->number);
    *share = (QosServerShare){0};
}

static void note_awaited(QosServerSharing *sharing, QosServerShare *share)
{
    const gboolean is_awaited = !qos_budget_is_complete(share->budget);

    sharing->awaited += (guint)is_awaited - (guint)share->is_awaited;
    share->is_awaited = is_awaited;
}

void qos_server_sharing_note(QosServerSharing *sharing, QosServerShare *share, gboolean is_open)
{
    sharing->is_open |= is_open;
    note_awaited(sharing, share);
}

/* --- the end of an epoch --- */

QosTime qos_server_sharing_due(const QosServerSharing *sharing)
{
    if (!sharing->is_open)
        return QOS_NEVER;
    return sharing->closed + (sharing->awaited == 0 ? sharing->epoch / 2 : sharing->epoch);
}

/* Asks for the weights, which batch systems and mounts that come change at any time. */
static void set_weights(QosServerSharing *sharing, QosTime now)
{
    GHashTableIter iter;
    QosServerShare *share;

    g_hash_table_iter_init(&iter, sharing->by_id);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&share))
        qos_budget_shares_job(sharing->shares, share->number, weigh(sharing, share), now);
}

static void note_all(QosServerSharing *sharing)
{
    GHashTableIter iter;
    QosServerShare *share;

    g_hash_table_iter_init(&iter, sharing->by_id);
    while (g_hash_table_iter_next(&iter, NULL, (gpointer *)&share))
        note_awaited(sharing, share);
}

/* The answers of a job stand together. */
static void tell(QosServerSharing *sharing, QosTime now, QosServerSharingFunc func, gpointer arg)
{
    const QosBudgetSharesAnswer *answers = (const QosBudgetSharesAnswer *)sharing->answers->data;

    for (guint i = 0; i < sharing->answers->len;) {
        const guint64 job = answers[i].job;
        const QosServerShare *share = g_hash_table_lookup(sharing->by_id, &job);

        g_array_set_size(sharing->one, 0);
        for (; i < sharing->answers->len && answers[i].job == job; i++)
            g_array_append_val(sharing->one, answers[i].answer);
        func(share->owner, sharing->one, now, arg);
    }
}

void qos_server_sharing_close(QosServerSharing *sharing, QosTime now, QosServerSharingFunc func,
                              gpointer arg)
{
    set_weights(sharing, now);
    g_array_set_size(sharing->answers, 0);
    qos_budget_shares_close(sharing->shares, now, sharing->answers);
    sharing->closed = now;
    sharing->is_open = FALSE;
    tell(sharing, now, func, arg);
    note_all(sharing);
}

QosBudgetSharesJob qos_server_sharing_job(const QosServerSharing *sharing,
                                          const QosServerShare *share, QosTime now)
{
    QosBudgetSharesJob job = {0};

    qos_budget_shares_find(sharing->shares, share->number, now, &job);
    return job;
}
