/*
 * What FUSE over io_uring needs of the machine. fs/transport/uring_setup.h has the contract.
 *
 * The checks try the very thing: they make an io_uring, and let this thread run for a moment on
 * each CPU that is switched on. So an administrator learns before the mount if one of the two is
 * not allowed, and not by requests that are never served.
 */
#include "fs/transport/uring_setup.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

#define SWITCH      "/sys/module/fuse/parameters/enable_uring"
#define CPUS        "/sys/devices/system/cpu/possible"

#define COMMANDS    4  /* of one thread at a time; more are sent in several calls */
#define COMPLETIONS 64 /* the kernel keeps those beyond */

/* linux/io_uring.h, Linux 6.15 */
#define FEATURE_NO_IOWAIT (1u << 17)
#define ENTER_NO_IOWAIT   (1u << 7)

/* --- io_urings --- */

static int open_uring(struct io_uring *uring, guint flags, int fd)
{
    struct io_uring_params parameters = {
        .flags = IORING_SETUP_SQE128 | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | flags,
        .cq_entries = COMPLETIONS,
    };
    int error = io_uring_queue_init_params(COMMANDS, uring, &parameters);

    if (error == 0 && fd >= 0) {
        error = io_uring_register_files(uring, &fd, 1);
        if (error != 0)
            io_uring_queue_exit(uring);
    }
    return error;
}

int qos_ring_support_open(struct io_uring *uring, int fd)
{
    return open_uring(uring, 0, fd);
}

/* With a single thread, the kernel's own work for the ring waits until the thread asks for it, and
 * interrupts nothing. */
int qos_ring_support_open_disabled(struct io_uring *uring, int fd)
{
    return open_uring(
        uring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED,
        fd);
}

guint qos_ring_support_adopt(struct io_uring *uring)
{
    guint flags = IORING_ENTER_GETEVENTS;

    if (syscall(SYS_io_uring_register, uring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) != 0)
        g_warning("io_uring: cannot switch a queue on: %s", g_strerror(errno));
    if (io_uring_register_ring_fd(uring) == 1) /* if not, each use looks up the descriptor */
        flags |= IORING_ENTER_REGISTERED_RING;
    if (uring->features & FEATURE_NO_IOWAIT)
        flags |= ENTER_NO_IOWAIT;
    return flags;
}

/* As io_uring_submit_and_wait(), but a thread that waits for requests does not count as one that
 * waits for a disk. Otherwise all CPUs of an idle mount would seem to wait for a disk, and the
 * machine to be under I/O pressure. */
int qos_ring_support_wait(struct io_uring *uring, guint flags)
{
    struct io_uring_sq *commands = &uring->sq;

    commands->sqe_head = commands->sqe_tail;
    io_uring_smp_store_release(commands->ktail, commands->sqe_tail);
    return io_uring_enter((guint)uring->enter_ring_fd, io_uring_sq_ready(uring), 1, flags, NULL);
}

struct io_uring_sqe *qos_ring_support_next(struct io_uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(uring);

    if (sqe == NULL) {
        io_uring_submit(uring);
        sqe = io_uring_get_sqe(uring);
    }
    return sqe;
}

/* --- CPUs --- */

int qos_ring_support_pin(guint cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0 ? 0 : -errno;
}

/* The last number of a list such as "0-3,8", plus 1; 0 where it cannot be read. */
static guint count_cpus(void)
{
    g_autofree char *text = NULL;
    const char *last;

    if (!g_file_get_contents(CPUS, &text, NULL, NULL))
        return 0;
    last = text + strlen(text);
    while (last > text && !strchr("-,", last[-1]))
        last--;
    return (guint)g_ascii_strtoull(last, NULL, 10) + 1;
}

/* CPU 0 often has no such file: it cannot be switched off. */
static gboolean is_online(guint cpu)
{
    g_autofree char *path = g_strdup_printf("/sys/devices/system/cpu/cpu%u/online", cpu);
    g_autofree char *text = NULL;

    return g_file_get_contents(path, &text, NULL, NULL) ? *text == '1' : cpu == 0;
}

/* --- the checks --- */

/* Checks that the kernel, and its administrator, allow it. */
static gboolean check_kernel(GError **error)
{
    g_autofree char *text = NULL;
    struct io_uring uring;
    int result;

    if (!g_file_get_contents(SWITCH, &text, NULL, NULL)) {
        qos_set_error(error, ENOTSUP,
                      "this kernel has no FUSE over io_uring (Linux 6.14, CONFIG_FUSE_IO_URING)");
        return FALSE;
    }
    if (*text != 'Y' && *text != '1') {
        qos_set_error(error, EOPNOTSUPP,
                      "FUSE over io_uring is switched off in the kernel; echo Y > " SWITCH
                      ", or fuse.enable_uring=Y on its command line");
        return FALSE;
    }
    result = open_uring(&uring, 0, -1);
    if (result == 0) {
        io_uring_queue_exit(&uring);
        return TRUE;
    }
    qos_set_error(error, -result, "cannot make an io_uring: %s%s", g_strerror(-result),
                  result == -EPERM ? "; see sysctl kernel.io_uring_disabled" : "");
    return FALSE;
}

/* A reader must run where the requests are made: on each CPU that is there. */
static gboolean check_cpus(guint count, GError **error)
{
    cpu_set_t before;
    int result = 0;
    guint cpu;

    if (count == 0 || count > CPU_SETSIZE) {
        qos_set_error(error, ENOTSUP,
                      "FUSE over io_uring: %u CPUs in " CPUS " cannot be dealt with", count);
        return FALSE;
    }
    sched_getaffinity(0, sizeof(before), &before);
    for (cpu = 0; cpu < count && result == 0; cpu++) {
        if (is_online(cpu))
            result = qos_ring_support_pin(cpu);
    }
    sched_setaffinity(0, sizeof(before), &before);
    if (result != 0)
        qos_set_error(
            error, -result,
            "FUSE over io_uring needs a thread on each CPU, and none may run on CPU %u: %s",
            cpu - 1, g_strerror(-result));
    return result == 0;
}

guint qos_ring_support_check(GError **error)
{
    guint count = count_cpus();

    return check_kernel(error) && check_cpus(count, error) ? count : 0;
}
