/*
 * What uring.c and uring_reader.c share. uring_reader.c has the readers and what they wait for,
 * uring.c the replies, and the beginning and the end.
 */
#pragma once

#include <pthread.h>

#include "fs/transport/uring.h"
#include "fs/transport/uring_entry.h"
#include "fs/transport/uring_setup.h"
#include "sys/mutex.h"

typedef struct {
    QosRing *ring;
    guint16 number; /* the CPU */
    gint waiting;   /* atomic: readers that wait, with an entry or more */
    gint starved;   /* atomic: not 0: requests may wait in the kernel's queue */
    int wake_fd;    /* readable: readers, look at `returned`, or end */
    QosMutex lock;  /* the following */
    pthread_cond_t changed;
    GPtrArray *readers;
    GPtrArray *entries; /* all of the queue */
    GQueue returned;    /* entries with the reply to a request that had parked */
    guint resting;      /* readers without an entry */
} QosRingQueue;

typedef struct {
    QosRingQueue *queue;
    struct io_uring uring;
    guint flags; /* of its waits */
    pthread_t thread;
    gboolean is_counted; /* in queue->resting, since it was made */
    guint held;          /* entries that it has with the kernel */
    RingEntry *handling; /* the request in this thread, until it parks */
    gboolean has_reply;
} QosRingReader;

struct QosRing {
    struct fuse_session *session;
    int fd;
    guint depth;
    guint threads;
    gsize payload_size;
    gsize own_requests;   /* atomic: how many ask_for_commit() has made */
    gsize file;           /* atomic: the node id of a file that the kernel knows */
    gboolean is_open;     /* atomic: the kernel knows of the ring */
    gboolean is_over;     /* atomic: the connection has ended, and with it all requests */
    gboolean is_stopping; /* atomic */
    QosMutex last_lock;   /* of `last` */
    struct io_uring last; /* for replies once there are no readers */
    guint queue_count;
    QosRingQueue *queues;
};

/* Makes a reader for the queue; FALSE where there are as many as there may be, or no thread is to
 * be had. */
gboolean qos_ring_start_reader_locked(QosRingQueue *queue);
/* A reader looks at what was returned, or ends. */
void qos_ring_wake(QosRingQueue *queue);
/* TRUE where this thread handles the entry's request: it sends the reply, with its next wait. */
gboolean qos_ring_take_reply(const RingEntry *entry);
/* The entry has a reply, and no reader. */
void qos_ring_give_back(QosRing *ring, RingEntry *entry);
/* Sends the entry's reply once there are no readers: nobody will see what the entry brings next. */
void qos_ring_send_last(QosRing *ring, RingEntry *entry);
