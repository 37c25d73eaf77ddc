/*
 * Opens for execve(2), and for writing, of programs with set-user-ID or set-group-ID bits
 * (fs/ops/execs.h).
 */
#include "fs/ops/execs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "fs/request/fs.h"
#include "fs/store/open_file.h"

/* For so many pauses a file that is closed may still seem open: its RELEASE waits for the
 * processor.
 */
#define PAUSES 200
#define PAUSE  1000 /* us */

static gboolean is_for_writing(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY;
}

static gboolean is_writer(const QosHandle *handle)
{
    return is_for_writing(handle->flags);
}

static gboolean is_exec(const QosHandle *handle)
{
    return (handle->flags & QOS_OPEN_FOR_EXEC) != 0;
}

/* Waits until no handle of the file is such. FALSE: one still is. */
static gboolean await_none(const QosOp *op, const QosLoan *file,
                           gboolean (*is_such)(const QosHandle *handle))
{
    QosFileName name;

    qos_loan_name(file, &name);
    for (guint i = 0; i < PAUSES; i++) {
        if (!qos_handles_has(op->fs->handles, &name, is_such))
            return TRUE;
        g_usleep(PAUSE);
    }
    return FALSE;
}

/* The number is read before other openers are looked for, because each later open of the file for
 * writing changes it. */
static int admit_exec(QosOp *op, const QosHandle *handle, guint known)
{
    struct stat stat;

    if (!await_none(op, &handle->file, is_writer))
        return -ETXTBSY;
    if (fstat(handle->fd, &stat) != 0)
        return -errno;
    if (!qos_privileges_are_held(known, stat.st_mode))
        return 0;
    switch (qos_loan_refresh(&handle->file, fuse_req_ctx(op->fuse)->pid, known)) {
    case QOS_REFRESH_BEGUN:
        op->looks_again = TRUE;
        return -ESTALE;
    case QOS_REFRESH_VAIN:
        return -ETXTBSY;
    case QOS_REFRESH_DONE:
        break;
    }
    return 0;
}

static int admit_writer(const QosOp *op, const QosLoan *file)
{
    /* A write by root takes no bits away. */
    return op->caller->uid == 0 || await_none(op, file, is_exec) ? 0 : -ETXTBSY;
}

int qos_execs_may_truncate(const QosOp *op, const QosLoan *file, int flags)
{
    if ((flags & O_TRUNC) == 0 || qos_loan_held_privileges(file) == 0)
        return 0;
    return admit_writer(op, file);
}

int qos_execs_admit(QosOp *op, QosHandle *handle)
{
    const guint known = qos_loan_held_privileges(&handle->file);

    if (known == 0)
        return 0;
    if (is_exec(handle))
        return admit_exec(op, handle, known);
    if (!is_writer(handle))
        return 0;
    qos_loan_note_writer(&handle->file);
    return admit_writer(op, &handle->file);
}
