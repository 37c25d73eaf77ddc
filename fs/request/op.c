/*
 * An operation as an object. fs/request/op.h has the contract.
 */
#include "fs/request/op.h"

#include <string.h>

#include "fs/request/fs.h"
#include "fs/store/open_file.h"
#include "fs/transport/interrupt_table.h"

gpointer qos_op_new(fuse_req_t request, gsize size, QosOpcode opcode, int (*run)(QosOp *op))
{
    QosOp *op = g_malloc0(size);

    op->entry.request.opcode = opcode;
    op->fs = qos_fs(request);
    op->fuse = request;
    op->number = qos_interrupt_table_number();
    op->run = run;
    return op;
}

void qos_op_clear(QosOp *op)
{
    if (op->clear != NULL)
        op->clear(op);
    g_clear_pointer(&op->open_file, qos_open_file_unref);
}

void qos_op_free(QosOp *op)
{
    qos_caller_unref(op->caller);
    qos_job_unref(op->entry.request.job);
    if (op->strings != NULL)
        g_slist_free_full(op->strings, g_free);
    g_free(op);
}

const char *qos_op_strdup(QosOp *op, const char *text)
{
    return qos_op_memdup(op, text, strlen(text) + 1);
}

gpointer qos_op_memdup(QosOp *op, const void *bytes, gsize size)
{
    gpointer copy = g_malloc(MAX(size, 1)); /* never NULL: that means another thing */

    op->strings = g_slist_prepend(op->strings, copy);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

int qos_op_new_open_file(QosOp *op, QosOpenFile **ret_open_file)
{
    int error = qos_open_file_new(op->fs->open_files, op->caller, ret_open_file);

    op->progress.is_refused = error != 0;
    return error;
}

void qos_op_use_open_file(QosOp *op, const struct fuse_file_info *info)
{
    op->open_file = qos_open_file_ref(qos_open_file_from(info));
}

void qos_op_lock_file(QosOp *op, fuse_ino_t ino, const QosOpenFile *open_file)
{
    op->target.locks = ino;
    op->target.locked_file = open_file != NULL ? open_file->file_jobs : NULL;
}

void qos_op_lock_directory(QosOp *op, fuse_ino_t ino)
{
    op->target.locks = ino;
    op->target.locks_directory = TRUE;
}

gboolean qos_op_keeps_suid(const QosOp *op, gboolean kills)
{
    return !kills && op->fs->knows_fsetid;
}
