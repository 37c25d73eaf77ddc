/*
 * The requests that listen for an interrupt, by the kernel's numbers.
 *
 * The kernel names a request that it interrupts by its number. Few requests need to hear of it:
 * those that are parked, or wait for a lock. So only these are in the table. libfuse's own table
 * lists all requests, under one lock that each takes twice.
 *
 * An interrupt may come before its request listens. Mostly the request's caller is being named
 * then, which takes a second at most (fs/caller/resolver.h), and a killed job may have a thousand
 * such requests. So the last QOS_EARLY_INTERRUPTS that nobody listened for are remembered. That is
 * more than the kernel sends in that second, because each takes a call and its kill. Numbers are
 * never used again. Most of these stand for requests that had nothing to wait for, and go as others
 * come.
 *
 * Lock: `lock`, the outermost of all; call-backs are made with it held.
 */
#pragma once

#include <glib.h>

#define QOS_EARLY_INTERRUPTS 65536

typedef struct QosInterruptTable QosInterruptTable;

QosInterruptTable *qos_interrupt_table_new(void);
void qos_interrupt_table_free(QosInterruptTable *table); /* NULL is allowed */

/* When the request `number` is interrupted, func(data) is called: at once if it was already, else
 * by the thread that reads the interrupt. A request has one listener at a time. */
void qos_interrupt_table_listen(QosInterruptTable *table, guint64 number,
                                void (*func)(gpointer data), gpointer data);
/* Waits for a call that is under way; none follows. Does nothing if the request does not listen. */
void qos_interrupt_table_ignore(QosInterruptTable *table, guint64 number);
/* The kernel interrupts the request `number`. */
void qos_interrupt_table_receive(QosInterruptTable *table, guint64 number);

/* The number of the request that this thread hands to libfuse, for its handler; 0: of none. */
void qos_interrupt_table_set_number(guint64 number);
guint64 qos_interrupt_table_number(void);
