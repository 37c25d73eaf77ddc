/*
 * One user with many JobIDs: forged-jobs COUNT read|open FILE. Each of COUNT children writes one of
 * its own over SLURM_JOB_ID in its environment, which is to be eight bytes long.
 *
 * read: each child opens FILE; "ready" when all have. When a line comes, each reads from it past
 * the page cache. When all are done, the number of those that were refused (ENOMEM).
 *
 * open: each child, after the one before it, opens FILE until it is refused; then the number of
 * files that they have open, and the last errno. When a line comes, all end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REFUSED = 2, LENGTH = 8 };

static char *id;    /* in the environment */
static int told[2]; /* by the children */
static int go[2];   /* closed by the parent */

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void await_go(void)
{
    char byte;

    close(go[1]);
    while (read(go[0], &byte, 1) < 0)
        ;
}

static int read_once(const char *file)
{
    void *page;
    int fd = open(file, O_RDONLY | O_DIRECT);

    if (fd < 0 || posix_memalign(&page, 4096, 4096) != 0)
        fail(file);
    if (write(told[1], "r", 1) != 1)
        fail("write");
    await_go();
    if (pread(fd, page, 4096, 0) >= 0)
        return 0;
    if (errno != ENOMEM)
        fail("pread");
    return REFUSED;
}

static int open_many(const char *file)
{
    int result[2] = {0, 0};

    while (open(file, O_RDONLY) >= 0)
        result[0]++;
    result[1] = errno;
    if (write(told[1], result, sizeof(result)) != sizeof(result))
        fail("write");
    await_go();
    return 0;
}

static void make_child(int number, int (*work)(const char *file), const char *file)
{
    pid_t child;

    for (int i = LENGTH; i-- > 0; number /= 10)
        id[i] = (char)('0' + number % 10);
    child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0)
        _exit(work(file));
}

static int count_refused(void)
{
    int status, refused = 0;

    while (wait(&status) > 0) {
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != REFUSED))
            exit(1);
        refused += WEXITSTATUS(status) == REFUSED;
    }
    return refused;
}

static void do_read(int count, const char *file)
{
    char byte;

    for (int i = 0; i < count; i++)
        make_child(i, read_once, file);
    for (int i = 0; i < count; i++) {
        if (read(told[0], &byte, 1) != 1)
            fail("read");
    }
    puts("ready");
    getchar();
    close(go[1]);
    printf("%d\n", count_refused());
}

static void do_open(int count, const char *file)
{
    int result[2] = {0, 0}, sum = 0;

    for (int i = 0; i < count; i++) {
        make_child(i, open_many, file);
        if (read(told[0], result, sizeof(result)) != sizeof(result))
            fail("read");
        sum += result[0];
    }
    printf("%d %d\n", sum, result[1]);
    getchar();
    close(go[1]);
    count_refused();
}

int main(int argc, char **argv)
{
    id = getenv("SLURM_JOB_ID");
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc != 4 || id == NULL || strlen(id) != LENGTH) {
        fputs("usage: SLURM_JOB_ID=12345678 forged-jobs COUNT read|open FILE\n", stderr);
        return 1;
    }
    if (pipe(told) != 0 || pipe(go) != 0)
        fail("pipe");
    (strcmp(argv[2], "read") == 0 ? do_read : do_open)(atoi(argv[1]), argv[3]);
    return 0;
}
