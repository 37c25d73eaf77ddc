/*
 * Requests by io_uring that a program does not wait for.
 *
 *     ring-io read|write direct|cached alone|thread|workers FILE COUNT
 *
 * Asks for COUNT pages of FILE, one after another, or to make them zeros, from its only thread,
 * from one that outlives the first, or from the kernel's own threads, and prints "asked". It then
 * waits for its input's end, and ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static struct {
    int writes, file, works;
    unsigned count;
} wanted;

static void complain(const char *what)
{
    perror(what);
    _exit(EXIT_FAILURE);
}

static void *map(int ring, size_t size, off_t what)
{
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, what);

    if (place == MAP_FAILED)
        complain("mmap");
    return place;
}

static void *ask(void *unused)
{
    struct io_uring_params params = {0};
    int ring = (int)syscall(SYS_io_uring_setup, wanted.count, &params);
    struct io_uring_sqe *entries;
    char *places, *pages = aligned_alloc(PAGE, (size_t)PAGE * wanted.count);

    if (ring < 0 || pages == NULL)
        complain("io_uring_setup");
    memset(pages, 0, (size_t)PAGE * wanted.count);
    places =
        map(ring, params.sq_off.array + params.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    entries = map(ring, params.sq_entries * sizeof(*entries), IORING_OFF_SQES);
    for (unsigned i = 0; i < wanted.count; i++) {
        entries[i] =
            (struct io_uring_sqe){.opcode = wanted.writes ? IORING_OP_WRITE : IORING_OP_READ,
                                  .flags = wanted.works ? IOSQE_ASYNC : 0,
                                  .fd = wanted.file,
                                  .addr = (uintptr_t)(pages + (size_t)i * PAGE),
                                  .off = (uint64_t)i * PAGE,
                                  .len = PAGE};
        ((unsigned *)(places + params.sq_off.array))[i] = i;
    }
    __atomic_store_n((unsigned *)(places + params.sq_off.tail), wanted.count, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, wanted.count, 0, 0, NULL, 0) != (long)wanted.count)
        complain("io_uring_enter");
    printf("asked\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    _exit(EXIT_SUCCESS);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int flags;

    if (argc != 6)
        return EXIT_FAILURE;
    wanted.writes = strcmp(argv[1], "write") == 0;
    wanted.works = strcmp(argv[3], "workers") == 0;
    wanted.count = (unsigned)atoi(argv[5]);
    flags = strcmp(argv[2], "direct") == 0 ? O_DIRECT : 0;
    wanted.file = open(argv[4], (wanted.writes ? O_WRONLY : O_RDONLY) | flags);
    if (wanted.file < 0)
        complain(argv[4]);
    if (strcmp(argv[3], "thread") != 0)
        ask(NULL);
    if (pthread_create(&thread, NULL, ask, NULL) != 0)
        complain("pthread_create");
    pthread_exit(NULL);
}
