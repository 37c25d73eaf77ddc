/*
 * A bounded number of places that all jobs share, so that no job takes them all.
 *
 * One job may have QOS_PLACES_SHARE times as many places as it leaves free. So a job alone gets
 * seven eighths of all, and each further job that takes what it can leaves some to the next. This
 * is a dynamic threshold (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
 * packet switches", 1998). In the same way one user may have QOS_PLACES_USER_SHARE times as many,
 * however many jobs the user names.
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
    QOS_PLACE_OF_USER, /* the user has its share, the job has not */
} QosPlace;

/* Whether a job may have a further place. `left` places are free, the job has `of_job` and its user
 * `of_user`; that is 0 for a user without bounds. */
QosPlace qos_place_for(guint left, guint of_job, guint of_user);

/* The places, and how many each job and user has. */
typedef struct {
    guint most;
    guint taken;
    GHashTable *counts; /* QosJob or QosUser -> how many places it has */
} QosPlaces;

void qos_places_init(QosPlaces *places, guint most);
void qos_places_clear(QosPlaces *places);
/* FALSE: there is none for `job` and `user` (NULL: one without bounds). Both are borrowed until the
 * place is given back. */
gboolean qos_places_take(QosPlaces *places, QosJob *job, QosUser *user);
void qos_places_give_back(QosPlaces *places, QosJob *job, QosUser *user);
