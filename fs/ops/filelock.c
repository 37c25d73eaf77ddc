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

static void take(fuse_req_t request, const struct fuse_file_info *info, QosLocksKind kind,
                 QosLocksMode mode, QosSpan span, gint32 pid)
{
    const QosFs *fs = qos_fs(request);
    QosHandle *handle = qos_handle_from(info);
    QosLock lock = {.owner = info->lock_owner, .pid = pid, .handle = handle, .span = span};

    qos_handle_note_use(handle);
    qos_handle_set_locking(handle, QOS_LOCKING_USED);
    qos_locks_take(fs->locks, request, &handle->name, kind, mode, &lock,
                   qos_interrupts_may_be_lost(fs->interrupts));
}

static void give(fuse_req_t request, const struct fuse_file_info *info, QosLocksKind kind,
                 QosSpan span)
{
    qos_locks_give(qos_fs(request)->locks, &qos_handle_from(info)->name, kind, info->lock_owner,
                   span.first, span.last);
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
        take(request, info, QOS_LOCKS_RECORD, QOS_LOCKS_TEST, span_of(lock), lock->l_pid);
}

void qosfs_op_setlk(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info,
                    struct flock *lock, int sleep)
{
    if (refuse(request, ino))
        return;
    if (lock->l_type == F_UNLCK) {
        give(request, info, QOS_LOCKS_RECORD, span_of(lock));
        fuse_reply_err(request, 0);
        return;
    }
    take(request, info, QOS_LOCKS_RECORD, sleep ? QOS_LOCKS_WAIT : QOS_LOCKS_TRY, span_of(lock),
         lock->l_pid);
}

void qosfs_op_flock(fuse_req_t request, fuse_ino_t ino, struct fuse_file_info *info, int operation)
{
    QosSpan span = WHOLE_FILE;

    if (refuse(request, ino))
        return;
    span.writes = (operation & LOCK_EX) != 0;
    if ((operation & LOCK_UN) != 0) {
        give(request, info, QOS_LOCKS_WHOLE, span);
        fuse_reply_err(request, 0);
        return;
    }
    take(request, info, QOS_LOCKS_WHOLE, (operation & LOCK_NB) ? QOS_LOCKS_TRY : QOS_LOCKS_WAIT,
         span, 0);
}

void qos_lock_flush(const QosFs *fs, const QosHandle *handle, guint64 owner)
{
    if (fs->locks != NULL)
        qos_locks_give(fs->locks, &handle->name, QOS_LOCKS_RECORD, owner, 0, G_MAXUINT64);
}

void qos_lock_release(const QosFs *fs, const QosHandle *handle)
{
    if (qos_handle_locking(handle) != QOS_LOCKING_NONE)
        qos_locks_close(fs->locks, handle);
}
