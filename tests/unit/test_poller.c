/*
 * The poller: who is called in a turn of the loop, and who is not any more.
 */
#include "net/poller.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEERS 3

typedef struct {
    QosPollerWatch watch;
    QosPoller *poller;
    QosPollerWatch *removes; /* when it is called; NULL: none */
    int peer;
    guint calls;
    gboolean reads; /* a byte, each time */
} Peer;

typedef struct {
    GMainContext *context;
    QosPoller *poller;
    Peer peers[PEERS];
} Fixture;

static void be_ready(gpointer arg)
{
    Peer *peer = arg;
    char byte;

    peer->calls++;
    if (peer->reads)
        g_assert_cmpint(recv(peer->watch.fd, &byte, 1, MSG_DONTWAIT), >=, 0);
    if (peer->removes != NULL)
        qos_poller_remove(peer->poller, peer->removes);
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    fixture->context = g_main_context_new();
    fixture->poller = qos_poller_new(fixture->context, NULL);
    g_assert_nonnull(fixture->poller);
    for (guint i = 0; i < PEERS; i++) {
        Peer *peer = &fixture->peers[i];
        int ends[2];

        g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), ==, 0);
        *peer = (Peer){.watch = {.fd = ends[0], .ready = be_ready, .arg = peer},
                       .poller = fixture->poller,
                       .peer = ends[1],
                       .reads = TRUE};
        g_assert_true(qos_poller_add(fixture->poller, &peer->watch));
    }
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    for (guint i = 0; i < PEERS; i++) {
        close(fixture->peers[i].watch.fd);
        close(fixture->peers[i].peer);
    }
    qos_poller_free(fixture->poller);
    g_main_context_unref(fixture->context);
}

static void say(const Peer *peer, guint bytes)
{
    for (guint i = 0; i < bytes; i++)
        g_assert_cmpint(send(peer->peer, "x", 1, 0), ==, 1);
}

static gboolean turn(const Fixture *fixture)
{
    return g_main_context_iteration(fixture->context, FALSE);
}

/* All that are ready have one turn each, those that are silent none. */
static void test_turns(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Peer *peers = fixture->peers;

    g_assert_false(turn(fixture));
    say(&peers[0], 3);
    say(&peers[2], 1);
    g_assert_true(turn(fixture));
    g_assert_cmpuint(peers[0].calls, ==, 1);
    g_assert_cmpuint(peers[1].calls, ==, 0);
    g_assert_cmpuint(peers[2].calls, ==, 1);
    g_assert_true(turn(fixture)); /* the first has not been read to its end */
    g_assert_true(turn(fixture));
    g_assert_cmpuint(peers[0].calls, ==, 3);
    g_assert_cmpuint(peers[2].calls, ==, 1);
    g_assert_false(turn(fixture));
}

/* A peer that has gone is ready, until its watch is removed. */
static void test_end(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Peer *peer = &fixture->peers[1];

    shutdown(peer->peer, SHUT_RDWR);
    g_assert_true(turn(fixture));
    g_assert_true(turn(fixture));
    g_assert_cmpuint(peer->calls, ==, 2);
    peer->removes = &peer->watch;
    g_assert_true(turn(fixture));
    g_assert_false(turn(fixture));
    g_assert_cmpuint(peer->calls, ==, 3);
}

/* Two are ready, and the first that is called removes the other: that is not called. */
static void test_removed_meanwhile(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Peer *peers = fixture->peers;

    peers[0].removes = &peers[1].watch;
    peers[1].removes = &peers[0].watch;
    say(&peers[0], 1);
    say(&peers[1], 1);
    g_assert_true(turn(fixture));
    g_assert_cmpuint(peers[0].calls + peers[1].calls, ==, 1);
    g_assert_false(turn(fixture));
}

/* Who is added again, as after work that did not fit a turn, is called for what came meanwhile. */
static void test_added_again(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    Peer *peer = &fixture->peers[0];

    qos_poller_remove(fixture->poller, &peer->watch);
    say(peer, 1);
    g_assert_false(turn(fixture));
    g_assert_true(qos_poller_add(fixture->poller, &peer->watch));
    g_assert_false(qos_poller_add(fixture->poller, &peer->watch));
    g_assert_true(turn(fixture));
    g_assert_cmpuint(peer->calls, ==, 1);
}

/* A file is always ready, so epoll does not take it: the caller hears of it. */
static void test_refused(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosPollerWatch watch = {.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), .ready = be_ready};

    g_assert_cmpint(watch.fd, >=, 0);
    g_assert_false(qos_poller_add(fixture->poller, &watch));
    close(watch.fd);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add("/poller/turns", Fixture, NULL, set_up, test_turns, tear_down);
    g_test_add("/poller/end", Fixture, NULL, set_up, test_end, tear_down);
    g_test_add("/poller/removed-meanwhile", Fixture, NULL, set_up, test_removed_meanwhile,
               tear_down);
    g_test_add("/poller/added-again", Fixture, NULL, set_up, test_added_again, tear_down);
    g_test_add("/poller/refused", Fixture, NULL, set_up, test_refused, tear_down);
    return g_test_run();
}
