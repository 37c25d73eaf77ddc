/* The daemon's limits, tried by a process of their own that has them. They are root's: skipped for
 * others. */
#include "sys/privilege.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void assert_unknown(long result)
{
    g_assert_cmpint(result, ==, -1);
    g_assert_cmpint(errno, ==, ENOSYS);
}

/* A system call that no file system needs; one that this one has not asked for; a namespace. */
static void assert_refused(void)
{
    assert_unknown(syscall(SYS_acct, NULL));
    assert_unknown(syscall(SYS_io_uring_setup, 1, NULL));
    assert_unknown(unshare(CLONE_NEWNS));
    g_assert_cmpint(unshare(CLONE_FS), ==, 0);
}

static void *wait_and_try(void *data)
{
    sem_wait(data);
    assert_refused();
    return NULL;
}

static void *try_at_once(G_GNUC_UNUSED void *data)
{
    assert_refused();
    return NULL;
}

static void assert_dropped(void)
{
    struct rlimit core;

    g_assert_cmpint(prctl(PR_CAPBSET_READ, CAP_SYS_MODULE, 0, 0, 0), ==, 0);
    g_assert_cmpint(prctl(PR_CAPBSET_READ, CAP_SETUID, 0, 0, 0), ==, 1);
    g_assert_cmpint(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), ==, 1);
    g_assert_cmpint(getrlimit(RLIMIT_CORE, &core), ==, 0);
    g_assert_cmpuint(core.rlim_max, <=, 1);
}

static void test_limits(void)
{
    g_autoptr(GError) error = NULL;
    pthread_t before, after;
    sem_t go;

    if (geteuid() != 0) {
        g_test_skip("the limits are root's");
        return;
    }
    if (!g_test_subprocess()) {
        g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
        g_test_trap_assert_passed();
        return;
    }
    sem_init(&go, 0, 0);
    g_assert_true(qos_privilege_drop(&error));
    g_assert_no_error(error);
    assert_dropped();

    g_assert_cmpint(pthread_create(&before, NULL, wait_and_try, &go), ==, 0);
    g_assert_true(qos_privilege_filter(0, &error));
    g_assert_no_error(error);
    sem_post(&go);
    pthread_join(before, NULL);
    g_assert_cmpint(pthread_create(&after, NULL, try_at_once, NULL), ==, 0);
    pthread_join(after, NULL);

    /* Neither a process nor a program. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    g_assert_cmpint(fork(), ==, -1);
#endif
    g_assert_cmpint(execl("/bin/true", "true", NULL), ==, -1);
    g_assert_cmpint(errno, ==, ENOSYS);

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*refused clone*");
#endif
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*refused execve*");
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*refused acct*");
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*refused unshare*");
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*refused io_uring_setup*");
    qos_privilege_report();
    g_test_assert_expected_messages();
    qos_privilege_report(); /* each is told once */
}

static gboolean write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    gboolean written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return written;
}

static void test_root_of_machine(void)
{
    g_autofree char *all = NULL;

    if (geteuid() != 0 || !g_file_get_contents("/proc/self/uid_map", &all, NULL, NULL) ||
        !strstr(all, "4294967295")) {
        g_test_skip("needs root of the machine");
        return;
    }
    g_assert_true(qos_privilege_is_root_of_machine());
    if (!g_test_subprocess()) {
        g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
        g_test_trap_assert_passed();
        return;
    }
    if (unshare(CLONE_NEWUSER) != 0 || !write_file("/proc/self/uid_map", "0 0 1"))
        return; /* the kernel has no user namespaces */
    g_assert_cmpuint(geteuid(), ==, 0);
    g_assert_false(qos_privilege_is_root_of_machine());
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/privilege/limits", test_limits);
    g_test_add_func("/privilege/root-of-machine", test_root_of_machine);
    return g_test_run();
}
