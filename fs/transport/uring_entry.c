/*
 * The memory and the commands of an entry. fs/transport/uring_entry.h has the contract.
 */
#include "fs/transport/uring_entry.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

/* enum fuse_uring_cmd */
#define COMMAND_REGISTER         1
#define COMMAND_COMMIT_AND_FETCH 2

/* An entry with a parked request keeps no more than this of its payload in memory, because parked
 * requests are many, and entries that serve without a pause are few. */
#define PAYLOAD_KEPT (16 * PAGE)

/* The kernel's numbers are small. */
#define TOKEN (G_GUINT64_CONSTANT(1) << 63)

/* struct fuse_uring_cmd_req */
typedef struct {
    guint64 flags;
    guint64 commit_id;
    guint16 queue;
    guint8 padding[6];
} FuseRingCommand;

G_STATIC_ASSERT(sizeof(FuseInHeader) == 40);
G_STATIC_ASSERT(sizeof(FuseRingHeaders) == 288);
/* The message's start lies in the same page. */
G_STATIC_ASSERT(sizeof(RingEntry) + sizeof(FuseInHeader) + 128 <= PAGE);

RingEntry *qos_ring_entry_new(guint16 queue, gsize payload_size)
{
    RingEntry *entry = mmap(NULL, PAGE + payload_size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (entry == MAP_FAILED)
        return NULL;
    entry->queue = queue;
    entry->memory[0] = (struct iovec){&entry->headers, sizeof(entry->headers)};
    entry->memory[1] = (struct iovec){(char *)entry + PAGE, payload_size};
    return entry;
}

void qos_ring_entry_free(RingEntry *entry)
{
    munmap(entry, PAGE + entry->memory[1].iov_len);
}

/* Gives back the payload's memory beyond `kept` bytes. */
static void shrink(const RingEntry *entry, gsize kept)
{
    const struct iovec *payload = &entry->memory[1];

    if (payload->iov_len > kept)
        madvise((char *)payload->iov_base + kept, payload->iov_len - kept, MADV_DONTNEED);
}

/* Gives back what earlier replies filled. Only before the next reply: once the kernel may bring
 * another request, its data may lie there. */
static void trim(RingEntry *entry)
{
    if (entry->headers.payload_size <= PAYLOAD_KEPT)
        shrink(entry, PAYLOAD_KEPT);
    entry->is_parked = FALSE;
}

void qos_ring_entry_drop_data(RingEntry *entry)
{
    if (entry->headers.payload_size > PAGE)
        shrink(entry, PAGE);
}

void qos_ring_entry_prepare(RingEntry *entry, struct io_uring_sqe *sqe)
{
    FuseRingCommand *command = (FuseRingCommand *)sqe->cmd;

    memset(sqe, 0, sizeof(*sqe));
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->flags = IOSQE_FIXED_FILE;
    sqe->fd = 0;
    sqe->user_data = (guintptr)entry;
    *command = (FuseRingCommand){.queue = entry->queue};
    if (entry->is_registered) {
        sqe->cmd_op = COMMAND_COMMIT_AND_FETCH;
        command->commit_id = entry->headers.commit_id;
    } else {
        sqe->cmd_op = COMMAND_REGISTER;
        sqe->addr = (guintptr)entry->memory;
        sqe->len = G_N_ELEMENTS(entry->memory);
        entry->is_registered = TRUE;
    }
}

FuseInHeader *qos_ring_entry_request(RingEntry *entry, gsize *ret_length)
{
    const FuseRingHeaders *headers = &entry->headers;
    gsize operation = headers->in.length - sizeof(FuseInHeader) - headers->payload_size;
    char *start = (char *)entry->memory[1].iov_base - operation - sizeof(FuseInHeader);
    FuseInHeader *message = (FuseInHeader *)start;

    if (entry->is_parked)
        trim(entry);
    memcpy(message, &headers->in, sizeof(*message));
    memcpy(message + 1, headers->operation, operation);
    message->unique = TOKEN | (guintptr)entry;
    *ret_length = message->length;
    return message;
}

void qos_ring_entry_reply(RingEntry *entry, const struct iovec *parts, int count)
{
    const FuseOutHeader *out = parts[0].iov_base;
    const struct iovec *payload = &entry->memory[1];
    gsize size = 0;
    gint32 error = out->error;

    for (int i = 1; i < count; i++) {
        char *to = (char *)payload->iov_base + size;

        if (parts[i].iov_len > payload->iov_len - size) {
            error = -EIO;
            size = 0;
            break;
        }
        if (to != parts[i].iov_base)
            memcpy(to, parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    entry->headers.payload_size = (guint32)size;
    entry->headers.out = (FuseOutHeader){.length = (guint32)(sizeof(*out) + size),
                                         .error = error,
                                         .unique = entry->headers.commit_id};
}

gboolean qos_ring_is_token(guint64 unique)
{
    return (unique & TOKEN) != 0;
}

RingEntry *qos_ring_entry_from(guint64 token)
{
    return (RingEntry *)(guintptr)(token & ~TOKEN); /* NOLINT(performance-no-int-to-ptr) */
}
