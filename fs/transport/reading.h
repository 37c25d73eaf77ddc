/*
 * A thread that is about to read its next request (fs/transport/devfuse.h), told by who has its
 * last one.
 *
 * As soon as a reply is written the kernel may give the thread's CPU to who waited for it, and he
 * sends his next request before the thread is back. Nothing but a CPU is missing then, so that
 * another thread would serve it no sooner, and to call one costs a futex(2) and a switch of
 * threads. So the thread counts among those that read before it replies.
 */
#pragma once

#include <glib.h>

/* This thread reads requests, and is counted in `count` (atomic) where it is about to. */
void qos_reading_join(gint *count);
/* All that this thread has left to do is to reply. Does nothing in threads that do not read. */
void qos_reading_comes_next(void);
/* Counts this thread, unless it was already, as it reads now. Returns how many there are. */
gint qos_reading_begin(void);
