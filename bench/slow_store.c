/*
 * A library for LD_PRELOAD that makes the store of a mount slow: each read and write of the store
 * takes $SLOW_STORE_MS longer, as on disks that others keep busy. Any number of calls wait at once.
 * Calls of less than 16 KiB are not delayed, because they belong to the mount's database.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LEAST (16 << 10)

static void take_time(size_t size)
{
    const char *text = getenv("SLOW_STORE_MS");
    const long ms = text != NULL ? atol(text) : 0;
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    if (size >= LEAST)
        nanosleep(&pause, NULL);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    take_time(size);
    return ((ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64"))(fd, data, size,
                                                                                   offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    take_time(size);
    return ((ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(
        fd, data, size, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *data, int count, off64_t offset, int flags)
{
    take_time(data->iov_len); /* the mount gives one piece */
    return ((ssize_t(*)(int, const struct iovec *, int, off64_t, int))dlsym(
        RTLD_NEXT, "pwritev64v2"))(fd, data, count, offset, flags);
}
