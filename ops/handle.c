/*
 * Open files and directories (ops/handle.h).
 */
#include "ops/handle.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

struct QosHandles {
    pthread_mutex_t lock;
    GQueue open; /* of QosHandle */
};

QosHandles *qos_handles_new(void)
{
    QosHandles *handles = g_new0(QosHandles, 1);

    pthread_mutex_init(&handles->lock, NULL);
    g_queue_init(&handles->open);
    return handles;
}

static void free_handle(QosHandle *handle)
{
    close(handle->fd);
    qos_backing_leave(&handle->backing);
    qos_openers_leave(handle->open_file, handle->caller->job);
    qos_loan_return(&handle->file);
    qos_dir_stream_free(handle->stream);
    qos_caller_unref(handle->caller);
    g_free(handle);
}

void qos_handles_free(QosHandles *handles)
{
    GList *link;

    if (handles == NULL)
        return;
    while ((link = g_queue_pop_head_link(&handles->open)) != NULL)
        free_handle(link->data);
    pthread_mutex_destroy(&handles->lock);
    g_free(handles);
}

QosHandle *qos_handle_new(QosHandles *handles, int fd, int flags, QosCaller *caller, QosLoan *file)
{
    QosHandle *handle = g_new(QosHandle, 1);

    *handle = (QosHandle){
        .references = 1,
        .handles = handles,
        .link.data = handle,
        .fd = fd,
        .flags = flags,
        .caller = qos_caller_ref(caller),
        .file = *file,
    };
    *file = (QosLoan){.fd = -1};
    pthread_mutex_lock(&handles->lock);
    g_queue_push_head_link(&handles->open, &handle->link);
    pthread_mutex_unlock(&handles->lock);
    return handle;
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
    pthread_mutex_lock(&handles->lock);
    g_queue_unlink(&handles->open, &handle->link);
    pthread_mutex_unlock(&handles->lock);
    free_handle(handle);
}
