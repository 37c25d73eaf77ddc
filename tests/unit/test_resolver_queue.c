/*
 * Which caller is read next, and which requests go on without a name: time is stepped by hand.
 */
#include "fs/caller/resolver_queue.h"

#include <sys/mman.h>
#include <unistd.h>

#define HOG   1000
#define OTHER 1001
#define MANY  QOS_NAMING_ALL

typedef struct {
    QosResolverQueue queue;
    QosTime now;
    QosResolverWait wait[MANY * 2];
    QosResolverReading reading[MANY * 2]; /* of the same */
    gboolean is_late;
} World;

static void init(World *w)
{
    *w = (World){.now = 5 * QOS_SECOND};
    qos_resolver_queue_init(&w->queue);
}

static void clear(World *w)
{
    g_assert_cmpuint(g_hash_table_size(w->queue.users), ==, 0);
    qos_resolver_queue_clear(&w->queue);
}

static void ask(World *w, guint number, guint32 uid)
{
    qos_resolver_queue_add(&w->queue, &w->wait[number], uid, w->now);
}

static QosResolverWait *take(World *w, guint number)
{
    return qos_resolver_queue_take(&w->queue, w->now, &w->reading[number], &w->is_late);
}

/* That it is the next, and begins to be read. */
static void reads(World *w, guint number)
{
    g_assert_true(take(w, number) == &w->wait[number]);
    g_assert_false(w->is_late);
    g_assert_true(w->reading[number].wait == &w->wait[number]);
}

/* That it is the next, and goes on without. */
static void goes_on(World *w, guint number)
{
    QosResolverReading none;

    g_assert_true(qos_resolver_queue_take(&w->queue, w->now, &none, &w->is_late) ==
                  &w->wait[number]);
    g_assert_true(w->is_late);
}

static void waits(World *w)
{
    QosResolverReading none;

    g_assert_false(qos_resolver_queue_may_take(&w->queue));
    g_assert_null(qos_resolver_queue_take(&w->queue, w->now, &none, &w->is_late));
}

static void is_read(World *w, guint number)
{
    g_assert_true(qos_resolver_queue_end(&w->queue, &w->reading[number]) == &w->wait[number]);
}

static void is_read_late(World *w, guint number)
{
    g_assert_null(qos_resolver_queue_end(&w->queue, &w->reading[number]));
}

/* --- users --- */

/* So many of a user are read at once. Another user's need not wait for them, nor does that user
 * wait for longer than they take. */
static void test_users(void)
{
    World w;

    init(&w);
    for (guint i = 0; i < 7; i++)
        ask(&w, i, HOG);
    for (guint i = 0; i < QOS_NAMING_USER; i++)
        reads(&w, i);
    waits(&w);
    ask(&w, 7, OTHER);
    g_assert_true(qos_resolver_queue_may_take(&w.queue));
    reads(&w, 7);
    waits(&w);
    is_read(&w, 2);
    g_assert_true(qos_resolver_queue_may_take(&w.queue));
    reads(&w, 4);
    waits(&w);
    is_read(&w, 7);
    waits(&w);
    for (guint i = 0; i < 5; i++) {
        if (i != 2)
            is_read(&w, i);
    }
    reads(&w, 5);
    reads(&w, 6);
    waits(&w);
    is_read(&w, 5);
    is_read(&w, 6);
    clear(&w);
}

/* However many of one come first, the others have their turns between them. */
static void test_turns(void)
{
    static const guint order[] = {0, 6, 8, 1, 7, 2, 3};
    World w;

    init(&w);
    for (guint i = 0; i < 6; i++)
        ask(&w, i, HOG);
    ask(&w, 6, OTHER);
    ask(&w, 7, OTHER);
    ask(&w, 8, OTHER + 1);
    for (guint i = 0; i < G_N_ELEMENTS(order); i++)
        reads(&w, order[i]);
    waits(&w);
    is_read(&w, 0);
    reads(&w, 4);
    is_read(&w, 1);
    reads(&w, 5);
    waits(&w);
    for (guint i = 2; i < 9; i++)
        is_read(&w, i);
    clear(&w);
}

/* All waiting callers but the first and the last are out of reach: the process dies if it looks at
 * one. Nobody does, neither while their user is full, nor when others come, are taken, and read. */
static void test_without_a_look_at_the_waiting(void)
{
    const guint page = (guint)sysconf(_SC_PAGESIZE), count = page / sizeof(QosResolverWait);
    QosResolverWait *crowd =
        mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    World w;

    g_assert_true(crowd != MAP_FAILED);
    init(&w);
    for (guint i = 0; i <= QOS_NAMING_USER; i++)
        ask(&w, i, HOG);
    for (guint i = 0; i < count; i++)
        qos_resolver_queue_add(&w.queue, &crowd[i], HOG, w.now);
    ask(&w, 5, HOG);
    for (guint i = 0; i < QOS_NAMING_USER; i++)
        reads(&w, i);
    g_assert_cmpint(mprotect(crowd, page, PROT_NONE), ==, 0);
    for (guint i = 6; i < 16; i++) {
        waits(&w);
        ask(&w, i, OTHER);
        reads(&w, i);
        waits(&w);
        is_read(&w, i);
    }
    ask(&w, 16, HOG);
    waits(&w);
    g_assert_cmpint(mprotect(crowd, page, PROT_READ | PROT_WRITE), ==, 0);
    w.now = QOS_NEVER;
    while (take(&w, 0) != NULL)
        g_assert_true(w.is_late);
    for (guint i = 0; i < QOS_NAMING_USER; i++)
        is_read_late(&w, i);
    clear(&w);
    munmap(crowd, page);
}

/* --- readers that are late --- */

static void test_late(void)
{
    World w;

    init(&w);
    for (guint i = 0; i < 6; i++)
        ask(&w, i, HOG);
    for (guint i = 0; i < QOS_NAMING_USER; i++)
        reads(&w, i);
    w.now += QOS_NAMING_TIME - 1;
    ask(&w, 6, HOG);
    waits(&w);
    w.now++;
    for (guint i = 0; i < QOS_NAMING_USER; i++)
        goes_on(&w, i);
    goes_on(&w, 4); /* they waited for as long */
    goes_on(&w, 5);
    goes_on(&w, 6); /* and this would wait for such as do not come */
    ask(&w, 7, HOG);
    goes_on(&w, 7);
    ask(&w, 8, OTHER);
    reads(&w, 8);
    is_read_late(&w, 3); /* one has come after all */
    ask(&w, 9, HOG);
    ask(&w, 10, HOG);
    reads(&w, 9);
    waits(&w);
    is_read(&w, 8);
    is_read(&w, 9);
    reads(&w, 10);
    is_read(&w, 10);
    for (guint i = 0; i < 3; i++)
        is_read_late(&w, i);
    clear(&w);
}

/* So many are read in all: a further user waits for them, and not at all when they all are late. */
static void test_all(void)
{
    World w;

    init(&w);
    for (guint i = 0; i < MANY; i++) {
        ask(&w, i, OTHER + i / QOS_NAMING_USER);
        reads(&w, i);
    }
    ask(&w, MANY, HOG);
    waits(&w);
    is_read(&w, 1);
    reads(&w, MANY);
    w.now += QOS_NAMING_TIME / 2;
    ask(&w, MANY + 1, HOG);
    waits(&w);
    w.now += QOS_NAMING_TIME / 2;
    for (guint i = 0; i <= MANY; i++) {
        g_assert_false(qos_resolver_queue_may_take(&w.queue));
        if (i != 1)
            goes_on(&w, i);
    }
    goes_on(&w, MANY + 1);
    waits(&w);
    is_read_late(&w, 0);
    ask(&w, MANY + 2, HOG);
    ask(&w, MANY + 3, HOG);
    reads(&w, MANY + 2);
    waits(&w);
    is_read(&w, MANY + 2);
    reads(&w, MANY + 3);
    is_read(&w, MANY + 3);
    for (guint i = 2; i <= MANY; i++)
        is_read_late(&w, i);
    clear(&w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/resolver-queue/users", test_users);
    g_test_add_func("/resolver-queue/turns", test_turns);
    g_test_add_func("/resolver-queue/without-a-look-at-the-waiting",
                    test_without_a_look_at_the_waiting);
    g_test_add_func("/resolver-queue/late", test_late);
    g_test_add_func("/resolver-queue/all", test_all);
    return g_test_run();
}
