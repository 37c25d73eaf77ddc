/*
 * The thread that drops pages. fs/coherence/page_drops.h has the contract.
 */
#include "fs/coherence/page_drops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/service_thread.h"

/* At the end of the mount, the kernel may send a million WRITEs of what a mapping has changed
 * before it has dropped that. Or it waits for a READ of a job that is far in debt, which the end of
 * the gate answers. */
#define END_PATIENCE (30 * QOS_SECOND)
/* A release waits no longer than this for the kernel. The kernel first writes what a mapping has
 * changed, perhaps under the very credit that is to be released, and a page may be locked by a
 * request that is yet to be read. The time counts from when it was told. */
#define TOLD_MAX (10 * QOS_MILLISECOND)
/* The time that a reader may take, after the answer, to wake up and read its pages. */
#define READER_PATIENCE (2 * QOS_MILLISECOND)

/* Bytes of a file: [start, end). */
typedef struct {
    gint64 start, end;
} Range;

/* What the kernel has locked for a request. */
typedef struct {
    gconstpointer request;
    Range range;
} Locked;

typedef struct {
    fuse_ino_t ino;       /* first: the table holds these */
    Range range;          /* yet to be dropped; empty while that is being done */
    GQueue served;        /* the waits for what is being dropped: of QosEntry, by their `parked` */
    GQueue waiting;       /* the waits for the next drop */
    GArray *later;        /* of Locked: for requests behind the first of `waiting` */
    GQueue last;          /* the waits that came behind some of these */
    gboolean pushes_size; /* before that */
    gboolean is_of_reads; /* it has all been filled by READs, of threads that wait for it */
    pid_t reader;         /* the thread of the last of these */
    QosTime due;          /* not before; 0: no matter when */
} Drop;

struct QosPages {
    struct fuse_session *session;
    QosGate *gate;
    QosInodes *inodes;
    QosTime (*clock)(void); /* of what is due */
    QosServiceThread thread;
    gint count;        /* atomic: of drops */
    QosMutex lock;     /* everything below */
    QosTime due;       /* when the first drop that is too early is not any more */
    GHashTable *drops; /* of Drop */
    GQueue queue;      /* the same, those that are not being done */
    pthread_cond_t looked;
    guint64 looks;  /* at all of the queue, that are done */
    guint64 needed; /* so many, until it has come to all that was queued */
    gboolean is_looking;
    QosTime stuck_at; /* when the kernel, which is being told, has taken too long; else QOS_NEVER */
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

static Drop *add_locked(QosPages *pages, fuse_ino_t ino)
{
    Drop *drop = g_new0(Drop, 1);

    drop->ino = ino;
    drop->later = g_array_new(FALSE, FALSE, sizeof(Locked));
    g_hash_table_add(pages->drops, drop);
    g_atomic_int_inc(&pages->count);
    g_queue_push_tail(&pages->queue, drop);
    return drop;
}

static void drop_free(gpointer data)
{
    Drop *drop = data;

    g_array_unref(drop->later);
    g_free(drop);
}

/* A look that has begun may not come to what is queued now; another one follows it. */
static void wake_locked(QosPages *pages)
{
    pages->needed = pages->looks + (pages->is_looking ? 2 : 1);
    qos_service_thread_wake_locked(&pages->thread);
}

static void make_due(Drop *drop)
{
    drop->is_of_reads = FALSE;
    drop->due = 0;
}

void qos_pages_drop_range(QosPages *pages, fuse_ino_t ino, gint64 start, gint64 end)
{
    qos_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino) ?: add_locked(pages, ino);
    add_range(&drop->range, (Range){start, MAX(end, start + 1)});
    make_due(drop);
    wake_locked(pages);
    qos_mutex_unlock(&pages->lock);
}

void qos_pages_push_size(QosPages *pages, fuse_ino_t ino)
{
    qos_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino) ?: add_locked(pages, ino);
    drop->pushes_size = TRUE;
    make_due(drop);
    wake_locked(pages);
    qos_mutex_unlock(&pages->lock);
}

void qos_pages_drop_read(QosPages *pages, fuse_ino_t ino, pid_t reader)
{
    qos_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino);
    if (drop == NULL) {
        drop = add_locked(pages, ino);
        drop->is_of_reads = TRUE;
    }
    drop->reader = reader;
    add_range(&drop->range, (Range){0, G_MAXINT64});
    wake_locked(pages);
    qos_mutex_unlock(&pages->lock);
}

void qos_pages_drop(QosPages *pages, fuse_ino_t ino)
{
    qos_pages_drop_range(pages, ino, 0, G_MAXINT64);
}

void qos_pages_await_told(QosPages *pages)
{
    qos_mutex_lock(&pages->lock);
    const guint64 needed = pages->needed;
    while (pages->looks < needed && !pages->thread.is_stopping && qos_clock_now() < pages->stuck_at)
        qos_condition_wait_until(&pages->looked, &pages->lock,
                                 MIN(pages->stuck_at, qos_clock_now() + TOLD_MAX));
    qos_mutex_unlock(&pages->lock);
}

gboolean qos_pages_are_stale(QosPages *pages, fuse_ino_t ino)
{
    if (g_atomic_int_get(&pages->count) == 0)
        return FALSE;
    qos_mutex_lock(&pages->lock);
    gboolean are_old = !pages->is_stopping && find_locked(pages, ino) != NULL;
    qos_mutex_unlock(&pages->lock);
    return are_old;
}

gboolean qos_pages_await(QosPages *pages, fuse_ino_t ino, pid_t thread, QosEntry *entry)
{
    if (g_atomic_int_get(&pages->count) == 0)
        return FALSE;
    qos_mutex_lock(&pages->lock);
    Drop *drop = pages->is_stopping ? NULL : find_locked(pages, ino);
    if (drop != NULL)
        g_queue_push_tail(drop->later->len == 0 ? &drop->waiting : &drop->last, entry);
    /* A thread that asks for attributes has got the data of its READ. */
    if (drop != NULL && drop->is_of_reads && drop->reader == thread) {
        make_due(drop);
        wake_locked(pages);
    }
    qos_mutex_unlock(&pages->lock);
    return drop != NULL;
}

gboolean qos_pages_withdraw(QosPages *pages, fuse_ino_t ino, QosEntry *entry)
{
    qos_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino);
    gboolean waits = drop != NULL &&
                     (g_queue_remove(&drop->served, entry) ||
                      g_queue_remove(&drop->waiting, entry) || g_queue_remove(&drop->last, entry));
    qos_mutex_unlock(&pages->lock);
    return waits;
}

/* --- what is locked --- */

/* A request that was counted before the drop began shows in the count, and a later one sees the
 * drop. */
void qos_pages_note_locked(QosPages *pages, fuse_ino_t ino, gconstpointer request, gint64 start,
                           gint64 end)
{
    const Locked locked = {request, {start, end}};

    if (g_atomic_int_get(&pages->count) == 0)
        return;
    qos_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino);
    if (drop != NULL && !g_queue_is_empty(&drop->waiting)) {
        g_array_append_val(drop->later, locked);
        wake_locked(pages);
    }
    qos_mutex_unlock(&pages->lock);
}

static void forget_locked(Drop *drop, gconstpointer request)
{
    for (guint i = 0; i < drop->later->len; i++) {
        if (g_array_index(drop->later, Locked, i).request == request) {
            g_array_remove_index_fast(drop->later, i);
            return;
        }
    }
}

/* A drop may have begun since it was counted off. */
static void wake(QosPages *pages, fuse_ino_t ino)
{
    if (g_atomic_int_get(&pages->count) == 0)
        return;
    qos_mutex_lock(&pages->lock);
    if (find_locked(pages, ino) != NULL)
        wake_locked(pages);
    qos_mutex_unlock(&pages->lock);
}

/* Without a drop it is on no list; with one, count and list change together. */
void qos_pages_end_locked(QosPages *pages, fuse_ino_t ino, const QosInodeRef *file,
                          gconstpointer request)
{
    if (g_atomic_int_get(&pages->count) == 0) {
        qos_inode_ref_fill(file, -1);
        wake(pages, ino);
        return;
    }
    qos_mutex_lock(&pages->lock);
    Drop *drop = find_locked(pages, ino);
    if (drop != NULL)
        forget_locked(drop, request);
    if (drop != NULL && drop->is_of_reads && drop->due == 0)
        drop->due = pages->clock() + READER_PATIENCE;
    const gint left = qos_inode_ref_fill(file, -1);
    if (drop != NULL && left <= (gint)drop->later->len)
        wake_locked(pages);
    qos_mutex_unlock(&pages->lock);
}

/* --- dropping --- */

static void resume(QosGate *gate, GQueue *waiting)
{
    QosEntry *entry;

    while ((entry = g_queue_pop_head(waiting)) != NULL)
        qos_gate_resume(gate, entry);
}

static void resume_all(QosGate *gate, Drop *drop)
{
    resume(gate, &drop->served);
    resume(gate, &drop->waiting);
    resume(gate, &drop->last);
}

static void tell(const QosPages *pages, fuse_ino_t ino, Range range)
{
    if (!is_empty(&range))
        fuse_lowlevel_notify_inval_inode(pages->session, ino, range.start,
                                         range.end == G_MAXINT64 ? 0 : range.end - range.start);
}

/* The last byte of the file that `fd` (O_PATH) is. FALSE: there is none, or it cannot be read. */
static gboolean read_last(int fd, off_t *ret_offset, char *ret_byte)
{
    char path[QOS_PROC_PATH_MAX];
    struct stat stat;

    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size == 0)
        return FALSE;
    qos_proc_path(fd, path);
    const int reader = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOATIME);
    if (reader < 0)
        return FALSE;
    *ret_offset = stat.st_size - 1;
    const gboolean is_read = pread(reader, ret_byte, 1, *ret_offset) == 1;
    close(reader);
    return is_read;
}

/* Tells the kernel that the file has grown. Only data that is stored in its pages beyond the end
 * moves the end. The page is dropped again, because nobody would call it back. */
static void push_size(const QosPages *pages, fuse_ino_t ino)
{
    struct fuse_bufvec data = FUSE_BUFVEC_INIT(1);
    g_auto(QosInodeRef) ref = {0};
    off_t offset;
    char byte;

    if (qos_inodes_get(pages->inodes, ino, &ref) != 0 || !read_last(ref.fd, &offset, &byte))
        return;
    data.buf[0].mem = &byte;
    fuse_lowlevel_notify_store(pages->session, ino, offset, &data, 0);
    tell(pages, ino, (Range){offset, offset + 1});
}

static gint compare_starts(gconstpointer a, gconstpointer b)
{
    const Locked *first = a, *second = b;

    return (first->range.start > second->range.start) - (first->range.start < second->range.start);
}

static gint64 round_up(gint64 value, gint64 unit)
{
    const gint64 rest = value % unit;

    return rest == 0 ? value : value > G_MAXINT64 - unit ? G_MAXINT64 : value + unit - rest;
}

/* Drops the pages with bytes of `range`, but for those with bytes of `left_out` (of Locked). */
static void drop_but(const QosPages *pages, fuse_ino_t ino, Range range, GArray *left_out)
{
    const gint64 page = sysconf(_SC_PAGESIZE);

    qos_inodes_begin_drop(pages->inodes, ino,
                          range.start == 0 && range.end == G_MAXINT64 && left_out->len == 0);
    g_array_sort(left_out, compare_starts);
    for (guint i = 0; i < left_out->len; i++) {
        const Range kept = g_array_index(left_out, Locked, i).range;

        tell(pages, ino, (Range){range.start, MIN(range.end, kept.start - kept.start % page)});
        range.start = MAX(range.start, round_up(kept.end, page));
    }
    tell(pages, ino, range);
}

/* Begins a drop. Returns the range to be dropped now; the ranges left out of it (of Locked) are to
 * be dropped later. */
static Range begin_locked(Drop *drop, GArray **ret_left_out)
{
    const Range range = drop->range;

    *ret_left_out = drop->later;
    drop->later = g_array_new(FALSE, FALSE, sizeof(Locked));
    drop->range = (Range){0, 0};
    for (guint i = 0; i < (*ret_left_out)->len; i++)
        add_range(&drop->range, g_array_index(*ret_left_out, Locked, i).range);
    drop->served = drop->waiting;
    drop->waiting = drop->last;
    g_queue_init(&drop->last);
    drop->due = 0;
    return range;
}

/* A thread that waits for a READ may be slow to wake up. If the page is gone by then, it reads it
 * again: on a busy machine, where that needs luck, a thousand times. */
static gboolean is_early_locked(QosPages *pages, const Drop *drop)
{
    if (drop->due <= pages->clock())
        return FALSE;
    pages->due = MIN(pages->due, drop->due);
    return TRUE;
}

/* Drops pages of one file; the lock is released meanwhile. FALSE: it is too early, or some are
 * locked for earlier requests. */
static gboolean try_locked(QosPages *pages, Drop *drop)
{
    g_autoptr(GArray) left_out = NULL;

    if (is_early_locked(pages, drop)) {
        g_queue_push_tail(&pages->queue, drop);
        return FALSE;
    }
    qos_mutex_unlock(&pages->lock);
    qos_gate_boost(pages->gate, drop->ino, NULL);
    qos_mutex_lock(&pages->lock);
    if (pages->thread.is_stopping || is_early_locked(pages, drop) ||
        qos_inodes_filling(pages->inodes, drop->ino) > (gint)drop->later->len) {
        g_queue_push_tail(&pages->queue, drop);
        return FALSE;
    }
    const Range range = begin_locked(drop, &left_out);
    /* Else it may wait for what was left out. */
    const gboolean pushes_size = drop->pushes_size && left_out->len == 0;
    drop->pushes_size &= !pushes_size;
    pages->stuck_at = qos_clock_now() + TOLD_MAX;
    qos_mutex_unlock(&pages->lock);
    if (pushes_size)
        push_size(pages, drop->ino);
    drop_but(pages, drop->ino, range, left_out);
    qos_mutex_lock(&pages->lock);
    pages->stuck_at = QOS_NEVER;
    resume(pages->gate, &drop->served);
    if (!is_empty(&drop->range) || drop->pushes_size) {
        g_queue_push_tail(&pages->queue, drop);
        return TRUE;
    }
    resume_all(pages->gate, drop);
    g_hash_table_remove(pages->drops, &drop->ino);
    g_atomic_int_add(&pages->count, -1);
    return TRUE;
}

/* The thread: one look at all, and another one at once if some could be dropped. */
static QosTime look(gpointer data)
{
    QosPages *pages = data;
    const guint count = g_queue_get_length(&pages->queue);
    gboolean is_any = FALSE;

    pages->is_looking = TRUE;
    pages->due = QOS_NEVER;
    for (guint i = 0; i < count && !pages->thread.is_stopping; i++)
        is_any |= try_locked(pages, g_queue_pop_head(&pages->queue));
    pages->is_looking = FALSE;
    pages->looks++;
    pthread_cond_broadcast(&pages->looked);
    return is_any ? 0 : pages->due;
}

static void clear(QosPages *pages)
{
    g_queue_clear(&pages->queue);
    g_hash_table_unref(pages->drops);
    pthread_cond_destroy(&pages->looked);
    qos_mutex_destroy(&pages->lock);
    g_free(pages);
}

QosPages *qos_pages_new(struct fuse_session *session, QosGate *gate, QosInodes *inodes,
                        QosTime (*clock)(void))
{
    QosPages *pages = g_new0(QosPages, 1);

    pages->session = session;
    pages->gate = gate;
    pages->inodes = inodes;
    pages->clock = clock;
    pages->stuck_at = QOS_NEVER;
    qos_mutex_init(&pages->lock, QOS_MUTEX_PAGES);
    pthread_cond_init(&pages->looked, NULL);
    pages->drops = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, drop_free);
    g_queue_init(&pages->queue);
    if (qos_service_thread_start(&pages->thread, "pages", &pages->lock, look, pages, NULL))
        return pages;
    clear(pages);
    return NULL;
}

static void end_locked(QosPages *pages)
{
    qos_service_thread_end_locked(&pages->thread);
    pthread_cond_broadcast(&pages->looked);
}

void qos_pages_end_drops(QosPages *pages)
{
    const QosTime until = qos_clock_now() + END_PATIENCE;

    qos_mutex_lock(&pages->lock);
    end_locked(pages);
    qos_service_thread_await_end_locked(&pages->thread, until);
    qos_mutex_unlock(&pages->lock);
}

void qos_pages_stop(QosPages *pages)
{
    GHashTableIter iterator;
    gpointer drop;

    if (pages == NULL)
        return;
    qos_mutex_lock(&pages->lock);
    pages->is_stopping = TRUE;
    g_hash_table_iter_init(&iterator, pages->drops);
    while (g_hash_table_iter_next(&iterator, &drop, NULL))
        resume_all(pages->gate, drop);
    end_locked(pages);
    qos_mutex_unlock(&pages->lock);
}

void qos_pages_free(QosPages *pages)
{
    if (pages == NULL)
        return;
    qos_pages_stop(pages);
    qos_service_thread_stop(&pages->thread);
    clear(pages);
}
