/*
 * Where a thread puts the bytes of a reply: into a buffer of its own, which it keeps, or over
 * io_uring into the memory from which the kernel takes them.
 */
#pragma once

#include <glib.h>

/* This thread's buffer of at least `size` bytes, for a reply made in this thread; valid until the
 * next call. */
void *qos_reply_buffer(gsize size);
/* The `size` bytes (at most a page) before it, for the header of that reply; NULL where `bytes` are
 * not this thread's buffer. */
void *qos_reply_buffer_head(const void *bytes, gsize size);
