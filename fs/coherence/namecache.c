/*
 * The ring of names. fs/coherence/namecache.h has the contract.
 *
 * A name that is found for the first time takes the place of the oldest one. The ring grows as it
 * fills, so a few names take little memory. Names with the same hash form a chain, from the newest
 * to the oldest. Names are counted, and a count that is too old for the ring ends the chain; so
 * nothing is ever taken out of a chain. A look-up follows a chain for DEPTH steps at most, whatever
 * names users think of. A name that is deeper is never found again, because all that is newer stays
 * longer.
 *
 * The version of a chain grows when a change of one of its names begins and when it ends.
 */
#include "fs/coherence/namecache.h"

#include <string.h>

#define CHAIN_BITS 13
#define DEPTH      16

typedef struct {
    guint64 folder, number;
    guint epoch, losses; /* when it was found */
    guint older;         /* the count of the next in the chain */
    guint8 length;
    char name[QOS_NAMECACHE_LENGTH];
} Entry;

typedef struct {
    guint version; /* atomic */
    guint newest;
} Chain;

struct QosNamecache {
    guint epoch; /* atomic: how often all was outdated */
    guint count; /* of the next name, modulo 2^32 */
    Chain chains[1 << CHAIN_BITS];
    Entry entries[QOS_NAMECACHE_COUNT];
};

QosNamecache *qos_namecache_new(void)
{
    QosNamecache *cache = g_new0(QosNamecache, 1);

    cache->count = QOS_NAMECACHE_COUNT + 1; /* chains end at 0 */
    return cache;
}

void qos_namecache_free(QosNamecache *cache)
{
    g_free(cache);
}

void qos_namecache_outdate(QosNamecache *cache)
{
    g_atomic_int_inc(&cache->epoch);
}

guint qos_namecache_epoch(const QosNamecache *cache)
{
    return (guint)g_atomic_int_get(&cache->epoch);
}

/* FNV-1a; the bits that depend on all others are above. */
static guint chain_of(guint64 folder, const char *name, gsize length)
{
    guint64 hash = 0xcbf29ce484222325u ^ folder;

    for (gsize i = 0; i < length; i++)
        hash = (hash ^ (guint8)name[i]) * 0x100000001b3u;
    return (guint)(hash * 0x9e3779b97f4a7c15u >> (64 - CHAIN_BITS));
}

void qos_namecache_begin(QosNamecache *cache, guint64 folder, const char *name, guint epoch,
                         guint losses, QosNameLook *ret_look)
{
    const gsize length = strlen(name);

    *ret_look = (QosNameLook){.number = QOS_NAME_UNKNOWN, .folder = folder, .name = name};
    if (length > QOS_NAMECACHE_LENGTH)
        return;
    ret_look->length = length;
    ret_look->chain = chain_of(folder, name, length);
    ret_look->version = (guint)g_atomic_int_get(&cache->chains[ret_look->chain].version);
    ret_look->epoch = epoch;
    ret_look->losses = losses;
}

static Entry *find(QosNamecache *cache, const QosNameLook *look)
{
    guint count = cache->chains[look->chain].newest;

    for (guint i = 0; i < DEPTH && cache->count - count <= QOS_NAMECACHE_COUNT; i++) {
        Entry *entry = &cache->entries[count % QOS_NAMECACHE_COUNT];

        if (entry->folder == look->folder && entry->length == look->length &&
            memcmp(entry->name, look->name, look->length) == 0)
            return entry;
        count = entry->older;
    }
    return NULL;
}

static Entry *add(QosNamecache *cache, const QosNameLook *look)
{
    Chain *chain = &cache->chains[look->chain];
    Entry *entry = &cache->entries[cache->count % QOS_NAMECACHE_COUNT];

    *entry =
        (Entry){.folder = look->folder, .older = chain->newest, .length = (guint8)look->length};
    memcpy(entry->name, look->name, look->length);
    chain->newest = cache->count++;
    return entry;
}

void qos_namecache_take(QosNamecache *cache, QosNameLook *look)
{
    Entry *entry;

    if (look->length == 0)
        return;
    look->changes = TRUE;
    look->version = (guint)g_atomic_int_add(&cache->chains[look->chain].version, 1) + 1;
    entry = find(cache, look);
    if (entry == NULL)
        return;
    if (entry->epoch == qos_namecache_epoch(cache) && entry->losses == look->losses)
        look->number = entry->number;
    entry->number = QOS_NAME_UNKNOWN;
}

void qos_namecache_found(QosNamecache *cache, const QosNameLook *look, guint64 number)
{
    guint *version = &cache->chains[look->chain].version;
    gboolean is_alone;
    Entry *entry;

    if (look->length == 0)
        return;
    is_alone = (guint)g_atomic_int_get(version) == look->version;
    if (look->changes)
        g_atomic_int_inc(version);
    else if (!is_alone)
        return;
    if (!is_alone)
        number = QOS_NAME_UNKNOWN;
    entry = find(cache, look);
    if (entry == NULL && number != QOS_NAME_UNKNOWN)
        entry = add(cache, look);
    if (entry == NULL)
        return;
    entry->number = number;
    entry->epoch = look->epoch;
    entry->losses = look->losses;
}
