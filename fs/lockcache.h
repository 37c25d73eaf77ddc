/*
 * The credits that a mount keeps although they are not in use: the client's side of the pool (seed
 * 001, 5.3.3). It says which credits to give back, and when.
 *
 * An entry is embedded in its credit, and is in the cache while the credit is held and not in use.
 * To use a credit, its user takes the entry out (qos_lockcache_use); when the last user is done,
 * the entry is put back. So a credit in use is never given back. Credits that
 * qos_lockcache_shrink() names go back with the next request to the server. Finding a credit is the
 * owner's business (core/credit.h).
 *
 * Pure: time is an argument; the caller locks. Sizes are bytes of the server's memory
 * (core/pool.h).
 */
#pragma once

#include "core/pool.h"

#define QOS_LOCKCACHE_HOLD  (500 * QOS_MILLISECOND)
#define QOS_LOCKCACHE_BATCH 400 /* cancels that fit into one request, some KiB */

typedef struct {
    GList link;    /* in one of the queues; data: the entry */
    QosTime begun; /* when it first was in the cache */
    QosTime used;  /* when its last use ended */
    guint32 bytes;
    guint8 place;     /* 0: not in the cache */
    guint8 is_proven; /* it was used again after the hold time */
    guint8 calls;     /* of others: its user's (fs/lockengine/recall.h) */
    guint8 spared;    /* how often since its last use: its user's (qos_lockclient_spare) */
} QosLockcacheEntry;

typedef struct {
    GQueue fresh;         /* of QosLockcacheEntry, least recently used first: used once, */
    GQueue proven;        /* and used again */
    gint64 bytes;         /* of both */
    QosPoolSignal signal; /* the newest that was heard; sequence 0: none was */
} QosLockcache;

void qos_lockcache_init(QosLockcache *cache);
/* A new credit of `bytes`, not yet in the cache. */
void qos_lockcache_entry_init(QosLockcacheEntry *entry, guint32 bytes);

/* The credit's last use has ended: it enters the cache. */
void qos_lockcache_put(QosLockcache *cache, QosLockcacheEntry *entry, QosTime now);
/* The credit is used again: it leaves the cache. Does nothing if it is not in the cache. */
void qos_lockcache_use(QosLockcache *cache, QosLockcacheEntry *entry, QosTime now);
/* The credit is gone, for example revoked: it leaves the cache, but that does not count as a
 * use. */
void qos_lockcache_drop(QosLockcache *cache, QosLockcacheEntry *entry);

/* What the server said last. FALSE: it is older than what it said before, and ignored. */
gboolean qos_lockcache_heed(QosLockcache *cache, QosPoolSignal signal);
/* Another server, which counts its signals anew: until it has spoken, nothing is given back. */
void qos_lockcache_forget_signal(QosLockcache *cache);

/* CLR of an entry in the cache, in byte-milliseconds. */
gint64 qos_lockcache_rate(const QosLockcache *cache, const QosLockcacheEntry *entry, QosTime now);
/* Takes out of the cache what SLR tells to give back, into `batch`, `max` at most; returns how
 * many. As many as `max`: there may be more. */
guint qos_lockcache_shrink(QosLockcache *cache, QosTime now, QosLockcacheEntry **batch, guint max);
/* The same whatever SLR, floor and hold time are, the least useful first: memory is short, or the
 * server says QOS_POOL_CAPPED. */
guint qos_lockcache_evict(QosLockcache *cache, QosTime now, QosLockcacheEntry **batch, guint max);
