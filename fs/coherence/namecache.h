/*
 * What names were last found to be, with a lock server. An operation that removes or replaces a
 * name changes the attributes of the file behind it (fs/coherence/names.c). With this cache it need
 * not ask the store which file that is.
 *
 * While this mount has a credit on a folder, no other mount changes its names. So a name that was
 * found is true as long as the credit has not gone since:
 *
 *     given up    all that is known is outdated before: the *epoch* grows. What was found is dated
 *                 from before the credit was taken, as that may be given up with others though it
 *                 was in use, and is put in between (fs/lockengine/recall.c)
 *     lost        the lock client counts it (qos_lockclient_losses)
 *
 * Folders and files are named by their numbers in the store.
 *
 * This mount's own changes are noticed because each look-up and each change says when it begins and
 * when it ends. A change forgets what was known. What was found counts only if no other change
 * began or ended meanwhile. So a look-up beside a change leaves nothing behind.
 *
 *     begin, found                 a look-up
 *     begin, take, found           a change: take tells what the name was
 *
 * The cache keeps the QOS_NAMECACHE_COUNT names that were found last. Names longer than
 * QOS_NAMECACHE_LENGTH bytes are left out. It takes 1.3 MiB at most, and memory is allocated as it
 * fills.
 *
 * Pure; the caller locks, except for epoch, outdate and begin, which use atomics.
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
