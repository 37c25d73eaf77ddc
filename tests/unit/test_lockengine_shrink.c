/*
 * What a mount gives back by itself, as the server's signal says, and what is spared or wanted
 * again meanwhile; and a server that has no room.
 */
#include "lockengine_fixture.h"

/* What was dropped is released, and the second mount, which waited for it, has had it. */
static void end_dropping(World *w, Use *other)
{
    release(w, 0);
    g_assert_cmpint(other->verdict, ==, QOS_CREDIT_GRANTED);
    put(w, 1, other);
}

/* What is to go is told to forget, and goes with the next request. */
static void test_cancels_ride(void)
{
    World w;

    init(&w);
    for (guint i = 0; i < 100; i++)
        visit(&w, 0, i);
    w.now += QOS_SECOND;
    hear(&w, 1);
    visit(&w, 0, 1000); /* hears it */
    w.now += 10 * QOS_MILLISECOND;
    visit(&w, 0, 1001); /* chooses, and they are released */
    visit(&w, 0, 1002); /* takes them along */
    g_assert_cmpuint(w.mounts[0].drops, ==, 100);
    QosLockclientStatus status = status_of(&w, 0);
    g_assert_cmpuint(status.cancels, ==, 100);
    g_assert_cmpuint(status.cancel_messages, ==, 0);
    g_assert_cmpuint(status.credits, ==, 3);
    g_assert_cmpuint(qos_owner_lent(w.server), ==, 3);
    g_assert_cmpuint(w.mounts[0].lost, ==, 0);
    clear(&w);
}

/* Where nothing is asked for, they go by themselves soon. */
static void test_shrinks_with_time(void)
{
    World w;

    init(&w);
    for (guint i = 0; i < 10; i++)
        visit(&w, 0, i);
    hear(&w, 1);
    pass(&w, LEASE); /* renewals bring the signal */
    g_assert_cmpuint(qos_owner_lent(w.server), ==, 0);
    g_assert_cmpuint(status_of(&w, 0).credits, ==, 0);
    g_assert_cmpuint(status_of(&w, 0).bytes, ==, 0);
    clear(&w);
}

/* What was used while it was told to forget it is kept: it may be cached again. */
static void test_used_while_dropped(void)
{
    World w;

    start_dropping(&w);
    settle(&w);
    g_assert_cmpuint(w.mounts[0].drops, ==, 1);
    g_assert_cmpint(status_of(&w, 0).bytes, ==, 0);
    g_assert_true(has(&w, 0, 7, writing));
    g_assert_cmpuint(w.mounts[0].wanted, ==, 0);
    release(&w, 0);
    g_assert_true(has(&w, 0, 7, writing));
    g_assert_cmpint(status_of(&w, 0).bytes, >, 0);
    qos_lockengine_shrink(w.mounts[0].engine, 1, w.now);
    settle(&w);
    g_assert_cmpuint(w.mounts[0].drops, ==, 2);
    release(&w, 0);
    g_assert_false(has(&w, 0, 7, reading));
    release(&w, 0); /* nobody asked */
    clear(&w);
}

static gboolean shrinks_and_spares(World *w, guint times)
{
    const QosResource resource = inode(7);
    const guint drops = w->mounts[0].drops;

    qos_lockengine_shrink(w->mounts[0].engine, 1, w->now);
    settle(w);
    g_assert_cmpuint(w->mounts[0].drops, ==, drops + 1);
    return qos_lockengine_spare(w->mounts[0].engine, &resource, times, w->now);
}

/* It stays so many times, counted from its last use, unless another mount wants it. */
static void test_spared(void)
{
    const QosResource resource = inode(7);
    World w;
    Use other;

    init(&w);
    visit(&w, 0, 7);
    w.mounts[0].is_stubborn = TRUE;
    g_assert_false(
        qos_lockengine_spare(w.mounts[0].engine, &resource, 9, w.now)); /* nobody asked */
    for (guint round = 0; round < 2; round++) {
        g_assert_true(shrinks_and_spares(&w, 2));
        g_assert_cmpint(status_of(&w, 0).bytes, >, 0);
        g_assert_true(shrinks_and_spares(&w, 2));
        g_assert_false(shrinks_and_spares(&w, 2));
        g_assert_true(has(&w, 0, 7, writing)); /* a use */
        release(&w, 0);
    }
    g_assert_cmpint(got(&w, 1, 7, writing, &other), ==, QOS_CREDIT_WAITING);
    g_assert_false(qos_lockengine_spare(w.mounts[0].engine, &resource, 9, w.now));
    end_dropping(&w, &other);
    clear(&w);
}

/* Nor if it does while that is told. */
static void test_wanted_before_it_is_spared(void)
{
    const QosResource resource = inode(7);
    World w;
    Use other;

    start_dropping(&w);
    g_assert_cmpint(got(&w, 1, 7, writing, &other), ==, QOS_CREDIT_WAITING);
    g_assert_false(qos_lockengine_spare(w.mounts[0].engine, &resource, 9, w.now));
    end_dropping(&w, &other);
    clear(&w);
}

/* Another mount wants what the cache is giving back: it is told once. */
static void test_wanted_while_dropped(void)
{
    World w;
    Use other;

    start_dropping(&w);
    g_assert_cmpint(got(&w, 1, 7, writing, &other), ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(w.mounts[0].drops, ==, 1);
    g_assert_cmpuint(w.mounts[0].wanted, ==, 1); /* so that it makes haste */
    end_dropping(&w, &other);
    g_assert_cmpuint(w.mounts[0].drops, ==, 1);
    clear(&w);
}

/* Likewise, but it was used meanwhile: then it is to be forgotten once more. */
static void test_used_and_wanted_while_dropped(void)
{
    World w;
    Use other;

    start_dropping(&w);
    settle(&w);
    g_assert_true(has(&w, 0, 7, writing));
    g_assert_cmpint(got(&w, 1, 7, writing, &other), ==, QOS_CREDIT_WAITING);
    release(&w, 0);
    g_assert_false(other.is_done);
    g_assert_cmpuint(w.mounts[0].drops, ==, 2);
    end_dropping(&w, &other);
    clear(&w);
}

/* A server that has no room for more gets some back. */
static gboolean grants_none(QosOwnerId borrower G_GNUC_UNUSED,
                            const QosResource *resource G_GNUC_UNUSED, QosTime now G_GNUC_UNUSED,
                            QosTime *ret_delay, gpointer arg)
{
    *ret_delay = QOS_SECOND;
    return *(const gboolean *)arg;
}

static void test_server_is_full(void)
{
    World w;
    Use use;
    QosOwnerConfig config;
    gboolean has_room = TRUE;

    init(&w);
    stop_server(&w);
    qos_owner_config_init(&config, SERVER, ++w.incarnation);
    config.lends = TRUE;
    config.lease = LEASE;
    config.may_grant = grants_none;
    config.arg = &has_room;
    w.server = qos_owner_new(&config, NULL, 0, w.now);
    connect_mount(&w, &w.mounts[0]);
    pass(&w, QOS_MILLISECOND);
    for (guint i = 0; i < 40; i++)
        visit(&w, 0, i);
    has_room = FALSE;
    g_assert_cmpint(got(&w, 0, 99, writing, &use), ==, QOS_CREDIT_RETRY);
    g_assert_cmpuint(w.mounts[0].drops, ==, 32);
    g_assert_cmpuint(status_of(&w, 0).refusals, ==, 1);
    clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/cancels-ride", test_cancels_ride);
    g_test_add_func("/lockengine/shrinks-with-time", test_shrinks_with_time);
    g_test_add_func("/lockengine/spared", test_spared);
    g_test_add_func("/lockengine/wanted-before-it-is-spared", test_wanted_before_it_is_spared);
    g_test_add_func("/lockengine/used-while-dropped", test_used_while_dropped);
    g_test_add_func("/lockengine/wanted-while-dropped", test_wanted_while_dropped);
    g_test_add_func("/lockengine/used-and-wanted-while-dropped",
                    test_used_and_wanted_while_dropped);
    g_test_add_func("/lockengine/server-is-full", test_server_is_full);
    return g_test_run();
}
