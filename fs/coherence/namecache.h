/*
 * What names were last found to be, with a lock server: who removes or replaces one need not ask
 * the store whose attributes change with it (fs/coherence/names.c).
 *
 * Under a credit on a folder no other mount changes what its names are. So what was found under it
 * is true as long as the credit has not gone since:
 *
 *     given up    all that is known is outdated before: the *epoch* grows. What was found is dated
 *                 from before the credit was taken, as that may be given up with others though it
 *                 was in use, and is put in between (fs/lockengine/recall.c)
 *     lost        the lock client counts it (qos_lockclient_losses)
 *
 * A folder and a file go by their numbers in the store.
 *
 * What this mount itself changes is known by each look at a name having a beginning and an end: a
 * change forgets what was known, and what is found counts only where no other change began or ended
 * meanwhile. So a look-up that is in the store beside a change leaves nothing behind.
 *
 *     begin, found                 a look-up
 *     begin, take, found           a change: take tells what the name was
 *
 * Bounded: the QOS_NAMECACHE_COUNT that were found last, of those that have up to
 * QOS_NAMECACHE_LENGTH bytes, in 1.3 MiB, of which memory is taken as they fill.
 *
 * Pure; the caller locks, but for epoch, outdate and begin, which use atomics.
 */
#pragma once

#include <glib.h>

#define QOS_NAMECACHE_COUNT  16384
#define QOS_NAMECACHE_LENGTH 51

/* Beside the numbers of files: */
#define QOS_NAME_NONE    ((guint64)0) /* there is none of that name */
#define QOS_NAME_UNKNOWN G_MAXUINT64

typedef struct QosNamecache QosNamecache;

/* One look at a name, or change of what it is. */
typedef struct {
    guint64 number; /* what it was, or QOS_NAME_UNKNOWN; by qos_namecache_take() */
    /* --- the cache's --- */
    guint64 folder;
    const char *name;
    gsize length; /* 0: nothing is known of it, nor will be */
    guint chain, version, epoch, losses;
    gboolean changes;
} QosNameLook;

QosNamecache *qos_namecache_new(void);
void qos_namecache_free(QosNamecache *cache); /* NULL is allowed */

/* Some folder's credit is about to be given up, or is lost: all that is known is outdated. */
void qos_namecache_outdate(QosNamecache *cache);

/* How often all was outdated, modulo 2^32. */
guint qos_namecache_epoch(const QosNamecache *cache);

/* Before the store is looked at. `name` is borrowed; `epoch` and `losses`: of before a credit on
 * the folder was asked for. */
void qos_namecache_begin(QosNamecache *cache, guint64 folder, const char *name, guint epoch,
                         guint losses, QosNameLook *ret_look);
/* The look is a change, about to be made under a credit to write: look->number. */
void qos_namecache_take(QosNamecache *cache, QosNameLook *look);
/* The store has been looked at, or changed, under the credit: `number` is what the name is now.
 * Every change must come to this. */
void qos_namecache_found(QosNamecache *cache, const QosNameLook *look, guint64 number);
