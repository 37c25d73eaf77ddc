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

static gboolean is_writer(const QosOpenFile *open_file)
{
    return is_for_writing(open_file->flags);
}

static gboolean is_exec(const QosOpenFile *open_file)
{
    return (open_file->flags & QOS_OPEN_FOR_EXEC) != 0;
}

/* Waits until no open file of the file is such. FALSE: one still is. */
static gboolean await_none(const QosOp *op, const QosInodeRef *file,
                           gboolean (*is_such)(const QosOpenFile *open_file))
{
    QosFileName name;

    qos_inode_ref_name(file, &name);
    for (guint i = 0; i < PAUSES; i++) {
        if (!qos_open_files_has(op->fs->open_files, &name, is_such))
            return TRUE;
        g_usleep(PAUSE);
    }
    return FALSE;
}

/* The number is read before other open files are looked for, because each later open of the file
 * for writing changes it. */
static int admit_exec(QosOp *op, const QosOpenFile *open_file, guint known)
{
    struct stat stat;

    if (!await_none(op, &open_file->file, is_writer))
        return -ETXTBSY;
    if (fstat(open_file->fd, &stat) != 0)
        return -errno;
    if (!qos_privileges_are_held(known, stat.st_mode))
        return 0;
    switch (qos_inode_ref_refresh(&open_file->file, fuse_req_ctx(op->fuse)->pid, known)) {
    case QOS_REFRESH_BEGUN:
        op->progress.looks_again = TRUE;
        return -ESTALE;
    case QOS_REFRESH_VAIN:
        return -ETXTBSY;
    case QOS_REFRESH_DONE:
        break;
    }
    return 0;
}

static int admit_writer(const QosOp *op, const QosInodeRef *file)
{
    /* A write by root takes no bits away. */
    return op->caller->uid == 0 || await_none(op, file, is_exec) ? 0 : -ETXTBSY;
}

int qos_execs_may_truncate(const QosOp *op, const QosInodeRef *file, int flags)
{
    if ((flags & O_TRUNC) == 0 || qos_inode_ref_held_privileges(file) == 0)
        return 0;
    return admit_writer(op, file);
}

int qos_execs_admit(QosOp *op, QosOpenFile *open_file)
{
    const guint known = qos_inode_ref_held_privileges(&open_file->file);

    if (known == 0)
        return 0;
    if (is_exec(open_file))
        return admit_exec(op, open_file, known);
    if (!is_writer(open_file))
        return 0;
    qos_inode_ref_note_writer(&open_file->file);
    return admit_writer(op, &open_file->file);
}
