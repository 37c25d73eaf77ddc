/*
 * Lists on their way to the kernel: what shows that one has arrived, and what does not.
 */
#include "fs/coherence/readdirplus.h"

static void test_arrival(void)
{
    QosReaddirplus *readdirplus = qos_readdirplus_new();
    int one, other; /* open directories */

    g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 5));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 100, NULL));
    qos_readdirplus_note_sent(readdirplus, 100, &one, 5);
    qos_readdirplus_note_sent(readdirplus, 200, &other, 5);
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 5));
    g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 6));

    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 100, NULL));
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 5)); /* the other thread's */
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 300, NULL));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 200, &one)); /* read on by another */
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 5));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 200, &other));
    g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 5));
    qos_readdirplus_free(readdirplus);
}

static void test_late(void)
{
    QosReaddirplus *readdirplus = qos_readdirplus_new();
    int directory;

    qos_readdirplus_note_sent(readdirplus, 100, &directory, 5);
    qos_readdirplus_note_overdue(readdirplus, 6);
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 5));
    qos_readdirplus_note_overdue(readdirplus, 5);
    g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 5));
    g_assert_true(qos_readdirplus_note_arrived(readdirplus, 100, &directory));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 100, NULL));
    qos_readdirplus_note_sent(readdirplus, 100, &directory, 5);
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 5));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 100, NULL));
    qos_readdirplus_free(readdirplus);
}

/* Those that were late, and those that came after that, of the same directory. */
static void test_late_and_new(void)
{
    QosReaddirplus *readdirplus = qos_readdirplus_new();
    int one, two, three; /* open directories */

    qos_readdirplus_note_sent(readdirplus, 100, &one, 5);
    qos_readdirplus_note_sent(readdirplus, 200, &two, 5);
    qos_readdirplus_note_overdue(readdirplus, 5);
    qos_readdirplus_note_sent(readdirplus, 300, &three, 5);
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 5));
    g_assert_true(qos_readdirplus_note_arrived(readdirplus, 100, NULL));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 300, NULL));
    g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 5));
    qos_readdirplus_note_sent(readdirplus, 200, &two, 6); /* in place of the one that was late */
    g_assert_true(qos_readdirplus_is_in_flight(readdirplus, 6));
    g_assert_false(qos_readdirplus_note_arrived(readdirplus, 200, NULL));
    qos_readdirplus_note_sent(readdirplus, 100, &one, 5);
    qos_readdirplus_note_sent(readdirplus, 200, &two, 5);
    qos_readdirplus_note_overdue(readdirplus, 5);
    qos_readdirplus_note_sent(readdirplus, 300, &three, 6);
    qos_readdirplus_free(readdirplus); /* with both kinds in it */
}

/* Of threads that read a list each and ended: what is asked of a directory looks neither at its own
 * nor at those of others one by one. If it did, this would take minutes. */
static void test_many(void)
{
    QosReaddirplus *readdirplus = qos_readdirplus_new();
    const int many = 100000;
    int directory;

    for (int reader = 1; reader <= many; reader++) {
        qos_readdirplus_note_sent(readdirplus, reader, &directory, 5);
        qos_readdirplus_note_sent(readdirplus, many + reader, &directory, (fuse_ino_t)(5 + reader));
        g_assert_true(qos_readdirplus_is_in_flight(readdirplus, (fuse_ino_t)(5 + reader)));
        g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 4));
    }
    for (int reader = 1; reader <= many; reader += 2)
        qos_readdirplus_note_overdue(readdirplus, (fuse_ino_t)(5 + reader));
    qos_readdirplus_note_overdue(readdirplus, 5);
    g_assert_false(qos_readdirplus_is_in_flight(readdirplus, 5));
    for (int reader = 1; reader <= many; reader++) {
        g_assert_true(qos_readdirplus_note_arrived(readdirplus, reader, NULL));
        g_assert_cmpint(qos_readdirplus_note_arrived(readdirplus, many + reader, NULL), ==,
                        reader % 2);
    }
    qos_readdirplus_free(readdirplus);
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
