/*
 * To be preloaded: the close of a removed file hangs as long as the file $HANGING_CLOSE is there,
 * as on a store that takes its time to free what the file had.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int close(int fd)
{
    struct stat file;
    const char *flag = getenv("HANGING_CLOSE");

    while (flag != NULL && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0 &&
           access(flag, F_OK) == 0)
        usleep(10000);
    return (int)syscall(SYS_close, fd);
}
