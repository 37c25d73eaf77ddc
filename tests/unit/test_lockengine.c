/*
 * What a mount borrows, with the server's owner at the other end and the time stepped by hand: what
 * is cached, dropped and lost, and what counts of it.
 */
#include <malloc.h>

#include "lockengine_fixture.h"

/* --- what is cached --- */

static void test_cached(void)
{
    World w;
    Use use;

    init(&w);
    g_assert_cmpint(get(&w, 0, 7, writing, 0, &use), ==, QOS_CREDIT_WAITING);
    settle(&w);
    g_assert_true(use.is_done);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 0, &use);
    put(&w, 0, &use); /* once more changes nothing */
    for (guint i = 0; i < 10; i++)
        g_assert_true(has(&w, 0, 7, i % 2 ? reading : writing));
    QosLockclientStatus status = status_of(&w, 0);
    g_assert_cmpuint(status.enqueues, ==, 1);
    g_assert_cmpuint(status.misses, ==, 1);
    g_assert_cmpuint(status.hits, ==, 10);
    g_assert_cmpuint(status.credits, ==, 1);
    g_assert_cmpint(status.bytes, >, 0);
    g_assert_cmpuint(status.cancels + status.revocations + status.evictions, ==, 0);
    g_assert_cmpint(status.valid, >, LEASE / 2);
    g_assert_cmpuint(status.group, ==, 64);
    clear(&w);
}

/* Another mount wants it: it is told to forget it once nobody uses it. */
static void test_drop_when_unused(void)
{
    World w;
    Use one, other;

    init(&w);
    w.mounts[0].is_stubborn = TRUE;
    g_assert_cmpint(got(&w, 0, 7, writing, &one), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(got(&w, 1, 7, writing, &other), ==, QOS_CREDIT_WAITING);
    g_assert_cmpuint(w.mounts[0].drops, ==, 0);
    put(&w, 0, &one);
    settle(&w);
    g_assert_cmpuint(w.mounts[0].drops, ==, 1);
    g_assert_false(other.is_done);
    g_assert_cmpint(get(&w, 0, 7, writing, 0, &one), ==, QOS_CREDIT_WAITING); /* behind it */
    release(&w, 0);
    g_assert_cmpint(other.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_false(one.is_done);
    put(&w, 1, &other);
    settle(&w);
    g_assert_cmpint(one.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 0, &one);
    g_assert_cmpuint(status_of(&w, 0).revocations, ==, 1);
    g_assert_cmpuint(status_of(&w, 1).credits, ==, 0);
    clear(&w);
}

/* A reader takes the right to write, and no more. */
static void test_reader_leaves_reading(void)
{
    World w;
    Use use;

    init(&w);
    visit(&w, 0, 7);
    g_assert_cmpint(got(&w, 1, 7, reading, &use), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(w.mounts[0].drops, ==, 1);
    g_assert_cmpuint(w.mounts[0].credit.writes, ==, 0);
    g_assert_true(has(&w, 0, 7, reading));
    g_assert_false(has(&w, 0, 7, writing));
    put(&w, 1, &use);
    clear(&w);
}

/* --- losses --- */

static void test_lease_ends(void)
{
    World w;
    Use held, waiting;

    init(&w);
    visit(&w, 0, 7);
    g_assert_cmpint(got(&w, 0, 8, writing, &held), ==, QOS_CREDIT_GRANTED);
    stop_server(&w);
    pass(&w, LEASE / 2);
    g_assert_true(has(&w, 0, 7, writing));
    g_assert_cmpint(get(&w, 0, 9, writing, 0, &waiting), ==, QOS_CREDIT_WAITING);
    QosTime until = qos_lockengine_until(w.mounts[0].engine);
    g_assert_cmpint(until, >, w.now);
    g_assert_cmpint(until, <, w.now + LEASE);
    pass(&w, LEASE);
    g_assert_cmpint(waiting.verdict, ==, QOS_CREDIT_ERROR);
    g_assert_cmpuint(w.mounts[0].lost, ==, 2);
    g_assert_false(w.mounts[0].is_up);
    g_assert_cmpint(qos_lockengine_until(w.mounts[0].engine), ==, 0);
    g_assert_cmpint(got(&w, 0, 7, writing, &waiting), ==, QOS_CREDIT_ERROR);
    put(&w, 0, &held);
    g_assert_cmpuint(status_of(&w, 0).credits, ==, 0);
    g_assert_cmpuint(status_of(&w, 0).evictions, ==, 1);
    g_hash_table_remove_all(w.clients);
    start_server(&w);
    g_assert_true(connect_mount(&w, &w.mounts[0]));
    pass(&w, QOS_MILLISECOND);
    g_assert_true(w.mounts[0].is_up);
    visit(&w, 0, 7);
    clear(&w);
}

/* Nobody asks the engine, as while the process is stopped: what it says holds all the same. */
static void test_lease_ends_unseen(void)
{
    World w;
    Use use;

    init(&w);
    visit(&w, 0, 7);
    w.now += LEASE;
    g_assert_cmpint(qos_lockengine_until(w.mounts[0].engine), <=, w.now);
    g_assert_cmpint(get(&w, 0, 7, writing, 0, &use), ==, QOS_CREDIT_ERROR);
    take_events(&w, &w.mounts[0]);
    g_assert_cmpuint(w.mounts[0].lost, ==, 1);
    clear(&w);
}

/* A release that comes after a loss is of what was lost, not of what was granted since. */
static void test_lost_while_dropped(void)
{
    World w;

    start_dropping(&w);
    settle(&w);
    stop_server(&w);
    pass(&w, 2 * LEASE);
    g_assert_cmpuint(w.mounts[0].lost, ==, 1);
    g_hash_table_remove_all(w.clients);
    start_server(&w);
    connect_mount(&w, &w.mounts[0]);
    pass(&w, QOS_MILLISECOND);
    visit(&w, 0, 7);
    release(&w, 0);
    g_assert_true(has(&w, 0, 7, writing));
    g_assert_cmpuint(qos_owner_lent(w.server), ==, 1);
    clear(&w);
}

/* A server that comes back within the lease knows all again, its rate too, and at once: not when
 * the mount would have written to it anyway. */
static void test_server_restarts(void)
{
    World w;

    init(&w);
    hear(&w, (gint64)1 << 60);
    for (guint i = 0; i < 1000; i++)
        visit(&w, 0, i);
    pass(&w, LEASE / 3);
    stop_server(&w);
    pass(&w, QOS_SECOND);
    start_server(&w);
    connect_mount(&w, &w.mounts[0]);
    connect_mount(&w, &w.mounts[1]);
    pass(&w, 10 * QOS_MILLISECOND);
    g_assert_cmpuint(qos_owner_lent(w.server), ==, 1000);
    g_assert_false(qos_owner_in_grace(w.server));
    g_assert_cmpuint(w.mounts[0].lost, ==, 0);
    g_assert_cmpuint(w.mounts[0].changes, ==, 1);
    g_assert_cmpint(w.claimed.rate, ==, (gint64)1 << 60);
    g_assert_true(has(&w, 0, 999, writing));
    clear(&w);
}

static void test_connection_breaks(void)
{
    World w;
    Use use;

    init(&w);
    visit(&w, 0, 7);
    cut(&w, &w.mounts[0]);
    g_assert_cmpint(get(&w, 0, 8, writing, 0, &use), ==, QOS_CREDIT_WAITING);
    pass(&w, QOS_SECOND);
    connect_mount(&w, &w.mounts[0]);
    settle(&w);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 0, &use);
    g_assert_cmpuint(w.mounts[0].lost, ==, 0);
    clear(&w);
}

/* Reads, or asks to; the verdict so far. */
static QosCreditVerdict read_or_go_on(World *w, guint number, Use *use)
{
    const QosResource resource = inode(number);

    *use = (Use){.use.done = done, .use.goes_on = TRUE};
    use->verdict =
        qos_lockengine_get(w->mounts[0].engine, &resource, &reading, 0, &use->use, w->now);
    return use->verdict;
}

/* Readers do not wait for a server that is away, whether they come then or came before. */
static void test_readers_go_on_without_a_server(void)
{
    World w;
    Use before, after, change;

    init(&w);
    hear(&w, (gint64)1 << 60);
    visit(&w, 0, 6);
    visit(&w, 1, 7);
    w.mounts[1].is_stubborn = TRUE;
    g_assert_cmpint(read_or_go_on(&w, 7, &before), ==, QOS_CREDIT_WAITING);
    settle(&w);
    g_assert_false(before.is_done);
    g_assert_cmpint(get(&w, 0, 7, writing, 0, &change), ==, QOS_CREDIT_WAITING);
    stop_server(&w);
    settle(&w);
    g_assert_cmpint(before.verdict, ==, QOS_CREDIT_DENIED);
    g_assert_cmpint(read_or_go_on(&w, 8, &after), ==, QOS_CREDIT_DENIED);
    g_assert_false(change.is_done);
    start_server(&w);
    connect_mount(&w, &w.mounts[0]);
    connect_mount(&w, &w.mounts[1]);
    w.mounts[1].is_stubborn = FALSE;
    release(&w, 1);
    pass(&w, QOS_SECOND);
    g_assert_cmpint(change.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 0, &change);
    clear(&w);
}

/* Nor for the end of a grace, which shows by what the server says without a signal. What was
 * reclaimed is had. That the grace is over they find by asking now and then. */
static void test_readers_go_on_in_a_grace(void)
{
    World w;
    Use use;

    init(&w);
    hear(&w, (gint64)1 << 60);
    visit(&w, 0, 7);
    const QosPoolSignal signal = w.signal;
    stop_server(&w);
    w.signal = (QosPoolSignal){0};
    start_server(&w);
    connect_mount(&w, &w.mounts[0]);
    g_assert_cmpint(read_or_go_on(&w, 8, &use), ==, QOS_CREDIT_WAITING); /* it has not said yet */
    pass(&w, 10 * QOS_MILLISECOND);
    g_assert_true(qos_owner_in_grace(w.server));
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_DENIED);
    for (guint i = 0; i < 2; i++) {
        g_assert_cmpint(read_or_go_on(&w, 8, &use), ==, QOS_CREDIT_DENIED);
        g_assert_true(qos_lockengine_has_bytes(w.mounts[0].engine) == (i == 0));
        settle(&w);
    }
    g_assert_cmpint(read_or_go_on(&w, 7, &use), ==, QOS_CREDIT_GRANTED);
    put(&w, 0, &use);
    connect_mount(&w, &w.mounts[1]);
    w.signal = signal;
    pass(&w, QOS_SECOND);
    g_assert_false(qos_owner_in_grace(w.server));
    g_assert_cmpint(read_or_go_on(&w, 8, &use), ==, QOS_CREDIT_WAITING);
    settle(&w);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 0, &use);
    clear(&w);
}

/* What the last one lent is used until its lease ends, and only then the new one is believed. */
static void see_new_server(World *w, QosOwnerId id, guint32 incarnation)
{
    guint32 before = qos_lockengine_incarnation(w->mounts[0].engine);

    visit(w, 0, 7);
    stop_server(w);
    g_hash_table_remove_all(w->clients);
    w->server_id = id;
    w->incarnation = incarnation - 1;
    start_server(w);
    g_assert_false(connect_mount(w, &w->mounts[0]));
    pass(w, LEASE);
    g_assert_cmpuint(w->mounts[0].lost, ==, 1);
    g_assert_true(connect_mount(w, &w->mounts[0]));
    g_assert_cmpuint(qos_lockengine_incarnation(w->mounts[0].engine), >, before);
    pass(w, QOS_MILLISECOND);
    g_assert_true(w->mounts[0].is_up);
    visit(w, 0, 7);
}

static void test_another_server(void)
{
    World w;

    init(&w);
    see_new_server(&w, SERVER + 1, 1);
    clear(&w);
}

/* Its database comes from a backup: it knows nothing of what it lent since, and its tokens are not
 * larger than those that the mount has seen. */
static void test_restored_server(void)
{
    World w;

    init(&w);
    stop_server(&w);
    w.incarnation = 5;
    start_server(&w);
    connect_mount(&w, &w.mounts[0]);
    connect_mount(&w, &w.mounts[1]);
    pass(&w, 10 * QOS_MILLISECOND);
    see_new_server(&w, SERVER, 3);
    clear(&w);
}

/* As many starts after the backup as before it: nothing tells it from a connection that broke, but
 * that it ends each session, as its tokens are smaller than those that the mount has seen. */
static void test_restored_to_the_same_start(void)
{
    World w;

    init(&w);
    w.mounts[0].may_hang_up = TRUE;
    for (guint i = 0; i < 10; i++)
        visit(&w, 0, i);
    stop_server(&w);
    g_hash_table_remove_all(w.clients);
    w.incarnation--;
    start_server(&w);
    g_assert_true(connect_mount(&w, &w.mounts[0]));
    pass(&w, QOS_SECOND);
    g_assert_false(w.mounts[0].is_connected);
    g_assert_cmpuint(w.mounts[0].lost, ==, 10);
    g_assert_true(connect_mount(&w, &w.mounts[0]));
    pass(&w, QOS_MILLISECOND);
    g_assert_true(w.mounts[0].is_up);
    visit(&w, 0, 7);
    clear(&w);
}

/* --- the rest --- */

static void test_withdraw(void)
{
    World w;
    Use one, two, other;
    QosLockengine *engine;

    init(&w);
    engine = w.mounts[1].engine;
    g_assert_cmpint(got(&w, 0, 7, reading, &one), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(got(&w, 1, 7, writing, &other), ==, QOS_CREDIT_WAITING);
    g_assert_true(qos_lockengine_withdraw(engine, &other.use, w.now));
    settle(&w);
    g_assert_false(other.is_done);
    g_assert_false(qos_lockengine_withdraw(engine, &other.use, w.now));
    /* A conversion: what was held stays so. */
    g_assert_cmpint(got(&w, 1, 7, reading, &other), ==, QOS_CREDIT_GRANTED);
    g_assert_cmpint(qos_lockengine_convert(engine, &writing, 0, &other.use, w.now), ==,
                    QOS_CREDIT_WAITING);
    g_assert_true(qos_lockengine_withdraw(engine, &other.use, w.now));
    settle(&w);
    g_assert_cmpuint(other.use.hold.credit.reads, ==, reading.reads);
    put(&w, 1, &other);
    put(&w, 0, &one);
    /* Granted, and not yet told. */
    g_assert_cmpint(get(&w, 1, 8, reading, 0, &two), ==, QOS_CREDIT_WAITING);
    carry(&w, &w.mounts[1]);
    drain_server(&w);
    g_assert_true(qos_lockengine_has_events(engine));
    g_assert_true(qos_lockengine_withdraw(engine, &two.use, w.now));
    settle(&w);
    g_assert_false(two.is_done);
    g_assert_null(two.use.hold.book);
    clear(&w);
}

/* A mount that ends has nothing at once. */
static void test_leave(void)
{
    World w;

    init(&w);
    visit(&w, 0, 7);
    visit(&w, 1, 8);
    qos_lockengine_leave(w.mounts[0].engine, w.now);
    settle(&w);
    g_assert_cmpuint(qos_owner_lent(w.server), ==, 1);
    clear(&w);
}

static void test_rubbish(void)
{
    World w;
    const guint8 rubbish[] = "\x10\0\0\0no message this";

    init(&w);
    visit(&w, 0, 7);
    g_assert_false(qos_lockengine_receive(w.mounts[0].engine, rubbish, sizeof(rubbish) - 1, w.now));
    g_assert_true(has(&w, 0, 7, writing));
    clear(&w);
}

/* Issue 6: at most 200 bytes a credit, with what malloc() adds and the table of resources. */
static void test_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    g_test_skip("a sanitizer's malloc counts otherwise");
#else
    enum { CREDITS = 50000 };
    World w;
    QosCredit span = qos_credit_span(0, 63, TRUE);

    init(&w);
    struct mallinfo2 before = mallinfo2();
    for (guint i = 0; i < CREDITS; i++) {
        Use use = {.use.done = done};
        QosResource resource;
        guint64 number = i;
        qos_resource_init(&resource, QOS_RESOURCE_INODES, &number, sizeof(number));
        qos_lockengine_get(w.mounts[0].engine, &resource, &span, 0, &use.use, w.now);
        settle(&w);
        g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
        qos_lockengine_put(w.mounts[0].engine, &use.use, w.now);
    }
    g_assert_cmpuint(status_of(&w, 0).credits, ==, CREDITS);
    g_clear_pointer(&w.server, qos_owner_free);
    struct mallinfo2 after = mallinfo2();
    double bytes = (double)(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd);
    g_test_message("%.1f bytes a credit", bytes / CREDITS);
    g_assert_cmpfloat(bytes / CREDITS, <=, 200);
    qos_credit_clear(qos_resource_type(QOS_RESOURCE_INODES), &span);
    clear(&w);
#endif
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/cached", test_cached);
    g_test_add_func("/lockengine/drop-when-unused", test_drop_when_unused);
    g_test_add_func("/lockengine/reader-leaves-reading", test_reader_leaves_reading);
    g_test_add_func("/lockengine/lease-ends", test_lease_ends);
    g_test_add_func("/lockengine/lease-ends-unseen", test_lease_ends_unseen);
    g_test_add_func("/lockengine/lost-while-dropped", test_lost_while_dropped);
    g_test_add_func("/lockengine/server-restarts", test_server_restarts);
    g_test_add_func("/lockengine/connection-breaks", test_connection_breaks);
    g_test_add_func("/lockengine/readers-go-on-without-a-server",
                    test_readers_go_on_without_a_server);
    g_test_add_func("/lockengine/readers-go-on-in-a-grace", test_readers_go_on_in_a_grace);
    g_test_add_func("/lockengine/another-server", test_another_server);
    g_test_add_func("/lockengine/restored-server", test_restored_server);
    g_test_add_func("/lockengine/restored-to-the-same-start", test_restored_to_the_same_start);
    g_test_add_func("/lockengine/withdraw", test_withdraw);
    g_test_add_func("/lockengine/leave", test_leave);
    g_test_add_func("/lockengine/rubbish", test_rubbish);
    g_test_add_func("/lockengine/memory", test_memory);
    return g_test_run();
}
