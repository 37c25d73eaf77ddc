/*
 * The cache of credits: two queues in order of use. fs/lockcache.h has the contract.
 *
 *     CLR = bytes cached x milliseconds since the entry was used, of a fresh entry x PROOF
 *
 * A credit enters the fresh queue. It becomes proven when it is used again after the hold time:
 * uses in quick succession, such as the lookup, open and stat of one visit, count as one. So a
 * scan, which visits each of a million files once, gives back its own credits and not those that
 * are used again and again. If nothing is visited twice, all ages are PROOF times smaller, and SLR
 * settles where it keeps the pool full all the same.
 *
 * The least recently used entry of a queue has the largest CLR in the queue. So one of the two
 * heads goes next, and the first head that may stay ends the search. CLR falls with the bytes: each
 * credit that goes lowers the CLR of those that stay.
 *
 * Within QOS_LOCKCACHE_HOLD of its use SLR takes no credit (GFS2's remedy against ping-pong). If
 * SLR asks for more than that, the server is too small, which it reports itself.
 */
#include "fs/lockcache.h"

#define PROOF 4

enum { NOWHERE, FRESH, PROVEN };

void qos_lockcache_init(QosLockcache *cache)
{
    *cache = (QosLockcache){.fresh = G_QUEUE_INIT, .proven = G_QUEUE_INIT};
}

void qos_lockcache_entry_init(QosLockcacheEntry *entry, guint32 bytes)
{
    *entry = (QosLockcacheEntry){.link.data = entry, .begun = QOS_NEVER, .bytes = bytes};
}

static GQueue *queue_of(QosLockcache *cache, const QosLockcacheEntry *entry)
{
    return entry->place == PROVEN ? &cache->proven : &cache->fresh;
}

void qos_lockcache_put(QosLockcache *cache, QosLockcacheEntry *entry, QosTime now)
{
    qos_lockcache_drop(cache, entry);
    entry->begun = MIN(entry->begun, now);
    entry->used = now;
    entry->place = entry->is_proven ? PROVEN : FRESH;
    g_queue_push_tail_link(queue_of(cache, entry), &entry->link);
    cache->bytes += entry->bytes;
}

void qos_lockcache_drop(QosLockcache *cache, QosLockcacheEntry *entry)
{
    if (entry->place == NOWHERE)
        return;
    g_queue_unlink(queue_of(cache, entry), &entry->link);
    cache->bytes -= entry->bytes;
    entry->place = NOWHERE;
}

void qos_lockcache_use(QosLockcache *cache, QosLockcacheEntry *entry, QosTime now)
{
    if (entry->place == NOWHERE)
        return;
    qos_lockcache_drop(cache, entry);
    if (now - entry->begun >= QOS_LOCKCACHE_HOLD)
        entry->is_proven = TRUE;
}

/* --- the signal --- */

gboolean qos_lockcache_heed(QosLockcache *cache, QosPoolSignal signal)
{
    if (signal.sequence <= cache->signal.sequence)
        return FALSE;
    cache->signal = signal;
    return TRUE;
}

void qos_lockcache_forget_signal(QosLockcache *cache)
{
    cache->signal = (QosPoolSignal){0};
}

/* --- what goes --- */

gint64 qos_lockcache_rate(const QosLockcache *cache, const QosLockcacheEntry *entry, QosTime now)
{
    gint64 age = MAX(now - entry->used, 0) / QOS_MILLISECOND;
    __int128 rate = (__int128)cache->bytes * age * (entry->place == FRESH ? PROOF : 1);

    return (gint64)MIN(rate, G_MAXINT64);
}

/* The entry with the largest CLR, or NULL. */
static QosLockcacheEntry *least_useful(const QosLockcache *cache, QosTime now)
{
    QosLockcacheEntry *fresh = g_queue_peek_head((GQueue *)&cache->fresh);
    QosLockcacheEntry *proven = g_queue_peek_head((GQueue *)&cache->proven);

    if (fresh == NULL || proven == NULL)
        return fresh != NULL ? fresh : proven;
    return qos_lockcache_rate(cache, fresh, now) >= qos_lockcache_rate(cache, proven, now) ? fresh
                                                                                           : proven;
}

static gboolean is_to_go(const QosLockcache *cache, const QosLockcacheEntry *entry, QosTime now)
{
    return cache->signal.sequence != 0 && now - entry->used >= QOS_LOCKCACHE_HOLD &&
           cache->bytes - entry->bytes >= cache->signal.floor &&
           qos_lockcache_rate(cache, entry, now) > cache->signal.rate;
}

static guint take(QosLockcache *cache, QosTime now, gboolean whatever_rate,
                  QosLockcacheEntry **batch, guint max)
{
    guint count = 0;

    while (count < max) {
        QosLockcacheEntry *entry = least_useful(cache, now);
        if (entry == NULL || !(whatever_rate || is_to_go(cache, entry, now)))
            break;
        qos_lockcache_drop(cache, entry);
        batch[count++] = entry;
    }
    return count;
}

guint qos_lockcache_shrink(QosLockcache *cache, QosTime now, QosLockcacheEntry **batch, guint max)
{
    return take(cache, now, FALSE, batch, max);
}

guint qos_lockcache_evict(QosLockcache *cache, QosTime now, QosLockcacheEntry **batch, guint max)
{
    return take(cache, now, TRUE, batch, max);
}
