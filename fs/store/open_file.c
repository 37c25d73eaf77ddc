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

struct QosHandles {
    guint most;
    QosMutex lock; /* what follows */
    guint count;
    GQueue open[LISTS]; /* of QosHandle, by the file's name */
};

static GQueue *list_by_name(QosHandles *handles, const QosFileName *name)
{
    return &handles->open[name->number % LISTS];
}

static GQueue *list_of(const QosHandle *handle)
{
    return list_by_name(handle->handles, &handle->name);
}

gboolean qos_handles_has(QosHandles *handles, const QosFileName *name,
                         gboolean (*is_such)(const QosHandle *handle))
{
    gboolean has = FALSE;

    qos_mutex_lock(&handles->lock);
    for (const GList *link = list_by_name(handles, name)->head; link != NULL; link = link->next) {
        const QosHandle *handle = link->data;

        has |= qos_file_name_equal(&handle->name, name) && is_such(handle);
    }
    qos_mutex_unlock(&handles->lock);
    return has;
}

QosHandles *qos_handles_new(guint most)
{
    QosHandles *handles = g_new0(QosHandles, 1);

    handles->most = most;
    qos_mutex_init(&handles->lock, QOS_MUTEX_HANDLES);
    return handles;
}

static void close_file(QosHandle *handle)
{
    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
    if (handle->fd >= 0)
        close(handle->fd);
    if (handle->writes_pages)
        qos_loan_count_writer(&handle->file, -1);
    if (handle->backing.id != 0)
        qos_loan_note_foreign(&handle->file);
    qos_backing_leave(&handle->backing);
    qos_openers_leave(handle->open_file, handle->caller->job);
    qos_loan_return(&handle->file);
    qos_stream_free(handle->stream);
}

static void free_handle(QosHandle *handle)
{
    qos_caller_unref(handle->caller);
    g_free(handle);
}

void qos_handles_free(QosHandles *handles)
{
    GList *link;

    if (handles == NULL)
        return;
    for (guint i = 0; i < LISTS; i++) {
        while ((link = g_queue_pop_head_link(&handles->open[i])) != NULL) {
            close_file(link->data);
            free_handle(link->data);
        }
    }
    qos_mutex_destroy(&handles->lock);
    g_free(handles);
}

static QosPlace take_place_locked(QosHandles *handles, const QosCaller *caller)
{
    QosJob *job = caller->job;
    QosUser *user = caller->user;
    const guint of_job = (guint)g_atomic_int_get(&job->files.count);
    const guint of_user = user == NULL ? 0 : (guint)g_atomic_int_get(&user->open_files);
    const QosPlace place = qos_place_for(handles->most - handles->count, of_job, of_user);

    if (place != QOS_PLACE_FREE)
        return place;
    handles->count++;
    g_atomic_int_inc(&job->files.count);
    if (user != NULL)
        g_atomic_int_inc(&user->open_files);
    return QOS_PLACE_FREE;
}

static void give_place_back_locked(QosHandles *handles, const QosCaller *caller)
{
    handles->count--;
    g_atomic_int_add(&caller->job->files.count, -1);
    if (caller->user != NULL)
        g_atomic_int_add(&caller->user->open_files, -1);
}

#define WHAT_HELPS "the daemon can open %u for all. Raise the limit of open files (RLIMIT_NOFILE)"

static void note_refusal(const QosHandles *handles, const QosCaller *caller, QosPlace place)
{
    const gboolean by_user = place == QOS_PLACE_OF_USER;
    QosJob *job = caller->job;
    QosUser *user = caller->user;

    if (g_atomic_int_add(&job->files.refused, 1) == 0 && !by_user)
        g_warning("job %s: it has %d files open, and is refused more (EMFILE) until it closes "
                  "some; " WHAT_HELPS,
                  job->id, g_atomic_int_get(&job->files.count), handles->most);
    if (by_user && g_atomic_int_add(&user->opens_refused, 1) == 0)
        g_warning(
            "user %u: the jobs of this user have %d files open, and are refused more (EMFILE) "
            "until they close some; " WHAT_HELPS,
            user->uid, g_atomic_int_get(&user->open_files), handles->most);
}

int qos_handle_new(QosHandles *handles, QosCaller *caller, QosHandle **ret_handle)
{
    QosHandle *handle = g_new(QosHandle, 1);
    QosPlace place;

    *handle = (QosHandle){
        .references = 1, .handles = handles, .link.data = handle, .fd = -1, .caller = caller};
    qos_mutex_lock(&handles->lock);
    place = take_place_locked(handles, caller);
    if (place == QOS_PLACE_FREE)
        g_queue_push_head_link(list_of(handle), &handle->link);
    qos_mutex_unlock(&handles->lock);
    if (place != QOS_PLACE_FREE) {
        g_free(handle);
        if (place == QOS_PLACE_NONE)
            return -ENFILE;
        note_refusal(handles, caller, place);
        return -EMFILE;
    }
    qos_caller_ref(caller);
    *ret_handle = handle;
    return 0;
}

void qos_handle_set_file(QosHandle *handle, int fd, int flags, QosLoan *file)
{
    handle->fd = fd;
    handle->flags = flags;
    handle->file = *file;
    *file = (QosLoan){.fd = -1};
    qos_mutex_lock(&handle->handles->lock);
    g_queue_unlink(list_of(handle), &handle->link);
    qos_loan_name(&handle->file, &handle->name);
    g_queue_push_head_link(list_of(handle), &handle->link);
    qos_mutex_unlock(&handle->handles->lock);
}

void qos_handle_set_writes_pages(QosHandle *handle)
{
    handle->writes_pages = TRUE;
    qos_loan_count_writer(&handle->file, 1);
}

/* O_NOATIME is for the owner alone, but here it is the mount's will. */
void qos_handle_spare_atime(QosHandle *handle)
{
    int flags = fcntl(handle->fd, F_GETFL);

    qos_cred_raise();
    (void)fcntl(handle->fd, F_SETFL, flags | O_NOATIME);
    qos_cred_lower();
}

void qos_handle_set_locking(QosHandle *handle, QosLocking locking)
{
    gint before = __atomic_load_n(&handle->locking, __ATOMIC_RELAXED);

    while (before < (gint)locking &&
           !__atomic_compare_exchange_n(&handle->locking, &before, locking, FALSE, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED))
        ;
}

void qos_handle_lose_locks(QosHandle *handle, pid_t process)
{
    QosHandles *handles = handle->handles;

    qos_handle_set_locking(handle, QOS_LOCKING_LOST);
    if (process == 0)
        return;
    qos_mutex_lock(&handles->lock);
    for (const GList *link = list_of(handle)->head; link != NULL; link = link->next) {
        QosHandle *other = link->data;

        if (other->caller->process == process && qos_file_name_equal(&other->name, &handle->name))
            qos_handle_set_locking(other, QOS_LOCKING_LOST);
    }
    qos_mutex_unlock(&handles->lock);
}

QosHandle *qos_handle_ref(QosHandle *handle)
{
    g_atomic_int_inc(&handle->references);
    return handle;
}

void qos_handle_unref(QosHandle *handle)
{
    QosHandles *handles;

    if (handle == NULL || !g_atomic_int_dec_and_test(&handle->references))
        return;
    handles = handle->handles;
    close_file(handle); /* which may take its time: it has its place until then */
    qos_mutex_lock(&handles->lock);
    g_queue_unlink(list_of(handle), &handle->link);
    give_place_back_locked(handles, handle->caller);
    qos_mutex_unlock(&handles->lock);
    free_handle(handle);
}
