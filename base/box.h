/*
 * Reference-counted blocks of memory, like GLib's g_atomic_rc_box. The counting is compiled into
 * the caller, because ThreadSanitizer does not see inside GLib: so it knows that the last user
 * frees the block after all others are done.
 */
#pragma once

#include <glib.h>
#include <string.h>

/* Before the block; as large as the strictest alignment. */
typedef union {
    gint references;
    long double alignment;
} QosBox;

/* `size` bytes of zeros, with one reference. */
static inline gpointer qos_box_new0(gsize size)
{
    QosBox *box = g_malloc0(sizeof(QosBox) + size);

    box->references = 1;
    return box + 1;
}

/* A copy of the `size` bytes at `block`, with one reference. */
static inline gpointer qos_box_copy(gconstpointer block, gsize size)
{
    return memcpy(qos_box_new0(size), block, size);
}

/* The block, with one reference more. */
static inline gpointer qos_box_ref(gpointer block)
{
    g_atomic_int_inc(&((QosBox *)block - 1)->references);
    return block;
}

/* The last reference clears the block and frees it. */
static inline void qos_box_unref(gpointer block, GDestroyNotify clear)
{
    QosBox *box = (QosBox *)block - 1;

    if (!g_atomic_int_dec_and_test(&box->references))
        return;
    clear(block);
    g_free(box);
}
