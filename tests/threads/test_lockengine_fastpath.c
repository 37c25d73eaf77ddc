/*
 * Uses of a whole group's inodes without the lock: what another mount gets meanwhile, and when the
 * engine has the group again. The last test has threads, for ThreadSanitizer too.
 */
#include <pthread.h>
#include <sched.h>

#include "tests/unit/lockengine_fixture.h"

#define ROUNDS 300
#define USERS  3
#define PLACES 8

static QosResource group_of(guint64 number)
{
    const guint64 name = GUINT64_TO_BE(number);
    QosResource resource;

    qos_resource_init(&resource, QOS_RESOURCE_INODES, &name, sizeof(name));
    return resource;
}

static QosCreditVerdict get_place(World *w, guint mount, guint place, gboolean writes, Use *use)
{
    QosResource resource = group_of(1);
    QosSpan span = {place, place, writes};
    QosCredit want = {.spans = &span, .count = 1};

    *use = (Use){.use.done = done};
    use->verdict = qos_lockengine_get(w->mounts[mount].engine, &resource, &want,
                                      QOS_CREDIT_RESERVE | QOS_CREDIT_WAIT, &use->use, w->now);
    return use->verdict;
}

/* The first mount uses a place, and tries to open a fast path. */
static void visit_place(World *w, guint place, gboolean writes)
{
    QosResource resource = group_of(1);
    Use use;

    get_place(w, 0, place, writes, &use);
    settle(w);
    g_assert_cmpint(use.verdict, ==, QOS_CREDIT_GRANTED);
    qos_lockengine_open_fastpath(w->mounts[0].engine, &resource, w->now);
    put(w, 0, &use);
    settle(w);
}

typedef struct {
    QosFastpath *path;
    guint pin;
} Held;

/* FALSE: it is no use. */
static gboolean begin(World *w, guint place, gboolean writes, Held *ret_held)
{
    QosFastpaths *fastpaths = qos_lockengine_fastpaths(w->mounts[0].engine);
    QosResource resource = group_of(1);
    QosSpan span = {place, place, writes};
    QosCredit want = {.spans = &span, .count = 1};

    ret_held->path = qos_fastpaths_pin(fastpaths, &resource, &want, &ret_held->pin);
    return ret_held->path != NULL && qos_fastpaths_is_open(fastpaths, &resource, &want);
}

/* TRUE: the engine was told, as the fast path is closed. */
static gboolean end(World *w, Held *held)
{
    if (!qos_fastpath_unpin(held->path, held->pin))
        return FALSE;
    qos_lockengine_unpin(w->mounts[0].engine, held->path, w->now);
    settle(w);
    return TRUE;
}

static gboolean is_open(World *w, gboolean writes)
{
    Held held;

    if (!begin(w, 63, writes, &held)) {
        g_assert_null(held.path);
        return FALSE;
    }
    g_assert_false(end(w, &held));
    return TRUE;
}

/* Another mount gets at once what nobody uses, and waits for what is used. */
static void test_another_comes(void)
{
    Use free_one, used_one;
    Held held;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    g_assert_true(begin(&w, 7, TRUE, &held));
    get_place(&w, 1, 9, TRUE, &free_one);
    settle(&w);
    g_assert_cmpint(free_one.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_false(is_open(&w, FALSE));
    get_place(&w, 1, 7, FALSE, &used_one);
    settle(&w);
    g_assert_cmpint(used_one.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_true(end(&w, &held));
    g_assert_cmpint(used_one.verdict, ==, QOS_CREDIT_GRANTED);
    visit_place(&w, 5, TRUE);
    g_assert_false(is_open(&w, FALSE)); /* the group is not whole */
    put(&w, 1, &free_one);
    put(&w, 1, &used_one);
    clear(&w);
}

/* A reader by the fast path keeps no reader waiting, but a writer. */
static void test_readers(void)
{
    Use reader, writer;
    Held held;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    g_assert_true(begin(&w, 7, FALSE, &held));
    get_place(&w, 1, 7, FALSE, &reader);
    settle(&w);
    g_assert_cmpint(reader.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 1, &reader);
    get_place(&w, 1, 7, TRUE, &writer);
    settle(&w);
    g_assert_cmpint(writer.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_true(end(&w, &held));
    g_assert_cmpint(writer.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 1, &writer);
    clear(&w);
}

/* What is had to read is no fast path to write by, until it is had to write. */
static void test_group_to_read(void)
{
    World w;

    init(&w);
    visit_place(&w, 5, FALSE);
    g_assert_true(is_open(&w, FALSE));
    g_assert_false(is_open(&w, TRUE));
    visit_place(&w, 6, TRUE); /* now it is had to write */
    g_assert_true(is_open(&w, TRUE));
    clear(&w);
}

/* After a second the cache has it again, but for what is used. */
static void test_second(void)
{
    Held held;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    g_assert_true(is_open(&w, TRUE));
    g_assert_cmpint(status_of(&w, 0).bytes, ==, 0);
    pass(&w, 2 * QOS_SECOND);
    g_assert_false(is_open(&w, TRUE));
    g_assert_cmpint(status_of(&w, 0).bytes, >, 0);
    visit_place(&w, 5, TRUE);
    g_assert_true(begin(&w, 7, TRUE, &held));
    pass(&w, 2 * QOS_SECOND);
    g_assert_cmpint(status_of(&w, 0).bytes, ==, 0);
    g_assert_true(end(&w, &held));
    g_assert_cmpint(status_of(&w, 0).bytes, >, 0);
    clear(&w);
}

/* A loss closes the fast path. Its user at that time ends as ever, and it opens again. */
static void test_lost(void)
{
    Held held;
    Use use;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    pass(&w, QOS_SECOND / 2);
    g_assert_true(begin(&w, 7, TRUE, &held));
    stop_server(&w);
    w.now += 2 * LEASE;
    g_assert_cmpint(get_place(&w, 0, 5, TRUE, &use), ==, QOS_CREDIT_ERROR);
    settle(&w);
    g_assert_cmpuint(w.mounts[0].lost, ==, 1);
    g_assert_false(is_open(&w, FALSE));
    start_server(&w);
    for (guint i = 0; i < MOUNTS; i++)
        g_assert_true(connect_mount(&w, &w.mounts[i]));
    pass(&w, 2 * LEASE);
    visit_place(&w, 5, TRUE);
    g_assert_true(is_open(&w, TRUE));
    g_assert_false(end(&w, &held)); /* of before: nothing to do with what is open now */
    g_assert_true(is_open(&w, TRUE));
    clear(&w);
}

/* More places at a time than there are pins. */
static void test_no_room(void)
{
    Held held[QOS_FASTPATH_PINS], same, further;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    for (guint i = 0; i < QOS_FASTPATH_PINS; i++)
        g_assert_true(begin(&w, i, TRUE, &held[i]));
    g_assert_true(begin(&w, 3, TRUE, &same));
    g_assert_false(begin(&w, QOS_FASTPATH_PINS, TRUE, &further));
    g_assert_null(further.path);
    g_assert_false(end(&w, &same));
    for (guint i = 0; i < QOS_FASTPATH_PINS; i++)
        g_assert_false(end(&w, &held[i]));
    g_assert_true(is_open(&w, TRUE));
    clear(&w);
}

/* One that finds it closed after it has pinned its inode is no use, and asks for nothing. */
static void test_too_late(void)
{
    const guint64 late = (guint64)(30 * 2 + 1 + 1) << 32 | 1;
    Use wanted, pinned;
    guint64 asked;
    Held held;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    g_assert_true(begin(&w, 7, TRUE, &held));
    asked = status_of(&w, 0).enqueues;
    get_place(&w, 1, 7, TRUE, &wanted);
    settle(&w);
    g_assert_cmpint(wanted.verdict, ==, QOS_CREDIT_WAITING);
    atomic_store(&held.path->pins[held.pin ^ 1], late);
    g_assert_true(end(&w, &held));
    g_assert_cmpint(wanted.verdict, ==, QOS_CREDIT_GRANTED);
    get_place(&w, 1, 30, TRUE, &pinned);
    settle(&w);
    g_assert_cmpint(pinned.verdict, ==, QOS_CREDIT_GRANTED);
    g_assert_cmpuint(status_of(&w, 0).enqueues, ==, asked);
    put(&w, 1, &wanted);
    put(&w, 1, &pinned);
    clear(&w);
}

/* A thread that comes to unpin when it is open again, for somebody else, leaves it as it is. */
static void test_unpinned_late(void)
{
    Held old, used;
    Use wanted;
    World w;

    init(&w);
    visit_place(&w, 5, TRUE);
    g_assert_true(begin(&w, 7, TRUE, &old));
    pass(&w, 2 * QOS_SECOND);
    g_assert_true(qos_fastpath_unpin(old.path, old.pin)); /* and sleeps */
    qos_lockengine_unpin(w.mounts[0].engine, old.path, w.now);
    visit_place(&w, 5, TRUE);
    qos_lockengine_unpin(w.mounts[0].engine, old.path, w.now);
    g_assert_true(begin(&w, 9, TRUE, &used));
    get_place(&w, 1, 9, TRUE, &wanted);
    settle(&w);
    g_assert_cmpint(wanted.verdict, ==, QOS_CREDIT_WAITING);
    g_assert_true(end(&w, &used));
    g_assert_cmpint(wanted.verdict, ==, QOS_CREDIT_GRANTED);
    put(&w, 1, &wanted);
    clear(&w);
}

/* --- threads --- */

typedef struct {
    World w;
    pthread_mutex_t lock; /* of `w`, but for the fast paths */
    gint using[PLACES];   /* atomic: by the first mount */
    gint fast_uses;       /* atomic: uses */
    gint ended;           /* atomic: the other mount has had enough */
} Crowd;

static void *use_places(gpointer data)
{
    Crowd *crowd = data;

    for (guint i = 0; g_atomic_int_get(&crowd->ended) == 0; i++) {
        const guint place = i % PLACES;
        Held held;

        if (begin(&crowd->w, place, TRUE, &held)) {
            g_atomic_int_inc(&crowd->using[place]);
            g_atomic_int_inc(&crowd->fast_uses);
            sched_yield();
            g_atomic_int_add(&crowd->using[place], -1);
        }
        if (held.path == NULL || qos_fastpath_unpin(held.path, held.pin)) {
            pthread_mutex_lock(&crowd->lock);
            if (held.path != NULL)
                qos_lockengine_unpin(crowd->w.mounts[0].engine, held.path, crowd->w.now);
            settle(&crowd->w);
            pthread_mutex_unlock(&crowd->lock);
            sched_yield();
        }
    }
    return NULL;
}

static void await_uses(Crowd *crowd, gint uses)
{
    while (g_atomic_int_get(&crowd->fast_uses) < uses)
        sched_yield();
}

/* The other mount takes a place, and is alone with it; then the first one opens a fast path again.
 */
static void take_place(Crowd *crowd, guint place)
{
    gboolean is_done = FALSE;
    Use use;

    pthread_mutex_lock(&crowd->lock);
    get_place(&crowd->w, 1, place, TRUE, &use);
    while (!is_done) {
        settle(&crowd->w);
        is_done = use.verdict == QOS_CREDIT_GRANTED;
        if (is_done)
            g_assert_cmpint(g_atomic_int_get(&crowd->using[place]), ==, 0);
        pthread_mutex_unlock(&crowd->lock);
        sched_yield();
        pthread_mutex_lock(&crowd->lock);
    }
    g_assert_cmpint(g_atomic_int_get(&crowd->using[place]), ==, 0);
    put(&crowd->w, 1, &use);
    qos_lockengine_shrink(crowd->w.mounts[1].engine, 1, crowd->w.now);
    pass(&crowd->w, 4 * QOS_SECOND); /* calm: the group is whole again */
    for (;;) {
        visit_place(&crowd->w, place, TRUE);
        is_done = is_open(&crowd->w, TRUE);
        pthread_mutex_unlock(&crowd->lock);
        if (is_done)
            break;
        sched_yield(); /* somebody is yet to end a use by the last one */
        pthread_mutex_lock(&crowd->lock);
    }
    await_uses(crowd, g_atomic_int_get(&crowd->fast_uses) + USERS);
}

static void test_threads(void)
{
    Crowd crowd = {0};
    pthread_t threads[USERS];

    pthread_mutex_init(&crowd.lock, NULL);
    init(&crowd.w);
    visit_place(&crowd.w, 0, TRUE);
    for (guint i = 0; i < USERS; i++)
        g_assert_cmpint(pthread_create(&threads[i], NULL, use_places, &crowd), ==, 0);
    await_uses(&crowd, 1);
    for (guint i = 0; i < ROUNDS; i++)
        take_place(&crowd, i % PLACES);
    g_atomic_int_set(&crowd.ended, 1);
    for (guint i = 0; i < USERS; i++)
        pthread_join(threads[i], NULL);
    g_test_message("%d uses by fast paths", crowd.fast_uses);
    clear(&crowd.w);
    pthread_mutex_destroy(&crowd.lock);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lockengine/fastpath/another-comes", test_another_comes);
    g_test_add_func("/lockengine/fastpath/readers", test_readers);
    g_test_add_func("/lockengine/fastpath/group-to-read", test_group_to_read);
    g_test_add_func("/lockengine/fastpath/second", test_second);
    g_test_add_func("/lockengine/fastpath/lost", test_lost);
    g_test_add_func("/lockengine/fastpath/no-room", test_no_room);
    g_test_add_func("/lockengine/fastpath/too-late", test_too_late);
    g_test_add_func("/lockengine/fastpath/unpinned-late", test_unpinned_late);
    g_test_add_func("/lockengine/fastpath/threads", test_threads);
    return g_test_run();
}
