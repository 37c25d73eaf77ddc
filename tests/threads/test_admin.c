/*
 * Commands to the lock server that wait for its answer (fs/cluster/admin.h), against the server of
 * lockclient_fixture.h. Each is answered once, whatever comes of it.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "lockclient_fixture.h"

typedef struct {
    User *user;
    int error;
    char text[128];
    gint answers;
} Asked;

static void answered(int error, const char *text, gpointer arg)
{
    Asked *asked = arg;

    pthread_mutex_lock(&asked->user->lock);
    asked->error = error;
    g_strlcpy(asked->text, text, sizeof(asked->text));
    pthread_mutex_unlock(&asked->user->lock);
    note(asked->user, &asked->answers);
}

static void ask_as(User *user, Asked *asked, guint32 uid, pid_t pid, const char *command)
{
    *asked = (Asked){.user = user};
    qos_admin_ask(user->admin, uid, pid, command, answered, asked);
}

static void ask(User *user, Asked *asked, const char *command)
{
    ask_as(user, asked, 7, 0, command);
}

static void check(Asked *asked, int error, const char *begin)
{
    wait_for(asked->user, &asked->answers, 1);
    g_assert_cmpint(asked->error, ==, error);
    g_assert_true(g_str_has_prefix(asked->text, begin));
    g_assert_cmpint(asked->answers, ==, 1);
}

static void start(World *w, User **ret_user)
{
    init_with(w, 3600 * QOS_SECOND, GOOD, TRUE);
    start_server(&w->server);
    *ret_user = &w->users[0];
    wait_for(*ret_user, &(*ret_user)->welcomes, 1);
}

static void test_answers(void)
{
    g_autofree char *longest = g_strnfill(QOS_WIRE_COMMAND_MAX + 1, 'a');
    Asked asked;
    User *user;
    World w;

    start(&w, &user);
    ask(user, &asked, "say hello");
    check(&asked, 0, "say hello");
    ask(user, &asked, "fail 1");
    check(&asked, EPERM, "fail 1");
    ask(user, &asked, "fail 511");
    check(&asked, 511, "fail 511");
    ask(user, &asked, "fail 512"); /* FUSE would never take it */
    check(&asked, EIO, "fail 512");
    ask(user, &asked, "");
    check(&asked, EINVAL, "a command is UTF-8");
    ask(user, &asked, "two\nlines");
    check(&asked, EINVAL, "a command is UTF-8");
    ask(user, &asked, longest);
    check(&asked, EINVAL, "a command is UTF-8");
    clear(&w);
}

/* A server that goes answers none; one that comes back answers new ones alone. */
static void test_connections(void)
{
    Asked asked, late;
    User *user;
    World w;

    init_with(&w, 3600 * QOS_SECOND, GOOD, TRUE);
    user = &w.users[0];
    ask(user, &asked, "say hello");
    check(&asked, ENOTCONN, "the lock server is away");
    start_server(&w.server);
    wait_for(user, &user->welcomes, 1);
    ask(user, &asked, "wait");
    stop_server(&w.server);
    check(&asked, ENOTCONN, "the connection to the lock server broke");
    ask(user, &late, "say hello");
    check(&late, ENOTCONN, "the lock server is away");
    start_server(&w.server);
    wait_for(user, &user->welcomes, 2);
    ask(user, &late, "say hello");
    check(&late, 0, "say hello");
    g_assert_cmpint(asked.answers, ==, 1);
    clear(&w);
}

/* One that waits when the client ends. */
static void test_end(void)
{
    Asked asked;
    User *user;
    World w;

    start(&w, &user);
    ask(user, &asked, "wait");
    clear(&w);
    g_assert_cmpint(asked.answers, ==, 1);
    g_assert_cmpint(asked.error, ==, ENOTCONN);
}

/* One user leaves room for others, and all together have a bound. */
static void test_bounds(void)
{
    const guint most = QOS_ADMIN_MAX - QOS_ADMIN_MAX / 8;
    g_autofree Asked *asked = g_new(Asked, QOS_ADMIN_MAX);
    Asked more;
    User *user;
    World w;

    start(&w, &user);
    for (guint i = 0; i < most; i++)
        ask_as(user, &asked[i], 7, 0, "wait");
    ask_as(user, &more, 7, 0, "wait");
    check(&more, EBUSY, "too many commands wait");
    for (guint i = most; i < QOS_ADMIN_MAX; i++)
        ask_as(user, &asked[i], 8, 0, "wait");
    ask_as(user, &more, 9, 0, "wait");
    check(&more, EBUSY, "too many commands wait");
    clear(&w);
    for (guint i = 0; i < QOS_ADMIN_MAX; i++) {
        g_assert_cmpint(asked[i].answers, ==, 1);
        g_assert_cmpint(asked[i].error, ==, ENOTCONN);
    }
}

/* A process that is stopped: what is to end it stays pending, as in a call of FUSE. */
static pid_t start_process(void)
{
    const pid_t process = fork();

    if (process == 0) {
        for (;;)
            pause();
    }
    g_assert_cmpint(process, >, 0);
    g_assert_cmpint(kill(process, SIGSTOP), ==, 0);
    g_assert_cmpint(waitpid(process, NULL, WUNTRACED), ==, process);
    return process;
}

static void end_process(pid_t process)
{
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
}

/* The command of a killed process ends at once; that of one that lives, when its time is over. */
static void test_patience(void)
{
    const QosTime begin_time = qos_lockclient_clock();
    const pid_t killed = start_process(), living = start_process();
    Asked one, other;
    User *user;
    World w;

    start(&w, &user);
    ask_as(user, &one, 7, killed, "wait");
    ask_as(user, &other, 7, living, "wait");
    kill(killed, SIGTERM);
    check(&one, EINTR, "the process was killed");
    g_assert_cmpint(other.answers, ==, 0);
    check(&other, ETIMEDOUT, "the lock server has not answered within 10 s");
    g_assert_cmpint(qos_lockclient_clock() - begin_time, >=, QOS_ADMIN_PATIENCE);
    clear(&w);
    end_process(killed);
    end_process(living);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    expect_warnings();
    g_test_add_func("/admin/answers", test_answers);
    g_test_add_func("/admin/connections", test_connections);
    g_test_add_func("/admin/end", test_end);
    g_test_add_func("/admin/bounds", test_bounds);
    g_test_add_func("/admin/patience", test_patience);
    return g_test_run();
}
