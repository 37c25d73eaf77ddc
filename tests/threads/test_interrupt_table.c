/*
 * A listener hears of its interrupt once, whenever it comes, and of none once it has ceased to
 * listen.
 */
#include "fs/transport/interrupt_table.h"

#define ROUNDS 2000

static void count(gpointer data)
{
    g_atomic_int_inc((gint *)data);
}

static void test_listening(void)
{
    QosInterruptTable *table = qos_interrupt_table_new();
    gint first = 0, second = 0;

    qos_interrupt_table_listen(table, 2, count, &first);
    qos_interrupt_table_listen(table, 4, count, &second);
    qos_interrupt_table_receive(table, 4);
    g_assert_cmpint(first, ==, 0);
    g_assert_cmpint(second, ==, 1);
    qos_interrupt_table_ignore(table, 2);
    qos_interrupt_table_receive(table, 2);
    g_assert_cmpint(first, ==, 0);
    qos_interrupt_table_ignore(table, 6); /* nobody does */
    qos_interrupt_table_ignore(table, 4);
    qos_interrupt_table_free(table);
}

/* One that came before its request listened is heard; the latest of them are remembered. */
static void test_early(void)
{
    QosInterruptTable *table = qos_interrupt_table_new();
    const guint64 last = 4 * QOS_EARLY_INTERRUPTS;
    gint newest = 0, oldest = 0, other = 0;

    for (guint64 number = 2; number <= last; number += 2)
        qos_interrupt_table_receive(table, number);
    qos_interrupt_table_listen(table, last, count, &newest);
    qos_interrupt_table_listen(table, last - 2 * (QOS_EARLY_INTERRUPTS - 1), count, &oldest);
    qos_interrupt_table_listen(table, last + 2, count, &other);
    qos_interrupt_table_listen(table, last - 2 * QOS_EARLY_INTERRUPTS, count, &other);
    g_assert_cmpint(newest, ==, 1);
    g_assert_cmpint(oldest, ==, 1);
    g_assert_cmpint(other, ==, 0);
    qos_interrupt_table_free(table);
}

/* A job of many programs is killed as it begins: none of them is forgotten. */
static void test_many(void)
{
    enum { PROGRAMS = 10000 };
    QosInterruptTable *table = qos_interrupt_table_new();
    gint killed = 0;

    for (guint64 number = 2; number <= 2 * PROGRAMS; number += 2)
        qos_interrupt_table_receive(table, number);
    for (guint64 number = 2; number <= 2 * PROGRAMS; number += 2)
        qos_interrupt_table_listen(table, number, count, &killed);
    g_assert_cmpint(killed, ==, PROGRAMS);
    qos_interrupt_table_free(table);
}

typedef struct {
    QosInterruptTable *table;
    gint number;    /* atomic: of the request that listens, or is about to */
    gint is_ending; /* atomic */
} Contest;

static gpointer interrupt(gpointer data)
{
    Contest *contest = data;
    gint before = 0, number;

    while (!g_atomic_int_get(&contest->is_ending)) {
        number = g_atomic_int_get(&contest->number);
        if (number == before)
            continue;
        qos_interrupt_table_receive(contest->table, (guint64)number);
        before = number;
    }
    return NULL;
}

/* What has ceased to listen may be freed at once: a call under way is waited for. */
static void test_contest(void)
{
    Contest contest = {.table = qos_interrupt_table_new()};
    GThread *thread = g_thread_new("interrupt", interrupt, &contest);

    for (gint number = 2; number <= 2 * ROUNDS; number += 2) {
        gint *calls = g_new0(gint, 1);

        g_atomic_int_set(&contest.number, number);
        qos_interrupt_table_listen(contest.table, (guint64)number, count, calls);
        if (number % 4 == 0) {
            while (g_atomic_int_get(calls) == 0)
                g_thread_yield();
        }
        qos_interrupt_table_ignore(contest.table, (guint64)number);
        g_assert_cmpint(g_atomic_int_get(calls), <=, 1);
        g_free(calls);
    }
    g_atomic_int_set(&contest.is_ending, TRUE);
    g_thread_join(thread);
    qos_interrupt_table_free(contest.table);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/interrupt-table/listening", test_listening);
    g_test_add_func("/interrupt-table/early", test_early);
    g_test_add_func("/interrupt-table/many", test_many);
    g_test_add_func("/interrupt-table/contest", test_contest);
    return g_test_run();
}
