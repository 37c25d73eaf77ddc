#include <math.h>

#include "fs/capacity.h"

#define SLOTS 64
#define UNITS 1000000 /* of a request */

/* A store that serves one after the other, and takes `latency` besides. Of `load` processes, all
 * have a request inside or waiting. */
typedef struct {
    QosCapacity capacity;
    GRand *random;
    double rate; /* requests/s */
    guint load;
    guint beside; /* so many of them go in whatever the depth is, as others wait for their locks */
    double noise;
    QosTime latency;
    QosTime now;
    QosTime free;
    GQueue replies; /* of their times */
    guint64 served;
} Store;

static void store_init(Store *store, double rate, QosTime latency, double noise)
{
    *store = (Store){.rate = rate,
                     .load = G_MAXUINT, /* something always waits */
                     .noise = noise,
                     .latency = latency,
                     .now = 1000 * QOS_SECOND,
                     .random = g_rand_new_with_seed(7)};
    qos_capacity_init(&store->capacity, 1000.0 * UNITS, SLOTS, store->now);
    g_queue_init(&store->replies);
}

static void store_clear(Store *store)
{
    g_queue_clear_full(&store->replies, g_free);
    g_rand_free(store->random);
}

static void fill(Store *store)
{
    while (store->replies.length < MIN(MAX(store->capacity.depth, store->beside), store->load)) {
        double seconds =
            1 / store->rate * (1 + store->noise * g_rand_double_range(store->random, -1.7, 1.7));
        store->free = MAX(store->free, store->now) + (QosTime)(MAX(seconds, 1e-9) * 1e9);
        QosTime reply = store->free + store->latency;
        g_queue_push_tail(&store->replies, g_memdup2(&reply, sizeof(reply)));
    }
    qos_capacity_set_saturated(&store->capacity, store->load > store->replies.length, store->now);
}

static void run(Store *store, QosTime duration)
{
    QosTime end = store->now + duration;

    for (;;) {
        fill(store);
        QosTime *next = g_queue_peek_head(&store->replies);
        if (*next > end)
            break;
        store->now = *next;
        g_free(g_queue_pop_head(&store->replies));
        store->served++;
        qos_capacity_replied(&store->capacity, UNITS, store->replies.length, store->now);
    }
    store->now = end;
}

static double error_of(const Store *store)
{
    return fabs(store->capacity.estimate / UNITS / store->rate - 1);
}

static void test_least_depth(void)
{
    Store store;
    store_init(&store, 1000, QOS_MILLISECOND, 0);
    run(&store, 5 * QOS_SECOND);
    g_assert_cmpuint(store.capacity.enough, ==, 2);
    g_assert_cmpfloat(error_of(&store), <, 0.001);
    store_clear(&store);
}

/* From few inside upwards: a store that needs few is never given many, one that needs many has them
 * within half a second. */
static void test_start(void)
{
    for (guint latency = 1; latency < 32; latency += 2) {
        Store store;
        guint most = 0;
        store_init(&store, 1000, latency * QOS_MILLISECOND, 0.1);
        g_assert_cmpuint(store.capacity.depth, <=, 5);
        for (guint i = 0; i < 500; i++) {
            run(&store, QOS_MILLISECOND);
            most = MAX(most, store.capacity.depth);
        }
        guint64 before = store.served;
        run(&store, QOS_SECOND);
        g_test_message("latency %u ms: at most %u inside, then %u/s", latency, most,
                       (guint)(store.served - before));
        g_assert_cmpuint(most, <=, 4 * latency + 4);
        g_assert_cmpuint(store.served - before, >=, 850);
        store_clear(&store);
    }
}

/* The last step upwards ends at `slots`, and is shorter than the others: it leaves no fewer inside
 * than there were before it. */
static void test_start_ends_at_slots(void)
{
    Store store;
    store_init(&store, 1000, SLOTS * QOS_MILLISECOND, 0);
    while (store.capacity.is_starting)
        run(&store, QOS_MILLISECOND);
    g_assert_cmpuint(store.capacity.enough, >=, 48);
    store_clear(&store);
}

/* 16 requests are needed: 15 of latency beside one that is served. */
static void test_deep_store(void)
{
    Store store;
    store_init(&store, 1000, 15 * QOS_MILLISECOND, 0);
    run(&store, 20 * QOS_SECOND);
    g_assert_cmpuint(store.capacity.enough, >=, 16);
    g_assert_cmpuint(store.capacity.enough, <=, 20);
    guint64 before = store.served;
    run(&store, 60 * QOS_SECOND);
    g_assert_cmpuint(store.served - before, >=, 59400); /* the trials cost less than 1 % */
    store_clear(&store);
}

/* What goes beside the depth, for a while: the search goes on from there, and the depth is none
 * that was never in force. */
static void test_beside_the_depth(void)
{
    for (guint length = 100; length <= 1000; length += 100) {
        Store store;
        store_init(&store, 1000, 50 * QOS_MILLISECOND, 0);
        store.beside = 60;
        run(&store, length * QOS_MILLISECOND);
        store.beside = 0;
        run(&store, QOS_SECOND);
        const guint64 before = store.served;
        run(&store, 10 * QOS_SECOND);
        g_test_message("%u ms: %u are enough", length, store.capacity.enough);
        g_assert_cmpuint(store.served - before, >=, 9900);
        store_clear(&store);
    }
}

/* First names, which come back at once, then data, a part of it beside the depth. */
static double served_once_misled(QosTime latency, QosTime names, guint beside)
{
    Store store;
    store_init(&store, 6000, 100 * QOS_MICROSECOND, 0);
    run(&store, names);
    store.latency = latency;
    store.rate = 1000;
    store.beside = beside;
    run(&store, QOS_SECOND);
    store.beside = 0;
    run(&store, 2 * QOS_SECOND);
    const guint64 before = store.served;
    run(&store, 10 * QOS_SECOND);
    const double part = (double)(store.served - before) / 10000;
    store_clear(&store);
    return part;
}

/* Whatever the search makes of that, the whole throughput is there soon after. */
static void test_misled(void)
{
    for (guint latency = 10; latency <= 50; latency += 5) {
        for (guint names = 0; names <= 200; names += 25) {
            for (guint beside = 0; beside <= 48; beside += 4) {
                g_assert_cmpfloat(
                    served_once_misled(latency * QOS_MILLISECOND, names * QOS_MILLISECOND, beside),
                    >=, 0.97);
            }
        }
    }
}

/* Noise of 30 % a request: the throughput stays, and the depth near what it needs. */
/* The mean depth of a store that falls to 30 % for half of each period, from the beginning on. */
static double depth_while_it_dips(double rate, QosTime latency, QosTime period)
{
    Store store;
    double sum = 0;
    guint count = 0;
    store_init(&store, rate, latency, 0.1);
    while (store.now < 1060 * QOS_SECOND) {
        store.rate = rate;
        run(&store, period / 2);
        store.rate = 0.3 * rate;
        run(&store, period / 2);
        if (store.now > 1010 * QOS_SECOND) {
            sum += store.capacity.depth;
            count++;
        }
    }
    store_clear(&store);
    return sum / count;
}

/* What it gains as it recovers is not what more inside brings: 2 to 6 are enough for each. */
static void test_dips_from_the_start(void)
{
    const guint periods[] = {500, 1000, 2000};

    for (guint i = 0; i < G_N_ELEMENTS(periods); i++) {
        for (guint latency = 1; latency <= 5; latency += 4) {
            const double depth =
                depth_while_it_dips(1000, latency * QOS_MILLISECOND, periods[i] * QOS_MILLISECOND);
            g_test_message("%u ms, dips each %u ms: %.1f inside", latency, periods[i], depth);
            g_assert_cmpfloat(depth, <=, 12);
        }
    }
}

static void test_noise(void)
{
    for (guint latency = 0; latency <= 15; latency += 5) {
        Store store;
        double worst = 0;
        double depths = 0;
        store_init(&store, 2000, latency * QOS_MILLISECOND, 0.3);
        run(&store, 10 * QOS_SECOND);
        guint64 before = store.served;
        for (guint second = 0; second < 1200; second++) {
            run(&store, QOS_SECOND);
            worst = MAX(worst, error_of(&store));
            depths += store.capacity.depth;
        }
        g_test_message("latency %u ms: %f of the throughput, estimate off by %f, depth %.1f",
                       latency, (double)(store.served - before) / 1200 / 2000, worst,
                       depths / 1200);
        g_assert_cmpuint(store.served - before, >=, 1200 * 2000 / 100 * 99);
        g_assert_cmpfloat(worst, <, 0.1);
        g_assert_cmpfloat(depths / 1200, <, 4 * latency + 8); /* twice what it needs */
        store_clear(&store);
    }
}

/* Up and down: right within two seconds. */
static void test_steps(void)
{
    static const double rates[] = {1000, 4000, 500, 20000, 100, 1000};
    Store store;
    store_init(&store, 1000, QOS_MILLISECOND, 0.1);
    for (guint i = 0; i < G_N_ELEMENTS(rates); i++) {
        store.rate = rates[i];
        run(&store, 5 * QOS_SECOND);
        g_test_message("%.0f/s: %.0f, depth %u", rates[i], store.capacity.estimate / UNITS,
                       store.capacity.depth);
        g_assert_cmpfloat(error_of(&store), <, 0.1);
    }
    store_clear(&store);
}

static void test_stall(void)
{
    Store store;
    store_init(&store, 1000, QOS_MILLISECOND, 0.1);
    run(&store, 5 * QOS_SECOND);
    store.free = store.now + 2 * QOS_SECOND;
    run(&store, 2500 * QOS_MILLISECOND);
    g_assert_cmpfloat(error_of(&store), <, 0.1);
    store_clear(&store);
}

/* A store that is quicker until its cache is full makes each depth that is tried next look too
 * small: that is not believed for long. */
static void test_cached_burst(void)
{
    for (guint length = 50; length <= 500; length += 10) {
        Store store;
        store_init(&store, 2000, QOS_MILLISECOND, 0);
        run(&store, length * QOS_MILLISECOND);
        store.rate = 1000;
        run(&store, 8 * QOS_SECOND);
        g_test_message("%u ms: %u are enough", length, store.capacity.enough);
        g_assert_cmpuint(store.capacity.enough, <=, 3);
        store_clear(&store);
    }
}

/* Processes that come, one after the other or in bursts, make a store busier, whatever its depth:
 * that more is served meanwhile is no gain of the depth. */
static void test_arriving_load(void)
{
    for (guint interval = 5; interval <= 100; interval += 5) {
        Store store;
        guint most = 0;
        store_init(&store, 1000, QOS_MILLISECOND, 0.1);
        for (store.load = 1; store.load < 32; store.load++)
            run(&store, interval * QOS_MILLISECOND);
        run(&store, 2 * QOS_SECOND);
        g_assert_cmpuint(store.capacity.enough, <=, 4);
        for (guint burst = 0; burst < 200; burst++) {
            store.load = burst % 4 == 0 ? 1 : 32;
            run(&store, interval * QOS_MILLISECOND);
            most = MAX(most, store.capacity.enough);
        }
        g_test_message("at intervals of %u ms: at most %u are enough", interval, most);
        g_assert_cmpuint(most, <=, 4);
        store_clear(&store);
    }
}

/* While nothing waits, what is served says only that the store can do so much. */
static void test_idle_store_is_no_measure(void)
{
    QosCapacity capacity;
    QosTime now = 0;
    qos_capacity_init(&capacity, 1000.0 * UNITS, SLOTS, now);
    for (guint i = 0; i < 1000; i++)
        qos_capacity_replied(&capacity, UNITS, 0, now += 10 * QOS_MILLISECOND);
    g_assert_cmpfloat(capacity.estimate, ==, 1000.0 * UNITS);
    for (guint i = 0; i < 2000; i++)
        qos_capacity_replied(&capacity, UNITS, 0, now += QOS_MILLISECOND / 2);
    g_assert_cmpfloat(fabs(capacity.estimate / (2000.0 * UNITS) - 1), <, 0.01);
}

static void test_slots(void)
{
    Store store;
    store_init(&store, 1000, QOS_MILLISECOND, 0);
    run(&store, 5 * QOS_SECOND);
    qos_capacity_set_slots(&store.capacity, 8, store.now);
    g_assert_cmpuint(store.capacity.depth, <=, 8);
    qos_capacity_set_slots(&store.capacity, 1, store.now);
    run(&store, 5 * QOS_SECOND);
    g_assert_cmpuint(store.capacity.depth, ==, 1);
    g_assert_cmpfloat(fabs(store.capacity.estimate / UNITS - 500), <, 5);
    store_clear(&store);
}

/* As many slots as processes: all may wait for each other inside, and need not. */
static void test_room_for_all(void)
{
    Store store;
    store_init(&store, 1000, QOS_MILLISECOND, 0);
    store.load = SLOTS;
    run(&store, QOS_SECOND);
    g_assert_cmpuint(store.capacity.depth, <, SLOTS);
    store_clear(&store);
}

/* However long it holds requests back. */
static void test_raise_ends(void)
{
    QosCapacity capacity;
    qos_capacity_init(&capacity, 1000.0 * UNITS, SLOTS, 0);
    for (guint i = 0; i < 1000; i++)
        qos_capacity_raise(&capacity, QOS_SECOND);
    g_assert_cmpfloat(capacity.estimate, ==, 1e14);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/capacity/least-depth", test_least_depth);
    g_test_add_func("/capacity/start", test_start);
    g_test_add_func("/capacity/start-ends-at-slots", test_start_ends_at_slots);
    g_test_add_func("/capacity/deep-store", test_deep_store);
    g_test_add_func("/capacity/beside-the-depth", test_beside_the_depth);
    g_test_add_func("/capacity/misled", test_misled);
    g_test_add_func("/capacity/dips-from-the-start", test_dips_from_the_start);
    g_test_add_func("/capacity/noise", test_noise);
    g_test_add_func("/capacity/steps", test_steps);
    g_test_add_func("/capacity/stall", test_stall);
    g_test_add_func("/capacity/cached-burst", test_cached_burst);
    g_test_add_func("/capacity/arriving-load", test_arriving_load);
    g_test_add_func("/capacity/idle", test_idle_store_is_no_measure);
    g_test_add_func("/capacity/slots", test_slots);
    g_test_add_func("/capacity/room-for-all", test_room_for_all);
    g_test_add_func("/capacity/raise-ends", test_raise_ends);
    return g_test_run();
}
