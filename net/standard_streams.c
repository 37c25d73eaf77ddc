/*
 * Opens /dev/null for standard streams that are closed at the start (net/standard_streams.h).
 */
#include "net/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

void qos_standard_streams_open(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= STDIN_FILENO && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}
