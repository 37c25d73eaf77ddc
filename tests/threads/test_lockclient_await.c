/*
 * A thread waits itself for what the lock server says (qos_lockclient_await() with a patience):
 * which thread wakes up for the answer, and what becomes of the waiter and of others meanwhile.
 */
#include "lockclient_fixture.h"

#define ROUNDS 500
#define MANY   2500

/* How often the link's thread has slept in so many requests, of inodes from *number on. */
static long count_sleeps(User *user, guint *number)
{
    long first = 0;
    Use use;

    for (guint i = 0; i < MANY; i++) {
        g_assert_cmpint(get(user, (*number)++, &writing, &use), ==, QOS_CREDIT_GRANTED);
        put(user, &use);
        if (i == 0)
            first = use.slept;
    }
    return use.slept - first;
}

/* A lone request is sent by the thread that makes it: the link wakes for the answer alone. More
 * often, if it had to send; a little more, where the two want the same lock, and hardly three times
 * in a row. */
static void test_a_request_wakes_once(void)
{
    World w;
    guint number = 0;
    gboolean is_once = FALSE;

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 1);
    for (guint i = 0; i < 3 && !is_once; i++)
        is_once = count_sleeps(&w.users[0], &number) < MANY * 11 / 10;
    g_assert_true(is_once);
    clear(&w);
}

/* The thread that waits for the answer reads it. No other thread wakes up for it, unless it is
 * awake anyway, as it may be for long on a busy machine. */
static void test_the_waiter_reads(void)
{
    const gint64 end = g_get_monotonic_time() + PATIENCE;
    World w;
    Use use;
    guint by_himself = 0;

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_for(&w.users[0], &w.users[0].ups, 1);
    w.users[0].patience = 60 * QOS_SECOND;
    for (guint i = 0; by_himself < ROUNDS; i++) {
        g_assert_cmpint(g_get_monotonic_time(), <, end);
        g_assert_cmpint(get(&w.users[0], i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        by_himself += pthread_equal(use.teller, pthread_self()) != 0;
        put(&w.users[0], &use);
    }
    clear(&w);
}

/* --- an hour's patience --- */

typedef struct {
    World w;
    pthread_t thread; /* of the one that awaits */
    Use use;
    QosCreditVerdict verdict; /* at the end of the thread */
} Hour;

static void *await(void *data)
{
    Hour *hour = data;

    hour->verdict = begin(&hour->w.users[1], 7, &writing, &hour->use);
    return NULL;
}

/* The second user awaits for an hour what the first does not give. */
static void begin_hour(Hour *hour)
{
    World *w = &hour->w;
    Use held;

    init(w, 60 * QOS_SECOND, GOOD);
    start_server(&w->server);
    wait_until_up(w);
    w->users[0].is_stubborn = TRUE;
    g_assert_cmpint(get(&w->users[0], 7, &writing, &held), ==, QOS_CREDIT_GRANTED);
    put(&w->users[0], &held);
    w->users[1].patience = 3600 * QOS_SECOND;
    g_assert_cmpint(pthread_create(&hour->thread, NULL, await, hour), ==, 0);
    wait_for(&w->users[0], &w->users[0].drops, 1);
}

/* The first gives it, and the second has it. */
static void give(Hour *hour)
{
    World *w = &hour->w;

    qos_lockclient_release(w->users[0].client, &w->users[0].dropped, &w->users[0].credit);
    g_assert_cmpint(end_waiting(&hour->use), ==, QOS_CREDIT_GRANTED);
}

static void end_hour(Hour *hour)
{
    put(&hour->w.users[1], &hour->use);
    clear(&hour->w);
}

/* The waiting thread is free at once when the server has gone, and what it waits for comes all the
 * same. */
static void test_server_leaves_a_waiter(void)
{
    Hour hour;

    begin_hour(&hour);
    stop_server(&hour.w.server);
    pthread_join(hour.thread, NULL);
    g_assert_cmpint(hour.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_false(hour.use.is_done);
    start_server(&hour.w.server);
    give(&hour);
    end_hour(&hour);
}

/* While one thread awaits, others of its mount ask, are answered, and let go. */
static void test_others_beside_a_waiter(void)
{
    Hour hour;
    User *user = &hour.w.users[1];
    Use use;

    begin_hour(&hour);
    for (guint i = 100; i < 200; i++) {
        g_assert_cmpint(get(user, i, &writing, &use), ==, QOS_CREDIT_GRANTED);
        put(user, &use);
        qos_lockclient_shrink(user->client, 0.5);
    }
    give(&hour);
    pthread_join(hour.thread, NULL);
    end_hour(&hour);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    expect_warnings();
    g_test_add_func("/lockclient-await/a-request-wakes-once", test_a_request_wakes_once);
    g_test_add_func("/lockclient-await/the-waiter-reads", test_the_waiter_reads);
    g_test_add_func("/lockclient-await/server-leaves-a-waiter", test_server_leaves_a_waiter);
    g_test_add_func("/lockclient-await/others-beside-a-waiter", test_others_beside_a_waiter);
    return g_test_run();
}
