/*
 * Generalized processor sharing (Parekh and Gallager): the ideal that schedulers are measured
 * against.
 *
 * The store is divided like a fluid. At every instant each job with requests in the store is served
 * at its weight's part among those jobs; the requests of one job are served one after the other. No
 * scheduler of whole requests can do that. The implementation keeps a virtual time V, which grows
 * by
 *
 *     dV = speed dt / (sum of the weights of the jobs that have requests in it)
 *
 * and a request ends when V reaches max(V when it came, end of the one before it in its job) + work
 * / weight.
 */
#pragma once

#include "base/heap.h"
#include "base/time.h"

/* A job of it. */
typedef struct {
    gint64 weight; /* > 0 */
    guint inside;  /* requests */
    double last;   /* virtual end of the last of them */
} QosGpsJob;

typedef struct {
    QosHeap requests; /* by virtual end, in UNIT */
    double virtual_time;
    double weights; /* of the jobs that have requests inside */
    double speed;   /* work in a unit of time; 1 = the store's first speed, 0 = it stalls */
    double use;     /* the part of the most that the store could serve */
    QosTime now;    /* of the last call */
    double busy;    /* for how much of the time the store served, so far; ns */
} QosGps;

void qos_gps_init(QosGps *gps);
void qos_gps_clear(QosGps *gps);
/* A request of so much work comes, known by its node. `now` does not go back, here and below. */
void qos_gps_enter(QosGps *gps, QosGpsJob *job, QosTime work, QosHeapNode *request, QosTime now);
/* When the next will end, if nothing comes; QOS_NEVER. */
QosTime qos_gps_next(const QosGps *gps);
/* The request that has ended by `now`, or NULL. */
QosHeapNode *qos_gps_take(QosGps *gps, QosTime now);
/* It is over: tell for each that was taken. */
void qos_gps_leave(QosGps *gps, QosGpsJob *job);
/* `most`: what the store could serve with requests enough inside; not less than the speed. */
void qos_gps_set_speed(QosGps *gps, double speed, double most, QosTime now);
