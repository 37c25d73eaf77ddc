/*
 * A process whose environment cannot be read: whoever asks for it waits.
 *
 *     stuck-caller HANGING FILE COUNT
 *
 * HANGING is a file of a file system that will not answer. One thread unmaps its page, which waits
 * for the page to be written, with the process's memory lock held; a second one wants that lock for
 * itself, so that all who come later wait behind it, also those who read /proc/PID/environ. Then
 * COUNT threads ask for the size of FILE: "ready" is printed before, and when a line comes, it
 * begins; then a byte for each answer. It ends where one is an error.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static const char *file;
static char *page;
static sem_t unmaps, maps, asks;

static void *unmap(void *arg)
{
    sem_wait(&unmaps);
    munmap(page, PAGE);
    return arg;
}

static void *map(void *arg)
{
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
    usleep(100000);
    sem_post(&maps);
    usleep(100000);
    for (int i = 0; i < count; i++)
        sem_post(&asks);
    pause();
}
