/*
 * Which jobs have which files open; ops/openers.h tells what for. A file is in the table while it
 * is open, with one opener for each job: mostly one.
 */
#include "ops/openers.h"

#include <pthread.h>

typedef struct Opener {
    struct Opener *next;
    QosJob *job; /* a reference */
    guint opens;
} Opener;

struct QosOpenFile {
    guint64 ino; /* first: the table holds these */
    QosOpeners *openers;
    Opener *first;
    gint is_shared; /* atomic */
};

struct QosOpeners {
    pthread_mutex_t lock; /* everything below, and the open files */
    GHashTable *files;    /* a set of QosOpenFile.ino */
};

QosOpeners *qos_openers_new(void)
{
    QosOpeners *openers = g_new0(QosOpeners, 1);

    pthread_mutex_init(&openers->lock, NULL);
    openers->files = g_hash_table_new(g_int64_hash, g_int64_equal);
    return openers;
}

void qos_openers_free(QosOpeners *openers)
{
    if (openers == NULL)
        return;
    g_hash_table_unref(openers->files);
    pthread_mutex_destroy(&openers->lock);
    g_free(openers);
}

static QosOpenFile *find_locked(QosOpeners *openers, fuse_ino_t ino)
{
    guint64 key = ino;

    return g_hash_table_lookup(openers->files, &key);
}

static QosOpenFile *add_file_locked(QosOpeners *openers, fuse_ino_t ino)
{
    QosOpenFile *file = g_new(QosOpenFile, 1);

    *file = (QosOpenFile){.ino = ino, .openers = openers};
    g_hash_table_add(openers->files, file);
    return file;
}

/* Where the opener of that job hangs, or would. */
static Opener **find_opener_locked(QosOpenFile *file, const QosJob *job)
{
    Opener **link = &file->first;

    while (*link != NULL && (*link)->job != job)
        link = &(*link)->next;
    return link;
}

/* TRUE where it is shared and was not. */
static gboolean note_sharing_locked(QosOpenFile *file)
{
    gint is_shared = file->first != NULL && file->first->next != NULL;

    return __atomic_exchange_n(&file->is_shared, is_shared, __ATOMIC_RELAXED) < is_shared;
}

QosOpenFile *qos_openers_join(QosOpeners *openers, fuse_ino_t ino, QosJob *job,
                              gboolean *ret_shared)
{
    pthread_mutex_lock(&openers->lock);
    QosOpenFile *file = find_locked(openers, ino);
    if (file == NULL)
        file = add_file_locked(openers, ino);
    Opener **link = find_opener_locked(file, job);
    if (*link == NULL) {
        *link = g_new(Opener, 1);
        **link = (Opener){.job = qos_job_ref(job)};
    }
    (*link)->opens++;
    *ret_shared = note_sharing_locked(file);
    pthread_mutex_unlock(&openers->lock);
    return file;
}

void qos_openers_leave(QosOpenFile *file, QosJob *job)
{
    Opener *gone = NULL;

    if (file == NULL)
        return;
    QosOpeners *openers = file->openers;
    pthread_mutex_lock(&openers->lock);
    Opener **link = find_opener_locked(file, job);
    if (*link != NULL && --(*link)->opens == 0) {
        gone = *link;
        *link = gone->next;
        note_sharing_locked(file);
    }
    if (file->first == NULL) {
        g_hash_table_remove(openers->files, file);
        g_free(file);
    }
    pthread_mutex_unlock(&openers->lock);
    if (gone != NULL)
        qos_job_unref(gone->job);
    g_free(gone);
}

gboolean qos_open_file_is_shared(const QosOpenFile *file)
{
    return file != NULL && __atomic_load_n(&file->is_shared, __ATOMIC_RELAXED);
}

gboolean qos_openers_has_others(QosOpeners *openers, fuse_ino_t ino, const QosJob *job)
{
    pthread_mutex_lock(&openers->lock);
    const QosOpenFile *file = find_locked(openers, ino);
    gboolean has_others = file != NULL && (file->is_shared || file->first->job != job);
    pthread_mutex_unlock(&openers->lock);
    return has_others;
}
