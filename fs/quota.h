/*
 * Places of which there are so many for all, and of which nobody takes those of others.
 *
 * One job may have QOS_PLACES_SHARE times as many as it leaves: alone, seven eighths of all, and
 * each further job that takes what it can leaves some to the next (a dynamic threshold: Choudhury
 * and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). One user
 * may have QOS_PLACES_USER_SHARE times as many in the same way, whatever jobs he names.
 *
 * Pure; the caller locks.
 */
#pragma once

#include "fs/jobs.h"

#define QOS_PLACES_SHARE      7
#define QOS_PLACES_USER_SHARE 15

typedef enum {
    QOS_PLACE_FREE,
    QOS_PLACE_NONE,    /* all are taken */
    QOS_PLACE_OF_JOB,  /* the job has its share */
    QOS_PLACE_OF_USER, /* the job has not, but its user has his */
} QosPlace;

/* Whether one may have a further place, of so many that are left; `of_user` is 0 for one whom
 * nothing bounds. */
QosPlace qos_place_for(guint left, guint of_job, guint of_user);

/* Places, and who has them. */
typedef struct {
    guint most;
    guint taken;
    GHashTable *counts; /* QosJob or QosUser -> how many are taken by his */
} QosPlaces;

void qos_places_init(QosPlaces *places, guint most);
void qos_places_clear(QosPlaces *places);
/* FALSE: there is none for `job` and `user` (NULL: one whom nothing bounds), who are borrowed until
 * it is given back. */
gboolean qos_places_take(QosPlaces *places, QosJob *job, QosUser *user);
void qos_places_give_back(QosPlaces *places, QosJob *job, QosUser *user);
