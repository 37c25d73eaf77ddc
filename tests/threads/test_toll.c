/*
 * Tolls without a kernel: who may pass, and what a ticket is good for. Without a session nobody is
 * told, which is as good as having been told.
 */
#include "ops/toll.h"

#define FOLDER 5
#define FILE_  6
#define TID    100

#define STEP   (50 * QOS_MILLISECOND) /* shorter than a pause */
#define CLOSED (2 * QOS_MILLISECOND)  /* a file's toll, so long */

typedef struct {
    QosTolls *tolls;
} Fixture;

static QosTime time_now; /* stands but for what the tests add */

static QosTime now(void)
{
    return time_now;
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    time_now = QOS_SECOND;
    fixture->tolls = qos_tolls_new(NULL, now);
    g_assert_nonnull(fixture->tolls);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_tolls_free(fixture->tolls);
}

static QosTollState meet(Fixture *fixture, fuse_ino_t ino, pid_t tid)
{
    QosOpcode opcode = QOS_OP_COUNT;
    QosTollState state = qos_tolls_meet(fixture->tolls, ino, tid, 0, &opcode);

    g_assert_true(opcode == (state == QOS_TOLL_NONE ? QOS_OP_COUNT : QOS_OP_CREATE));
    return state;
}

static void pass(Fixture *fixture, fuse_ino_t ino, pid_t tid, QosOpcode prepaid)
{
    qos_tolls_pass(fixture->tolls, ino, tid, prepaid, TRUE);
}

/* Who comes soon after a change may have waited for the lock since before it. */
static void test_after_a_change(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosOpcode opcode;

    qos_tolls_note_change(fixture->tolls, FOLDER);
    g_assert_cmpint(qos_tolls_meet(fixture->tolls, FOLDER, TID, 0, &opcode), ==, QOS_TOLL_FREE);
    g_assert_cmpint(meet(fixture, FILE_, TID), ==, QOS_TOLL_NONE);
}

/* Time passes, with requests all the while. */
static void use_for(Fixture *fixture, QosTime time)
{
    for (QosTime passed = 0; passed < time; passed += STEP) {
        time_now += STEP;
        meet(fixture, FILE_, TID);
    }
}

/* Each counts as queueing for so long as somebody may. */
static void test_time_passes(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosOpcode opcode;

    qos_tolls_note_change(fixture->tolls, FILE_ + 1);
    qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    use_for(fixture, QOS_SECOND);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_FREE);
    use_for(fixture, 2 * QOS_SECOND);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_NONE);
    g_assert_cmpint(qos_tolls_meet(fixture->tolls, FILE_ + 1, TID, 0, &opcode), ==, QOS_TOLL_FREE);
    use_for(fixture, 3 * QOS_SECOND);
    g_assert_cmpint(qos_tolls_meet(fixture->tolls, FILE_ + 1, TID, 0, &opcode), ==, QOS_TOLL_NONE);
}

/* Whoever queued for the lock still does when the daemon, or the machine, has stood still. */
static void test_after_a_pause(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosOpcode opcode;

    qos_tolls_note_change(fixture->tolls, FILE_ + 1);
    qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    pass(fixture, FOLDER, TID, QOS_OP_COUNT);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_FREE);

    time_now += 3600 * QOS_SECOND;
    g_assert_cmpint(qos_tolls_meet(fixture->tolls, FILE_ + 1, TID, 0, &opcode), ==, QOS_TOLL_FREE);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_FREE);
    g_assert_cmpint(meet(fixture, FOLDER, TID + 1), ==, QOS_TOLL_FREE);
}

static void test_no_toll(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_NONE);
    pass(fixture, FOLDER, TID, QOS_OP_COUNT);
    g_assert_true(qos_tolls_may_believe(fixture->tolls, FOLDER));
    g_assert_false(qos_tolls_use(fixture->tolls, FOLDER, TID, QOS_OP_CREATE));
}

/* Who stands in the directory when the toll is raised may finish; then each change is paid for. */
static void test_a_ticket_is_good_for_one_change(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    g_assert_false(qos_tolls_may_believe(fixture->tolls, FOLDER));
    g_assert_true(qos_tolls_may_believe(fixture->tolls, FILE_));
    for (guint i = 0; i < 3; i++) {
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, i == 0 ? QOS_TOLL_FREE : QOS_TOLL_DUE);
        pass(fixture, FOLDER, TID, QOS_OP_COUNT);
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_FREE);
        g_assert_false(qos_tolls_use(fixture->tolls, FOLDER, TID, QOS_OP_CREATE));
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_DUE);
    }
}

static void test_a_ticket_is_good_for_some_looks(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    pass(fixture, FOLDER, TID, QOS_OP_COUNT);
    for (guint i = 0; i < 3; i++) {
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_FREE);
        qos_tolls_use(fixture->tolls, FOLDER, TID, QOS_OP_LOOKUP);
    }
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_TOLL_DUE);
}

/* Else a thread that does nothing but stat the directory would live on one ticket. */
static void test_a_ticket_does_not_last(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    guint asks = 0;

    qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    while (meet(fixture, FOLDER, TID) == QOS_TOLL_FREE && asks < 100) {
        pass(fixture, FOLDER, TID, QOS_OP_COUNT);
        asks++;
    }
    g_assert_cmpuint(asks, >, 8);
    g_assert_cmpuint(asks, <, 100);
}

static void test_what_was_paid_for_is_free(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    pass(fixture, FOLDER, TID, QOS_OP_CREATE);
    g_assert_false(qos_tolls_use(fixture->tolls, FOLDER, TID, QOS_OP_LOOKUP));
    g_assert_true(qos_tolls_use(fixture->tolls, FOLDER, TID, QOS_OP_CREATE));
    g_assert_false(qos_tolls_use(fixture->tolls, FOLDER, TID, QOS_OP_CREATE));
}

/* Who was born later did not stand there: a job that forks goes on no debt for that. */
static void test_who_comes_later_pays(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    QosOpcode opcode;

    do /* on a busy machine it is not waited for until the kernel knows */
        qos_tolls_raise(fixture->tolls, FOLDER, QOS_OP_CREATE, TRUE);
    while (qos_tolls_meet(fixture->tolls, FOLDER, TID, G_MAXUINT64, &opcode) != QOS_TOLL_DUE);
    g_assert_cmpint(qos_tolls_meet(fixture->tolls, FOLDER, TID, 1, &opcode), ==, QOS_TOLL_FREE);
}

/* A file's is due each time, and closed for moments alone. */
static void test_a_file(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_tolls_raise(fixture->tolls, FILE_, QOS_OP_CREATE, FALSE);
    for (guint i = 0; i < 3; i++) {
        g_assert_false(qos_tolls_may_believe(fixture->tolls, FILE_));
        time_now += CLOSED - 1;
        g_assert_false(qos_tolls_may_believe(fixture->tolls, FILE_));
        time_now += 1;
        g_assert_true(qos_tolls_may_believe(fixture->tolls, FILE_));
        g_assert_cmpint(meet(fixture, FILE_, TID), ==, QOS_TOLL_DUE);
        pass(fixture, FILE_, TID, QOS_OP_COUNT);
    }
    time_now += CLOSED;
    qos_tolls_pass(fixture->tolls, FILE_, TID, QOS_OP_COUNT, FALSE);
    g_assert_true(qos_tolls_may_believe(fixture->tolls, FILE_));
}

static gpointer come_and_go(gpointer data)
{
    Fixture *fixture = data;

    for (pid_t tid = 1; tid < 5000; tid++) {
        fuse_ino_t ino = (fuse_ino_t)(tid % 50 + 1);
        gboolean is_directory = tid % 2 == 0;

        qos_tolls_raise(fixture->tolls, ino, QOS_OP_CREATE, is_directory);
        if (meet(fixture, ino, tid) == QOS_TOLL_DUE)
            pass(fixture, ino, tid, QOS_OP_COUNT);
        qos_tolls_use(fixture->tolls, ino, tid, QOS_OP_CREATE);
    }
    return NULL;
}

static void test_many_threads(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    GThread *threads[4];

    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        threads[i] = g_thread_new("toll", come_and_go, fixture);
    for (guint i = 0; i < G_N_ELEMENTS(threads); i++)
        g_thread_join(threads[i]);
}

static void add(const char *path, void (*test)(Fixture *, gconstpointer))
{
    g_test_add(path, Fixture, NULL, set_up, test, tear_down);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add("/toll/no-toll", test_no_toll);
    add("/toll/after-a-change", test_after_a_change);
    add("/toll/time-passes", test_time_passes);
    add("/toll/after-a-pause", test_after_a_pause);
    add("/toll/a-ticket-is-good-for-one-change", test_a_ticket_is_good_for_one_change);
    add("/toll/a-ticket-is-good-for-some-looks", test_a_ticket_is_good_for_some_looks);
    add("/toll/a-ticket-does-not-last", test_a_ticket_does_not_last);
    add("/toll/what-was-paid-for-is-free", test_what_was_paid_for_is_free);
    add("/toll/who-comes-later-pays", test_who_comes_later_pays);
    add("/toll/a-file", test_a_file);
    add("/toll/many-threads", test_many_threads);
    return g_test_run();
}
