/*
 * Units that all jobs share by a quota; fs/quota.h has the rule.
 */
#include "fs/quota.h"

QosQuotaVerdict qos_quota_check(guint left, guint of_job, guint of_user)
{
    if (left == 0)
        return QOS_QUOTA_EXHAUSTED;
    if (of_job > QOS_QUOTA_SHARE * (left - 1))
        return QOS_QUOTA_OF_JOB;
    return of_user > QOS_QUOTA_USER_SHARE * (left - 1) ? QOS_QUOTA_OF_USER : QOS_QUOTA_FREE;
}

static guint count_of(const QosQuota *quota, gconstpointer owner)
{
    return GPOINTER_TO_UINT(g_hash_table_lookup(quota->counts, owner));
}

/* Does nothing if `owner` is NULL. */
static void set_count(QosQuota *quota, gpointer owner, guint count)
{
    if (owner == NULL)
        return;
    if (count > 0)
        g_hash_table_insert(quota->counts, owner, GUINT_TO_POINTER(count));
    else
        g_hash_table_remove(quota->counts, owner);
}

gboolean qos_quota_take(QosQuota *quota, QosJob *job, QosUser *user)
{
    const guint left = quota->most - quota->taken;
    const guint of_job = count_of(quota, job), of_user = count_of(quota, user);

    if (qos_quota_check(left, of_job, of_user) != QOS_QUOTA_FREE)
        return FALSE;
    quota->taken++;
    set_count(quota, job, of_job + 1);
    set_count(quota, user, of_user + 1);
    return TRUE;
}

void qos_quota_give_back(QosQuota *quota, QosJob *job, QosUser *user)
{
    quota->taken--;
    set_count(quota, job, count_of(quota, job) - 1);
    set_count(quota, user, count_of(quota, user) - 1);
}

void qos_quota_init(QosQuota *quota, guint most)
{
    *quota = (QosQuota){.most = most, .counts = g_hash_table_new(NULL, NULL)};
}

void qos_quota_clear(QosQuota *quota)
{
    g_clear_pointer(&quota->counts, g_hash_table_unref);
}
