/*
 * The mount's lock client against a server (lockclient_fixture.h): threads that use the same
 * credits, and servers that go, come, refuse, say nothing or rubbish.
 */
#include "lockclient_fixture.h"

#define THREADS 4
#define ROUNDS  500

static void test_two_mounts(void)
{
    World w;
    Use one, other;

    init(&w, 30 * QOS_SECOND, GOOD);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), ==, 0);
    g_assert_cmpint(get(&w.users[0], 7, &writing, &one), ==, QOS_CREDIT_ERROR);
    put(&w.users[0], &one);
    g_assert_false(has(&w.users[0], 7, &reading));
    start_server(&w.server);
    wait_until_up(&w);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), >, 0);
    g_assert_cmpuint(qos_lockclient_group(w.users[0].client), ==, 64);
    g_assert_cmpint(get(&w.users[0], 7, &writing, &one), ==, QOS_CREDIT_GRANTED);
    put(&w.users[0], &one);
    g_assert_true(has(&w.users[0], 7, &writing));
    g_assert_false(has(&w.users[1], 7, &reading));
    g_assert_cmpint(begin(&w.users[0], 7, &writing, &one), ==, QOS_CREDIT_GRANTED);
    w.users[0].is_stubborn = TRUE;
    g_assert_cmpint(begin(&w.users[1], 7, &writing, &other), ==, QOS_CREDIT_WAITING);
    put(&w.users[0], &one);
    wait_for(&w.users[0], &w.users[0].drops, 1);
    g_assert_false(other.is_done);
    g_assert_false(has(&w.users[0], 7, &reading)); /* another waits for it */
    qos_lockclient_release(w.users[0].client, &w.users[0].dropped, &w.users[0].credit);
    g_assert_cmpint(end_waiting(&other), ==, QOS_CREDIT_GRANTED);
    put(&w.users[1], &other);
    g_assert_false(has(&w.users[0], 7, &reading));
    QosLockclientStatus status = status_of(&w.users[0]);
    g_assert_cmpuint(status.misses, ==, 1);
    g_assert_cmpint(status.state, ==, QOS_LOCKCLIENT_UP);
    g_assert_cmpstr(status.reason, ==, "");
    g_assert_cmpuint(status.revocations, ==, 1);
    g_assert_cmpuint(status.reconnects, ==, 0);
    clear(&w);
}

typedef struct {
    World *world;
    guint seed;
} Worker;

/* What a writer holds, nobody else has. */
static gint writers[8];
static gint readers[8];

static void *work(void *data)
{
    Worker *worker = data;
    User *user = &worker->world->users[worker->seed % CLIENTS];
    GRand *random = g_rand_new_with_seed(worker->seed);

    for (guint i = 0; i < ROUNDS; i++) {
        guint number = (guint)g_rand_int_range(random, 0, G_N_ELEMENTS(writers));
        gboolean writes = g_rand_int_range(random, 0, 2) == 1;
        guint shift = worker->seed % CLIENTS * 16;
        Use use;
        g_assert_cmpint(get(user, number, writes ? &writing : &reading, &use), ==,
                        QOS_CREDIT_GRANTED);
        gint mine = 1 << shift;
        gint others = 0xffff << (16 - shift);
        gint *users = writes ? &writers[number] : &readers[number];
        g_atomic_int_add(users, mine);
        g_assert_cmpint(g_atomic_int_get(&writers[number]) & others, ==, 0);
        g_assert_cmpint(writes ? g_atomic_int_get(&readers[number]) & others : 0, ==, 0);
        g_atomic_int_add(users, -mine);
        put(user, &use);
        if (g_rand_int_range(random, 0, 50) == 0)
            qos_lockclient_shrink(user->client, 0.5);
    }
    g_rand_free(random);
    return NULL;
}

static void test_many_threads(void)
{
    World w;
    pthread_t threads[THREADS];
    Worker workers[THREADS];

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    w.users[0].patience = QOS_MILLISECOND;
    wait_until_up(&w);
    for (guint i = 0; i < THREADS; i++) {
        workers[i] = (Worker){&w, i};
        g_assert_cmpint(pthread_create(&threads[i], NULL, work, &workers[i]), ==, 0);
    }
    for (guint i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    clear(&w);
}

/* Within the lease nothing is lost, and the server knows all again. */
static void test_server_restarts(void)
{
    World w;
    Use use;

    init(&w, 60 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_until_up(&w);
    for (guint i = 0; i < 100; i++) {
        g_assert_cmpint(get(&w.users[0], i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        put(&w.users[0], &use);
    }
    stop_server(&w.server);
    wait_for_state(&w.users[0], QOS_LOCKCLIENT_RECOVERING, NULL);
    g_assert_cmpint(begin(&w.users[0], 7, &writing, &use), ==, QOS_CREDIT_GRANTED);
    put(&w.users[0], &use);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), >, 0);
    start_server(&w.server);
    for (guint i = 0; i < CLIENTS; i++)
        wait_for_state(&w.users[i], QOS_LOCKCLIENT_UP, NULL);
    /* While it reclaims it has no lender; and another is granted only after all have reclaimed. */
    const gint64 end = g_get_monotonic_time() + PATIENCE;
    while (get(&w.users[1], 1000, &writing, &use) == QOS_CREDIT_ERROR) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        put(&w.users[1], &use);
    }
    put(&w.users[1], &use);
    g_assert_cmpint(begin(&w.users[0], 99, &writing, &use), ==, QOS_CREDIT_GRANTED);
    put(&w.users[0], &use);
    g_assert_cmpuint(status_of(&w.users[0]).reconnects, ==, 1);
    g_assert_cmpuint(status_of(&w.users[0]).credits, ==, 100);
    g_assert_cmpint(w.users[0].lost, ==, 0);
    clear(&w);
}

/* Away for longer than the lease: all is lost, each waiter is told, and the connection comes back
 * by itself. */
static void test_server_stays_away(void)
{
    World w;
    Use held, use;

    init(&w, 2 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 1);
    g_assert_cmpint(get(&w.users[0], 7, &writing, &held), ==, QOS_CREDIT_GRANTED);
    stop_server(&w.server);
    QosCreditVerdict verdict = get(&w.users[0], 8, &writing, &use);
    g_assert_cmpint(verdict, ==, QOS_CREDIT_ERROR);
    put(&w.users[0], &use);
    wait_for(&w.users[0], &w.users[0].downs, 1);
    g_assert_cmpint(w.users[0].lost, ==, 1);
    g_assert_cmpint(qos_lockclient_valid(w.users[0].client), ==, 0);
    wait_for_state(&w.users[0], QOS_LOCKCLIENT_CONNECTING, NULL);
    put(&w.users[0], &held);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 2);
    g_assert_cmpuint(status_of(&w.users[0]).evictions, ==, 1);
    clear(&w);
}

/* The reason is told; and once the server thinks better of it, the mount is there. */
static void test_bad_manners(void)
{
    static const struct {
        Manner manner;
        QosLockclientState state;
        const char *reason;
    } cases[] = {
        {REFUSES, QOS_LOCKCLIENT_REFUSED, "this is not the store"},
        {SAYS_RUBBISH, QOS_LOCKCLIENT_CONNECTING, "what it says makes no sense"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        World w;
        init(&w, 30 * QOS_SECOND, cases[i].manner);
        start_server(&w.server);
        wait_for_state(&w.users[0], cases[i].state, cases[i].reason);
        stop_server(&w.server);
        w.server.manner = GOOD;
        start_server(&w.server);
        wait_for(&w.users[0], &w.users[0].ups, 1);
        g_assert_cmpstr(status_of(&w.users[0]).reason, ==, "");
        clear(&w);
    }
}

/* A client that ends while it connects, waits, or has never seen a server. The pauses await
 * nothing: they spread the ends over what a beginning takes. */
static void test_ends_at_any_time(void)
{
    for (guint i = 0; i < 20; i++) {
        World w;
        init(&w, 30 * QOS_SECOND, i % 4 == 1 ? IS_SILENT : GOOD);
        if (i % 4 != 0)
            start_server(&w.server);
        g_usleep(i * 300);
        clear(&w);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    expect_warnings();
    g_test_add_func("/lockclient/two-mounts", test_two_mounts);
    g_test_add_func("/lockclient/many-threads", test_many_threads);
    g_test_add_func("/lockclient/server-restarts", test_server_restarts);
    g_test_add_func("/lockclient/server-stays-away", test_server_stays_away);
    g_test_add_func("/lockclient/bad-manners", test_bad_manners);
    g_test_add_func("/lockclient/ends-at-any-time", test_ends_at_any_time);
    return g_test_run();
}
