/*
 * Random calls: each request goes once or is cancelled, and the short way of a request that need
 * not wait decides as the long one does.
 */
#include "sched_fixture.h"

typedef struct {
    GPtrArray *waiting;
    GPtrArray *running;
} Live;

static guint count_slots(const GPtrArray *running)
{
    guint count = 0;
    for (guint i = 0; i < running->len; i++)
        count += ((const QosRequest *)running->pdata[i])->has_slot;
    return count;
}

static QosRequest *choose(const GPtrArray *requests, GRand *random)
{
    return requests->pdata[g_rand_int_range(random, 0, (gint32)requests->len)];
}

static void let_one_leave(Fixture *f, Live *live, GRand *random)
{
    QosRequest *request = choose(live->running, random);
    g_ptr_array_remove_fast(live->running, request);
    leave(f, request);
}

static void cancel_one(Fixture *f, Live *live, GRand *random)
{
    QosRequest *request = choose(live->waiting, random);
    g_ptr_array_remove_fast(live->waiting, request);
    qos_sched_cancel(f->sched, request, f->now);
    request_free(request);
}

static void enter_one(Fixture *f, Live *live, GRand *random)
{
    g_autofree char *job = g_strdup_printf("j%d", g_rand_int_range(random, 0, 6));
    QosRequest *request = request_new(f, job, (QosOpcode)g_rand_int_range(random, 0, QOS_OP_COUNT),
                                      (guint64)g_rand_int_range(random, 0, 10000));
    request->holds_lock = g_rand_int_range(random, 0, 4) == 0;
    request->writes_back = g_rand_int_range(random, 0, 8) == 0;
    g_ptr_array_add(enter(f, request) == QOS_GO ? live->running : live->waiting, request);
}

/* One call of any kind. */
static void take_step(Fixture *f, Live *live, GRand *random)
{
    int what = g_rand_int_range(random, 0, 100);

    if (what < 40)
        enter_one(f, live, random);
    else if (what < 70 && live->running->len > 0)
        let_one_leave(f, live, random);
    else if (what < 75 && live->waiting->len > 0)
        cancel_one(f, live, random);
    else if (what < 77 && live->waiting->len > 0)
        qos_sched_boost(f->sched, choose(live->waiting, random), f->now);
    else if (what == 77)
        qos_sched_set_policy(f->sched, qos_policies[g_rand_int_range(random, 0, 3)], f->now);
    else if (what == 78)
        fixture_rule(f, g_rand_boolean(random) ? "change some rate=50"
                                               : "change some rate=5000 per=rule");
    else if (what == 79)
        qos_sched_expire(f->sched, f->now);
}

/* What is due goes. */
static void go(Fixture *f, Live *live)
{
    for (QosRequest *request; (request = next(f)) != NULL;) {
        g_assert_true(g_ptr_array_remove_fast(live->waiting, request));
        g_ptr_array_add(live->running, request);
    }
}

/* Any sequence of calls: each request goes exactly once or is cancelled, and the slots are never
 * exceeded. */
static void test_random_sequences(void)
{
    guint32 seed = g_test_rand_int();
    g_autoptr(GRand) random = g_rand_new_with_seed(seed);
    g_test_message("seed %u", seed);

    for (guint round = 0; round < 50; round++) {
        Fixture f;
        QosSchedState state;
        Live live = {g_ptr_array_new(), g_ptr_array_new()};
        guint slots = (guint)g_rand_int_range(random, 1, 20);
        fixture_init(&f, qos_policies[round % 3], slots);
        fixture_rule(&f, "start some jobid={j1 j2} rate=500 bps=1M");
        for (guint step = 0; step < 2000; step++) {
            f.now += g_rand_int_range(random, 0, 3000000);
            take_step(&f, &live, random);
            go(&f, &live);
            qos_sched_state(f.sched, &state);
            g_assert_cmpuint(state.running, ==, count_slots(live.running));
            g_assert_cmpuint(state.running, <=, slots);
        }
        while (live.running->len + live.waiting->len > 0) {
            f.now += QOS_SECOND;
            while (live.running->len > 0)
                let_one_leave(&f, &live, random);
            go(&f, &live);
        }
        fixture_clear(&f);
        g_ptr_array_unref(live.waiting);
        g_ptr_array_unref(live.running);
    }
}

/* One of two schedulers that are given the same, and what runs in it. */
typedef struct {
    Fixture fixture;
    GPtrArray *running; /* of QosRequest, in the order they went */
} Twin;

static void twin_init(Twin *twin, const QosPolicyClass *policy)
{
    fixture_init(&twin->fixture, policy, 4);
    twin->running = g_ptr_array_new();
    fixture_rule(&twin->fixture, "start narrow jobid={narrow} rate=20 depth=2");
    fixture_rule(&twin->fixture, "start bytes jobid={wide}&opcode={read} bps=1M");
}

static void twin_drain(Twin *twin)
{
    QosRequest *request;
    while ((request = next(&twin->fixture)) != NULL)
        g_ptr_array_add(twin->running, request);
}

/* What goes at once is what would have gone through the queue, and nothing is passed over for it.
 */
static void test_the_short_way_decides_the_same(void)
{
    static const char *const jobs[] = {"narrow", "wide", "free"};
    static const QosPolicyClass *const all[] = {&qos_policy_fifo, &qos_policy_tbf};
    for (guint p = 0; p < G_N_ELEMENTS(all); p++) {
        QosPolicyClass queueing = *all[p];
        Twin twins[2];
        queueing.try_now = NULL;
        twin_init(&twins[0], all[p]);
        twin_init(&twins[1], &queueing);
        for (guint serial = 0; serial < 20000; serial++) {
            gint action = g_test_rand_int_range(0, 10);
            const char *job = jobs[g_test_rand_int_range(0, G_N_ELEMENTS(jobs))];
            QosOpcode opcode = g_test_rand_bit() ? QOS_OP_READ : QOS_OP_GETATTR;
            guint64 bytes = (guint64)g_test_rand_int_range(0, 100000);
            QosTime pause = g_test_rand_int_range(0, 20) * QOS_MILLISECOND;
            guint place = (guint)g_test_rand_int_range(0, 4);
            for (guint i = 0; i < 2; i++) {
                Fixture *f = &twins[i].fixture;
                GPtrArray *running = twins[i].running;
                if (action < 4) {
                    QosRequest *request = request_new(f, job, opcode, bytes);
                    request->uid = serial;
                    if (enter(f, request) == QOS_GO)
                        g_ptr_array_add(running, request);
                } else if (action < 8 && place < running->len) {
                    leave(f, g_ptr_array_remove_index(running, place));
                } else if (action >= 8) {
                    f->now += pause;
                }
                if (action % 2 == 0)
                    twin_drain(&twins[i]);
            }
            g_assert_cmpuint(twins[0].running->len, ==, twins[1].running->len);
            for (guint i = 0; i < twins[0].running->len; i++) {
                const QosRequest *a = twins[0].running->pdata[i];
                const QosRequest *b = twins[1].running->pdata[i];
                g_assert_cmpuint(a->uid, ==, b->uid);
                g_assert_cmpint(a->start, ==, b->start);
            }
        }
        for (guint i = 0; i < 2; i++) {
            do {
                twins[i].fixture.now += 1000 * QOS_SECOND; /* tokens for what waits */
                while (twins[i].running->len > 0)
                    leave(&twins[i].fixture, g_ptr_array_remove_index(twins[i].running, 0));
                twin_drain(&twins[i]);
            } while (twins[i].running->len > 0);
            g_ptr_array_unref(twins[i].running);
            fixture_clear(&twins[i].fixture);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sched/random-sequences", test_random_sequences);
    g_test_add_func("/sched/the-short-way-decides-the-same", test_the_short_way_decides_the_same);
    return g_test_run();
}
