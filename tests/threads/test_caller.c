/*
 * The cache of callers, on real processes: what is found of them, how long it is believed, and that
 * the cache stays bounded. The gate is a real one, without threads.
 */
#include "fs/caller/caller.h"

#include <glib.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PID_NEVER 0x3ffffff /* beyond pid_max */

typedef struct {
    QosGate *gate;
    QosCallers *callers;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    fixture->gate = qos_gate_new(&qos_policy_fifo, 4, QOS_NEVER);
    fixture->callers = qos_callers_new(fixture->gate);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_callers_free(fixture->callers);
    qos_gate_free(fixture->gate);
}

static gboolean is_known(Fixture *fixture, pid_t tid, QosCallerNeed need)
{
    const struct fuse_ctx context = {.pid = tid, .uid = 1000, .gid = 7};
    QosCaller *caller = qos_callers_find(fixture->callers, &context, need);

    qos_caller_unref(caller);
    return caller != NULL;
}

static QosCaller *get(Fixture *fixture, pid_t tid, uid_t uid, gid_t gid)
{
    const struct fuse_ctx context = {.pid = tid, .uid = uid, .gid = gid};
    QosCaller *caller = qos_callers_find(fixture->callers, &context, QOS_CALLER_JOB);

    if (caller == NULL) { /* as a resolver thread does */
        g_autoptr(QosJobNaming) naming = qos_callers_naming(fixture->callers);
        g_auto(QosProcFacts) facts = {0};

        qos_proc_read(tid, qos_job_naming_wants(naming), &facts);
        caller = qos_callers_name(fixture->callers, &context, naming, &facts);
    }
    return caller;
}

static void check_job(Fixture *fixture, pid_t tid, uid_t uid, const char *id, guint nodes)
{
    QosCaller *caller = get(fixture, tid, uid, 7);

    g_assert_cmpstr(caller->job->id, ==, id);
    g_assert_cmpuint(caller->job->nodes, ==, nodes);
    g_assert_cmpint(caller->tid, ==, tid);
    g_assert_cmpuint(caller->uid, ==, uid);
    g_assert_cmpuint(caller->gid, ==, 7);
    qos_caller_unref(caller);
}

static void name_by(Fixture *fixture, const char *var, const char *name)
{
    GError *error = NULL;
    g_autoptr(QosJobNaming) naming = qos_job_naming_new(var, name, "host", &error);
    g_autoptr(QosJobNaming) got = NULL;

    g_assert_no_error(error);
    qos_callers_set_naming(fixture->callers, naming);
    got = qos_callers_naming(fixture->callers);
    g_assert_true(got == naming);
}

/* A child that tells when it is ready and waits to be killed; it ends with the test, whatever
 * happens. */
static pid_t fork_child(gboolean (*prepare)(void))
{
    int ends[2];
    pid_t pid;
    char byte;

    g_assert_cmpint(pipe(ends), ==, 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (prepare() && write(ends[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    close(ends[1]);
    g_assert_cmpint(read(ends[0], &byte, 1), ==, 1);
    close(ends[0]);
    return pid;
}

static void kill_child(pid_t pid)
{
    kill(pid, SIGKILL);
    g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

/* A program that waits on its standard input, with that environment; end it with end_child(). */
static pid_t start_child(const char *const *environment, int *ret_input)
{
    const char *const arguments[] = {"/bin/cat", NULL};
    GError *error = NULL;
    GPid pid;

    g_assert_true(g_spawn_async_with_pipes(NULL, (char **)arguments, (char **)environment,
                                           G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &pid, ret_input,
                                           NULL, NULL, &error));
    g_assert_no_error(error);
    return pid;
}

static void end_child(pid_t pid, int input)
{
    close(input);
    g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

static void test_environment(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const char *const environment[] = {"PATH=/bin", "JOB_ID=wrong", "SLURM_JOB_ID=4711",
                                       "SLURM_JOB_NUM_NODES=16", NULL};
    int input;
    pid_t pid = start_child(environment, &input);

    check_job(fixture, pid, 1000, "4711", 16);
    name_by(fixture, "JOB_ID", "%j.%u.%p");
    {
        g_autofree char *expected = g_strdup_printf("wrong.1000.%d", pid);

        check_job(fixture, pid, 1000, expected, 16);
    }
    name_by(fixture, "procname_uid", "%j");
    check_job(fixture, pid, 1000, "cat.1000", 0);
    end_child(pid, input);
}

static gboolean take_comm(void)
{
    return prctl(PR_SET_NAME, "a) R (b 1 2") == 0;
}

static void test_comm_with_parentheses(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    pid_t pid = fork_child(take_comm);

    name_by(fixture, "procname_uid", "%j");
    check_job(fixture, pid, 3, "a) R (b 1 2.3", 0);
    kill_child(pid);
}

static void test_cgroup(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autofree char *text = NULL;

    if (!g_file_get_contents("/proc/self/cgroup", &text, NULL, NULL) || !*text) {
        g_test_skip("no cgroup");
        return;
    }
    name_by(fixture, "cgroup:^[0-9]+:", "c%j");
    {
        g_autofree char *expected = g_strdup_printf("c%.*s:", (int)strcspn(text, ":"), text);

        check_job(fixture, getpid(), 0, expected, 0);
    }
}

static void test_groups(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    gid_t groups[1024];
    int count = getgroups(G_N_ELEMENTS(groups), groups);
    QosCaller *caller = get(fixture, getpid(), getuid(), getgid());

    g_assert_cmpint(caller->group_count, ==, count);
    for (int i = 0; i < count; i++)
        g_assert_cmpuint(caller->groups[i], ==, groups[i]);
    qos_caller_unref(caller);
}

enum { MANY = 3000 };

static gboolean take_groups(void)
{
    gid_t groups[MANY];

    for (guint i = 0; i < MANY; i++)
        groups[i] = 4000000000U + i;
    return setgroups(MANY, groups) == 0;
}

static void test_many_groups(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosCaller *caller;
    pid_t pid;

    if (geteuid() != 0) {
        g_test_skip("needs root");
        return;
    }
    pid = fork_child(take_groups);
    caller = get(fixture, pid, 1, 1);
    g_assert_cmpint(caller->group_count, ==, MANY);
    for (guint i = 0; i < MANY; i++)
        g_assert_cmpuint(caller->groups[i], ==, 4000000000U + i);
    qos_caller_unref(caller);
    kill_child(pid);
}

static void test_cached(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosTime begin = qos_clock_now();
    QosCaller *first = get(fixture, getpid(), 5, 6);
    QosCaller *again = get(fixture, getpid(), 5, 6);
    QosCaller *other_uid = get(fixture, getpid(), 8, 6);
    QosCaller *other_gid = get(fixture, getpid(), 8, 9);

    g_assert_true(first == again || qos_clock_now() - begin >= QOS_CALLER_FRESH);
    g_assert_cmpuint(other_uid->uid, ==, 8);
    g_assert_cmpuint(other_gid->gid, ==, 9);
    g_assert_cmpuint(qos_callers_count(fixture->callers), ==, 1);
    qos_caller_unref(first);
    qos_caller_unref(again);
    qos_caller_unref(other_uid);
    qos_caller_unref(other_gid);
}

/* Also a caller that was asked for just before. */
static void test_named_anew(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    name_by(fixture, "nodelocal", "one");
    for (guint i = 0; i < 3; i++)
        check_job(fixture, getpid(), 1, "one", 0);
    name_by(fixture, "nodelocal", "other");
    check_job(fixture, getpid(), 1, "other", 0);
}

static void test_gone_and_unseen(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosCaller *first = get(fixture, PID_NEVER, 1000, 7);
    QosCaller *again = get(fixture, PID_NEVER, 1000, 7);

    g_assert_cmpstr(first->job->id, ==, "1000");
    g_assert_cmpint(first->group_count, ==, 0);
    g_assert_true(first->job == again->job);
    g_assert_cmpuint(qos_callers_count(fixture->callers), ==, 1);
    check_job(fixture, 0, 1001, "1001", 0);
    g_assert_cmpuint(qos_callers_count(fixture->callers), ==, 1);
    qos_caller_unref(first);
    qos_caller_unref(again);
}

/* A zombie has no environment any more, but it is the process that was known. */
static void test_exiting_keeps_its_job(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const char *const environment[] = {"JOB_ID=last", NULL};
    int input;
    pid_t pid = start_child(environment, &input);
    siginfo_t info;

    check_job(fixture, pid, 1000, "last", 0);
    close(input);
    g_assert_cmpint(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), ==, 0);
    check_job(fixture, pid, 1001, "last", 0); /* another uid: read again */
    name_by(fixture, "JOB_ID", "%j");         /* nothing is known of it now */
    check_job(fixture, pid, 1000, "cat.1000", 0);
    waitpid(pid, NULL, 0);
}

/* A copy of this program that calls exec when it reads a byte. */
static pid_t start_launcher(const char *const *environment, int *ret_input)
{
    const char *const arguments[] = {"cat", NULL};
    int ends[2];
    pid_t pid;
    char byte;

    g_assert_cmpint(pipe(ends), ==, 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(ends[0], STDIN_FILENO) == STDIN_FILENO && close(ends[1]) == 0 &&
            read(STDIN_FILENO, &byte, 1) == 1)
            execve("/bin/cat", (char **)arguments, (char **)environment);
        _exit(1);
    }
    close(ends[0]);
    *ret_input = ends[1];
    return pid;
}

/* Until exec is done. It sets comm, and replaces the memory, before there is an environment: of
 * that moment a thread asks for nothing that is named by its environment. */
static void wait_for_environment(pid_t pid, const char *environment)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/environ", pid);
    g_autofree char *text = NULL;

    while (g_file_get_contents(path, &text, NULL, NULL) && !g_str_equal(text, environment)) {
        g_clear_pointer(&text, g_free);
        g_usleep(1000);
    }
}

static void test_exec_shows_at_once(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const char *const environment[] = {"JOB_ID=after", NULL};
    int input;
    pid_t pid = start_launcher(environment, &input);
    QosCaller *caller = get(fixture, pid, 1000, 7);

    g_assert_cmpint(caller->program.state, ==, QOS_PROGRAM_SURE);
    g_assert_cmpstr(caller->job->id, !=, "after");
    g_assert_cmpint(write(input, "", 1), ==, 1);
    wait_for_environment(pid, environment[0]);
    g_assert_false(is_known(fixture, pid, QOS_CALLER_JOB));
    check_job(fixture, pid, 1000, "after", 0);
    qos_caller_unref(caller);
    end_child(pid, input);
}

/* Then what it opens has it read anew, and nothing else. */
static void test_no_descriptor_for_a_program(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    const char *const environment[] = {"JOB_ID=one", NULL};
    struct rlimit before, few;
    int input;
    pid_t pid = start_child(environment, &input);

    g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
    few = before;
    few.rlim_cur = 63;
    setrlimit(RLIMIT_NOFILE, &few);
    qos_callers_free(fixture->callers);
    fixture->callers = qos_callers_new(fixture->gate);
    setrlimit(RLIMIT_NOFILE, &before);
    for (guint i = 0; i < 100; i++) {
        check_job(fixture, pid, 1000, "one", 0);
        g_assert_false(is_known(fixture, pid, QOS_CALLER_LASTING_JOB));
    }
    end_child(pid, input);
}

/* Also where nobody else comes: else the jobs of an idle mount would stay. */
static void test_idle_are_forgotten(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosCaller *caller = get(fixture, getpid(), 1, 7);
    QosJob *job = qos_job_ref(caller->job);
    const QosTime read = caller->read;

    qos_caller_unref(caller);
    qos_caller_unref(get(fixture, getpid(), 1, 7)); /* which is the newest now */
    qos_callers_expire(fixture->callers, read + QOS_CALLER_IDLE);
    g_assert_cmpuint(qos_callers_count(fixture->callers), ==, 1);
    qos_callers_expire(fixture->callers, read + 2 * QOS_CALLER_IDLE);
    g_assert_cmpuint(qos_callers_count(fixture->callers), ==, 0);
    g_assert_cmpint(g_atomic_int_get(&job->references), ==, 2); /* the registry's, and this */
    qos_job_unref(job);
}

static void test_bounded(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    for (pid_t i = 0; i < QOS_CALLER_CACHE_MAX + 1000; i++)
        qos_caller_unref(get(fixture, PID_NEVER - i, 1, 1));
    g_assert_cmpuint(qos_callers_count(fixture->callers), <=, QOS_CALLER_CACHE_MAX);
    g_assert_cmpuint(qos_callers_count(fixture->callers), >, 0);
    name_by(fixture, "disable", "%j");
    g_assert_cmpuint(qos_callers_count(fixture->callers), ==, 0);
    check_job(fixture, PID_NEVER, 5, "-", 0);
}

static void test_long_id_is_logged_once(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_autofree char *name = g_strnfill(80, 'n');
    g_autofree char *cut = g_strndup(name, QOS_JOB_ID_MAX);

    name_by(fixture, "nodelocal", name);
    g_test_expect_message("qosfs", G_LOG_LEVEL_WARNING, "*63 bytes*nnn*");
    check_job(fixture, getpid(), 1, cut, 0);
    check_job(fixture, getpid(), 2, cut, 0);
    check_job(fixture, 0, 2, cut, 0);
    g_test_assert_expected_messages();
}

static gpointer look_up_often(gpointer data)
{
    Fixture *fixture = data;

    for (guint i = 0; i < 3000; i++)
        qos_caller_unref(get(fixture, i % 3 ? getpid() : PID_NEVER - (pid_t)(i % 7), i % 2, 1));
    return NULL;
}

static void test_threads(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    GThread *threads[4];

    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        threads[i] = g_thread_new("look-up", look_up_often, fixture);
    for (guint i = 0; i < 200; i++)
        name_by(fixture, i % 2 ? "auto" : "disable", "%j");
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        g_thread_join(threads[i]);
    name_by(fixture, "disable", "%j");
    check_job(fixture, getpid(), 1, "-", 0); /* nothing named the old way was left behind */
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qos_cred_init();
#define ADD(name, function) g_test_add("/caller/" name, Fixture, NULL, set_up, function, tear_down)
    ADD("environment", test_environment);
    ADD("comm-with-parentheses", test_comm_with_parentheses);
    ADD("cgroup", test_cgroup);
    ADD("groups", test_groups);
    ADD("many-groups", test_many_groups);
    ADD("cached", test_cached);
    ADD("named-anew", test_named_anew);
    ADD("gone-and-unseen", test_gone_and_unseen);
    ADD("exiting-keeps-its-job", test_exiting_keeps_its_job);
    ADD("exec-shows-at-once", test_exec_shows_at_once);
    ADD("no-descriptor-for-a-program", test_no_descriptor_for_a_program);
    ADD("idle-are-forgotten", test_idle_are_forgotten);
    ADD("bounded", test_bounded);
    ADD("long-id-is-logged-once", test_long_id_is_logged_once);
    ADD("threads", test_threads);
    return g_test_run();
}
