/*
 * The store of a simulation: a server that serves one request after the other, in order of arrival,
 * and a delay behind it.
 *
 * A request takes 1/capacity + bytes/bandwidth of the store's time, more or less by the noise. The
 * reply takes `latency` more, which any number of requests spend at once. So the store is not fully
 * used if few requests are inside it. With `jitter`, J, the latency of each request is uniform in
 * latency x (1 +- J), so that replies overtake one another. During a stall the store begins no
 * request. If the capacity changes in steps, the bandwidth changes with it.
 */
#pragma once

#include "sim/scenario.h"

typedef struct {
    const QosScenario *scenario; /* borrowed, as `random` */
    GRand *random;
    guint step;   /* of the scenario's steps that are past */
    double speed; /* now, 1 = the capacity at the beginning */
    QosTime free; /* when it has served all that it took */
    QosTime busy; /* sum of what it took for the requests */
} QosStore;

typedef struct {
    QosTime begin; /* it serves the request from then on, */
    QosTime end;   /* until then, */
    QosTime reply; /* and this is when the reply is there */
} QosService;

void qos_store_init(QosStore *store, const QosScenario *scenario, GRand *random);
QosService qos_store_take(QosStore *store, guint64 bytes, QosTime now);
/* What one request takes of the store's time at its first capacity, noise included; and the latency
 * of one. */
QosTime qos_store_time(QosStore *store, guint64 bytes);
QosTime qos_store_latency(QosStore *store);
/* When the capacity changes next, after `now`; QOS_NEVER. */
QosTime qos_store_next_change(const QosStore *store, QosTime now);
/* Op/s of requests without bytes, noise left out; 0 in a stall. `now` does not go back. */
double qos_store_capacity(QosStore *store, QosTime now);
/* What a request of that size takes of the store's time at its first capacity, without noise. */
QosTime qos_store_work(const QosScenario *scenario, guint64 bytes);
