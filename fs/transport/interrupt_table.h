/*
 * Who is to hear of an interrupt: the requests that wait, by the kernel's numbers.
 *
 * The kernel names a request that it interrupts by its number. Few requests want to hear of that:
 * those that are parked, or wait for a lock. So only these are in the table, while libfuse's own
 * lists all requests, under one lock that each takes twice.
 *
 * An interrupt may come before its request listens: most often while the request's caller is being
 * named, which takes a second at most (fs/caller/resolver.h), and a killed job may have a thousand
 * such. So the last QOS_EARLY_INTERRUPTS for which nobody listened are remembered: more than the
 * kernel sends in that second, as each takes a call and its kill. Numbers are never used again:
 * most of these stand for requests that had nothing to wait for, and go as others come.
 *
 * Locks: `lock`, the outermost of all; call-backs are called with it held.
 */
#pragma once

#include <glib.h>

#define QOS_EARLY_INTERRUPTS 65536

typedef struct QosInterruptTable QosInterruptTable;

QosInterruptTable *qos_interrupt_table_new(void);
void qos_interrupt_table_free(QosInterruptTable *table); /* NULL is allowed */

/* When the request `number` is interrupted, func(data) is called: at once where it was already,
 * else by who reads the interrupt. One listens for a request at a time. */
void qos_interrupt_table_listen(QosInterruptTable *table, guint64 number,
                                void (*func)(gpointer data), gpointer data);
/* Waits for a call that is under way; none follows. Does nothing where nobody listens. */
void qos_interrupt_table_ignore(QosInterruptTable *table, guint64 number);
/* The kernel interrupts the request `number`. */
void qos_interrupt_table_receive(QosInterruptTable *table, guint64 number);

/* The number of the request that this thread hands to libfuse, for its handler; 0: of none. */
void qos_interrupt_table_set_number(guint64 number);
guint64 qos_interrupt_table_number(void);
