/*
 * Lists on their way to the kernel: what shows that one has arrived, and what does not.
 */
#include "ops/lists.h"

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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lists/arrival", test_arrival);
    g_test_add_func("/lists/late", test_late);
    return g_test_run();
}
