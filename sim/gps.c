/*
 * Generalized processor sharing (sim/gps.h). Completion times are rounded up to whole nanoseconds.
 */
#include "sim/gps.h"

#include <math.h>

#define UNIT    1024 /* of virtual time to 1 ns of work of weight 1, as heaps have integers */
#define KEY_MAX 9e18 /* that fits a heap's key, and ns a time */

void qos_gps_init(QosGps *gps)
{
    *gps = (QosGps){.speed = 1, .use = 1};
    qos_heap_init(&gps->requests);
}

void qos_gps_clear(QosGps *gps)
{
    qos_heap_clear(&gps->requests);
}

static void advance(QosGps *gps, QosTime now)
{
    const double elapsed = (double)(now - gps->now);

    if (gps->weights > 0 && gps->speed > 0) {
        gps->virtual_time += elapsed * gps->speed * UNIT / gps->weights;
        gps->busy += elapsed * gps->use;
    }
    gps->now = now;
}

void qos_gps_enter(QosGps *gps, QosGpsJob *job, QosTime work, QosHeapNode *request, QosTime now)
{
    advance(gps, now);
    if (job->inside++ == 0) {
        gps->weights += (double)job->weight;
        job->last = gps->virtual_time;
    }
    job->last = MAX(job->last, gps->virtual_time) + (double)work * UNIT / (double)job->weight;
    qos_heap_push(&gps->requests, request, (gint64)MIN(job->last, KEY_MAX));
}

QosTime qos_gps_next(const QosGps *gps)
{
    const QosHeapNode *first = qos_heap_peek(&gps->requests);

    if (first == NULL || gps->speed <= 0)
        return QOS_NEVER;
    const double left = ((double)first->key - gps->virtual_time) * gps->weights;
    const double time = ceil(MAX(left, 0) / UNIT / gps->speed);
    return qos_time_add(gps->now, (QosTime)MIN(time, KEY_MAX));
}

QosHeapNode *qos_gps_take(QosGps *gps, QosTime now)
{
    QosHeapNode *first;

    advance(gps, now);
    first = qos_heap_peek(&gps->requests);
    if (first == NULL || qos_gps_next(gps) > now)
        return NULL;
    qos_heap_remove(&gps->requests, first);
    return first;
}

void qos_gps_leave(QosGps *gps, QosGpsJob *job)
{
    if (--job->inside == 0)
        gps->weights -= (double)job->weight;
    if (gps->weights <= 0)
        gps->virtual_time = 0; /* it begins anew: small numbers are more precise */
}

void qos_gps_set_speed(QosGps *gps, double speed, double most, QosTime now)
{
    advance(gps, now);
    gps->speed = speed;
    gps->use = most > 0 ? speed / most : 0;
}
