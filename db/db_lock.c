/*
 * The lock of a database: flock() on PATH.lock, held for the daemon's life. The kernel drops it
 * with the process, however the process ends.
 *
 * umount(8) returns before the daemon has saved everything, on a slow disk long before. A new mount
 * that follows at once wants the same database, and has to wait. But if the mount that uses the
 * database is still there, the new mount is a mistake, and is refused after a short time. To tell
 * the two cases apart, the holder of the lock writes its mount's identity into the lock file. If
 * that mount is gone, the new daemon waits for the end of the old one, and logs that it does so.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/db_private.h"
#include "sys/mounts.h"

#define PATIENCE (3 * G_TIME_SPAN_SECOND) /* with a mount that is there: it may be just ending */
#define SILENCE  (1 * G_TIME_SPAN_SECOND) /* before the user is told of the wait */
#define PAUSE    (30 * G_TIME_SPAN_MILLISECOND) /* between two tries */
#define NOTE_MAX 16384
#define WORDS    5 /* of the note */

/* Reads what the holder has written: "PID DEVICE TYPE SOURCE DIR". FALSE: nothing, because it has
 * no mount. */
static gboolean read_note(int fd, int *ret_pid, char **ret_identity, char **ret_directory)
{
    char note[NOTE_MAX];
    ssize_t length = pread(fd, note, sizeof(note) - 1, 0);
    g_auto(GStrv) words = NULL;

    if (length <= 0)
        return FALSE;
    note[length] = '\0';
    words = g_strsplit(g_strchomp(note), " ", WORDS);
    if (g_strv_length(words) < WORDS)
        return FALSE;
    *ret_pid = (int)g_ascii_strtoll(words[0], NULL, 10);
    *ret_identity = g_strjoin(" ", words[1], words[2], words[3], NULL);
    *ret_directory = g_strdup(words[4]);
    return TRUE;
}

/* Whether the holder's mount is gone. The first time (*is_told is FALSE), logs that this daemon
 * waits for the holder's end. */
static gboolean is_ending(int fd, const char *name, gboolean *is_told)
{
    g_autofree char *identity = NULL, *directory = NULL;
    int pid;

    if (!read_note(fd, &pid, &identity, &directory) || qos_mounts_has(identity, pid))
        return FALSE;
    if (!*is_told)
        g_message("the daemon (process %d) of the mount that was on \"%s\" is still saving to the "
                  "database: waiting for its end (it has locked %s)",
                  pid, directory, name);
    *is_told = TRUE;
    return TRUE;
}

/* Whether the user has given up mounting, by one of these signals. They are blocked until the mount
 * is there, so here they are pending. */
static gboolean is_interrupted(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1 ||
            sigismember(&pending, SIGHUP) == 1);
}

/* flock(), with patience. */
static int lock_patiently(int fd, const char *name)
{
    const gint64 begin = g_get_monotonic_time();
    gboolean is_told = FALSE;

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        const gint64 waited = g_get_monotonic_time() - begin;

        if (errno != EWOULDBLOCK)
            return -1;
        if (waited >= SILENCE && !is_ending(fd, name, &is_told) && waited >= PATIENCE) {
            errno = EWOULDBLOCK;
            return -1;
        }
        if (is_interrupted()) {
            errno = EINTR;
            return -1;
        }
        g_usleep(PAUSE);
    }
    return 0;
}

static gboolean is_named(int fd, const char *name)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && stat(name, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

int qos_db_open_locked(const char *name)
{
    for (;;) {
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        int result = fd < 0 ? -1 : lock_patiently(fd, name);
        int reason = errno;

        if (result == 0 && is_named(fd, name)) {
            if (ftruncate(fd, 0) < 0) /* what the last holder noted */
                g_info("cannot empty %s: %s", name, g_strerror(errno));
            return fd;
        }
        if (fd >= 0)
            close(fd);
        errno = reason;
        if (result < 0)
            return -1;
    }
}

void qos_db_note_mount(QosDb *db, const char *directory)
{
    g_autofree char *identity = qos_mounts_identify(directory);
    g_autofree char *note = g_strdup_printf("%d %s %s\n", (int)getpid(), identity, directory);
    gsize length = strlen(note);

    if (identity && pwrite(db->lock_fd, note, length, 0) != (ssize_t)length)
        g_info("cannot note in the lock of the database which mount has it: %s", g_strerror(errno));
}
