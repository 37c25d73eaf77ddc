/*
 * Finds the daemon of a mount, and waits for its end (fs/daemon/umount_daemon.h).
 *
 * If the daemon hangs, a request to it has no answer and would keep the mount busy. So a child
 * asks, and is killed if no answer comes: the kernel drops a request that no daemon has read, with
 * its process.
 *
 * The mount of an ordinary user may be closed even to root, so the child asks as that user.
 */
#include "fs/daemon/umount_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/daemon/mountpoint.h"
#include "sys/mounts.h"

#define PROGRAM    "umount.fuse.qosfs"
#define XATTR      "user.qosfs.daemon"
#define PATIENCE   2000 /* ms for the answer */
#define LETTING_GO 1000 /* ms for the child to end */
#define SILENCE    2    /* s until the user is told of the wait */
#define ANSWER_MAX 64

/* --- asking --- */

G_GNUC_NORETURN
static void ask(const char *directory, uid_t uid, gid_t gid, int answer)
{
    char text[ANSWER_MAX];
    ssize_t length;

    if (geteuid() == 0 && uid != 0 &&
        (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0))
        _exit(EXIT_FAILURE);
    length = getxattr(directory, XATTR, text, sizeof(text));
    _exit(length > 0 && write(answer, text, (size_t)length) == length ? EXIT_SUCCESS
                                                                      : EXIT_FAILURE);
}

static gboolean becomes_ready(int fd, int patience)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};

    return TEMP_FAILURE_RETRY(poll(&look, 1, patience)) > 0;
}

/* The answer, or NULL. */
static char *ask_in_time(const char *directory, uid_t uid, gid_t gid)
{
    char text[ANSWER_MAX + 1];
    ssize_t length = 0;
    gboolean has_ended;
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    child = fork();
    if (child == 0)
        ask(directory, uid, gid, ends[1]);
    close(ends[1]);
    if (child > 0 && becomes_ready(ends[0], PATIENCE))
        length = TEMP_FAILURE_RETRY(read(ends[0], text, ANSWER_MAX));
    if (child > 0) {
        kill(child, SIGKILL);
        has_ended = becomes_ready(ends[0], LETTING_GO);
        waitpid(child, NULL, has_ended ? 0 : WNOHANG);
    }
    close(ends[0]);
    return length > 0 ? g_strndup(text, (gsize)length) : NULL;
}

/* The process of "PID NAMESPACE"; 0 if that is in another namespace. */
static pid_t read_answer(const char *answer)
{
    const char *space = strchr(answer, ' ');
    struct stat own;

    if (!space || stat("/proc/self/ns/pid", &own) < 0 ||
        g_ascii_strtoull(space + 1, NULL, 10) != own.st_ino)
        return 0;
    return (pid_t)g_ascii_strtoll(answer, NULL, 10);
}

QosUmountDaemon qos_umount_daemon_find(const char *directory)
{
    QosUmountDaemon daemon = {.handle = -1};
    g_autofree char *answer = NULL;
    uid_t uid;
    gid_t gid;

    daemon.mount = qos_mounts_identify(directory);
    if (!daemon.mount || !qos_mountpoint_owner(directory, &uid, &gid))
        return daemon;
    answer = ask_in_time(directory, uid, gid);
    daemon.pid = answer ? read_answer(answer) : 0;
    if (daemon.pid > 0)
        daemon.handle = (int)syscall(SYS_pidfd_open, daemon.pid, 0);
    return daemon;
}

void qos_umount_daemon_clear(QosUmountDaemon *daemon)
{
    if (daemon->handle >= 0)
        close(daemon->handle);
    g_clear_pointer(&daemon->mount, g_free);
}

/* --- waiting --- */

void qos_umount_daemon_await(const QosUmountDaemon *daemon, const char *directory, int seconds,
                             gboolean quiet)
{
    const int silence = MIN(seconds, SILENCE);

    if (daemon->handle < 0 || qos_mounts_has(daemon->mount, daemon->pid) ||
        becomes_ready(daemon->handle, silence * 1000) || quiet)
        return;
    fprintf(stderr,
            PROGRAM ": %s is unmounted; its daemon (process %d) is still saving: waiting "
                    "for its end\n",
            directory, (int)daemon->pid);
    if (!becomes_ready(daemon->handle, (seconds - silence) * 1000))
        fprintf(stderr,
                PROGRAM ": the daemon of %s (process %d) has not ended for %d s: the "
                        "store may be busy still\n",
                directory, (int)daemon->pid, seconds);
}
