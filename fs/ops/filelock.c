/*
 * The FUSE requests for fcntl and flock locks, on a mount with a lock server.
 * fs/filelocks/filelocks.h does the work.
 *
 * They touch no data of the store, so they pass no gate, and cost no slot and no token.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "fs/control/control.h"
#include "fs/filelocks/filelocks.h"
#include "fs/ops/operations.h"
#include "fs/request/interrupt.h"
#include "fs/store/open_file.h"

#define WHOLE_FILE ((QosSpan){0, G_MAXINT64, FALSE})

/* libfuse has made l_whence SEEK_SET, and l_len 0 for "to the end". */
static QosSpan span_of(const struct flock *lock)
{
    guint64 first = (guint64)lock->l_start;
    guint64 last = lock->l_len == 0 ? G_MAXINT64 : first + (guint64)lock->l_len - 1;

    return (QosSpan){first, last, lock->l_type == F_WRLCK};
}

static void take(fuse_req_t request, const struct fuse_file_info *info, QosFileLockKind kind,
                 QosFileLockMode mode, QosSpan span, gint32 pid)
{
    const QosFs *fs = qos_fs(request);
    QosOpenFile *open_file = qos_open_file_from(info);
    QosFileLock lock = {
        .owner = info->lock_owner, .pid = pid, .open_file = open_file, .span = span};

    qos_open_file_note_use(open_file);
    qos_open_file_set_locking(open_file, QOS_LOCKING_USED);
    qos_filelocks_take(fs->filelocks, request, &open_file->name, kind, mode, &lock,
                       qos_interrupts_may_be_lost(fs->interrupts));
}

static void give(fuse_req_t request, const struct fuse_file_info *info, QosFileLockKind kind,
                 QosSpan span)
{
    qos_filelocks_give(qos_fs(request)->filelocks, &qos_open_file_from(info)->name, kind,
                       info->lock_owner, span.first, span.last);
}

/* TRUE where it was answered: there is nothing to lock in .qosfs. */
static gboolean refuse(fuse_req_t request, fuse_ino_t ino)
{
    if (!qos_control_owns(ino))
        return FALSE;
    fuse_reply_err(request, ENOLCK);
    return TRUE;
}

void qosfs_op_getlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                    struct flock *lock)
{
    if (!refuse(request, ino))
        take(request, info, QOS_FILELOCKS_RECORD, QOS_FILELOCKS_TEST, span_of(lock), lock->l_pid);
}

void qosfs_op_setlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                    struct flock *lock, int sleep)
{
    if (refuse(request, ino))
        return;
    if (lock->l_type == F_UNLCK) {
        give(request, info, QOS_FILELOCKS_RECORD, span_of(lock));
        fuse_reply_err(request, 0);
        return;
    }
    take(request, info, QOS_FILELOCKS_RECORD, sleep ? QOS_FILELOCKS_WAIT : QOS_FILELOCKS_TRY,
         span_of(lock), lock->l_pid);
}

void qosfs_op_flock(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info, int operation)
{
    QosSpan span = WHOLE_FILE;

    if (refuse(request, ino))
        return;
    span.writes = (operation & LOCK_EX) != 0;
    if ((operation & LOCK_UN) != 0) {
        give(request, info, QOS_FILELOCKS_WHOLE, span);
        fuse_reply_err(request, 0);
        return;
    }
    take(request, info, QOS_FILELOCKS_WHOLE,
         (operation & LOCK_NB) ? QOS_FILELOCKS_TRY : QOS_FILELOCKS_WAIT, span, 0);
}

void qos_filelock_flush(const QosFs *fs, const QosOpenFile *open_file, guint64 owner)
{
    if (fs->filelocks != NULL)
        qos_filelocks_give(fs->filelocks, &open_file->name, QOS_FILELOCKS_RECORD, owner, 0,
                           G_MAXUINT64);
}

void qos_filelock_release(const QosFs *fs, const QosOpenFile *open_file)
{
    if (qos_open_file_locking(open_file) != QOS_LOCKING_NONE)
        qos_filelocks_close(fs->filelocks, open_file);
}
