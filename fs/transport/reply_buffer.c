/*
 * One reply buffer for each thread, or the ring's if the request came by the ring.
 * fs/transport/reply_buffer.h has the contract.
 *
 * The buffer begins on a page, because the kernel copies from whole pages. The page before it has
 * room for the reply's header, so that header and bytes are written as one piece.
 */
#include "fs/transport/reply_buffer.h"

#include "fs/transport/uring.h"

/* The kernel copies whole pages, and pins no more of them than it must. The page before them ends
 * with the header of the reply. */
#define PAGE_ALIGNMENT 4096

typedef struct {
    char *memory;
    gsize size; /* of `memory`, less its first page */
} Buffer;

static void buffer_free(gpointer data)
{
    Buffer *buffer = data;

    g_aligned_free(buffer->memory);
    *buffer = (Buffer){0};
}

static _Thread_local Buffer this_buffer;
static GPrivate buffer_owner = G_PRIVATE_INIT(buffer_free); /* frees it with its thread */

void *qos_reply_buffer(gsize size)
{
    Buffer *buffer = &this_buffer;
    void *bytes = qos_ring_buffer(size);

    if (bytes != NULL)
        return bytes;
    if (buffer->memory == NULL || buffer->size < size) {
        g_aligned_free(buffer->memory);
        buffer->memory = g_aligned_alloc(1, PAGE_ALIGNMENT + size, PAGE_ALIGNMENT);
        buffer->size = size;
        g_private_set(&buffer_owner, buffer);
    }
    return buffer->memory + PAGE_ALIGNMENT;
}

void *qos_reply_buffer_head(const void *bytes, gsize size)
{
    char *memory = this_buffer.memory;

    return memory != NULL && bytes == memory + PAGE_ALIGNMENT ? memory + PAGE_ALIGNMENT - size
                                                              : NULL;
}
