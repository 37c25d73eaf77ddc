/*
 * To be preloaded: the kernel is as before Linux 6.9, and cannot write at an offset through a file
 * that appends.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NOAPPEND 0x20 /* RWF_NOAPPEND */

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    if ((flags & NOAPPEND) != 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return syscall(SYS_pwritev2, fd, pieces, count, offset, 0L, flags);
}
