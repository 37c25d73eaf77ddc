/*
 * Open files and directories (ops/handle.h).
 */
#include "ops/handle.h"

#include <unistd.h>

QosHandle *qos_handle_new(int fd, int flags, QosCaller *caller, QosLoan *file)
{
    QosHandle *handle = g_new0(QosHandle, 1);

    handle->references = 1;
    handle->fd = fd;
    handle->flags = flags;
    handle->caller = qos_caller_ref(caller);
    if (file != NULL) {
        handle->file = *file;
        *file = (QosLoan){.fd = -1};
    }
    return handle;
}

QosHandle *qos_handle_ref(QosHandle *handle)
{
    g_atomic_int_inc(&handle->references);
    return handle;
}

void qos_handle_unref(QosHandle *handle)
{
    if (handle == NULL || !g_atomic_int_dec_and_test(&handle->references))
        return;
    close(handle->fd);
    qos_loan_return(&handle->file);
    qos_dir_stream_free(handle->stream);
    qos_caller_unref(handle->caller);
    g_free(handle);
}
