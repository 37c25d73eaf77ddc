/*
 * A queue with one server, and a delay behind it.
 */
#include "sim/store.h"

#include <math.h>

#define LEAST_TIME  0.01 /* of the usual, however large the noise */
#define SERVICE_MAX (3600 * QOS_SECOND)

void qos_store_init(QosStore *store, const QosScenario *scenario, GRand *random)
{
    *store = (QosStore){.scenario = scenario, .random = random, .speed = 1};
}

QosTime qos_store_work(const QosScenario *scenario, guint64 bytes)
{
    double seconds = 1 / scenario->capacity;

    if (scenario->bandwidth > 0)
        seconds += (double)bytes / scenario->bandwidth;
    return (QosTime)MIN(seconds * (double)QOS_SECOND, (double)SERVICE_MAX);
}

static void follow_steps(QosStore *store, QosTime now)
{
    const GArray *steps = store->scenario->steps;

    while (store->step < steps->len) {
        const QosStep *step = &g_array_index(steps, QosStep, store->step);
        if (step->time > now)
            return;
        store->speed = step->capacity / store->scenario->capacity;
        store->step++;
    }
}

/* Uniform, with the scenario's standard deviation. */
static double noise_factor(const QosStore *store)
{
    double noise = store->scenario->noise;

    if (noise <= 0)
        return 1;
    double factor = 1 + noise * sqrt(3) * g_rand_double_range(store->random, -1, 1);
    return MAX(factor, LEAST_TIME);
}

QosTime qos_store_latency(QosStore *store)
{
    const double jitter = store->scenario->jitter;

    if (jitter <= 0)
        return store->scenario->latency;
    return (QosTime)((double)store->scenario->latency *
                     g_rand_double_range(store->random, 1 - jitter, 1 + jitter));
}

static QosTime end_of_stall(const QosScenario *scenario, QosTime time)
{
    if (time < scenario->stall_start)
        return time;
    QosTime since = time - scenario->stall_start;
    if (scenario->stall_every > 0)
        since %= scenario->stall_every;
    return since < scenario->stall_length ? time - since + scenario->stall_length : time;
}

double qos_store_capacity(QosStore *store, QosTime now)
{
    follow_steps(store, now);
    return end_of_stall(store->scenario, now) == now ? store->scenario->capacity * store->speed : 0;
}

QosTime qos_store_time(QosStore *store, guint64 bytes)
{
    const double time = (double)qos_store_work(store->scenario, bytes) * noise_factor(store);

    return (QosTime)CLAMP(time, 1, (double)SERVICE_MAX);
}

QosTime qos_store_next_change(const QosStore *store, QosTime now)
{
    const QosScenario *scenario = store->scenario;
    QosTime next = QOS_NEVER;

    for (guint i = 0; i < scenario->steps->len && next == QOS_NEVER; i++) {
        const QosTime time = g_array_index(scenario->steps, QosStep, i).time;

        if (time > now)
            next = time;
    }
    if (scenario->stall_start == QOS_NEVER)
        return next;
    if (end_of_stall(scenario, now) > now)
        return MIN(next, end_of_stall(scenario, now));
    if (now < scenario->stall_start)
        return MIN(next, scenario->stall_start);
    if (scenario->stall_every == 0)
        return next;
    const QosTime since = (now - scenario->stall_start) % scenario->stall_every;
    return MIN(next, now - since + scenario->stall_every);
}

QosService qos_store_take(QosStore *store, guint64 bytes, QosTime now)
{
    QosTime begin = end_of_stall(store->scenario, MAX(now, store->free));

    follow_steps(store, begin);
    double time =
        (double)qos_store_work(store->scenario, bytes) / store->speed * noise_factor(store);
    QosTime service = (QosTime)CLAMP(time, 1, (double)SERVICE_MAX);
    store->free = begin + service;
    store->busy += service;
    return (QosService){
        .begin = begin, .end = store->free, .reply = store->free + qos_store_latency(store)};
}
