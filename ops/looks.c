/*
 * Looks at attributes; ops/looks.h tells what for.
 *
 * A look notes its news and then asks who waits; a request notes that it waits and then asks for
 * news: so one of them meets the other.
 */
#include "ops/looks.h"

#include <time.h>

#include "fs/gate.h"
#include "fs/mutex.h"

#define FILES 256 /* of two in one place the later is remembered */
/* A file that changed so lately may change again at the same time, or the kernel have taken no
 * notice because it was writing. */
#define FRESH_TIME 2 /* seconds */
/* Within that the kernel has been told, and come to the pages. */
#define MEETING_TIME QOS_SECOND

/* Each atomic, by itself: one that is read half is news too many or too few. */
typedef struct {
    fuse_ino_t ino;
    guint64 told;    /* a digest of what the kernel knows; 0 = it is to be told again */
    QosTime news;    /* when it was told of a change; 0 = never */
    QosTime awaited; /* when that was last, while requests waited that keep pages */
    gint64 size;
    pid_t looker; /* who alone was told lately; 0 = several, or not known */
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

static gboolean has_waiting(QosLooks *looks, fuse_ino_t ino, gint64 size)
{
    gboolean has;

    if (__atomic_load_n(&looks->count, __ATOMIC_SEQ_CST) == 0)
        return FALSE;
    qos_mutex_lock(&looks->lock);
    const Waiting *waiting = g_hash_table_lookup(looks->waiting, GSIZE_TO_POINTER(ino));
    has = waiting != NULL && waiting->end <= size;
    qos_mutex_unlock(&looks->lock);
    return has;
}

static guint64 digest(struct timespec modified, off_t size)
{
    const guint64 factor = G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
    guint64 hash = (guint64)modified.tv_sec * factor;

    hash = (hash ^ hash >> 29 ^ (guint64)modified.tv_nsec) * factor;
    hash = (hash ^ hash >> 29 ^ (guint64)size) * factor;
    return hash | 1;
}

/* To be called before `news` is set. */
static void note_looker(File *file, pid_t thread, QosTime now)
{
    const QosTime news = __atomic_load_n(&file->news, __ATOMIC_RELAXED);
    const gboolean is_alone = news == 0 || now - news >= MEETING_TIME ||
                              __atomic_load_n(&file->looker, __ATOMIC_RELAXED) == thread;

    __atomic_store_n(&file->looker, is_alone ? thread : 0, __ATOMIC_RELAXED);
}

gboolean qos_looks_note(QosLooks *looks, fuse_ino_t ino, struct timespec modified, off_t size,
                        pid_t thread)
{
    File *file = &looks->files[ino % FILES];
    const guint64 now_told = digest(modified, size);
    const gboolean is_known = __atomic_load_n(&file->ino, __ATOMIC_RELAXED) == ino;
    gboolean is_fresh, is_awaited;
    QosTime now;

    if (is_known && __atomic_load_n(&file->told, __ATOMIC_RELAXED) == now_told)
        return FALSE;
    now = qos_gate_now();
    is_fresh = time(NULL) - modified.tv_sec < FRESH_TIME;
    __atomic_store_n(&file->told, is_fresh ? 0 : now_told, __ATOMIC_RELAXED);
    __atomic_store_n(&file->size, size, __ATOMIC_RELAXED);
    note_looker(file, thread, now);
    __atomic_store_n(&file->news, is_known ? now : 0, __ATOMIC_RELAXED);
    if (!is_known)
        __atomic_store_n(&file->awaited, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&file->ino, ino, __ATOMIC_SEQ_CST);
    is_awaited = has_waiting(looks, ino, size);
    if (is_awaited)
        __atomic_store_n(&file->awaited, now, __ATOMIC_RELAXED);
    return is_awaited;
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
    __atomic_add_fetch(&looks->count, 1, __ATOMIC_SEQ_CST);
}

void qos_looks_go_on(QosLooks *looks, fuse_ino_t ino)
{
    gpointer key = GSIZE_TO_POINTER(ino);

    qos_mutex_lock(&looks->lock);
    Waiting *waiting = g_hash_table_lookup(looks->waiting, key);
    if (--waiting->requests == 0)
        g_hash_table_remove(looks->waiting, key);
    qos_mutex_unlock(&looks->lock);
    __atomic_sub_fetch(&looks->count, 1, __ATOMIC_SEQ_CST);
}

/* TRUE where it is that file, `time` is at most `within` ago, and `end` is not beyond its end. */
static gboolean is_lately(const File *file, fuse_ino_t ino, gint64 end, const QosTime *time,
                          QosTime within)
{
    QosTime then = __atomic_load_n(time, __ATOMIC_SEQ_CST);

    return __atomic_load_n(&file->ino, __ATOMIC_SEQ_CST) == ino &&
           end <= __atomic_load_n(&file->size, __ATOMIC_RELAXED) && then != 0 &&
           qos_gate_now() - then < within;
}

gboolean qos_looks_has_news(QosLooks *looks, fuse_ino_t ino, gint64 end, pid_t thread)
{
    const File *file = &looks->files[ino % FILES];

    return is_lately(file, ino, end, &file->news, MEETING_TIME) &&
           (thread == 0 || __atomic_load_n(&file->looker, __ATOMIC_SEQ_CST) != thread);
}

gboolean qos_looks_is_awaited(QosLooks *looks, fuse_ino_t ino, gint64 end, QosTime within)
{
    const File *file = &looks->files[ino % FILES];

    return is_lately(file, ino, end, &file->awaited, within);
}
