/*
 * The load of bench/rates: a job with workers that do one kind of operation for ever.
 *
 *     bench-load WAY OPERATION WORKERS threads|processes own|shared BETWEEN SIZE JOB FOLDER MOST
 *
 * The kernel takes other locks and makes other requests for each WAY of reading and writing:
 * cached, direct, mapped, append, fsync (after each), io_uring, aio. OPERATION is read, write,
 * create (and unlink), stat or rename. BETWEEN is a call after each operation: none, fstat, lseek
 * or chmod. With `own` each worker has a folder and a file of its own; with `shared` all use FOLDER
 * and the file in it, and so does another job in the same FOLDER. JOB is 0 or 1 and keeps their
 * names and offsets apart.
 *
 * The program opens its files, prints "ready", and waits for a line. It works until its input ends
 * or MOST operations are done. The bound lets a job without a rule leave the CPUs to the others. It
 * prints as JSON the operations, the bytes, the longest single call in seconds, and the errors. A
 * call that has not ended by then counts with the time it took so far. Each read is of a page that
 * was not read before, so that the kernel has to ask the mount, for up to CHUNKS pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_LIBURING
#include <liburing.h>
#endif

#define PAGE    4096
#define CHUNKS  16384u /* of a file that is read; a power of two */
#define DEPTH   2      /* operations that a worker has under way by io_uring or aio */
#define WORKERS 64
#define NAME    256

typedef enum { CACHED, DIRECT, MAPPED, APPEND, FSYNC, IO_URING, AIO } Way;
typedef enum { READ, WRITE, CREATE, STAT, RENAME } Operation;
typedef enum { NONE, FSTAT, LSEEK, CHMOD } Between;

static const char *const ways[] = {"cached", "direct",   "mapped", "append",
                                   "fsync",  "io_uring", "aio",    NULL};
static const char *const operations[] = {"read", "write", "create", "stat", "rename", NULL};
static const char *const betweens[] = {"none", "fstat", "lseek", "chmod", NULL};
static const char *const kinds[] = {"threads", "processes", NULL};
static const char *const places[] = {"own", "shared", NULL};

/* In memory that the processes share. */
typedef struct {
    _Atomic uint64_t operations;
    _Atomic uint64_t bytes;
    _Atomic uint64_t errors;
    _Atomic uint64_t longest; /* of one call, ns */
    _Atomic uint64_t began;   /* when the call under way began; 0: there is none */
    _Atomic int is_ready;
    _Atomic int error; /* the last one */
} Tally;

typedef struct {
    Tally *tally;
    unsigned number;
    uint64_t step;
    int fd;
    int folder;
    char *map;
    char *buffer[DEPTH];
    char file[NAME];
    char name[DEPTH][2][NAME]; /* what is made and unlinked; what is renamed to and fro */
    aio_context_t aio;
#ifdef HAVE_LIBURING
    struct io_uring ring;
#endif
} Worker;

static Way way;
static Operation operation;
static Between between;
static unsigned workers, size, job;
static int is_own, is_processes;
static const char *folder;
static uint64_t most;
static int gate[2]; /* its end is the sign to begin */
static Tally *tallies;

__attribute__((noreturn)) static void fail(const char *what)
{
    fprintf(stderr, "bench-load: %s: %s\n", what, strerror(errno));
    _exit(EXIT_FAILURE);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* --- one call: its time and its outcome --- */

static void call_begins(Worker *worker)
{
    worker->tally->began = now();
}

static long call_ended(Worker *worker, long result)
{
    Tally *tally = worker->tally;
    const uint64_t took = now() - tally->began;

    tally->began = 0;
    if (took > tally->longest)
        tally->longest = took;
    if (result < 0) {
        tally->error = errno;
        tally->errors++;
    }
    return result;
}

#define CALL(worker, call) (call_begins(worker), call_ended(worker, (long)(call)))

static void moved(Worker *worker, long bytes)
{
    if (bytes > 0)
        worker->tally->bytes += (uint64_t)bytes;
}

/* --- what is done --- */

/* The offset of the next chunk: all are different, those of other workers and of another job too.
 */
static off_t next_offset(Worker *worker)
{
    const uint64_t place = (worker->step++ * workers + worker->number) * 2 + job;

    if (way == APPEND)
        return 0;
    return (off_t)((place * 2654435761u) % CHUNKS) * size;
}

static void do_between(Worker *worker, int fd)
{
    struct stat status;

    switch (between) {
    case NONE:
        break;
    case FSTAT:
        CALL(worker, fstat(fd, &status));
        break;
    case LSEEK: /* the first one asks for attributes, the second the store */
        CALL(worker, lseek(fd, 0, SEEK_END));
        CALL(worker, lseek(fd, 0, way == APPEND || operation == CREATE ? SEEK_CUR : SEEK_HOLE));
        break;
    case CHMOD:
        if (fd == worker->fd)
            CALL(worker, chmod(worker->file, worker->step % 2 ? 0600 : 0640));
        else
            CALL(worker, fchmod(fd, 0640));
        break;
    }
}

static void move_mapped(Worker *worker)
{
    char *chunk = worker->map + next_offset(worker);

    for (unsigned at = 0; at < size; at += PAGE) {
        volatile unsigned char *byte = (volatile unsigned char *)chunk + at;
        if (operation == READ)
            CALL(worker, *byte);
        else
            CALL(worker, *byte = (unsigned char)(worker->step | 1));
    }
    if (operation == WRITE)
        CALL(worker, msync(chunk, size, MS_SYNC));
    moved(worker, size);
}

static void do_plainly(Worker *worker)
{
    struct statx status;
    const char *name = worker->name[0][0];
    int fd = worker->fd;

    switch (operation) {
    case READ:
        moved(worker, CALL(worker, pread(fd, worker->buffer[0], size, next_offset(worker))));
        break;
    case WRITE:
        moved(worker, CALL(worker, pwrite(fd, worker->buffer[0], size, next_offset(worker))));
        break;
    case CREATE:
        fd = (int)CALL(worker, open(name, O_CREAT | O_EXCL | O_WRONLY, 0600));
        if (fd < 0)
            return;
        break;
    case STAT:
        CALL(worker,
             statx(AT_FDCWD, worker->file, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &status));
        break;
    case RENAME:
        CALL(worker,
             rename(worker->name[0][worker->step % 2], worker->name[0][1 - worker->step % 2]));
        worker->step++;
        break;
    }
    if (way == FSYNC)
        CALL(worker, fsync(operation == RENAME ? worker->folder : fd));
    do_between(worker, fd);
    if (operation == CREATE) {
        CALL(worker, close(fd));
        CALL(worker, unlink(name));
    }
}

static void do_aio(Worker *worker)
{
    struct iocb requests[DEPTH] = {0}, *pointers[DEPTH];
    struct io_event events[DEPTH];

    for (unsigned i = 0; i < DEPTH; i++) {
        requests[i].aio_lio_opcode = operation == READ ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
        requests[i].aio_fildes = (uint32_t)worker->fd;
        requests[i].aio_buf = (uintptr_t)worker->buffer[i];
        requests[i].aio_nbytes = size;
        requests[i].aio_offset = next_offset(worker);
        pointers[i] = &requests[i];
    }
    call_begins(worker);
    for (long asked = 0; asked < DEPTH;) {
        long more = syscall(SYS_io_submit, worker->aio, DEPTH - asked, pointers + asked);
        if (more < 0)
            fail("io_submit");
        asked += more;
    }
    call_ended(worker, syscall(SYS_io_getevents, worker->aio, DEPTH, DEPTH, events, NULL));
    for (unsigned i = 0; i < DEPTH; i++) {
        if (events[i].res < 0) {
            worker->tally->errors++;
            worker->tally->error = (int)-events[i].res;
        }
        moved(worker, (long)events[i].res);
    }
}

#ifdef HAVE_LIBURING
/* Sends what was prepared for each place of the ring, waits for all, and gives their results. */
static void ring_round(Worker *worker, int *results)
{
    int error;

    call_begins(worker);
    do
        error = io_uring_submit_and_wait(&worker->ring, DEPTH);
    while (error == -EINTR || error == -EAGAIN);
    for (unsigned i = 0; i < DEPTH && error >= 0; i++) {
        struct io_uring_cqe *cqe;

        error = io_uring_wait_cqe(&worker->ring, &cqe);
        if (error < 0)
            break;
        results[io_uring_cqe_get_data64(cqe)] = cqe->res;
        if (cqe->res < 0) {
            worker->tally->errors++;
            worker->tally->error = -cqe->res;
        }
        io_uring_cqe_seen(&worker->ring, cqe);
    }
    if (error < 0) {
        errno = -error;
        fail("io_uring");
    }
    call_ended(worker, 0);
}

static void do_ring(Worker *worker)
{
    static __thread struct statx status[DEPTH];
    int results[DEPTH] = {0}, closes[DEPTH];

    for (unsigned i = 0; i < DEPTH; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->ring);
        const unsigned from = (unsigned)(worker->step % 2);

        if (operation == READ)
            io_uring_prep_read(sqe, worker->fd, worker->buffer[i], size,
                               (uint64_t)next_offset(worker));
        else if (operation == WRITE)
            io_uring_prep_write(sqe, worker->fd, worker->buffer[i], size,
                                (uint64_t)next_offset(worker));
        else if (operation == CREATE)
            io_uring_prep_openat(sqe, AT_FDCWD, worker->name[i][0], O_CREAT | O_EXCL | O_WRONLY,
                                 0600);
        else if (operation == STAT)
            io_uring_prep_statx(sqe, AT_FDCWD, worker->file, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS,
                                &status[i]);
        else
            io_uring_prep_renameat(sqe, AT_FDCWD, worker->name[i][from], AT_FDCWD,
                                   worker->name[i][1 - from], 0);
        io_uring_sqe_set_data64(sqe, i);
    }
    ring_round(worker, results);
    worker->step += operation == RENAME;
    for (unsigned i = 0; i < DEPTH; i++) {
        if (operation == READ || operation == WRITE)
            moved(worker, results[i]);
        if (results[i] >= 0)
            do_between(worker, operation == CREATE ? results[i] : worker->fd);
    }
    if (operation != CREATE)
        return;
    for (unsigned i = 0; i < DEPTH; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->ring);
        io_uring_prep_close(sqe, results[i]);
        io_uring_sqe_set_data64(sqe, i);
    }
    ring_round(worker, closes);
    for (unsigned i = 0; i < DEPTH; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->ring);
        io_uring_prep_unlinkat(sqe, AT_FDCWD, worker->name[i][0], 0);
        io_uring_sqe_set_data64(sqe, i);
    }
    ring_round(worker, results);
}
#else
static void do_ring(Worker *worker)
{
    (void)worker;
}
#endif

/* --- a worker --- */

static void make_file(const char *path, off_t length)
{
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0 ||
        (status.st_size < length && ftruncate(fd, length) != 0))
        fail(path);
    close(fd);
}

/* Makes what must be there before the rule: files, folders, names. */
static void make_files(Worker *worker)
{
    char place[NAME - 40];

    if (is_own) {
        snprintf(place, sizeof(place), "%s/%u-%u", folder, job, worker->number);
        if (mkdir(place, 0700) != 0)
            fail(place);
    } else {
        snprintf(place, sizeof(place), "%s", folder);
    }
    snprintf(worker->file, NAME, "%s/file", place);
    make_file(worker->file, way == APPEND ? 0 : (off_t)CHUNKS * size);
    worker->folder = open(place, O_RDONLY | O_DIRECTORY);
    if (worker->folder < 0)
        fail(place);
    for (unsigned i = 0; i < DEPTH; i++) {
        for (unsigned j = 0; j < 2; j++)
            snprintf(worker->name[i][j], NAME, "%s/%u-%u-%u-%u.name", place, job, worker->number, i,
                     j);
        if (operation == RENAME)
            make_file(worker->name[i][0], 0);
        worker->buffer[i] = aligned_alloc(PAGE, size);
        memset(worker->buffer[i], 'x', size);
    }
}

/* Under the rule, as programs do when they begin: others are at work on the same file meanwhile. */
static void open_file(Worker *worker)
{
    const int flags = (way == DIRECT || way == AIO ? O_DIRECT : 0) | (way == APPEND ? O_APPEND : 0);
    const size_t length = (size_t)CHUNKS * size;
    struct stat status;

    worker->fd = (int)CALL(worker, open(worker->file, O_RDWR | flags));
    if (worker->fd < 0 || CALL(worker, fstat(worker->fd, &status)) != 0)
        fail(worker->file);
    posix_fadvise(worker->fd, 0, 0, POSIX_FADV_RANDOM);
    if (way == MAPPED) {
        worker->map = mmap(NULL, length, PROT_READ | (operation == WRITE ? PROT_WRITE : 0),
                           MAP_SHARED, worker->fd, 0);
        if (worker->map == MAP_FAILED || madvise(worker->map, length, MADV_RANDOM) != 0)
            fail("mmap");
    }
}

static void *work(void *data)
{
    Worker worker = {.tally = data, .number = (unsigned)((Tally *)data - tallies)};
    char byte;

    make_files(&worker);
    if (way == AIO && syscall(SYS_io_setup, DEPTH, &worker.aio) != 0)
        fail("io_setup");
#ifdef HAVE_LIBURING
    int error = way == IO_URING ? io_uring_queue_init(2 * DEPTH, &worker.ring, 0) : 0;
    if (error != 0) {
        errno = -error;
        fail("io_uring_queue_init");
    }
#endif
    worker.tally->is_ready = 1;
    if (read(gate[0], &byte, 1) != 0)
        fail("the sign to begin");
    open_file(&worker);
    for (;;) {
        if (way == IO_URING)
            do_ring(&worker);
        else if (way == AIO)
            do_aio(&worker);
        else if (way == MAPPED)
            move_mapped(&worker);
        else
            do_plainly(&worker);
        if (way == MAPPED || way == AIO)
            for (unsigned i = 0; i < (way == AIO ? DEPTH : 1); i++)
                do_between(&worker, worker.fd);
        worker.tally->operations += way == IO_URING || way == AIO ? DEPTH : 1;
        while (worker.tally->operations > most / workers)
            pause();
    }
    return NULL;
}

static void start_workers(pid_t *children)
{
    pthread_t thread;

    for (unsigned i = 0; i < workers; i++) {
        if (!is_processes) {
            errno = pthread_create(&thread, NULL, work, &tallies[i]);
            if (errno != 0)
                fail("pthread_create");
        } else if ((children[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(gate[1]);
            work(&tallies[i]);
        } else if (children[i] < 0) {
            fail("fork");
        }
        while (!tallies[i].is_ready) {
            if (is_processes && waitpid(children[i], NULL, WNOHANG) > 0)
                _exit(EXIT_FAILURE);
            usleep(100);
        }
    }
}

static void print_sums(void)
{
    uint64_t done = 0, bytes = 0, errors = 0, longest = 0;
    int error = 0;

    for (unsigned i = 0; i < workers; i++) {
        const uint64_t began = tallies[i].began;
        uint64_t took = began != 0 ? now() - began : 0;

        done += tallies[i].operations;
        bytes += tallies[i].bytes;
        errors += tallies[i].errors;
        error = tallies[i].error != 0 ? tallies[i].error : error;
        took = took > tallies[i].longest ? took : tallies[i].longest;
        longest = took > longest ? took : longest;
    }
    printf("{\"operations\": %llu, \"bytes\": %llu, \"longest\": %.6f, \"errors\": %llu, "
           "\"error\": \"%s\"}\n",
           (unsigned long long)done, (unsigned long long)bytes, (double)longest / 1e9,
           (unsigned long long)errors, error != 0 ? strerror(error) : "");
    fflush(stdout);
}

static unsigned choose(const char *const *names, const char *name)
{
    for (unsigned i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    errno = EINVAL;
    fail(name);
}

int main(int argc, char **argv)
{
    static pid_t children[WORKERS];
    char line[16];

    if (argc != 11) {
        fprintf(
            stderr,
            "usage: bench-load WAY OPERATION WORKERS threads|processes own|shared BETWEEN SIZE JOB "
            "FOLDER MOST\n");
        return 2;
    }
    way = (Way)choose(ways, argv[1]);
    operation = (Operation)choose(operations, argv[2]);
    workers = (unsigned)atoi(argv[3]);
    is_processes = choose(kinds, argv[4]) == 1;
    is_own = choose(places, argv[5]) == 0;
    between = (Between)choose(betweens, argv[6]);
    size = (unsigned)atoi(argv[7]);
    job = (unsigned)atoi(argv[8]);
    folder = argv[9];
    most = strtoull(argv[10], NULL, 10);
    errno = EINVAL;
    if (workers < 1 || workers > WORKERS || size % PAGE != 0)
        fail("so many workers, or such a size");
#ifndef HAVE_LIBURING
    if (way == IO_URING)
        fail("built without liburing");
#endif
    tallies = mmap(NULL, sizeof(Tally) * WORKERS, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies == MAP_FAILED || pipe2(gate, O_CLOEXEC) != 0)
        fail("mmap, pipe");
    start_workers(children);
    printf("ready\n");
    fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL)
        _exit(EXIT_FAILURE);
    close(gate[1]);
    while (read(STDIN_FILENO, line, sizeof(line)) > 0)
        ;
    print_sums();
    for (unsigned i = 0; i < workers && is_processes; i++)
        kill(children[i], SIGKILL);
    _exit(EXIT_SUCCESS);
}
