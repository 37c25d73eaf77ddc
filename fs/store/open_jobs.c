/*
 * Which jobs have which files open. fs/store/open_jobs.h has the contract.
 *
 * There are two hash tables, of open files and of the jobs that have each of them open. So one job
 * of a thousand on the same file is found as fast as a single one. Nearly all files that are looked
 * up are not open. That is seen without the lock.
 */
#include "fs/store/open_jobs.h"

#include "sys/mutex.h"

#define PLACES 4096 /* several times as many as are open on most mounts */

struct QosOpenFile {
    guint64 ino; /* first: the table holds these */
    QosOpeners *openers;
    guint jobs;     /* that have it open */
    gint is_shared; /* atomic */
};

/* A job that has a file open. */
typedef struct {
    QosOpenFile *file; /* the key, with the next */
    QosJob *job;       /* a reference */
    guint opens;
} Opener;

struct QosOpeners {
    gint files_at[PLACES]; /* atomic: how many files are open with a number that has that place */
    QosMutex lock;         /* everything below, and what is in it */
    GHashTable *files;     /* a set of QosOpenFile.ino */
    GHashTable *jobs;      /* a set of Opener */
};

static guint opener_hash(gconstpointer data)
{
    const Opener *opener = data;

    return g_direct_hash(opener->file) * 31 + g_direct_hash(opener->job);
}

static gboolean opener_equal(gconstpointer a, gconstpointer b)
{
    const Opener *one = a, *other = b;

    return one->file == other->file && one->job == other->job;
}

QosOpeners *qos_openers_new(void)
{
    QosOpeners *openers = g_new0(QosOpeners, 1);

    qos_mutex_init(&openers->lock, QOS_MUTEX_OPENERS);
    openers->files = g_hash_table_new(g_int64_hash, g_int64_equal);
    openers->jobs = g_hash_table_new(opener_hash, opener_equal);
    return openers;
}

void qos_openers_free(QosOpeners *openers)
{
    if (openers == NULL)
        return;
    g_hash_table_unref(openers->jobs);
    g_hash_table_unref(openers->files);
    qos_mutex_destroy(&openers->lock);
    g_free(openers);
}

static gint *place_of(QosOpeners *openers, fuse_ino_t ino)
{
    return &openers->files_at[ino % PLACES];
}

static QosOpenFile *find_file_locked(QosOpeners *openers, fuse_ino_t ino)
{
    guint64 key = ino;

    return g_hash_table_lookup(openers->files, &key);
}

static QosOpenFile *add_file_locked(QosOpeners *openers, fuse_ino_t ino)
{
    QosOpenFile *file = g_new(QosOpenFile, 1);

    *file = (QosOpenFile){.ino = ino, .openers = openers};
    g_hash_table_add(openers->files, file);
    g_atomic_int_inc(place_of(openers, ino));
    return file;
}

static Opener *find_opener_locked(QosOpenFile *file, const QosJob *job)
{
    const Opener key = {.file = file, .job = (QosJob *)job};

    return g_hash_table_lookup(file->openers->jobs, &key);
}

/* There is one job more (1) or less (-1). */
static void count_job_locked(QosOpenFile *file, gint change)
{
    file->jobs += (guint)change;
    __atomic_store_n(&file->is_shared, file->jobs > 1, __ATOMIC_RELAXED);
}

QosOpenFile *qos_openers_join(QosOpeners *openers, fuse_ino_t ino, QosJob *job,
                              gboolean *ret_is_new)
{
    qos_mutex_lock(&openers->lock);
    QosOpenFile *file = find_file_locked(openers, ino) ?: add_file_locked(openers, ino);
    Opener *opener = find_opener_locked(file, job);
    *ret_is_new = opener == NULL;
    if (opener == NULL) {
        opener = g_new(Opener, 1);
        *opener = (Opener){.file = file, .job = qos_job_ref(job)};
        g_hash_table_add(openers->jobs, opener);
        count_job_locked(file, 1);
    }
    opener->opens++;
    qos_mutex_unlock(&openers->lock);
    return file;
}

static void remove_opener_locked(Opener *opener)
{
    QosOpenFile *file = opener->file;

    g_hash_table_remove(file->openers->jobs, opener);
    count_job_locked(file, -1);
    if (file->jobs > 0)
        return;
    g_hash_table_remove(file->openers->files, file);
    g_atomic_int_add(place_of(file->openers, file->ino), -1);
    g_free(file);
}

void qos_openers_leave(QosOpenFile *file, QosJob *job)
{
    if (file == NULL)
        return;
    QosOpeners *openers = file->openers;
    qos_mutex_lock(&openers->lock);
    Opener *opener = find_opener_locked(file, job);
    gboolean is_last = --opener->opens == 0;
    if (is_last)
        remove_opener_locked(opener);
    qos_mutex_unlock(&openers->lock);
    if (!is_last)
        return;
    qos_job_unref(job);
    g_free(opener);
}

gboolean qos_open_file_is_shared(const QosOpenFile *file)
{
    return file != NULL && __atomic_load_n(&file->is_shared, __ATOMIC_RELAXED);
}

/* *ret_is_shared: several jobs have it open. */
static gboolean has_others(QosOpeners *openers, fuse_ino_t ino, const QosJob *job,
                           gboolean *ret_is_shared)
{
    *ret_is_shared = FALSE;
    if (g_atomic_int_get(place_of(openers, ino)) == 0)
        return FALSE;
    qos_mutex_lock(&openers->lock);
    QosOpenFile *file = find_file_locked(openers, ino);
    *ret_is_shared = file != NULL && file->is_shared;
    const gboolean others =
        file != NULL && (*ret_is_shared || find_opener_locked(file, job) == NULL);
    qos_mutex_unlock(&openers->lock);
    return others;
}

gboolean qos_openers_has_others(QosOpeners *openers, fuse_ino_t ino, const QosJob *job)
{
    gboolean is_shared;

    return has_others(openers, ino, job, &is_shared);
}

gboolean qos_openers_is_of_another(QosOpeners *openers, fuse_ino_t ino, const QosJob *job)
{
    gboolean is_shared;

    return has_others(openers, ino, job, &is_shared) && !is_shared;
}
