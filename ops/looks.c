/*
 * Looks at attributes; ops/looks.h tells what for.
 */
#include "ops/looks.h"

#include <time.h>

#include "fs/mutex.h"

#define FILES 256 /* of two in one place the later is remembered */
/* A file that changed so lately may change again at the same time, or the kernel have taken no
 * notice because it was writing. */
#define FRESH_TIME 2 /* seconds */

/* Each atomic, by itself: one that is read half is news too many or too few. */
typedef struct {
    fuse_ino_t ino;
    guint64 told; /* a digest of what the kernel knows; 0 = it is to be told again */
} File;

typedef struct {
    guint requests; /* that keep pages of the file */
    gint64 end;     /* the least that one of them was for */
} Waiting;

struct QosLooks {
    File files[FILES];
    gint count;          /* atomic: requests in `waiting` */
    QosMutex lock;       /* of `waiting` */
    GHashTable *waiting; /* ino -> Waiting */
};

QosLooks *qos_looks_new(void)
{
    QosLooks *looks = g_new0(QosLooks, 1);

    qos_mutex_init(&looks->lock, QOS_MUTEX_LOOKS);
    looks->waiting = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return looks;
}

void qos_looks_free(QosLooks *looks)
{
    if (looks == NULL)
        return;
    g_assert(looks->count == 0);
    g_hash_table_unref(looks->waiting);
    qos_mutex_destroy(&looks->lock);
    g_free(looks);
}

static guint64 digest(struct timespec modified, off_t size)
{
    const guint64 factor = G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
    guint64 hash = (guint64)modified.tv_sec * factor;

    hash = (hash ^ hash >> 29 ^ (guint64)modified.tv_nsec) * factor;
    hash = (hash ^ hash >> 29 ^ (guint64)size) * factor;
    return hash | 1;
}

gboolean qos_looks_note(QosLooks *looks, fuse_ino_t ino, struct timespec modified, off_t size)
{
    File *file = &looks->files[ino % FILES];
    const guint64 now_told = digest(modified, size);
    gboolean is_fresh;

    if (__atomic_load_n(&file->ino, __ATOMIC_RELAXED) == ino &&
        __atomic_load_n(&file->told, __ATOMIC_RELAXED) == now_told)
        return FALSE;
    is_fresh = time(NULL) - modified.tv_sec < FRESH_TIME;
    __atomic_store_n(&file->told, is_fresh ? 0 : now_told, __ATOMIC_RELAXED);
    __atomic_store_n(&file->ino, ino, __ATOMIC_RELAXED);
    return TRUE;
}

void qos_looks_wait(QosLooks *looks, fuse_ino_t ino, gint64 end)
{
    gpointer key = GSIZE_TO_POINTER(ino);

    qos_mutex_lock(&looks->lock);
    Waiting *waiting = g_hash_table_lookup(looks->waiting, key);
    if (waiting == NULL) {
        waiting = g_new(Waiting, 1);
        *waiting = (Waiting){.end = end};
        g_hash_table_insert(looks->waiting, key, waiting);
    }
    waiting->requests++;
    waiting->end = MIN(waiting->end, end);
    qos_mutex_unlock(&looks->lock);
    __atomic_add_fetch(&looks->count, 1, __ATOMIC_RELAXED);
}

void qos_looks_go_on(QosLooks *looks, fuse_ino_t ino)
{
    gpointer key = GSIZE_TO_POINTER(ino);

    qos_mutex_lock(&looks->lock);
    Waiting *waiting = g_hash_table_lookup(looks->waiting, key);
    if (--waiting->requests == 0)
        g_hash_table_remove(looks->waiting, key);
    qos_mutex_unlock(&looks->lock);
    __atomic_sub_fetch(&looks->count, 1, __ATOMIC_RELAXED);
}

gboolean qos_looks_are_awaited(QosLooks *looks, fuse_ino_t ino, gint64 size)
{
    gboolean are_awaited;

    if (__atomic_load_n(&looks->count, __ATOMIC_RELAXED) == 0)
        return FALSE;
    qos_mutex_lock(&looks->lock);
    const Waiting *waiting = g_hash_table_lookup(looks->waiting, GSIZE_TO_POINTER(ino));
    are_awaited = waiting != NULL && waiting->end <= size;
    qos_mutex_unlock(&looks->lock);
    return are_awaited;
}
