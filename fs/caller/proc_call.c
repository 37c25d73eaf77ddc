/*
 * What a thread's system call is for (fs/caller/proc.h).
 *
 * The kernel sends the same GETATTR and GETXATTR for a program that asks for attributes, and for
 * its own checks before another system call. Only the system call tells them apart.
 * /proc/TID/syscall has its number, six arguments, the stack pointer and the program counter.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/caller/cred.h"
#include "fs/caller/proc.h"

/* So often, and that far apart, while the thread has not gone to sleep yet. */
#define LOOKS 20
#define PAUSE 100 /* us */

/* Newer than some headers; the same on every architecture. */
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_getxattrat
#define SYS_getxattrat 464
#endif

static QosCall by_open_flags(guint64 flags)
{
    return (flags & (O_CREAT | O_DIRECTORY)) != 0 ? QOS_CALL_OPENS_NAMES : QOS_CALL_OPENS;
}

static QosCall purpose_of(gint64 number, const guint64 arguments[6])
{
    switch (number) {
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
#endif
    case SYS_newfstatat:
    case SYS_fstat:
    case SYS_statx:
    case SYS_faccessat:
    case SYS_faccessat2:
    case SYS_chdir:
        return QOS_CALL_READS_ATTRIBUTES;
    case SYS_getxattr:
    case SYS_lgetxattr:
    case SYS_fgetxattr:
    case SYS_getxattrat:
        return QOS_CALL_READS_XATTRS;
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_copy_file_range:
        return QOS_CALL_READS_DATA;
#ifdef SYS_open
    case SYS_open:
        return by_open_flags(arguments[1]);
    case SYS_creat:
        return QOS_CALL_OPENS_NAMES;
    case SYS_mkdir:
    case SYS_mknod:
    case SYS_unlink:
    case SYS_rmdir:
    case SYS_link:
    case SYS_symlink:
    case SYS_rename:
#endif
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
    case SYS_mkdirat:
    case SYS_mknodat:
    case SYS_unlinkat:
    case SYS_linkat:
    case SYS_symlinkat:
        return QOS_CALL_CHANGES_NAMES;
    case SYS_openat:
        return by_open_flags(arguments[2]);
    case SYS_openat2: /* its flags are in the thread's memory */
    case SYS_open_by_handle_at:
        return QOS_CALL_OPENS;
    case SYS_io_uring_enter:
        return QOS_CALL_UNKNOWN;
    default:
        return QOS_CALL_OTHER;
    }
}

/* A 32-bit program numbers its system calls otherwise, and a kernel thread has no stack of its own.
 * The stack pointer shows both. A 64-bit program that makes 32-bit calls is not noticed, because
 * only its code tells, and to read that could wait for its memory's lock. What it gains is bounded
 * by its class's allowance (fs/tbf.c). */
static QosCall parse(const char *text)
{
    guint64 a[6], stack;
    gint64 number;

    if (sscanf(text,
               "%" SCNd64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
               " %" SCNx64,
               &number, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &stack) != 8 ||
        stack <= G_MAXUINT32)
        return QOS_CALL_UNKNOWN;
    return purpose_of(number, a);
}

QosCall qos_proc_call(pid_t tid)
{
    char path[48], text[256];
    gssize length = 0;
    int fd;

    if (tid == 0)
        return QOS_CALL_UNKNOWN;
    qos_cred_restore();
    g_snprintf(path, sizeof(path), "/proc/%d/syscall", (int)tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return QOS_CALL_UNKNOWN;
    for (guint i = 0; i < LOOKS; i++) {
        length = pread(fd, text, sizeof(text) - 1, 0);
        if (length <= 0 || text[0] != 'r') /* "running" */
            break;
        g_usleep(PAUSE);
    }
    close(fd);
    text[MAX(length, 0)] = '\0';
    return parse(text);
}
