/*
 * The daemon as a process.
 *
 * PR_SET_DUMPABLE is left alone. The kernel clears it when a thread takes on a caller's identity.
 * That is right, because the memory holds other users' data: a caller must neither trace the daemon
 * nor find that data in a core.
 */
#include "fs/daemon/daemon.h"

#include <fcntl.h>
#include <fuse_log.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "net/standard_streams.h"
#include "net/tls.h"
#include "sys/privilege.h"

#define EXIT_DIED 32 /* mount(8): mount failure */

/* The C library registers an area of so many bytes, or a multiple. */
#define RSEQ_UNIT 32

/* --- the log --- */

static const char *level_name(GLogLevelFlags level, int *ret_priority)
{
    if (level & (G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL)) {
        *ret_priority = LOG_ERR;
        return "error: ";
    }
    if (level & G_LOG_LEVEL_WARNING) {
        *ret_priority = LOG_WARNING;
        return "warning: ";
    }
    *ret_priority = level & G_LOG_LEVEL_MESSAGE ? LOG_NOTICE : LOG_INFO;
    return "";
}

static GLogWriterOutput write_log(GLogLevelFlags level, const GLogField *fields, gsize count,
                                  gpointer data)
{
    QosDaemon *daemon = data;
    const char *message = "";
    int length = 0, priority;
    const char *name = level_name(level, &priority);

    /* Debug messages of libraries help no user. */
    if (level & G_LOG_LEVEL_DEBUG || (level & G_LOG_LEVEL_INFO && !daemon->verbose))
        return G_LOG_WRITER_HANDLED;
    for (gsize i = 0; i < count; i++) {
        if (g_str_equal(fields[i].key, "MESSAGE")) {
            message = fields[i].value;
            length = fields[i].length < 0 ? (int)strlen(message) : (int)fields[i].length;
        }
    }
    while (length > 0 && message[length - 1] == '\n')
        length--;
    if (daemon->background)
        syslog(priority, "%s%.*s", name, length, message);
    if (!daemon->background || !g_atomic_int_get(&daemon->is_up))
        dprintf(STDERR_FILENO, "mount.qosfs: %s%.*s\n", name, length, message);
    return G_LOG_WRITER_HANDLED;
}

G_GNUC_PRINTF(2, 0)
static void log_of_libfuse(enum fuse_log_level level, const char *format, va_list arguments)
{
    g_logv(G_LOG_DOMAIN,
           level <= FUSE_LOG_ERR       ? G_LOG_LEVEL_CRITICAL
           : level == FUSE_LOG_WARNING ? G_LOG_LEVEL_WARNING
                                       : G_LOG_LEVEL_INFO,
           format, arguments);
}

void qos_daemon_init(QosDaemon *daemon, gboolean verbose)
{
    qos_standard_streams_open();
    qos_tls_refuse_old_versions();
    *daemon = (QosDaemon){.verbose = verbose, .verdict = -1};
    g_log_set_writer_func(write_log, daemon, NULL);
    fuse_set_log_func(log_of_libfuse);
}

/* --- the background --- */

/* The starter: waits for the verdict of the child. */
G_GNUC_NORETURN
static void await_verdict(const QosDaemon *daemon, pid_t child, int verdict)
{
    char up;
    int status;

    if (TEMP_FAILURE_RETRY(read(verdict, &up, 1)) == 1) {
        if (daemon->at_mount)
            daemon->at_mount(daemon->data);
        _exit(EXIT_SUCCESS);
    }
    if (TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) == child && WIFEXITED(status))
        _exit(WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_DIED);
    dprintf(STDERR_FILENO, "mount.qosfs: the daemon died while it started\n");
    _exit(EXIT_DIED);
}

static void redirect_to_null(int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0) {
        dup2(null, fd);
        close(null);
    }
}

int qos_daemon_background(QosDaemon *daemon)
{
    int ends[2];
    pid_t child;

    close_range(STDERR_FILENO + 1, ~0U, 0);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    child = fork();
    if (child > 0) {
        close(ends[1]);
        await_verdict(daemon, child, ends[0]);
    }
    close(ends[0]);
    if (child < 0) {
        close(ends[1]);
        return -1;
    }
    setsid();
    if (chdir("/") < 0)
        return -1;
    redirect_to_null(STDIN_FILENO);
    daemon->verdict = ends[1];
    daemon->background = TRUE;
    openlog("qosfs", LOG_PID, LOG_DAEMON);
    return 0;
}

/* The waiting process is a grandchild, so that the daemon need not wait for its end. */
G_GNUC_NORETURN
static void await_mount(const QosDaemon *daemon, int verdict)
{
    char up;

    if (fork() == 0 && TEMP_FAILURE_RETRY(read(verdict, &up, 1)) == 1)
        daemon->at_mount(daemon->data);
    _exit(EXIT_SUCCESS);
}

void qos_daemon_foreground(QosDaemon *daemon)
{
    int ends[2];
    pid_t child;

    if (!daemon->at_mount || pipe2(ends, O_CLOEXEC) < 0)
        return;
    child = fork();
    if (child == 0) {
        close(ends[1]);
        await_mount(daemon, ends[0]);
    }
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    daemon->verdict = ends[1];
}

void qos_daemon_is_up(QosDaemon *daemon)
{
    if (daemon->background) {
        g_atomic_int_set(&daemon->is_up, TRUE);
        redirect_to_null(STDOUT_FILENO);
        redirect_to_null(STDERR_FILENO);
    }
    if (daemon->verdict < 0)
        return;
    if (write(daemon->verdict, "", 1) < 0)
        g_info("whoever mounted has not waited");
    close(daemon->verdict);
}

/* --- what the kernel grants and demands --- */

/* A number in a file of /proc, 0 where there is none. */
static guint64 read_number(const char *path)
{
    g_autofree char *text = NULL;

    return g_file_get_contents(path, &text, NULL, NULL) ? g_ascii_strtoull(text, NULL, 10) : 0;
}

/* A thread that is registered for restartable sequences is told its CPU each time that it goes on
 * after another: a fortieth of what a small request takes. Nobody here asks for that. Threads that
 * this one makes are not registered either. Where the kernel has it otherwise, all stays as it is.
 */
static void leave_restartable_sequences(void)
{
#ifdef RSEQ_SIG
    const guint size = (__rseq_size + RSEQ_UNIT - 1) / RSEQ_UNIT * RSEQ_UNIT;

    (void)syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset, size,
                  RSEQ_FLAG_UNREGISTER, RSEQ_SIG);
#endif
}

void qos_daemon_prepare(void)
{
    rlim_t most = read_number("/proc/sys/fs/nr_open");
    struct rlimit files;

    /* Raising the hard limit needs CAP_SYS_RESOURCE, and more than that in some containers. */
    if (most == 0 || setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, most}) < 0) {
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
            files.rlim_cur = files.rlim_max;
            setrlimit(RLIMIT_NOFILE, &files);
        }
    }
    /* When memory is short, an allocation must not wait for dirty pages that only we can write. */
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    /* A write beyond the starter's own limit fails with EFBIG; a closed pipe with EPIPE. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    leave_restartable_sequences();
}

guint qos_daemon_background_room(guint asked)
{
    guint64 most = read_number("/sys/module/fuse/parameters/max_user_bgreq");

    return qos_privilege_is_root_of_machine() || most == 0 ? asked : (guint)MIN(asked, most);
}

QosTime qos_daemon_request_timeout(void)
{
    guint64 usual = read_number("/proc/sys/fs/fuse/default_request_timeout");
    guint64 most = read_number("/proc/sys/fs/fuse/max_request_timeout");
    guint64 seconds = usual && most ? MIN(usual, most) : MAX(usual, most);

    return seconds ? (QosTime)seconds * QOS_SECOND : QOS_NEVER;
}
