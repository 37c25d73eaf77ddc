/*
 * Pages to be dropped; ops/pages.h tells what for.
 */
#include "ops/pages.h"

#include <pthread.h>

/* Bytes of a file: [start, end). */
typedef struct {
    gint64 start, end;
} Range;

typedef struct {
    fuse_ino_t ino; /* first: the table holds these */
    GQueue waiting; /* of QosEntry, by their `parked` */
    Range range;    /* yet to be dropped; empty while that is being done */
} Drop;

struct QosPages {
    struct fuse_session *session;
    QosGate *gate;
    QosInodes *inodes;
    pthread_t thread;
    gint count;           /* atomic: of drops */
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t changed;
    GHashTable *drops; /* of Drop */
    GQueue queue;      /* the same, those that are not being done */
    guint woken;       /* how often */
    gboolean is_stopping;
};

static Drop *find_locked(QosPages *pages, fuse_ino_t ino)
{
    guint64 key = ino;
    return g_hash_table_lookup(pages->drops, &key);
}

static gboolean is_empty(const Range *range)
{
    return range->start >= range->end;
}

/* What lies between the two is dropped too. */
static void add_range(Range *range, Range other)
{
    if (is_empty(range))
        *range = other;
    range->start = MIN(range->start, other.start);
    range->end = MAX(range->end, other.end);
}

void qos_pages_drop_range(QosPages *pages, fuse_ino_t ino, gint64 start, gint64 end)
{
    pthread_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino);
    if (drop == NULL) {
        drop = g_new0(Drop, 1);
        drop->ino = ino;
        g_hash_table_add(pages->drops, drop);
        g_atomic_int_inc(&pages->count);
        g_queue_push_tail(&pages->queue, drop);
    }
    add_range(&drop->range, (Range){start, MAX(end, start + 1)});
    pages->woken++;
    pthread_cond_signal(&pages->changed);
    pthread_mutex_unlock(&pages->lock);
}

void qos_pages_drop(QosPages *pages, fuse_ino_t ino)
{
    qos_pages_drop_range(pages, ino, 0, G_MAXINT64);
}

gboolean qos_pages_are_old(QosPages *pages, fuse_ino_t ino)
{
    if (g_atomic_int_get(&pages->count) == 0)
        return FALSE;
    pthread_mutex_lock(&pages->lock);
    gboolean are_old = !pages->is_stopping && find_locked(pages, ino) != NULL;
    pthread_mutex_unlock(&pages->lock);
    return are_old;
}

gboolean qos_pages_await(QosPages *pages, fuse_ino_t ino, QosEntry *entry)
{
    if (g_atomic_int_get(&pages->count) == 0)
        return FALSE;
    pthread_mutex_lock(&pages->lock);
    Drop *drop = pages->is_stopping ? NULL : find_locked(pages, ino);
    if (drop != NULL)
        g_queue_push_tail(&drop->waiting, entry);
    pthread_mutex_unlock(&pages->lock);
    return drop != NULL;
}

static void resume(QosGate *gate, GQueue *waiting)
{
    QosEntry *entry;

    while ((entry = g_queue_pop_head(waiting)) != NULL)
        qos_gate_resume(gate, entry);
}

void qos_pages_wake(QosPages *pages)
{
    if (g_atomic_int_get(&pages->count) == 0)
        return;
    pthread_mutex_lock(&pages->lock);
    pages->woken++;
    pthread_cond_signal(&pages->changed);
    pthread_mutex_unlock(&pages->lock);
}

/* FALSE: some are locked. */
static gboolean drop_range(QosPages *pages, fuse_ino_t ino, const Range *range)
{
    const gboolean is_open = range->end == G_MAXINT64;

    if (!qos_inodes_begin_drop(pages->inodes, ino, is_open && range->start == 0))
        return FALSE;
    fuse_lowlevel_notify_inval_inode(pages->session, ino, range->start,
                                     is_open ? 0 : range->end - range->start);
    return TRUE;
}

/* Drops pages of one file, unless some are locked; the lock is let go meanwhile. */
static void try_locked(QosPages *pages, Drop *drop)
{
    const Range range = drop->range;

    drop->range = (Range){0, 0};
    pthread_mutex_unlock(&pages->lock);
    qos_gate_release(pages->gate, drop->ino);
    gboolean is_done = drop_range(pages, drop->ino, &range);
    pthread_mutex_lock(&pages->lock);
    if (!is_done)
        add_range(&drop->range, range);
    if (!is_empty(&drop->range)) {
        g_queue_push_tail(&pages->queue, drop);
        return;
    }
    resume(pages->gate, &drop->waiting);
    g_hash_table_remove(pages->drops, &drop->ino);
    g_atomic_int_add(&pages->count, -1);
}

/* One look at all; FALSE where none could be dropped, and nothing has changed meanwhile. */
static gboolean look_locked(QosPages *pages)
{
    const guint woken = pages->woken, count = g_queue_get_length(&pages->queue);

    for (guint i = 0; i < count && !pages->is_stopping; i++)
        try_locked(pages, g_queue_pop_head(&pages->queue));
    return g_queue_get_length(&pages->queue) < count || pages->woken != woken;
}

static void *work(void *arg)
{
    QosPages *pages = arg;

    pthread_setname_np(pthread_self(), "pages");
    pthread_mutex_lock(&pages->lock);
    while (!pages->is_stopping) {
        if (!look_locked(pages) && !pages->is_stopping)
            pthread_cond_wait(&pages->changed, &pages->lock);
    }
    pthread_mutex_unlock(&pages->lock);
    return NULL;
}

static void clear(QosPages *pages)
{
    g_queue_clear(&pages->queue);
    g_hash_table_unref(pages->drops);
    pthread_cond_destroy(&pages->changed);
    pthread_mutex_destroy(&pages->lock);
    g_free(pages);
}

QosPages *qos_pages_new(struct fuse_session *session, QosGate *gate, QosInodes *inodes)
{
    QosPages *pages = g_new0(QosPages, 1);

    pages->session = session;
    pages->gate = gate;
    pages->inodes = inodes;
    pthread_mutex_init(&pages->lock, NULL);
    pthread_cond_init(&pages->changed, NULL);
    pages->drops = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    g_queue_init(&pages->queue);
    if (pthread_create(&pages->thread, NULL, work, pages) == 0)
        return pages;
    clear(pages);
    return NULL;
}

void qos_pages_stop(QosPages *pages)
{
    GHashTableIter iterator;
    gpointer drop;

    if (pages == NULL)
        return;
    pthread_mutex_lock(&pages->lock);
    pages->is_stopping = TRUE;
    g_hash_table_iter_init(&iterator, pages->drops);
    while (g_hash_table_iter_next(&iterator, &drop, NULL))
        resume(pages->gate, &((Drop *)drop)->waiting);
    pthread_cond_signal(&pages->changed);
    pthread_mutex_unlock(&pages->lock);
}

void qos_pages_free(QosPages *pages)
{
    if (pages == NULL)
        return;
    qos_pages_stop(pages);
    pthread_join(pages->thread, NULL);
    clear(pages);
}
