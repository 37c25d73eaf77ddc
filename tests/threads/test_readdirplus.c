/*
 * Lists on their way to the kernel: what shows that one has arrived, and what does not.
 */
#include "fs/coherence/readdirplus.h"

static void test_arrival(void)
{
    QosLists *lists = qos_lists_new();
    int one, other; /* open directories */

    g_assert_false(qos_lists_are_on_their_way(lists, 5));
    g_assert_false(qos_lists_note_arrived(lists, 100, NULL));
    qos_lists_note_sent(lists, 100, &one, 5);
    qos_lists_note_sent(lists, 200, &other, 5);
    g_assert_true(qos_lists_are_on_their_way(lists, 5));
    g_assert_false(qos_lists_are_on_their_way(lists, 6));

    g_assert_false(qos_lists_note_arrived(lists, 100, NULL));
    g_assert_true(qos_lists_are_on_their_way(lists, 5)); /* the other thread's */
    g_assert_false(qos_lists_note_arrived(lists, 300, NULL));
    g_assert_false(qos_lists_note_arrived(lists, 200, &one)); /* read on by another */
    g_assert_true(qos_lists_are_on_their_way(lists, 5));
    g_assert_false(qos_lists_note_arrived(lists, 200, &other));
    g_assert_false(qos_lists_are_on_their_way(lists, 5));
    qos_lists_free(lists);
}

static void test_late(void)
{
    QosLists *lists = qos_lists_new();
    int directory;

    qos_lists_note_sent(lists, 100, &directory, 5);
    qos_lists_note_late(lists, 6);
    g_assert_true(qos_lists_are_on_their_way(lists, 5));
    qos_lists_note_late(lists, 5);
    g_assert_false(qos_lists_are_on_their_way(lists, 5));
    g_assert_true(qos_lists_note_arrived(lists, 100, &directory));
    g_assert_false(qos_lists_note_arrived(lists, 100, NULL));
    qos_lists_note_sent(lists, 100, &directory, 5);
    g_assert_true(qos_lists_are_on_their_way(lists, 5));
    g_assert_false(qos_lists_note_arrived(lists, 100, NULL));
    qos_lists_free(lists);
}

/* Those that were late, and those that came after that, of the same directory. */
static void test_late_and_new(void)
{
    QosLists *lists = qos_lists_new();
    int one, two, three; /* open directories */

    qos_lists_note_sent(lists, 100, &one, 5);
    qos_lists_note_sent(lists, 200, &two, 5);
    qos_lists_note_late(lists, 5);
    qos_lists_note_sent(lists, 300, &three, 5);
    g_assert_true(qos_lists_are_on_their_way(lists, 5));
    g_assert_true(qos_lists_note_arrived(lists, 100, NULL));
    g_assert_false(qos_lists_note_arrived(lists, 300, NULL));
    g_assert_false(qos_lists_are_on_their_way(lists, 5));
    qos_lists_note_sent(lists, 200, &two, 6); /* in place of the one that was late */
    g_assert_true(qos_lists_are_on_their_way(lists, 6));
    g_assert_false(qos_lists_note_arrived(lists, 200, NULL));
    qos_lists_note_sent(lists, 100, &one, 5);
    qos_lists_note_sent(lists, 200, &two, 5);
    qos_lists_note_late(lists, 5);
    qos_lists_note_sent(lists, 300, &three, 6);
    qos_lists_free(lists); /* with both kinds in it */
}

/* Of threads that read a list each and ended: what is asked of a directory looks neither at its own
 * nor at those of others one by one. If it did, this would take minutes. */
static void test_many(void)
{
    QosLists *lists = qos_lists_new();
    const int many = 100000;
    int directory;

    for (int reader = 1; reader <= many; reader++) {
        qos_lists_note_sent(lists, reader, &directory, 5);
        qos_lists_note_sent(lists, many + reader, &directory, (fuse_ino_t)(5 + reader));
        g_assert_true(qos_lists_are_on_their_way(lists, (fuse_ino_t)(5 + reader)));
        g_assert_false(qos_lists_are_on_their_way(lists, 4));
    }
    for (int reader = 1; reader <= many; reader += 2)
        qos_lists_note_late(lists, (fuse_ino_t)(5 + reader));
    qos_lists_note_late(lists, 5);
    g_assert_false(qos_lists_are_on_their_way(lists, 5));
    for (int reader = 1; reader <= many; reader++) {
        g_assert_true(qos_lists_note_arrived(lists, reader, NULL));
        g_assert_cmpint(qos_lists_note_arrived(lists, many + reader, NULL), ==, reader % 2);
    }
    qos_lists_free(lists);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/readdirplus/arrival", test_arrival);
    g_test_add_func("/readdirplus/late", test_late);
    g_test_add_func("/readdirplus/late-and-new", test_late_and_new);
    g_test_add_func("/readdirplus/many", test_many);
    return g_test_run();
}
