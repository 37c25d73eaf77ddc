/*
 * The daemon's limits (sys/privilege.h).
 *
 * A thread that works for an ordinary user has that user's identity and almost no capability
 * (fs/caller/cred.c). The capabilities kept here are for root's own operations through the mount,
 * and for switching from one identity to the next.
 *
 * The filter's default action is SECCOMP_RET_TRAP. The signal handler makes the call fail with
 * ENOSYS, which programs and libraries expect from an old kernel, and records the call's number, so
 * that the log can name it. A daemon must not die because a request, or a new libc, makes it try a
 * call. The filter looks only at the call's number. So the kernel decides by its bitmap and runs no
 * filter, except for clone() and unshare(): threads are allowed, new processes and namespaces are
 * not.
 */
#include "sys/privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/error.h"

/* As <linux/nsfs.h> has it since Linux 6.17. */
#define FIRST_USER_NAMESPACE 0xEFFFFFFD

/* --- capabilities --- */

static const guint kept[] = {
    CAP_CHOWN,           /* root's callers: give files away */
    CAP_DAC_OVERRIDE,    /* root's callers: use anyone's files */
    CAP_DAC_READ_SEARCH, /* open_by_handle_at() */
    CAP_FOWNER,          /* root's callers: chmod, utimes, xattrs of anyone's files */
    CAP_FSETID,          /* root's callers: a write or chmod keeps the setgid bit */
    CAP_SETGID,          /* setfsgid(), setgroups(): each caller's identity */
    CAP_SETUID,          /* setfsuid(): the same */
    CAP_LINUX_IMMUTABLE, /* root's callers: chattr +i, +a */
    CAP_SYS_PTRACE,      /* /proc/PID/environ and syscall of any user: the JobID */
    CAP_SYS_ADMIN,       /* trusted.* xattrs, kernel passthrough, the unmount at the end */
    CAP_SYS_RESOURCE,    /* root's callers: reserved blocks, beyond quotas */
    CAP_MKNOD,           /* root's callers: device nodes */
    CAP_SETFCAP,         /* root's callers: file capabilities */
};

/* Takes all but the kept ones from the bounding set. FALSE without CAP_SETPCAP. */
static gboolean bound(const struct __user_cap_data_struct *keep)
{
    int present;

    for (guint i = 0; (present = prctl(PR_CAPBSET_READ, i, 0, 0, 0)) >= 0; i++) {
        if (present && (keep[CAP_TO_INDEX(i)].permitted & CAP_TO_MASK(i)) == 0 &&
            prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0)
            return FALSE;
    }
    return TRUE;
}

static gboolean drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct own[_LINUX_CAPABILITY_U32S_3], keep[G_N_ELEMENTS(own)] = {0};

    if (syscall(SYS_capget, &header, own) != 0)
        return FALSE;
    for (guint i = 0; i < G_N_ELEMENTS(kept); i++)
        keep[CAP_TO_INDEX(kept[i])].permitted |= CAP_TO_MASK(kept[i]);
    for (guint i = 0; i < G_N_ELEMENTS(own); i++) {
        keep[i].permitted &= own[i].permitted;
        keep[i].effective = keep[i].permitted & own[i].effective;
    }
    if (!bound(keep))
        g_info("the bounding set of capabilities stays: there is no CAP_SETPCAP");
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &header, keep) == 0;
}

/* Requests carry the data of all users. 1 is the limit at which the kernel runs no handler of cores
 * either, which at 0 it would. */
static void forbid_core(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1});
}

gboolean qos_privilege_drop(GError **error)
{
    forbid_core();
    if (geteuid() != 0)
        return TRUE;
    if (drop_capabilities() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        return TRUE;
    qos_set_error(error, errno,
                  "cannot give up capabilities: %s; with -o unconfined the daemon keeps them all",
                  g_strerror(errno));
    return FALSE;
}

gboolean qos_privilege_is_root_of_machine(void)
{
    struct stat stat_buffer;

    return geteuid() == 0 && stat("/proc/self/ns/user", &stat_buffer) == 0 &&
           stat_buffer.st_ino == FIRST_USER_NAMESPACE;
}

/* --- system calls --- */

/* Words; those that an architecture or an older libseccomp does not know are passed over. */
static const char *const allowed[] = {
    /* files */
    "close close_range copy_file_range dup dup2 dup3 fadvise64 fallocate fcntl fdatasync "
    "flock fsync ftruncate getdents64 ioctl lseek open open_tree openat openat2 pread64 preadv "
    "preadv2 pwrite64 pwritev pwritev2 read readv sync_file_range syncfs truncate write writev",
    /* names and attributes */
    "access chmod chown faccessat faccessat2 fchmod fchmodat fchmodat2 fchown fchownat fstat "
    "fstatfs getcwd lchown linkat lstat mkdir mkdirat mknodat name_to_handle_at newfstatat "
    "open_by_handle_at readlink readlinkat rename renameat renameat2 rmdir stat statfs statx "
    "symlinkat unlink unlinkat utimensat",
    /* extended attributes */
    "fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr "
    "lremovexattr lsetxattr removexattr setxattr",
    /* requests: /dev/fuse, the end */
    "eventfd2 pipe2 poll ppoll sched_getaffinity splice tee umount2 vmsplice",
    /* the caller's identity; unshare() below */
    "capget capset getegid geteuid getgid getgroups getuid setfsgid setfsuid setgroups umask",
    /* the caller's program, and its end */
    "kcmp pidfd_open",
    /* memory */
    "brk madvise mmap mprotect mremap munmap",
    /* threads, time and signals; clone() below */
    "clock_getres clock_gettime clock_nanosleep exit exit_group futex getcpu getpid "
    "getpriority getrandom getrlimit getrusage gettid gettimeofday membarrier nanosleep prctl "
    "prlimit64 restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn "
    "rt_sigtimedwait sched_yield set_robust_list sigaltstack sysinfo tgkill time uname",
    /* syslog */
    "connect sendmsg sendto socket",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    /* the search for leaks: a process that stops this one; pipes, to try addresses */
    "clone getdents getppid kill personality pipe process_vm_readv ptrace sched_getparam "
    "wait4",
#endif
};

/* A lock server's: its socket, its name and TLS. */
static const char network[] =
    "bind epoll_create1 epoll_ctl getpeername getsockname getsockopt recvfrom recvmmsg recvmsg "
    "sendmmsg setsockopt shutdown "
    "sched_getattr sched_setattr socketpair timerfd_settime"; /* GLib's threads set their class */

/* Requests by io_uring, with a queue for each CPU. No filter sees what is asked of a ring, so only
 * daemons that need a ring may have one. */
static const char rings[] = "get_mempolicy io_uring_enter io_uring_register io_uring_setup mbind "
                            "sched_setaffinity set_mempolicy";

/* The calls that were refused: a bit each, set by the handler. */
#define NUMBERS 1024

static guint refused[NUMBERS / 32];
static guint reported[NUMBERS / 32]; /* for qos_privilege_report() alone */

static void on_refused(G_GNUC_UNUSED int number, siginfo_t *info, void *context)
{
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
    guint call = (guint)info->si_syscall % NUMBERS;

    g_atomic_int_or(&refused[call / 32], 1u << call % 32);
#if defined(__x86_64__)
    machine->gregs[REG_RAX] = -ENOSYS;
#elif defined(__aarch64__)
    machine->regs[0] = (guint64)-ENOSYS;
#else
#error "say here which register has a system call's result"
#endif
}

void qos_privilege_report(void)
{
    for (guint call = 0; call < NUMBERS; call++) {
        guint word = call / 32, bit = 1u << call % 32;
        char *name;

        if ((g_atomic_int_get(&refused[word]) & bit) == 0 || (reported[word] & bit) != 0)
            continue;
        reported[word] |= bit;
        name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)call);
        g_warning("the filter of system calls refused %s (%u); this is a defect of qosfs, which -o "
                  "unconfined goes around",
                  name != NULL ? name : "one without a name", call);
        free(name);
    }
}

/* 0 or -errno */
static int allow(scmp_filter_ctx filter, const char *names)
{
    g_auto(GStrv) words = g_strsplit(names, " ", -1);
    int error = 0;

    for (guint i = 0; error == 0 && words[i] != NULL; i++) {
        int call = seccomp_syscall_resolve_name(words[i]);

        if (call != __NR_SCMP_ERROR)
            error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
    }
    return error;
}

static int fill_filter(scmp_filter_ctx filter, QosPrivilegeNeeds needs)
{
    int error = (needs & QOS_NEEDS_NETWORK) != 0 ? allow(filter, network) : 0;

    if (error == 0 && (needs & QOS_NEEDS_RINGS) != 0)
        error = allow(filter, rings);
    for (guint i = 0; error == 0 && i < G_N_ELEMENTS(allowed); i++)
        error = allow(filter, allowed[i]);
    /* Its arguments lie in memory, where no filter sees them: libc falls back on clone(). */
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    /* A umask of the thread's own; no namespace. */
    if (error == 0)
        error = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(unshare), 1,
                                 SCMP_A0(SCMP_CMP_EQ, CLONE_FS, 0));
    return error;
}

gboolean qos_privilege_filter(QosPrivilegeNeeds needs, GError **error)
{
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
    scmp_filter_ctx filter;
    int result;

    if (geteuid() != 0)
        return TRUE;
    sigaction(SIGSYS, &action, NULL);
    filter = seccomp_init(SCMP_ACT_TRAP);
    result = filter != NULL ? fill_filter(filter, needs) : -ENOMEM;
    if (result == 0)
        result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    /* A tree by number: kernels that do not remember what a filter says go through all of it. */
    if (result == 0)
        seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    /* No foreign code runs here: older kernels need not slow down all for the sake of the filter.
     */
    if (result == 0)
        seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    if (result == 0)
        result = seccomp_load(filter);
    seccomp_release(filter);
    if (result != 0)
        qos_set_error(error, -result,
                      "cannot filter system calls: %s; with -o unconfined the daemon does without",
                      g_strerror(-result));
    return result == 0;
}
