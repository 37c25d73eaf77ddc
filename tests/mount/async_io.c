/*
 * Reads or writes without waiting: many requests of one thread at a time.
 *
 *     async-io read|write FILE COUNT
 *
 * Asks COUNT times at once for the first page of FILE, or to make it zeros, past the kernel's
 * cache, and prints "asked". Then it waits for all the answers and prints how many were whole, and
 * the errno of each that failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static int complain(const char *what)
{
    perror(what);
    return EXIT_FAILURE;
}

static void print_answers(const struct io_event *events, long count)
{
    long whole = 0;

    for (long i = 0; i < count; i++)
        whole += events[i].res == PAGE;
    printf("%ld", whole);
    for (long i = 0; i < count; i++) {
        if (events[i].res != PAGE)
            printf(" %d", (int)-events[i].res);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    long count = argc == 4 ? atol(argv[3]) : 0;
    int writes = argc == 4 && strcmp(argv[1], "write") == 0;
    int file = count > 0 ? open(argv[2], (writes ? O_WRONLY : O_RDONLY) | O_DIRECT) : -1;
    struct iocb *request = calloc((size_t)count, sizeof(*request));
    struct iocb **requests = calloc((size_t)count, sizeof(*requests));
    struct io_event *events = calloc((size_t)count, sizeof(*events));
    void *page = aligned_alloc(PAGE, PAGE);
    aio_context_t context = 0;
    long asked = 0;

    if (file < 0 || !request || !requests || !events || !page)
        return complain("async-io read|write FILE COUNT");
    memset(page, 0, PAGE);
    if (syscall(SYS_io_setup, count, &context) != 0)
        return complain("io_setup");
    for (long i = 0; i < count; i++) {
        request[i] = (struct iocb){.aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
                                   .aio_fildes = (uint32_t)file,
                                   .aio_buf = (uintptr_t)page,
                                   .aio_nbytes = PAGE};
        requests[i] = &request[i];
    }
    while (asked < count) {
        long more = syscall(SYS_io_submit, context, count - asked, requests + asked);

        if (more < 0)
            return complain("io_submit");
        asked += more;
    }
    printf("asked\n");
    fflush(stdout);
    if (syscall(SYS_io_getevents, context, count, count, events, NULL) != count)
        return complain("io_getevents");
    print_answers(events, count);
    free(request);
    free(requests);
    free(events);
    free(page);
    return EXIT_SUCCESS;
}
