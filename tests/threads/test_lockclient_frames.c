/*
 * What travels beside the credits (fs/lockclient/client.h): frames that the mount sends and hears,
 * connections that come and go, and calls at a time.
 */
#include "lockclient_fixture.h"

static gboolean send_seen(User *user, guint64 version)
{
    GByteArray *bytes = g_byte_array_new();

    qos_wire_put_seen(bytes, &(QosWireSeen){.version = version});
    return qos_lockclient_send(user->client, bytes);
}

static void check_answered(User *user, guint64 version, gint answers)
{
    g_assert_true(send_seen(user, version));
    wait_for(user, &user->answers, answers);
    g_assert_cmpuint(user->answer, ==, version);
}

/* Frames go while there is a connection, and none of an old connection goes on a new one. */
static void test_connections(void)
{
    World w;

    init(&w, 30 * QOS_SECOND, GOOD);
    User *user = &w.users[0];
    g_assert_false(send_seen(user, 1));
    start_server(&w.server);
    wait_for(user, &user->welcomes, 1);
    check_answered(user, 2, 1);
    stop_server(&w.server);
    wait_for(user, &user->partings, 1);
    g_assert_false(send_seen(user, 3));
    start_server(&w.server);
    wait_for(user, &user->welcomes, 2);
    check_answered(user, 4, 2);
    g_assert_cmpint(user->partings, ==, 1);
    clear(&w);
    g_assert_cmpint(user->partings, ==, 2);
    g_assert_cmpint(user->answers, ==, 2);
}

/* A server that is silent takes no frames: they are not for a mount that was not welcomed. */
static void test_not_welcomed(void)
{
    World w;

    init(&w, 30 * QOS_SECOND, REFUSES);
    start_server(&w.server);
    wait_for_state(&w.users[0], QOS_LOCKCLIENT_REFUSED, NULL);
    g_assert_false(send_seen(&w.users[0], 1));
    clear(&w);
    g_assert_cmpint(w.users[0].welcomes, ==, 0);
    g_assert_cmpint(w.users[0].partings, ==, 0);
}

/* Many threads send; each frame arrives once. */
static void *send_many(void *data)
{
    for (guint i = 0; i < 500; i++)
        g_assert_true(send_seen(data, i + 1));
    return NULL;
}

static void test_many_send(void)
{
    pthread_t threads[4];
    World w;

    init(&w, 30 * QOS_SECOND, GOOD);
    start_server(&w.server);
    wait_until_up(&w);
    wait_for(&w.users[0], &w.users[0].welcomes, 1);
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        g_assert_cmpint(pthread_create(&threads[i], NULL, send_many, &w.users[0]), ==, 0);
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        pthread_join(threads[i], NULL);
    wait_for(&w.users[0], &w.users[0].answers, 500 * G_N_ELEMENTS(threads));
    clear(&w);
    g_assert_cmpint(w.users[0].answers, ==, 500 * G_N_ELEMENTS(threads));
}

/* The earliest time counts, once, with a server or without. */
static void test_call_at(void)
{
    World w;

    init(&w, 30 * QOS_SECOND, GOOD);
    User *user = &w.users[0];
    qos_lockclient_call_at(user->client, qos_lockclient_clock() + 3600 * QOS_SECOND);
    qos_lockclient_call_at(user->client, qos_lockclient_clock());
    wait_for(user, &user->alarms, 1);
    qos_lockclient_call_at(user->client, qos_lockclient_clock() + QOS_MILLISECOND);
    qos_lockclient_call_at(user->client, qos_lockclient_clock() + 3600 * QOS_SECOND);
    wait_for(user, &user->alarms, 2);
    clear(&w);
    g_assert_cmpint(user->alarms, ==, 2);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    expect_warnings();
    g_test_add_func("/lockclient/frames/connections", test_connections);
    g_test_add_func("/lockclient/frames/not-welcomed", test_not_welcomed);
    g_test_add_func("/lockclient/frames/many-send", test_many_send);
    g_test_add_func("/lockclient/frames/call-at", test_call_at);
    return g_test_run();
}
