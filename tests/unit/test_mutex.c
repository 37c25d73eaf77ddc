/*
 * Mutexes in their order (sys/mutex.h): what breaks it ends the program and names both, in a build
 * that looks; what keeps it does not.
 */
#include "sys/mutex.h"

#include <glib.h>

static QosMutex inodes, pages, open_files, readdirplus, gate, setting, db, server_link;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void init_all(void)
{
    qos_mutex_init(&inodes, QOS_MUTEX_INODES);
    qos_mutex_init(&pages, QOS_MUTEX_PAGES);
    qos_mutex_init(&open_files, QOS_MUTEX_OPEN_FILES);
    qos_mutex_init(&readdirplus, QOS_MUTEX_READDIRPLUS);
    qos_mutex_init_adaptive(&gate, QOS_MUTEX_GATE);
    qos_mutex_init(&setting, QOS_MUTEX_SETTING);
    qos_mutex_init(&db, QOS_MUTEX_DB);
    qos_mutex_init(&server_link, QOS_MUTEX_LINK);
}

static void assert_calls(void)
{
    for (QosMutexCall call = QOS_MUTEX_CALL_STORE; call <= QOS_MUTEX_CALL_SQLITE; call++)
        qos_mutex_assert_call(call);
}

/* Also where the outer one is let go first. */
static void test_in_order(void)
{
    assert_calls();
    qos_mutex_lock(&pages);
    qos_mutex_lock(&inodes);
    qos_mutex_lock(&gate);
    qos_mutex_unlock(&pages);
    qos_mutex_unlock(&gate);
    qos_mutex_lock(&readdirplus);
    qos_mutex_unlock(&inodes);
    qos_mutex_unlock(&readdirplus);
    assert_calls();
}

static void test_a_wait(void)
{
    qos_mutex_lock(&pages);
    g_assert_false(qos_condition_wait_until(&condition, &pages, 1));
    qos_mutex_lock(&gate);
    qos_mutex_unlock(&gate);
    qos_mutex_unlock(&pages);
    assert_calls();
}

static void test_exceptions(void)
{
    qos_mutex_lock(&setting);
    qos_mutex_lock(&db);
    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
    qos_mutex_unlock(&db);
    qos_mutex_lock(&pages);
    qos_mutex_lock(&server_link);
    qos_mutex_assert_call(QOS_MUTEX_CALL_SOCKET);
    qos_mutex_unlock(&server_link);
    qos_mutex_unlock(&pages);
    qos_mutex_unlock(&setting);
}

/* --- what ends the program --- */

static void take_an_outer_one(void)
{
    qos_mutex_lock(&inodes);
    qos_mutex_lock(&gate);
    qos_mutex_unlock(&inodes);
    qos_mutex_lock(&inodes);
}

static void take_two_of_a_rank(void)
{
    qos_mutex_lock(&open_files);
    qos_mutex_lock(&readdirplus);
}

static void take_one_twice(void)
{
    qos_mutex_lock(&gate);
    qos_mutex_lock(&gate);
}

static void let_go_of_what_is_not_held(void)
{
    qos_mutex_unlock(&gate);
}

static void wait_with_another(void)
{
    qos_mutex_lock(&pages);
    qos_mutex_lock(&gate);
    qos_condition_wait_until(&condition, &gate, 1);
}

static void wait_without_it(void)
{
    qos_condition_wait(&condition, &gate);
}

static void call_the_store(void)
{
    qos_mutex_lock(&db);
    qos_mutex_assert_call(QOS_MUTEX_CALL_STORE);
}

static void reply(void)
{
    qos_mutex_lock(&gate);
    qos_mutex_assert_call(QOS_MUTEX_CALL_KERNEL);
}

static void write_to_the_socket(void)
{
    qos_mutex_lock(&server_link);
    qos_mutex_lock(&gate);
    qos_mutex_assert_call(QOS_MUTEX_CALL_SOCKET);
}

static void call_sqlite(void)
{
    qos_mutex_lock(&setting);
    qos_mutex_lock(&inodes);
    qos_mutex_assert_call(QOS_MUTEX_CALL_SQLITE);
}

typedef struct {
    const char *name;
    void (*run)(void);
    const char *message;
} Wrong;

static const Wrong all_wrong[] = {
    {"outer", take_an_outer_one,
     "*QosInodes.lock (rank 5) is taken while QosGate.lock (rank 8) is held*"},
    {"rank", take_two_of_a_rank,
     "*QosReaddirplus.lock (rank 6) is taken while QosOpenFiles.lock (rank 6) is held*"},
    {"twice", take_one_twice,
     "*QosGate.lock (rank 8) is taken while QosGate.lock (rank 8) is held*"},
    {"not-held", let_go_of_what_is_not_held, "*QosGate.lock is let go by*"},
    {"wait", wait_with_another,
     "*waits with QosGate.lock for a condition while QosPages.lock is held*"},
    {"wait-without", wait_without_it, "*waits with QosGate.lock, which it does not hold*"},
    {"store", call_the_store, "*QosDb.lock is held across a call on the store*"},
    {"reply", reply, "*QosGate.lock is held across a reply or a notification*"},
    {"socket", write_to_the_socket, "*QosGate.lock is held across a write to a socket*"},
    {"sqlite", call_sqlite, "*QosInodes.lock is held across SQLite*"},
};

static void test_wrong(gconstpointer data)
{
    const Wrong *wrong = data;

    if (!QOS_DEBUG_LOCKS) {
        g_test_skip("no debug build: it does not look at the order of locks");
        return;
    }
    if (g_test_subprocess()) {
        wrong->run();
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    g_test_trap_assert_failed();
    g_test_trap_assert_stderr(wrong->message);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    init_all();
    g_test_add_func("/mutex/in-order", test_in_order);
    g_test_add_func("/mutex/a-wait", test_a_wait);
    g_test_add_func("/mutex/exceptions", test_exceptions);
    for (guint i = 0; i < G_N_ELEMENTS(all_wrong); i++) {
        g_autofree char *path = g_strconcat("/mutex/wrong/", all_wrong[i].name, NULL);

        g_test_add_data_func(path, &all_wrong[i], test_wrong);
    }
    return g_test_run();
}
