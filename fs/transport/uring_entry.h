/*
 * One entry of FUSE over io_uring: the memory in which the kernel puts a request and finds its
 * reply, and the two commands about it. What the kernel demands is in its
 * Documentation/filesystems/fuse/fuse-io-uring.rst and include/uapi/linux/fuse.h, from which the
 * layouts here are; no system header has them yet where Linux 6.14 is newer than the C library.
 *
 *     page 0:  | RingEntry, with the headers the kernel writes | ... free ... | the message's start
 *     page 1-: | payload: what follows the operation's own header; then the reply
 *
 * The kernel delivers a request in three pieces. The first two are copied to the end of page 0,
 * right before the third, so that libfuse gets one contiguous message and the data of a write is
 * not copied. Memory that no request needed was never touched and costs nothing.
 */
#pragma once

#include <glib.h>
#include <liburing.h>
#include <sys/uio.h>

/* struct fuse_in_header, fuse_out_header. */
typedef struct {
    guint32 length;
    guint32 opcode;
    guint64 unique;
    guint64 nodeid;
    guint32 uid, gid, pid;
    guint16 extensions, padding;
} FuseInHeader;

typedef struct {
    guint32 length;
    gint32 error;
    guint64 unique;
} FuseOutHeader;

/* struct fuse_uring_req_header, with its fuse_uring_ent_in_out. */
typedef struct {
    union {
        FuseInHeader in;
        FuseOutHeader out;
        char in_out[128];
    };
    char operation[128]; /* the operation's own header */
    guint64 flags;
    guint64 commit_id; /* the kernel's number of the request */
    guint32 payload_size;
    guint32 padding;
    guint64 reserved;
} FuseRingHeaders;

typedef struct {
    FuseRingHeaders headers;
    struct iovec memory[2]; /* as the kernel is told: headers, payload */
    guint16 queue;
    gboolean is_registered; /* the kernel knows it: the next command carries a reply */
    gboolean is_parked;     /* its request left the reader that it came to */
} RingEntry;

/* An entry for a queue, with room for `payload_size` bytes; NULL where memory is short. */
RingEntry *qos_ring_entry_new(guint16 queue, gsize payload_size);
void qos_ring_entry_free(RingEntry *entry);

/* The command that sends the reply, if there is one, and asks for the next request. The entry is
 * its user data; file 0 of the ring is /dev/fuse. */
void qos_ring_entry_prepare(RingEntry *entry, struct io_uring_sqe *sqe);

/* The request that has arrived, as read() would have brought it, but `unique` is its token. Valid
 * until the reply. */
FuseInHeader *qos_ring_entry_request(RingEntry *entry, gsize *ret_length);

/* Gives back the memory of the data that the request brought. */
void qos_ring_entry_drop_data(RingEntry *entry);

/* Fills in a reply as writev() would have taken it. */
void qos_ring_entry_reply(RingEntry *entry, const struct iovec *parts, int count);

/* Replies carry back what requests came with: `unique` of an entry's request is the entry. */
gboolean qos_ring_is_token(guint64 unique);
RingEntry *qos_ring_entry_from(guint64 token);
