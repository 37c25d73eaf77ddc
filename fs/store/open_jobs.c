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

struct QosFileJobs {
    guint64 ino; /* first: the table holds these */
    QosOpenJobs *open_jobs;
    guint jobs;     /* that have it open */
    gint is_shared; /* atomic */
};

/* A job that has a file open. */
typedef struct {
    QosFileJobs *file; /* the key, with the next */
    QosJob *job;       /* a reference */
    guint opens;
} OpenJob;

struct QosOpenJobs {
    gint files_at[PLACES]; /* atomic: how many files are open with a number that has that place */
    QosMutex lock;         /* everything below, and what is in it */
    GHashTable *files;     /* a set of QosFileJobs.ino */
    GHashTable *jobs;      /* a set of OpenJob */
};

static guint open_job_hash(gconstpointer data)
{
    const OpenJob *open_job = data;

    return g_direct_hash(open_job->file) * 31 + g_direct_hash(open_job->job);
}

static gboolean open_job_equal(gconstpointer a, gconstpointer b)
{
    const OpenJob *one = a, *other = b;

    return one->file == other->file && one->job == other->job;
}

QosOpenJobs *qos_open_jobs_new(void)
{
    QosOpenJobs *open_jobs = g_new0(QosOpenJobs, 1);

    qos_mutex_init(&open_jobs->lock, QOS_MUTEX_OPEN_JOBS);
    open_jobs->files = g_hash_table_new(g_int64_hash, g_int64_equal);
    open_jobs->jobs = g_hash_table_new(open_job_hash, open_job_equal);
    return open_jobs;
}

void qos_open_jobs_free(QosOpenJobs *open_jobs)
{
    if (open_jobs == NULL)
        return;
    g_hash_table_unref(open_jobs->jobs);
    g_hash_table_unref(open_jobs->files);
    qos_mutex_destroy(&open_jobs->lock);
    g_free(open_jobs);
}

static gint *place_of(QosOpenJobs *open_jobs, fuse_ino_t ino)
{
    return &open_jobs->files_at[ino % PLACES];
}

static QosFileJobs *find_file_locked(QosOpenJobs *open_jobs, fuse_ino_t ino)
{
    guint64 key = ino;

    return g_hash_table_lookup(open_jobs->files, &key);
}

static QosFileJobs *add_file_locked(QosOpenJobs *open_jobs, fuse_ino_t ino)
{
    QosFileJobs *file = g_new(QosFileJobs, 1);

    *file = (QosFileJobs){.ino = ino, .open_jobs = open_jobs};
    g_hash_table_add(open_jobs->files, file);
    g_atomic_int_inc(place_of(open_jobs, ino));
    return file;
}

static OpenJob *find_open_job_locked(QosFileJobs *file, const QosJob *job)
{
    const OpenJob key = {.file = file, .job = (QosJob *)job};

    return g_hash_table_lookup(file->open_jobs->jobs, &key);
}

/* There is one job more (1) or less (-1). */
static void count_job_locked(QosFileJobs *file, gint change)
{
    file->jobs += (guint)change;
    __atomic_store_n(&file->is_shared, file->jobs > 1, __ATOMIC_RELAXED);
}

QosFileJobs *qos_open_jobs_join(QosOpenJobs *open_jobs, fuse_ino_t ino, QosJob *job,
                                gboolean *ret_is_new)
{
    qos_mutex_lock(&open_jobs->lock);
    QosFileJobs *file = find_file_locked(open_jobs, ino) ?: add_file_locked(open_jobs, ino);
    OpenJob *open_job = find_open_job_locked(file, job);
    *ret_is_new = open_job == NULL;
    if (open_job == NULL) {
        open_job = g_new(OpenJob, 1);
        *open_job = (OpenJob){.file = file, .job = qos_job_ref(job)};
        g_hash_table_add(open_jobs->jobs, open_job);
        count_job_locked(file, 1);
    }
    open_job->opens++;
    qos_mutex_unlock(&open_jobs->lock);
    return file;
}

static void remove_open_job_locked(OpenJob *open_job)
{
    QosFileJobs *file = open_job->file;

    g_hash_table_remove(file->open_jobs->jobs, open_job);
    count_job_locked(file, -1);
    if (file->jobs > 0)
        return;
    g_hash_table_remove(file->open_jobs->files, file);
    g_atomic_int_add(place_of(file->open_jobs, file->ino), -1);
    g_free(file);
}

void qos_open_jobs_leave(QosFileJobs *file, QosJob *job)
{
    if (file == NULL)
        return;
    QosOpenJobs *open_jobs = file->open_jobs;
    qos_mutex_lock(&open_jobs->lock);
    OpenJob *open_job = find_open_job_locked(file, job);
    gboolean is_last = --open_job->opens == 0;
    if (is_last)
        remove_open_job_locked(open_job);
    qos_mutex_unlock(&open_jobs->lock);
    if (!is_last)
        return;
    qos_job_unref(job);
    g_free(open_job);
}

gboolean qos_file_jobs_are_several(const QosFileJobs *file)
{
    return file != NULL && __atomic_load_n(&file->is_shared, __ATOMIC_RELAXED);
}

/* *ret_is_shared: several jobs have it open. */
static gboolean has_others(QosOpenJobs *open_jobs, fuse_ino_t ino, const QosJob *job,
                           gboolean *ret_is_shared)
{
    *ret_is_shared = FALSE;
    if (g_atomic_int_get(place_of(open_jobs, ino)) == 0)
        return FALSE;
    qos_mutex_lock(&open_jobs->lock);
    QosFileJobs *file = find_file_locked(open_jobs, ino);
    *ret_is_shared = file != NULL && file->is_shared;
    const gboolean others =
        file != NULL && (*ret_is_shared || find_open_job_locked(file, job) == NULL);
    qos_mutex_unlock(&open_jobs->lock);
    return others;
}

gboolean qos_open_jobs_has_others(QosOpenJobs *open_jobs, fuse_ino_t ino, const QosJob *job)
{
    gboolean is_shared;

    return has_others(open_jobs, ino, job, &is_shared);
}

gboolean qos_open_jobs_is_of_another(QosOpenJobs *open_jobs, fuse_ino_t ino, const QosJob *job)
{
    gboolean is_shared;

    return has_others(open_jobs, ino, job, &is_shared) && !is_shared;
}
