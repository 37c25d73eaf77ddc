/*
 * The load of bench/cluster budget where an instant counts: readers of many files, each of which is
 * switched on and off.
 *
 * The problem: a share moves within 100 ms, and a program takes as long to start. So all readers
 * are threads that are there from the start, and sleep until their file is switched on.
 *
 *     bench-hunger SIZE THREADS FILE...
 *
 * Each FILE is read by THREADS threads in a closed loop, SIZE bytes at a time, past the cache and
 * in an order in which no place comes twice before all have been read. Every other place is left
 * out, because the kernel would read ahead behind a place that was just read. The program prints
 * "ready" and does what its input says, a line each:
 *
 *     +N    file number N is read from now on: prints the time
 *     -N    no more
 *     ?     prints the time, and of each file how many reads have ended
 *
 * Times are of CLOCK_MONOTONIC, in ns. If a mount has died, its file is read no more until +N opens
 * it again. The program ends with its input. No part of qosfs is in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

/* `lock` protects `is_wanted` and `fd`. */
typedef struct {
    const char *path;
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    int is_wanted;
    int fd; /* -1: none. A dead mount's is left open, as a thread may be in it for ever */
    atomic_uint_fast64_t next, done;
    uint64_t places; /* pairs of so many bytes each: a power of two */
} File;

static size_t size;

__attribute__((noreturn)) static void fail(const char *what)
{
    fprintf(stderr, "bench-hunger: %s: %s\n", what, strerror(errno));
    _exit(EXIT_FAILURE);
}

static unsigned long long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long long)time.tv_sec * 1000000000 + (unsigned long long)time.tv_nsec;
}

static void set_wanted(File *file, int is_wanted)
{
    pthread_mutex_lock(&file->lock);
    file->is_wanted = is_wanted;
    pthread_cond_broadcast(&file->wanted);
    pthread_mutex_unlock(&file->lock);
}

/* Sleeps until the file is switched on; returns its descriptor. */
static int wait_wanted(File *file)
{
    int fd;

    pthread_mutex_lock(&file->lock);
    while (!file->is_wanted)
        pthread_cond_wait(&file->wanted, &file->lock);
    fd = file->fd;
    pthread_mutex_unlock(&file->lock);
    return fd;
}

/* A read has failed: nothing more is read through that descriptor. */
static void give_up(File *file, int fd)
{
    pthread_mutex_lock(&file->lock);
    if (file->fd == fd) {
        file->fd = -1;
        file->is_wanted = 0;
    }
    pthread_mutex_unlock(&file->lock);
}

static void *work(void *data)
{
    File *file = data;
    void *buffer = aligned_alloc(PAGE, size);

    if (buffer == NULL)
        fail("aligned_alloc");
    for (;;) {
        const int fd = wait_wanted(file);
        const uint64_t turn = atomic_fetch_add(&file->next, 1);
        const off_t pair = (off_t)(turn * 2654435761u % file->places); /* odd: a permutation */

        if (pread(fd, buffer, size, (2 * pair + 1) * (off_t)size) == (ssize_t)size)
            atomic_fetch_add(&file->done, 1);
        else
            give_up(file, fd);
    }
    return NULL;
}

/* FALSE: its mount is dead. */
static int open_file(File *file)
{
    struct stat status;
    int fd = open(file->path, O_RDONLY | O_DIRECT);

    if (fd < 0 || fstat(fd, &status) != 0)
        return 0;
    for (file->places = 1; file->places * 4 * size <= (uint64_t)status.st_size;)
        file->places *= 2;
    file->fd = fd;
    return 1;
}

static void start(File *file, unsigned threads)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN + 4 * PAGE);
    pthread_mutex_init(&file->lock, NULL);
    pthread_cond_init(&file->wanted, NULL);
    if (!open_file(file))
        fail(file->path);
    for (unsigned i = 0; i < threads; i++) {
        errno = pthread_create(&thread, &attributes, work, file);
        if (errno != 0)
            fail("pthread_create");
    }
    pthread_attr_destroy(&attributes);
}

static void switch_on(File *file)
{
    int is_open = 1;

    if (file->fd < 0)
        is_open = open_file(file);
    if (!is_open)
        fail(file->path);
    printf("%llu\n", now());
    set_wanted(file, 1);
}

static void tell(File *files, unsigned count)
{
    printf("%llu", now());
    for (unsigned i = 0; i < count; i++)
        printf(" %llu", (unsigned long long)atomic_load(&files[i].done));
    printf("\n");
}

int main(int argc, char **argv)
{
    const unsigned count = argc > 3 ? (unsigned)argc - 3 : 0;
    File *files = calloc(count + 1, sizeof(*files));
    char line[16];

    if (count == 0 || files == NULL || (size = (size_t)atoi(argv[1])) % PAGE != 0 || size == 0) {
        fprintf(stderr, "usage: bench-hunger SIZE THREADS FILE...\n");
        return 2;
    }
    for (unsigned i = 0; i < count; i++) {
        files[i].path = argv[i + 3];
        start(&files[i], (unsigned)atoi(argv[2]));
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        const unsigned number = (unsigned)atoi(line + 1);

        if (line[0] == '?')
            tell(files, count);
        else if (number >= count)
            fail(line);
        else if (line[0] == '+')
            switch_on(&files[number]);
        else
            set_wanted(&files[number], 0);
        fflush(stdout);
    }
    _exit(EXIT_SUCCESS);
}
