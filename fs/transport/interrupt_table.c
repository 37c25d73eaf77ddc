/*
 * The table of requests that listen for interrupts. fs/transport/interrupt_table.h has the
 * contract.
 */
#include "fs/transport/interrupt_table.h"

#include "sys/mutex.h"

typedef struct {
    guint64 number; /* first: the key */
    void (*func)(gpointer data);
    gpointer data;
} Listener;

struct QosInterruptTable {
    QosMutex lock;         /* everything below */
    GHashTable *listeners; /* number -> Listener, owned */
    GHashTable *early;     /* a set of numbers, in `ring` */
    guint64 *ring;         /* of QOS_EARLY_INTERRUPTS: the latest; 0 = none */
    guint next_early;
};

static _Thread_local guint64 this_number;

QosInterruptTable *qos_interrupt_table_new(void)
{
    QosInterruptTable *table = g_new0(QosInterruptTable, 1);

    qos_mutex_init(&table->lock, QOS_MUTEX_INTERRUPT_TABLE);
    table->listeners = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    table->early = g_hash_table_new(g_int64_hash, g_int64_equal);
    table->ring = g_new0(guint64, QOS_EARLY_INTERRUPTS); /* the system gives what is used of it */
    return table;
}

void qos_interrupt_table_free(QosInterruptTable *table)
{
    if (table == NULL)
        return;
    g_hash_table_unref(table->early);
    g_hash_table_unref(table->listeners);
    g_free(table->ring);
    qos_mutex_destroy(&table->lock);
    g_free(table);
}

/* Instead of the one that came longest ago. */
static void remember_locked(QosInterruptTable *table, guint64 number)
{
    guint64 *place = &table->ring[table->next_early];

    if (*place != 0)
        g_hash_table_remove(table->early, place);
    *place = number;
    g_hash_table_add(table->early, place);
    table->next_early = (table->next_early + 1) % QOS_EARLY_INTERRUPTS;
}

void qos_interrupt_table_listen(QosInterruptTable *table, guint64 number,
                                void (*func)(gpointer data), gpointer data)
{
    Listener *listener = g_new(Listener, 1);

    *listener = (Listener){number, func, data};
    qos_mutex_lock(&table->lock);
    g_hash_table_replace(table->listeners, &listener->number, listener);
    if (g_hash_table_contains(table->early, &number))
        func(data);
    qos_mutex_unlock(&table->lock);
}

void qos_interrupt_table_ignore(QosInterruptTable *table, guint64 number)
{
    qos_mutex_lock(&table->lock);
    g_hash_table_remove(table->listeners, &number);
    qos_mutex_unlock(&table->lock);
}

void qos_interrupt_table_receive(QosInterruptTable *table, guint64 number)
{
    qos_mutex_lock(&table->lock);
    const Listener *listener = g_hash_table_lookup(table->listeners, &number);
    if (listener != NULL)
        listener->func(listener->data);
    else
        remember_locked(table, number);
    qos_mutex_unlock(&table->lock);
}

void qos_interrupt_table_set_number(guint64 number)
{
    this_number = number;
}

guint64 qos_interrupt_table_number(void)
{
    return this_number;
}
