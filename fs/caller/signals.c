/*
 * Reads from /proc and pidfds what a signal is doing to a thread or process. fs/caller/signals.h
 * has the contract.
 *
 * The kernel tells which signals are pending, blocked and handled, but not what will become of
 * them. So a thread counts as killed if a pending signal is fatal by default, not blocked and not
 * handled. Another process may get the same number meanwhile. So each look compares the start time
 * too, and asks a pidfd twice.
 */
#include "fs/caller/signals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/caller/proc.h"

#define BIT(signal) (G_GUINT64_CONSTANT(1) << ((signal)-1))

/* What a signal does to a process that has not said otherwise, signal(7): all but these end it. */
#define HARMLESS                                                                                   \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) |     \
     BIT(SIGURG) | BIT(SIGWINCH))

/* Since Linux 6.15; older headers do not have it. */
typedef struct {
    guint64 mask; /* asked for, and told */
    guint64 cgroup;
    guint32 pid, process, parent;
    guint32 ids[8];
    gint32 exit_code;
} EndInfo;

#define PIDFD_OF_THREAD     O_EXCL
#define PIDFD_INFO_HAS_PID  (1 << 0)
#define PIDFD_INFO_HAS_EXIT (1 << 3)
#define PIDFD_ASK_INFO      _IOWR(0xff, 11, EndInfo)

typedef struct {
    guint64 own, shared; /* pending: the thread's, the process's */
    guint64 blocked;
    guint64 handled; /* or ignored */
    guint64 threads;
    guint64 process;
} Status;

/* Reads a line such as "SigPnd:\t0000000000000100", if it has that name, into *bits, beside what is
 * there. */
static void read_number(const char *line, const char *name, guint base, guint64 *bits)
{
    gsize length = strlen(name);

    if (strncmp(line, name, length) == 0)
        *bits |= g_ascii_strtoull(line + length, NULL, base);
}

static void read_status(FILE *file, Status *status)
{
    char line[256];

    while (fgets(line, sizeof(line), file) != NULL) {
        read_number(line, "Tgid:", 10, &status->process);
        read_number(line, "Threads:", 10, &status->threads);
        read_number(line, "SigPnd:", 16, &status->own);
        read_number(line, "ShdPnd:", 16, &status->shared);
        read_number(line, "SigBlk:", 16, &status->blocked);
        read_number(line, "SigIgn:", 16, &status->handled);
        read_number(line, "SigCgt:", 16, &status->handled);
    }
}

/* 0 or an errno. */
static int read_thread(pid_t thread, Status *ret_status)
{
    char path[32];
    FILE *file;

    g_snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
    file = fopen(path, "re");
    if (file == NULL)
        return errno;
    read_status(file, ret_status);
    fclose(file);
    return 0;
}

QosSignals qos_signals_of(pid_t thread)
{
    QosSignals signals = {0};
    Status status = {0};
    int error;

    if (thread == 0)
        return signals;
    error = read_thread(thread, &status);
    if (error != 0) {
        signals.is_gone = error == ENOENT || error == ESRCH;
        return signals;
    }

    guint64 ends = ~(status.handled | HARMLESS) | BIT(SIGTERM) | BIT(SIGKILL);
    guint64 open = ~status.blocked | BIT(SIGKILL);
    guint64 pending = (status.own | status.shared) & open;
    signals.is_signaled = pending != 0;
    signals.is_its_own = (status.threads == 1 ? pending : status.own & open) != 0;
    signals.is_killed = (pending & ends) != 0;
    return signals;
}

/* --- processes --- */

/* FALSE: the process has no such thread. *ret_stat has no texts. For /proc/TID/stat the kernel
 * would add up what all threads of the process did. */
static gboolean read_stat(pid_t process, pid_t thread, QosProcStat *ret_stat)
{
    char path[48], text[1024];
    FILE *file;

    g_snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)process, (int)thread);
    file = fopen(path, "re");
    if (file == NULL)
        return FALSE;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    if (!qos_proc_parse_stat(text, ret_stat))
        return FALSE;
    ret_stat->comm = ret_stat->rest = NULL;
    return TRUE;
}

void qos_signals_process(pid_t thread, QosProcessId *ret_process)
{
    Status status = {0};
    QosProcStat stat;

    *ret_process = (QosProcessId){0};
    if (thread == 0 || read_thread(thread, &status) != 0 ||
        !read_stat((pid_t)status.process, (pid_t)status.process, &stat))
        return;
    ret_process->pid = (pid_t)status.process;
    ret_process->start = stat.start;
}

/* Also of a thread's descriptor: its process. */
pid_t qos_signals_number_of(int descriptor)
{
    EndInfo info = {.mask = PIDFD_INFO_HAS_PID};

    return ioctl(descriptor, PIDFD_ASK_INFO, &info) == 0 ? (pid_t)info.process : 0;
}

void qos_signals_process_of(int descriptor, QosProcessId *ret_process)
{
    const pid_t process = qos_signals_number_of(descriptor);
    QosProcStat stat;

    *ret_process = (QosProcessId){0};
    /* Asked again: what was read may be another's that has its number now. */
    if (process == 0 || !read_stat(process, process, &stat) ||
        qos_signals_number_of(descriptor) != process)
        return;
    ret_process->pid = process;
    ret_process->start = stat.start;
}

/* A fatal signal becomes a SIGKILL of each thread, which is taken as the thread begins to exit. A
 * process that exits by itself may be killed while it does. */
static gboolean is_killed(pid_t thread, const QosProcStat *stat)
{
    if ((stat->pending & BIT(SIGKILL)) != 0 || stat->was_killed)
        return TRUE;
    return stat->is_exiting && qos_signals_of(thread).is_killed;
}

/* A thread that has ended leaves it to the others; the first one stays until all have. */
static gboolean has_ended(const QosProcStat *stat)
{
    return stat->state == 'Z' || stat->state == 'X';
}

/* Where a thread calls exec, only the others end. */
static gboolean are_all_killed(pid_t process)
{
    gboolean are_killed = TRUE, is_one = FALSE;
    const struct dirent *entry;
    char path[32];
    DIR *threads;
    QosProcStat stat;

    g_snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    threads = opendir(path);
    if (threads == NULL)
        return FALSE;
    while (are_killed && (entry = readdir(threads)) != NULL) {
        pid_t thread = (pid_t)g_ascii_strtoll(entry->d_name, NULL, 10);

        if (thread <= 0 || !read_stat(process, thread, &stat))
            continue;
        if (is_killed(thread, &stat))
            is_one = TRUE;
        else
            are_killed = has_ended(&stat);
    }
    closedir(threads);
    return are_killed && is_one;
}

int qos_signals_open_thread(pid_t thread)
{
    const int own = thread == 0 ? -1 : (int)syscall(SYS_pidfd_open, thread, PIDFD_OF_THREAD);
    const pid_t process = qos_signals_number_of(own);
    int descriptor;

    if (process == 0 || process == thread)
        return own;
    descriptor = (int)syscall(SYS_pidfd_open, process, 0);
    close(own);
    return descriptor;
}

int qos_signals_open(const QosProcessId *process)
{
    QosProcStat stat;
    const int descriptor = (int)syscall(SYS_pidfd_open, process->pid, 0);

    if (descriptor < 0)
        return -1;
    if (read_stat(process->pid, process->pid, &stat) && stat.start == process->start)
        return descriptor;
    close(descriptor);
    return -1;
}

QosEnd qos_signals_end_of_gone(int descriptor)
{
    EndInfo info = {.mask = PIDFD_INFO_HAS_EXIT};

    if (descriptor < 0 || ioctl(descriptor, PIDFD_ASK_INFO, &info) != 0 ||
        (info.mask & PIDFD_INFO_HAS_EXIT) == 0)
        return QOS_END_UNKNOWN;
    return WIFSIGNALED(info.exit_code) ? QOS_END_KILLED : QOS_END_NONE;
}

QosEnd qos_signals_end(const QosProcessId *process)
{
    QosProcStat stat;

    if (!read_stat(process->pid, process->pid, &stat) || stat.start != process->start)
        return QOS_END_UNKNOWN;
    if (!is_killed(process->pid, &stat) && !has_ended(&stat))
        return QOS_END_NONE;
    return are_all_killed(process->pid) ? QOS_END_KILLED : QOS_END_NONE;
}
