/*
 * A process with an environment that cannot be read: a thread that asks for it waits.
 *
 *     stuck-caller HANGING FILE COUNT
 *
 * HANGING is a file of a file system that will not answer. One thread unmaps its page, which waits
 * for the page to be written, with the process's memory lock held. A second one wants that lock for
 * itself. So all later ones wait behind it, also readers of /proc/PID/environ. Then COUNT threads
 * ask for the size of FILE: "ready" is printed before, and when a line comes, it begins; then a
 * byte for each answer. It ends where one is an error.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static const char *file;
static char *page;
static sem_t unmaps, maps, asks;
static atomic_int unmapper, mapper; /* thread ids */

static void *unmap(void *arg)
{
    unmapper = gettid();
    sem_wait(&unmaps);
    munmap(page, PAGE);
    return arg;
}

static void *map(void *arg)
{
    mapper = gettid();
    sem_wait(&maps);
    return mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? NULL
                                                                                         : arg;
}

static void *ask(void *arg)
{
    struct stat stat_buffer;

    sem_wait(&asks);
    if (stat(file, &stat_buffer) != 0 || write(STDOUT_FILENO, ".", 1) != 1)
        _exit(1);
    return arg;
}

/* Until the thread waits for what no signal ends, as for a page or the memory lock; its stat can be
 * read without that lock. */
static void wait_until_stuck(const atomic_int *tid)
{
    char state = 0;

    while (state != 'D') {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", *tid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        char text[64] = "";
        const char *end = read(fd, text, sizeof(text) - 1) > 0 ? strrchr(text, ')') : NULL;
        state = end != NULL ? end[2] : 0;
        close(fd);
        usleep(1000);
    }
}

static void start(void *(*run)(void *))
{
    pthread_t thread;
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    if (pthread_create(&thread, &attributes, run, NULL) != 0)
        abort();
    pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[3]) : 0;
    int fd = argc == 4 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    char byte;

    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        perror("stuck-caller HANGING FILE COUNT");
        return 1;
    }
    file = argv[2];
    sem_init(&unmaps, 0, 0);
    sem_init(&maps, 0, 0);
    sem_init(&asks, 0, 0);
    start(unmap);
    start(map);
    for (int i = 0; i < count; i++)
        start(ask);
    page[0] = 'x';
    if (write(STDOUT_FILENO, "ready\n", 6) != 6 || read(STDIN_FILENO, &byte, 1) != 1)
        return 1;
    sem_post(&unmaps);
    wait_until_stuck(&unmapper);
    sem_post(&maps);
    wait_until_stuck(&mapper);
    for (int i = 0; i < count; i++)
        sem_post(&asks);
    pause();
}
