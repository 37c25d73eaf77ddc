/*
 * Places that all jobs share by a quota; fs/quota.h has the rule.
 */
#include "fs/quota.h"

QosPlace qos_place_for(guint left, guint of_job, guint of_user)
{
    if (left == 0)
        return QOS_PLACE_NONE;
    if (of_job > QOS_PLACES_SHARE * (left - 1))
        return QOS_PLACE_OF_JOB;
    return of_user > QOS_PLACES_USER_SHARE * (left - 1) ? QOS_PLACE_OF_USER : QOS_PLACE_FREE;
}

static guint count_of(const QosPlaces *places, gconstpointer owner)
{
    return GPOINTER_TO_UINT(g_hash_table_lookup(places->counts, owner));
}

/* Does nothing if `owner` is NULL. */
static void set_count(QosPlaces *places, gpointer owner, guint count)
{
    if (owner == NULL)
        return;
    if (count > 0)
        g_hash_table_insert(places->counts, owner, GUINT_TO_POINTER(count));
    else
        g_hash_table_remove(places->counts, owner);
}

gboolean qos_places_take(QosPlaces *places, QosJob *job, QosUser *user)
{
    const guint left = places->most - places->taken;
    const guint of_job = count_of(places, job), of_user = count_of(places, user);

    if (qos_place_for(left, of_job, of_user) != QOS_PLACE_FREE)
        return FALSE;
    places->taken++;
    set_count(places, job, of_job + 1);
    set_count(places, user, of_user + 1);
    return TRUE;
}

void qos_places_give_back(QosPlaces *places, QosJob *job, QosUser *user)
{
    places->taken--;
    set_count(places, job, count_of(places, job) - 1);
    set_count(places, user, count_of(places, user) - 1);
}

void qos_places_init(QosPlaces *places, guint most)
{
    *places = (QosPlaces){.most = most, .counts = g_hash_table_new(NULL, NULL)};
}

void qos_places_clear(QosPlaces *places)
{
    g_clear_pointer(&places->counts, g_hash_table_unref);
}
