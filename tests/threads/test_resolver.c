/*
 * The resolver threads, with many that ask at once, about processes that are there and that are
 * not. What cannot be read is tried by tests/mount/test_caps.py.
 */
#include "fs/caller/resolver.h"

#include <glib.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASKERS  8
#define ASKS    200
#define USERS   3
#define NO_TASK 0x3ffffff /* beyond pid_max */

typedef struct {
    QosUnresolved unresolved; /* first */
    struct fuse_ctx context;
    QosCaller *caller;
    gboolean is_replied; /* atomic */
} Ask;

static gint answered; /* atomic */
static gint late;     /* atomic; those that had to wait for long, as on a busy machine */

static void named(QosUnresolved *unresolved, QosCaller *caller)
{
    Ask *ask = (Ask *)unresolved;

    ask->caller = caller;
    if (qos_clock_now() - unresolved->wait.since >= QOS_NAMING_TIME)
        g_atomic_int_inc(&late);
    g_assert_false(g_atomic_int_get(&ask->is_replied));
    g_atomic_int_set(&ask->is_replied, TRUE);
    g_atomic_int_inc(&answered);
}

typedef struct {
    QosResolver *resolver;
    pid_t child;
    Ask asks[ASKS];
} Asker;

static gpointer ask_many(gpointer data)
{
    Asker *asker = data;

    for (guint i = 0; i < ASKS; i++) {
        Ask *ask = &asker->asks[i];
        ask->context =
            (struct fuse_ctx){.pid = i % 10 == 0 ? NO_TASK : asker->child, .uid = 1000 + i % USERS};
        ask->unresolved.context = &ask->context;
        ask->unresolved.named = named;
        qos_resolver_ask(asker->resolver, &ask->unresolved);
    }
    return NULL;
}

static pid_t start_child(void)
{
    const char *const arguments[] = {"/bin/sleep", "1000", NULL};
    const char *const environment[] = {"SLURM_JOB_ID=4711", NULL};
    GError *error = NULL;
    GPid pid;

    g_spawn_async(NULL, (char **)arguments, (char **)environment, G_SPAWN_DO_NOT_REAP_CHILD, NULL,
                  NULL, &pid, &error);
    g_assert_no_error(error);
    return pid;
}

/* A caller that waits for long, or that would wait behind such callers, may be named without its
 * environment: as the process was before, also as another user's. */
static void check_job(const Ask *ask)
{
    g_autofree char *unknown = g_strdup_printf("%u", ask->context.uid);
    const char *id = ask->caller->job->id;

    if (ask->context.pid == NO_TASK)
        g_assert_cmpstr(id, ==, unknown);
    else if (g_atomic_int_get(&late) == 0 || !g_str_has_prefix(id, "sleep."))
        g_assert_cmpstr(id, ==, "4711");
}

/* `stops_early`: the mount ends while they are asked. */
static void check_many(gboolean stops_early)
{
    QosGate *gate = qos_gate_new(&qos_policy_fifo, 4, QOS_NEVER);
    QosCallers *callers = qos_callers_new(gate);
    QosResolver *resolver = qos_resolver_new(callers);
    g_autofree Asker *askers = g_new0(Asker, ASKERS);
    GThread *threads[ASKERS];
    pid_t child = start_child();

    g_atomic_int_set(&answered, 0);
    g_atomic_int_set(&late, 0);
    for (guint i = 0; i < ASKERS; i++) {
        askers[i].resolver = resolver;
        askers[i].child = child;
        threads[i] = g_thread_new("asker", ask_many, &askers[i]);
    }
    for (guint i = 0; i < ASKERS; i++)
        g_thread_join(threads[i]);
    while (!stops_early && g_atomic_int_get(&answered) < ASKERS * ASKS)
        g_usleep(1000);
    qos_resolver_stop(resolver);
    g_assert_cmpint(g_atomic_int_get(&answered), ==, ASKERS * ASKS);
    for (guint i = 0; i < ASKERS * ASKS; i++) {
        const Ask *ask = &askers[i / ASKS].asks[i % ASKS];

        if (ask->caller == NULL) {
            g_assert_true(stops_early);
            continue;
        }
        g_assert_cmpuint(ask->caller->uid, ==, ask->context.uid);
        check_job(ask);
        qos_caller_unref(ask->caller);
    }
    qos_resolver_free(resolver);
    qos_callers_free(callers);
    qos_gate_free(gate);
    kill(child, SIGKILL);
    g_assert_cmpint(waitpid(child, NULL, 0), ==, child);
}

static void test_many(void)
{
    check_many(FALSE);
}

static void test_stop_meanwhile(void)
{
    for (guint i = 0; i < 10; i++)
        check_many(TRUE);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/resolver/many", test_many);
    g_test_add_func("/resolver/stop-meanwhile", test_stop_meanwhile);
    return g_test_run();
}
