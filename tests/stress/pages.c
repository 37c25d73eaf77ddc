/*
 * pages TABLE DIR ROLE SECONDS SEED [apart]: whether all readers of a file see what was written.
 *
 * The files in DIR consist of blocks of which each word says by which change it was written. TABLE,
 * a file that all processes map, has the number of each block's last change that is complete, and
 * of the last that has begun. A block has one owner, or is changed under its lock alone. So each
 * word that is read must be of a change that had not been replaced by a complete one before, and
 * that has begun since. Of a file that grows each byte follows from its place, and none is zero.
 *
 *     make     makes the files and the table
 *     write    processes that change blocks by calls, mappings, direct I/O, copies, holes and
 *              truncation, and read them back; and a process that appends
 *     read     processes that read blocks in all ways, and look at the files in between
 *     check    compares what is in DIR with the table: to be run on mount and store at the end
 *
 * With `apart` nobody maps a page for writing that others write by calls: what only a file system
 * with a page cache can do. The status is 0 if nothing was wrong; else stderr says what.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES    2
#define PAGE     4096
#define BLOCK    512
#define WORDS    (BLOCK / 8)
#define PER_PAGE (PAGE / BLOCK)
#define PAGES    64 /* that stay */
#define TAIL     4  /* pages behind these that come and go */
#define BLOCKS   ((PAGES + TAIL) * PER_PAGE)
#define BASE     (PAGES * PAGE)
#define OWNERS   3
#define READERS  3
#define LOG_MAX  (2 << 20) /* where the file that grows begins anew */
#define HOT_TIME 0.2       /* seconds */
#define SHOWN    10        /* faults that are told, of each process */

typedef struct {
    atomic_ullong done, begun; /* changes of it */
    atomic_ullong zero;        /* the last of these that left zeros */
} Block;

typedef struct {
    atomic_ullong next; /* change */
    Block blocks[FILES][BLOCKS];
    atomic_ullong resized[FILES]; /* odd: the tail is being cut and extended */
    atomic_ullong log_turn;       /* odd: it begins anew */
    atomic_ullong log_done, log_begun;
} Table;

/* What a page is for, by its number. */
typedef enum { BY_CALLS, BY_MAPPING, DIRECT, LOCKED, HOLES, BESIDE } Use;

typedef struct {
    uint64_t state; /* of its random numbers */
    int number;
    int fds[FILES], direct[FILES];
    char *maps[FILES];   /* to read, or to read and write */
    unsigned long count; /* of what was looked at */
    unsigned long faults;
} Actor;

static Table *table;
static const char *dir;
static int is_apart;
static double end;
static uint64_t seed;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static unsigned roll(Actor *actor, unsigned sides)
{
    actor->state ^= actor->state << 13;
    actor->state ^= actor->state >> 7;
    actor->state ^= actor->state << 17;
    return (unsigned)((actor->state >> 11) % sides);
}

static const char *path_of(int file, char path[4096])
{
    snprintf(path, 4096, file < FILES ? "%s/blocks%d" : "%s/log", dir, file);
    return path;
}

/* Mostly the page that is everybody's for a while. */
static int pick_page(Actor *actor, int limit, int *ret_file)
{
    const uint64_t turn = (uint64_t)(now() / HOT_TIME);
    const uint64_t hash = (turn * 0x9E3779B97F4A7C15u) >> 33;

    *ret_file = (int)(hash % FILES);
    if (roll(actor, 8) != 0 && (int)(hash / FILES % (PAGES + TAIL)) < limit)
        return (int)(hash / FILES % (PAGES + TAIL));
    *ret_file = (int)roll(actor, FILES);
    return (int)roll(actor, (unsigned)limit);
}

static int open_file(int file, int flags)
{
    char path[4096];
    int fd = open(path_of(file, path), flags | O_CLOEXEC, 0644);

    if (fd < 0)
        die(path);
    return fd;
}

static Use use_of(int page)
{
    static const Use uses[] = {BESIDE, BESIDE, BESIDE, LOCKED, BY_MAPPING, DIRECT, BY_CALLS, HOLES};

    if (page >= PAGES)
        return HOLES;
    return uses[page % 8] == BESIDE && is_apart ? BY_CALLS : uses[page % 8];
}

static int owner_of(int page, int slot)
{
    const Use use = use_of(page);

    if (page >= PAGES)
        return 0;
    return (use == BESIDE || use == BY_CALLS ? page + slot : page / 8) % OWNERS;
}

static int is_mapped(int page, int slot)
{
    return use_of(page) == BY_MAPPING || (use_of(page) == BESIDE && slot % 2 != 0);
}

/* --- what is read --- */

static void fill(uint64_t *words, uint64_t change)
{
    for (int i = 0; i < WORDS; i++)
        words[i] = change << 8 | (uint64_t)(i + 1);
}

static void show(Actor *actor, int file, int block, int word, uint64_t got, const char *way,
                 uint64_t before)
{
    const Block *known = &table->blocks[file][block];

    if (actor->faults++ >= SHOWN)
        return;
    fprintf(stderr,
            "pages, seed %llu: actor %d, %s: block %d (page %d, slot %d) of file %d, word %d: %s "
            "%llu; before: %llu; now done %llu, begun %llu, zero %llu\n",
            (unsigned long long)seed, actor->number, way, block, block / PER_PAGE, block % PER_PAGE,
            file, word, got == 0 ? "NUL" : "change", (unsigned long long)(got >> 8),
            (unsigned long long)before, (unsigned long long)known->done,
            (unsigned long long)known->begun, (unsigned long long)known->zero);
}

/* `before`: what was done when the read began. */
static void judge(Actor *actor, int file, int block, const volatile uint64_t *words,
                  uint64_t before, const char *way)
{
    const Block *known = &table->blocks[file][block];

    actor->count++;
    for (int i = 0; i < WORDS; i++) {
        const uint64_t got = words[i];
        const uint64_t begun = atomic_load(&known->begun);

        if (got == 0 ? atomic_load(&known->zero) >= before
                     : (got & 0xff) == (uint64_t)(i + 1) && got >> 8 >= before && got >> 8 <= begun)
            continue;
        show(actor, file, block, i, got, way, before);
        return;
    }
}

static off_t place_of(int block)
{
    return (off_t)block * BLOCK;
}

/* Blocks that lie together, by a call that has read `length` bytes of them. */
static void judge_read(Actor *actor, int file, int block, int count, const char *data,
                       ssize_t length, const uint64_t *before, uint64_t resized, const char *way)
{
    if (length < 0)
        die(way);
    if (block + count > PAGES * PER_PAGE &&
        (resized % 2 != 0 || atomic_load(&table->resized[file]) != resized))
        return;
    if (length != (ssize_t)count * BLOCK && actor->faults++ < SHOWN)
        fprintf(stderr, "pages, seed %llu: %s: %zd bytes of block %d of file %d instead of %d\n",
                (unsigned long long)seed, way, length, block, file, count * BLOCK);
    for (int i = 0; i < (int)(length / BLOCK); i++)
        judge(actor, file, block + i, (const uint64_t *)(data + (size_t)i * BLOCK), before[i], way);
}

static ssize_t read_by_pipe(int fd, char *data, size_t size, off_t at)
{
    static _Thread_local int pipes[2] = {-1, -1};
    ssize_t moved;

    if (pipes[0] < 0 && pipe(pipes) != 0)
        die("pipe");
    moved = splice(fd, &at, pipes[1], NULL, size, 0);
    for (ssize_t got = 0; got < moved;) {
        const ssize_t length = read(pipes[0], data + got, (size_t)(moved - got));
        if (length <= 0)
            die("pipe");
        got += length;
    }
    return moved;
}

static void read_some(Actor *actor)
{
    static _Thread_local char data[32 * PAGE] __attribute__((aligned(PAGE)));
    static const char *const ways[] = {"pread",
                                       "pread by a new open",
                                       "pread after fstat",
                                       "pread after stat",
                                       "direct pread",
                                       "splice",
                                       "pread after DONTNEED",
                                       "private mapping",
                                       "mapping",
                                       "pread by an open for both"};
    int file;
    const int way = (int)roll(actor, 10);
    const int pages = roll(actor, 16) == 0 ? 1 + (int)roll(actor, 16) : 1;
    const int limit = way == 7 || way == 8 ? PAGES : PAGES + TAIL;
    const int page = pick_page(actor, limit - pages + 1, &file);
    const int block = page * PER_PAGE, count = pages * PER_PAGE;
    const off_t at = place_of(block);
    const size_t size = (size_t)count * BLOCK;
    uint64_t before[16 * PER_PAGE];
    char path[4096];
    struct stat stat_now;
    ssize_t length = (ssize_t)size;
    int fd = actor->fds[file];

    if (way == 1 || way == 9)
        fd = open_file(file, way == 1 ? O_RDONLY : O_RDWR);
    const uint64_t resized = atomic_load(&table->resized[file]);
    for (int i = 0; i < count; i++)
        before[i] = atomic_load(&table->blocks[file][block + i].done);
    if (way == 2)
        fstat(fd, &stat_now);
    if (way == 3)
        stat(path_of(file, path), &stat_now);
    if (way == 6)
        posix_fadvise(fd, at, (off_t)size, POSIX_FADV_DONTNEED);
    if (way == 4) {
        length = pread(actor->direct[file], data, size, at);
    } else if (way == 5) {
        length = read_by_pipe(fd, data, size, at);
    } else if (way == 7) {
        char *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, at);
        if (map == MAP_FAILED)
            die("mmap");
        memcpy(data, map, size);
        munmap(map, size);
    } else if (way == 8) {
        memcpy(data, actor->maps[file] + at, size);
    } else {
        length = pread(fd, data, size, at);
    }
    judge_read(actor, file, block, count, data, length, before, resized, ways[way]);
    if (fd != actor->fds[file])
        close(fd);
}

static char letter(off_t at)
{
    return (char)('a' + (at * 7 + at / 26 + at / 4096) % 26);
}

/* The end of the file that grows, or a part of it. */
static void read_log(Actor *actor)
{
    static _Thread_local char data[16 * PAGE];
    const uint64_t turn = atomic_load(&table->log_turn), done = atomic_load(&table->log_done);
    const int is_new = roll(actor, 2) == 0;
    static _Thread_local int kept = -1;
    struct stat stat_now = {0};
    ssize_t length;
    off_t at;

    if (kept < 0)
        kept = open_file(FILES, O_RDONLY);
    const int fd = is_new ? open_file(FILES, O_RDONLY) : kept;
    if (roll(actor, 2) == 0)
        fstat(fd, &stat_now);
    at = (off_t)(done > 20000 ? done - roll(actor, 20000) : 0);
    length = pread(fd, data, sizeof(data), at);
    if (is_new)
        close(fd);
    actor->count++;
    if (turn % 2 != 0 || atomic_load(&table->log_turn) != turn)
        return;
    for (ssize_t i = 0; i < length; i++) {
        if (data[i] == letter(at + i))
            continue;
        if (actor->faults++ < SHOWN)
            fprintf(
                stderr,
                "pages, seed %llu: actor %d: byte %d at %lld of the log; done before: %llu; now "
                "%llu; size told %lld; read %zd at %lld by %s open\n",
                (unsigned long long)seed, actor->number, data[i], (long long)(at + i),
                (unsigned long long)done, (unsigned long long)table->log_done,
                (long long)stat_now.st_size, length, (long long)at, is_new ? "a new" : "an old");
        return;
    }
    if (at + length < (off_t)done && length < (ssize_t)sizeof(data) && actor->faults++ < SHOWN)
        fprintf(stderr, "pages, seed %llu: the log ends at %lld, and was %llu long before\n",
                (unsigned long long)seed, (long long)(at + length), (unsigned long long)done);
}

/* What changes no data, but times and modes of the files. */
static void disturb(Actor *actor)
{
    const int file = (int)roll(actor, FILES + 1);
    char path[4096];
    struct stat stat_now;

    path_of(file, path);
    switch (roll(actor, 5)) {
    case 0:
        chmod(path, roll(actor, 2) == 0 ? 0644 : 0600);
        break;
    case 1:
        utimensat(AT_FDCWD, path, NULL, 0);
        break;
    case 2:
        close(open_file(file, O_RDWR));
        break;
    case 3:
        stat(path, &stat_now);
        break;
    default:
        close(open_file(file, O_RDONLY | O_DIRECT));
        break;
    }
}

static void read_something(Actor *actor)
{
    const unsigned side = roll(actor, 20);

    if (side == 0)
        disturb(actor);
    else if (side < 6)
        read_log(actor);
    else
        read_some(actor);
}

/* --- what is written --- */

static uint64_t begin(int file, int block, int count, int leaves_zeros)
{
    const uint64_t change = atomic_fetch_add(&table->next, 1) + 1;

    for (int i = 0; i < count; i++) {
        Block *known = &table->blocks[file][block + i];

        if (leaves_zeros)
            atomic_store(&known->zero, change);
        atomic_store(&known->begun, change);
    }
    return change;
}

static void finish(int file, int block, int count, uint64_t change)
{
    for (int i = 0; i < count; i++)
        atomic_store(&table->blocks[file][block + i].done, change);
}

static void must(int is_done, const char *what)
{
    if (!is_done)
        die(what);
}

static void put(Actor *actor, int file, int block, int count, int by_mapping, int fd,
                uint64_t change)
{
    static _Thread_local uint64_t words[PER_PAGE * WORDS] __attribute__((aligned(PAGE)));
    const size_t size = (size_t)count * BLOCK;

    for (int i = 0; i < count; i++)
        fill(words + (size_t)i * WORDS, change);
    if (by_mapping)
        memcpy(actor->maps[file] + place_of(block), words, size);
    else
        must(pwrite(fd, words, size, place_of(block)) == (ssize_t)size, "pwrite");
}

/* By the only actor that changes it: so it is what that actor wrote last. */
static void read_back(Actor *actor, int file, int block, uint64_t change)
{
    uint64_t words[WORDS];

    if (roll(actor, 2) == 0 && block < PAGES * PER_PAGE) {
        judge(actor, file, block, (uint64_t *)(actor->maps[file] + place_of(block)), change,
              "own mapping after a change");
        return;
    }
    must(pread(actor->fds[file], words, BLOCK, place_of(block)) == BLOCK, "pread");
    judge(actor, file, block, words, change, "own pread after a change");
}

static void change_block(Actor *actor, int file, int block)
{
    const int page = block / PER_PAGE, slot = block % PER_PAGE;
    const uint64_t change = begin(file, block, 1, 0);

    put(actor, file, block, 1, is_mapped(page, slot), actor->fds[file], change);
    finish(file, block, 1, change);
    if (roll(actor, 4) == 0)
        read_back(actor, file, block, change);
}

static void change_page(Actor *actor, int file, int page)
{
    const int block = page * PER_PAGE;
    const int is_direct = use_of(page) == DIRECT && roll(actor, 4) != 0;
    const uint64_t change = begin(file, block, PER_PAGE, 0);

    put(actor, file, block, PER_PAGE, 0, is_direct ? actor->direct[file] : actor->fds[file],
        change);
    finish(file, block, PER_PAGE, change);
    if (roll(actor, 4) == 0)
        read_back(actor, file, block + (int)roll(actor, PER_PAGE), change);
}

/* Copies a page of the actor's own into another. */
static void copy_page(Actor *actor, int file, int from, int page)
{
    off_t at = (off_t)from * PAGE, to = (off_t)page * PAGE;
    const uint64_t source = atomic_load(&table->blocks[file][from * PER_PAGE].done);

    for (int i = 0; i < PER_PAGE; i++) {
        const Block *known = &table->blocks[file][from * PER_PAGE + i];
        if (known->done != source || known->zero == source ||
            source <= table->blocks[file][page * PER_PAGE + i].done)
            return;
    }
    for (int i = 0; i < PER_PAGE; i++)
        atomic_store(&table->blocks[file][page * PER_PAGE + i].begun, source);
    if (copy_file_range(actor->fds[file], &at, actor->fds[file], &to, PAGE, 0) != PAGE)
        die("copy_file_range");
    finish(file, page * PER_PAGE, PER_PAGE, source);
    read_back(actor, file, page * PER_PAGE + (int)roll(actor, PER_PAGE), source);
}

static void punch(Actor *actor, int file, int page)
{
    const uint64_t change = begin(file, page * PER_PAGE, PER_PAGE, 1);

    must(fallocate(actor->fds[file], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)page * PAGE,
                   PAGE) == 0,
         "fallocate");
    finish(file, page * PER_PAGE, PER_PAGE, change);
    read_back(actor, file, page * PER_PAGE + (int)roll(actor, PER_PAGE), change);
}

static void resize(Actor *actor, int file)
{
    const int block = PAGES * PER_PAGE, count = TAIL * PER_PAGE;

    atomic_fetch_add(&table->resized[file], 1);
    const uint64_t change = begin(file, block, count, 1);
    must(ftruncate(actor->fds[file], BASE) == 0, "ftruncate");
    must(ftruncate(actor->fds[file], BASE + TAIL * PAGE) == 0, "ftruncate");
    finish(file, block, count, change);
    atomic_fetch_add(&table->resized[file], 1);
}

/* Adds one to what the block has, which nobody else changes under its lock. */
static void change_locked(Actor *actor, int file, int block)
{
    struct flock lock = {.l_type = F_WRLCK, .l_start = place_of(block), .l_len = BLOCK};
    Block *known = &table->blocks[file][block];
    const int maps = !is_apart && roll(actor, 2) == 0;
    uint64_t words[WORDS];

    must(fcntl(actor->fds[file], F_OFD_SETLKW, &lock) == 0, "lock");
    const uint64_t before = atomic_load(&known->done);
    if (maps)
        memcpy(words, actor->maps[file] + place_of(block), BLOCK);
    else
        must(pread(actor->fds[file], words, BLOCK, place_of(block)) == BLOCK, "pread");
    judge(actor, file, block, words, before,
          maps ? "mapping under the lock" : "pread under the lock");
    atomic_store(&known->begun, before + 1);
    put(actor, file, block, 1, maps && roll(actor, 2) == 0, actor->fds[file], before + 1);
    atomic_store(&known->done, before + 1);
    lock.l_type = F_UNLCK;
    must(fcntl(actor->fds[file], F_OFD_SETLK, &lock) == 0, "unlock");
}

static void change_something(Actor *actor)
{
    int file;
    const int page = pick_page(actor, PAGES + TAIL, &file);
    const int slot = (int)roll(actor, PER_PAGE), block = page * PER_PAGE + slot;

    if (use_of(page) == LOCKED) {
        change_locked(actor, file, block);
        return;
    }
    if (owner_of(page, slot) != actor->number)
        return;
    switch (use_of(page)) {
    case DIRECT:
        change_page(actor, file, page);
        break;
    case HOLES: {
        const unsigned side = roll(actor, 8);
        if (side == 0)
            punch(actor, file, page);
        else if (side == 1 && page >= PAGES)
            resize(actor, file);
        else if (side < 4 && page + 8 * OWNERS < PAGES)
            copy_page(actor, file, page + 8 * OWNERS, page);
        else
            change_page(actor, file, page);
        break;
    }
    default:
        change_block(actor, file, block);
    }
    if (roll(actor, 500) == 0)
        must(msync(actor->maps[file], BASE, MS_SYNC) == 0, "msync");
}

static void append(Actor *actor)
{
    static _Thread_local int fd = -1;
    char data[2000];
    const size_t size = 1 + roll(actor, roll(actor, 8) == 0 ? sizeof(data) : 333);
    off_t at = (off_t)atomic_load(&table->log_done);

    if (fd < 0)
        fd = open_file(FILES, O_WRONLY | O_APPEND);
    if (at > LOG_MAX) {
        atomic_fetch_add(&table->log_turn, 1);
        must(ftruncate(fd, 0) == 0, "ftruncate");
        atomic_store(&table->log_begun, 0);
        atomic_store(&table->log_done, 0);
        atomic_fetch_add(&table->log_turn, 1);
        at = 0;
    }
    for (size_t i = 0; i < size; i++)
        data[i] = letter(at + (off_t)i);
    atomic_store(&table->log_begun, (unsigned long long)at + size);
    must(write(fd, data, size) == (ssize_t)size, "append");
    atomic_store(&table->log_done, (unsigned long long)at + size);
    if (roll(actor, 3) == 0)
        usleep(roll(actor, 1500));
}

/* --- the processes --- */

static void prepare(Actor *actor, int number, int writes)
{
    *actor = (Actor){.number = number, .state = seed * 7919 + (uint64_t)number * 104729 + 1};
    for (int i = 0; i < 10; i++)
        roll(actor, 2);
    for (int i = 0; i < FILES; i++) {
        actor->fds[i] = open_file(i, writes ? O_RDWR : O_RDONLY);
        actor->direct[i] = open_file(i, (writes ? O_RDWR : O_RDONLY) | O_DIRECT);
        actor->maps[i] = mmap(NULL, BASE, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                              actor->fds[i], 0);
        if (actor->maps[i] == MAP_FAILED)
            die("mmap");
    }
}

static void *read_all_the_time(void *arg)
{
    Actor *actor = arg;

    while (now() < end)
        read_something(actor);
    return NULL;
}

/* Each writer has a thread that reads beside it. */
static int play(int number, int writes)
{
    Actor actor, beside;
    pthread_t thread;

    prepare(&actor, number, writes);
    if (!writes) {
        read_all_the_time(&actor);
    } else if (number == OWNERS) {
        while (now() < end)
            append(&actor);
    } else {
        prepare(&beside, number + 100, 0);
        if (pthread_create(&thread, NULL, read_all_the_time, &beside) != 0)
            die("thread");
        while (now() < end)
            change_something(&actor);
        pthread_join(thread, NULL);
        actor.faults += beside.faults;
        actor.count += beside.count;
        for (int i = 0; i < FILES; i++) {
            must(msync(actor.maps[i], BASE, MS_SYNC) == 0, "msync");
            must(fsync(actor.fds[i]) == 0, "fsync");
        }
    }
    printf("%s %d: %lu looks, %lu wrong\n", writes ? "writer" : "reader", number, actor.count,
           actor.faults);
    fflush(stdout);
    return actor.faults > 0;
}

static int play_all(int writes)
{
    const int count = writes ? OWNERS + 1 : READERS;
    int status, result = 0;

    for (int i = 0; i < count; i++) {
        const pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0)
            _exit(play(i, writes));
    }
    while (wait(&status) > 0)
        if (status != 0)
            result = WIFEXITED(status) && WEXITSTATUS(status) != 1 ? 2 : 1;
    return result;
}

static void make(void)
{
    for (int i = 0; i <= FILES; i++) {
        const int fd = open_file(i, O_RDWR | O_CREAT | O_TRUNC);
        must(i == FILES || ftruncate(fd, BASE + TAIL * PAGE) == 0, "ftruncate");
        close(fd);
    }
}

/* All is written: nothing but the last change of each block is right. */
static int check(void)
{
    Actor actor = {.number = -1};
    static char data[BLOCKS * BLOCK];
    char *log = malloc(LOG_MAX + PAGE);

    for (int file = 0; file < FILES; file++) {
        const int fd = open_file(file, O_RDONLY);
        const ssize_t length = pread(fd, data, sizeof(data), 0);

        if (length != (ssize_t)sizeof(data)) {
            fprintf(stderr, "pages, seed %llu: %s: file %d has %zd bytes\n",
                    (unsigned long long)seed, dir, file, length);
            actor.faults++;
        }
        for (int i = 0; i < (int)(length / BLOCK); i++)
            judge(&actor, file, i, (uint64_t *)(data + (size_t)i * BLOCK),
                  table->blocks[file][i].done, dir);
        close(fd);
    }
    const int fd = open_file(FILES, O_RDONLY);
    const ssize_t length = pread(fd, log, LOG_MAX + PAGE, 0);
    actor.faults += length != (ssize_t)table->log_done;
    for (ssize_t i = 0; i < length; i++)
        actor.faults += log[i] != letter(i);
    free(log);
    printf("%s at the end: %lu looks, %lu wrong\n", dir, actor.count, actor.faults);
    return actor.faults > 0;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: %s TABLE DIR make|write|read|check SECONDS SEED [apart]\n",
                argv[0]);
        return 2;
    }
    const int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    dir = argv[2];
    seed = strtoull(argv[5], NULL, 10);
    is_apart = argc > 6 && strcmp(argv[6], "apart") == 0;
    if (fd < 0 || ftruncate(fd, sizeof(Table)) != 0)
        die(argv[1]);
    table = mmap(NULL, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (table == MAP_FAILED)
        die(argv[1]);
    end = now() + strtod(argv[4], NULL);
    if (strcmp(argv[3], "make") == 0)
        return make(), 0;
    if (strcmp(argv[3], "check") == 0)
        return check();
    return play_all(strcmp(argv[3], "write") == 0);
}
