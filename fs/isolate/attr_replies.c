/*
 * What the kernel was last told of attributes (fs/isolate/attr_replies.h).
 */
#include "fs/isolate/attr_replies.h"

#include <time.h>

#define FILES 256 /* of two in one place the later is remembered */
/* A file that changed so lately may change again at the same time, or the kernel have taken no
 * notice because it was writing. */
#define FRESH_TIME 2 /* seconds */

/* Each atomic, by itself: one that is read half is a change too many or too few. */
typedef struct {
    fuse_ino_t ino;
    guint64 told; /* a digest of what the kernel knows; 0 = it is to be told again */
} File;

struct QosLooks {
    File files[FILES];
};

QosLooks *qos_looks_new(void)
{
    return g_new0(QosLooks, 1);
}

void qos_looks_free(QosLooks *looks)
{
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
