/*
 * stress DIR SECONDS PROCESSES SEED: processes that do to a few names whatever can be done to
 * names, all at once: races of look-up, forget, rename, unlink, link, create and the reading of
 * directories.
 *
 * Three things are checked while they run. No call fails for a reason that the others' calls cannot
 * explain. A file that has lost its name is what it was, to the last byte, for as long as it is
 * open. No file has another one's data: those that are shared hold MAGIC or zeros, the private ones
 * their owner's stamps. What the tree looks like at the end is for the caller to compare with the
 * store's.
 *
 * Started by root, one process in three is an ordinary user. The status is 0 if nothing was found;
 * otherwise stderr says what, with the seed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDERS      3
#define NAMES        6
#define PATH_SIZE    64
#define HELD         8 /* files without a name that a process keeps */
#define WORDS        512
#define MAGIC        0x7165736f70617373u
#define ORDINARY_UID 12001
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* By one write, as others fail at the same time. */
#define fail(format, ...)                                                                          \
    (fprintf(stderr, "stress, seed %llu: " format "\n", (unsigned long long)seed, __VA_ARGS__),    \
     exit(1))

typedef struct {
    int fd; /* -1: none */
    uint64_t stamp;
    ino_t number;
} Held;

static uint64_t seed; /* for the message */
static uint64_t state;
static uint64_t next_stamp;
static Held held[HELD];

static uint64_t roll(uint64_t sides)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % sides;
}

/* The path of a thing that may be there, at one of two depths. */
static const char *pick(char path[PATH_SIZE])
{
    int folder = (int)roll(FOLDERS), name = (int)roll(NAMES);

    if (roll(3) > 0)
        snprintf(path, PATH_SIZE, "d%d/n%d", folder, name);
    else
        snprintf(path, PATH_SIZE, "d%d/n%d/n%d", folder, name, (int)roll(NAMES));
    return path;
}

/* The others explain that a thing is there, or is not, or is of another kind. */
static void check(int result, const char *call, const char *path)
{
    static const int explained[] = {ENOENT,    EEXIST, ENOTDIR, EISDIR,
                                    ENOTEMPTY, ELOOP,  EINVAL /* a folder into itself */};

    if (result >= 0)
        return;
    for (size_t i = 0; i < COUNT(explained); i++) {
        if (errno == explained[i])
            return;
    }
    fail("%s %s: %s", call, path, strerror(errno));
}

/* --- data --- */

static void write_words(int fd, uint64_t word, const char *path)
{
    uint64_t words[WORDS];

    for (size_t i = 0; i < WORDS; i++)
        words[i] = word;
    if (write(fd, words, sizeof(words)) != sizeof(words))
        fail("write %s: %s", path, strerror(errno));
}

/* How many words there are, all of them `word`, or 0 where `or_zero`. */
static size_t read_words(int fd, uint64_t word, int or_zero, const char *path)
{
    uint64_t words[WORDS];
    ssize_t length = pread(fd, words, sizeof(words), 0);

    if (length < 0)
        fail("read %s: %s", path, strerror(errno));
    for (size_t i = 0; i < (size_t)length / sizeof(word); i++) {
        if (words[i] != word && !(or_zero && words[i] == 0))
            fail("%s: word %zu is %llx, not %llx", path, i, (unsigned long long)words[i],
                 (unsigned long long)word);
    }
    return (size_t)length / sizeof(word);
}

/* --- files without a name --- */

static void check_held(const Held *file)
{
    struct stat stat;

    if (fstat(file->fd, &stat) != 0)
        fail("fstat of a file without a name: %s", strerror(errno));
    if (stat.st_ino != file->number || stat.st_nlink != 0)
        fail("a file without a name has become inode %llu with %llu links",
             (unsigned long long)stat.st_ino, (unsigned long long)stat.st_nlink);
    if (read_words(file->fd, file->stamp, 0, "a file without a name") != WORDS)
        fail("%s", "a file without a name has become shorter");
}

static void hold_nameless(void)
{
    Held *file = &held[roll(HELD)];
    char path[PATH_SIZE];
    struct stat stat;

    if (file->fd >= 0) {
        check_held(file);
        close(file->fd);
    }
    file->stamp = next_stamp++;
    snprintf(path, sizeof(path), "d%d/private-%llx", (int)roll(FOLDERS),
             (unsigned long long)file->stamp);
    file->fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (file->fd < 0)
        fail("create %s: %s", path, strerror(errno));
    write_words(file->fd, file->stamp, path);
    if (fstat(file->fd, &stat) != 0 || unlink(path) != 0)
        fail("fstat and unlink %s: %s", path, strerror(errno));
    file->number = stat.st_ino;
}

static void look_at_held(void)
{
    const Held *file = &held[roll(HELD)];

    if (file->fd >= 0)
        check_held(file);
}

/* --- names --- */

static void do_create(void)
{
    char path[PATH_SIZE];
    int flags = (roll(2) > 0 ? O_EXCL : 0) | (roll(4) == 0 ? O_TRUNC : 0);
    int fd = open(pick(path), O_CREAT | O_NOFOLLOW | O_RDWR | O_CLOEXEC | flags, 0666);

    check(fd, "create", path);
    if (fd < 0)
        return;
    write_words(fd, MAGIC, path);
    close(fd);
}

static void do_read(void)
{
    char path[PATH_SIZE];
    int fd = open(pick(path), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat stat;

    check(fd, "open", path);
    if (fd < 0)
        return;
    if (fstat(fd, &stat) != 0)
        fail("fstat %s: %s", path, strerror(errno));
    if (S_ISREG(stat.st_mode))
        read_words(fd, MAGIC, 1, path);
    close(fd);
}

static void do_truncate(void)
{
    char path[PATH_SIZE];

    check(truncate(pick(path), (off_t)(roll(WORDS) * sizeof(uint64_t))), "truncate", path);
}

static void do_unlink(void)
{
    char path[PATH_SIZE];

    check(unlink(pick(path)), "unlink", path);
}

static void do_mkdir(void)
{
    char path[PATH_SIZE];

    check(mkdir(pick(path), 0777), "mkdir", path);
}

static void do_rmdir(void)
{
    char path[PATH_SIZE];

    check(rmdir(pick(path)), "rmdir", path);
}

static void do_rename(void)
{
    static const unsigned flags[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    char from[PATH_SIZE], to[PATH_SIZE];

    check(renameat2(AT_FDCWD, pick(from), AT_FDCWD, pick(to), flags[roll(COUNT(flags))]), "rename",
          from);
}

static void do_link(void)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    int result = link(pick(from), pick(to));

    if (result != 0 && errno == EPERM) /* a folder */
        return;
    check(result, "link", from);
}

static void do_symlink(void)
{
    char path[PATH_SIZE], target[PATH_SIZE];

    snprintf(target, sizeof(target), "n%d", (int)roll(NAMES));
    check(symlink(target, pick(path)), "symlink", path);
}

static void do_stat(void)
{
    char path[PATH_SIZE], target[PATH_SIZE];
    struct stat stat;

    check(lstat(pick(path), &stat), "lstat", path);
    check((int)readlink(pick(path), target, sizeof(target)), "readlink", path);
}

/* As `ls -l` does. */
static void do_list(void)
{
    char path[PATH_SIZE];
    DIR *directory;
    struct dirent *entry;
    struct stat stat;

    if (roll(2) > 0)
        snprintf(path, sizeof(path), "d%d", (int)roll(FOLDERS));
    else
        pick(path);
    directory = opendir(path);
    check(directory != NULL ? 0 : -1, "opendir", path);
    if (directory == NULL)
        return;
    while (errno = 0, (entry = readdir(directory)) != NULL)
        check(fstatat(dirfd(directory), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW), "list", path);
    check(errno == 0 ? 0 : -1, "readdir", path);
    closedir(directory);
}

/* A file is born without a name and gets one. */
static void do_tmpfile(void)
{
    char folder[PATH_SIZE], path[PATH_SIZE], descriptor[PATH_SIZE];
    int fd;

    snprintf(folder, sizeof(folder), "d%d", (int)roll(FOLDERS));
    fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EOPNOTSUPP)
        return;
    if (fd < 0)
        fail("O_TMPFILE in %s: %s", folder, strerror(errno));
    write_words(fd, MAGIC, folder);
    snprintf(descriptor, sizeof(descriptor), "/proc/self/fd/%d", fd);
    check(linkat(AT_FDCWD, descriptor, AT_FDCWD, pick(path), AT_SYMLINK_FOLLOW), "linkat", path);
    close(fd);
}

/* --- processes --- */

static void (*const acts[])(void) = {do_create,  do_create,     do_read,      do_read,    do_unlink,
                                     do_unlink,  do_mkdir,      do_rmdir,     do_rename,  do_rename,
                                     do_link,    do_symlink,    do_stat,      do_stat,    do_list,
                                     do_tmpfile, hold_nameless, look_at_held, do_truncate};

static void work(unsigned number, time_t end)
{
    state = (seed + 1) * 0x9e3779b97f4a7c15u + number;
    next_stamp = (uint64_t)getpid() << 32;
    if (number % 3 == 2 && geteuid() == 0 &&
        (setgid(ORDINARY_UID) != 0 || setuid(ORDINARY_UID) != 0))
        fail("cannot be an ordinary user: %s", strerror(errno));
    for (size_t i = 0; i < HELD; i++)
        held[i].fd = -1;
    while (time(NULL) < end) {
        for (unsigned i = 0; i < 5; i++)
            acts[roll(COUNT(acts))]();
    }
    for (size_t i = 0; i < HELD; i++) {
        if (held[i].fd >= 0)
            check_held(&held[i]);
    }
    exit(0);
}

int main(int argc, char **argv)
{
    time_t end;
    unsigned processes;
    int status, failed = 0;

    if (argc != 5) {
        fprintf(stderr, "usage: stress DIR SECONDS PROCESSES SEED\n");
        return 2;
    }
    if (chdir(argv[1]) != 0)
        fail("chdir %s: %s", argv[1], strerror(errno));
    end = time(NULL) + atoi(argv[2]);
    processes = (unsigned)atoi(argv[3]);
    seed = strtoull(argv[4], NULL, 10);
    umask(0);
    for (unsigned i = 0; i < FOLDERS; i++) {
        char path[PATH_SIZE];

        snprintf(path, sizeof(path), "d%u", i);
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            fail("mkdir %s: %s", path, strerror(errno));
    }
    for (unsigned i = 0; i < processes; i++) {
        if (fork() == 0)
            work(i, end);
    }
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
