/*
 * Open files and directories. fs/store/open_file.h has the contract.
 */
#include "fs/store/open_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "fs/quota.h"
#include "sys/mutex.h"

#define LISTS 1021 /* a prime, as inode numbers may be multiples of anything else */

struct QosOpenFiles {
    guint most;
    QosMutex lock; /* what follows */
    guint count;
    GQueue open[LISTS]; /* of QosOpenFile, by the file's name */
};

static GQueue *list_by_name(QosOpenFiles *open_files, const QosFileName *name)
{
    return &open_files->open[name->number % LISTS];
}

static GQueue *list_of(const QosOpenFile *open_file)
{
    return list_by_name(open_file->open_files, &open_file->name);
}

gboolean qos_open_files_has(QosOpenFiles *open_files, const QosFileName *name,
                            gboolean (*is_such)(const QosOpenFile *open_file))
{
    gboolean has = FALSE;

    qos_mutex_lock(&open_files->lock);
    for (const GList *link = list_by_name(open_files, name)->head; link != NULL;
         link = link->next) {
        const QosOpenFile *open_file = link->data;

        has |= qos_file_name_equal(&open_file->name, name) && is_such(open_file);
    }
    qos_mutex_unlock(&open_files->lock);
    return has;
}

QosOpenFiles *qos_open_files_new(guint most)
{
    QosOpenFiles *open_files = g_new0(QosOpenFiles, 1);

    open_files->most = most;
    qos_mutex_init(&open_files->lock, QOS_MUTEX_OPEN_FILES);
    return open_files;
}

static void close_file(QosOpenFile *open_file)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (open_file->fd >= 0)
        close(open_file->fd);
    if (open_file->writes_pages)
        qos_inode_ref_count_writer(&open_file->file, -1);
    if (open_file->passthrough.id != 0)
        qos_inode_ref_note_foreign(&open_file->file);
    qos_passthrough_leave(&open_file->passthrough);
    qos_open_jobs_leave(open_file->file_jobs, open_file->caller->job);
    qos_inode_ref_put(&open_file->file);
    qos_dir_stream_free(open_file->stream);
}

static void free_handle(QosOpenFile *open_file)
{
    qos_caller_unref(open_file->caller);
    g_free(open_file);
}

void qos_open_files_free(QosOpenFiles *open_files)
{
    GList *link;

    if (open_files == NULL)
        return;
    for (guint i = 0; i < LISTS; i++) {
        while ((link = g_queue_pop_head_link(&open_files->open[i])) != NULL) {
            close_file(link->data);
            free_handle(link->data);
        }
    }
    qos_mutex_destroy(&open_files->lock);
    g_free(open_files);
}

static QosQuotaVerdict take_quota_locked(QosOpenFiles *open_files, const QosCaller *caller)
{
    QosJob *job = caller->job;
    QosUser *user = caller->user;
    const guint of_job = (guint)g_atomic_int_get(&job->files.count);
    const guint of_user = user == NULL ? 0 : (guint)g_atomic_int_get(&user->open_files);
    const QosQuotaVerdict verdict =
        qos_quota_check(open_files->most - open_files->count, of_job, of_user);

    if (verdict != QOS_QUOTA_FREE)
        return verdict;
    open_files->count++;
    g_atomic_int_inc(&job->files.count);
    if (user != NULL)
        g_atomic_int_inc(&user->open_files);
    return QOS_QUOTA_FREE;
}

static void give_place_back_locked(QosOpenFiles *open_files, const QosCaller *caller)
{
    open_files->count--;
    g_atomic_int_add(&caller->job->files.count, -1);
    if (caller->user != NULL)
        g_atomic_int_add(&caller->user->open_files, -1);
}

#define WHAT_HELPS "the daemon can open %u for all. Raise the limit of open files (RLIMIT_NOFILE)"

static void note_refusal(const QosOpenFiles *open_files, const QosCaller *caller,
                         QosQuotaVerdict verdict)
{
    const gboolean by_user = verdict == QOS_QUOTA_OF_USER;
    QosJob *job = caller->job;
    QosUser *user = caller->user;

    if (g_atomic_int_add(&job->files.refused, 1) == 0 && !by_user)
        g_warning("job %s: it has %d files open, and is refused more (EMFILE) until it closes "
                  "some; " WHAT_HELPS,
                  job->id, g_atomic_int_get(&job->files.count), open_files->most);
    if (by_user && g_atomic_int_add(&user->opens_refused, 1) == 0)
        g_warning(
            "user %u: the jobs of this user have %d files open, and are refused more (EMFILE) "
            "until they close some; " WHAT_HELPS,
            user->uid, g_atomic_int_get(&user->open_files), open_files->most);
}

int qos_open_file_new(QosOpenFiles *open_files, QosCaller *caller, QosOpenFile **ret_open_file)
{
    QosOpenFile *open_file = g_new(QosOpenFile, 1);
    QosQuotaVerdict verdict;

    *open_file = (QosOpenFile){.references = 1,
                               .open_files = open_files,
                               .link.data = open_file,
                               .fd = -1,
                               .caller = caller};
    qos_mutex_lock(&open_files->lock);
    verdict = take_quota_locked(open_files, caller);
    if (verdict == QOS_QUOTA_FREE)
        g_queue_push_head_link(list_of(open_file), &open_file->link);
    qos_mutex_unlock(&open_files->lock);
    if (verdict != QOS_QUOTA_FREE) {
        g_free(open_file);
        if (verdict == QOS_QUOTA_EXHAUSTED)
            return -ENFILE;
        note_refusal(open_files, caller, verdict);
        return -EMFILE;
    }
    qos_caller_ref(caller);
    *ret_open_file = open_file;
    return 0;
}

void qos_open_file_set_file(QosOpenFile *open_file, int fd, int flags, QosInodeRef *file)
{
    open_file->fd = fd;
    open_file->flags = flags;
    open_file->file = *file;
    *file = (QosInodeRef){.fd = -1};
    qos_mutex_lock(&open_file->open_files->lock);
    g_queue_unlink(list_of(open_file), &open_file->link);
    qos_inode_ref_name(&open_file->file, &open_file->name);
    g_queue_push_head_link(list_of(open_file), &open_file->link);
    qos_mutex_unlock(&open_file->open_files->lock);
}

void qos_open_file_set_writes_pages(QosOpenFile *open_file)
{
    open_file->writes_pages = TRUE;
    qos_inode_ref_count_writer(&open_file->file, 1);
}

/* O_NOATIME is for the owner alone, but here it is the mount's will. */
void qos_open_file_spare_atime(QosOpenFile *open_file)
{
    int flags = fcntl(open_file->fd, F_GETFL);

    qos_cred_raise();
    (void)fcntl(open_file->fd, F_SETFL, flags | O_NOATIME);
    qos_cred_lower();
}

void qos_open_file_set_locking(QosOpenFile *open_file, QosLocking locking)
{
    gint before = __atomic_load_n(&open_file->locking, __ATOMIC_RELAXED);

    while (before < (gint)locking &&
           !__atomic_compare_exchange_n(&open_file->locking, &before, locking, FALSE,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void qos_open_file_lose_locks(QosOpenFile *open_file, pid_t process)
{
    QosOpenFiles *open_files = open_file->open_files;

    qos_open_file_set_locking(open_file, QOS_LOCKING_LOST);
    if (process == 0)
        return;
    qos_mutex_lock(&open_files->lock);
    for (const GList *link = list_of(open_file)->head; link != NULL; link = link->next) {
        QosOpenFile *other = link->data;

        if (other->caller->process == process &&
            qos_file_name_equal(&other->name, &open_file->name))
            qos_open_file_set_locking(other, QOS_LOCKING_LOST);
    }
    qos_mutex_unlock(&open_files->lock);
}

QosOpenFile *qos_open_file_ref(QosOpenFile *open_file)
{
    g_atomic_int_inc(&open_file->references);
    return open_file;
}

void qos_open_file_unref(QosOpenFile *open_file)
{
    QosOpenFiles *open_files;

    if (open_file == NULL || !g_atomic_int_dec_and_test(&open_file->references))
        return;
    open_files = open_file->open_files;
    close_file(open_file); /* which may take its time: it has its place until then */
    qos_mutex_lock(&open_files->lock);
    g_queue_unlink(list_of(open_file), &open_file->link);
    give_place_back_locked(open_files, open_file->caller);
    qos_mutex_unlock(&open_files->lock);
    free_handle(open_file);
}
