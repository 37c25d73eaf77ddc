/*
 * Pay points without a kernel: which thread may pass, and what a pass is good for. Without a
 * session nothing is told, which is as good as having been told.
 */
#include "fs/isolate/pay_point.h"

#define FOLDER 5
#define OTHER  6
#define TID    100
#define LATE   G_MAXUINT64 /* a thread that lives since after the kernel was told */

#define STEP   (50 * QOS_MILLISECOND)  /* shorter than a pause */
#define RETURN (2 * QOS_MILLISECOND)   /* at a file, from a debt on, */
#define PAYER  (100 * QOS_MILLISECOND) /* and of a thread that has paid */

typedef struct {
    QosPayPoints *pay_points;
} Fixture;

static QosTime time_now; /* stands but for what the tests add */
static const char jobs[2];
static const QosJob *const hog = (const QosJob *)&jobs[0], *const guest = (const QosJob *)&jobs[1];

static QosTime now(void)
{
    return time_now;
}

static void set_up(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    time_now = QOS_SECOND;
    fixture->pay_points = qos_pay_points_new(NULL, now);
    g_assert_nonnull(fixture->pay_points);
}

static void tear_down(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    qos_pay_points_free(fixture->pay_points);
}

static QosPayPointState meet_as(Fixture *fixture, fuse_ino_t ino, const QosJob *job, pid_t tid,
                                guint64 start)
{
    QosOpcode opcode = QOS_OP_COUNT;
    QosPayPointState state =
        qos_pay_points_meet(fixture->pay_points, ino, job, tid, start, &opcode);

    g_assert_cmpint(opcode, ==, state == QOS_PAY_POINT_DUE ? QOS_OP_CREATE : QOS_OP_COUNT);
    return state;
}

static QosPayPointState meet(Fixture *fixture, fuse_ino_t ino, pid_t tid)
{
    return meet_as(fixture, ino, hog, tid, LATE);
}

/* Until the kernel knows: on a busy machine that is not waited for. */
static void make(Fixture *fixture, fuse_ino_t ino)
{
    do
        qos_pay_points_raise(fixture->pay_points, ino, hog, QOS_OP_CREATE, TID);
    while (meet(fixture, ino, TID - 1) != QOS_PAY_POINT_DUE);
}

static void pay(Fixture *fixture, pid_t tid, QosOpcode prepaid)
{
    qos_pay_points_pay(fixture->pay_points, FOLDER, hog, QOS_OP_CREATE, tid, prepaid);
}

static gboolean use(Fixture *fixture, QosOpcode opcode)
{
    return qos_pay_points_use(fixture->pay_points, TID, opcode);
}

/* Time passes, with requests all the while. */
static void use_for(Fixture *fixture, QosTime time)
{
    for (QosTime passed = 0; passed < time; passed += STEP) {
        time_now += STEP;
        meet(fixture, OTHER, TID);
    }
}

static void test_none(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_NONE);
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    g_assert_false(use(fixture, QOS_OP_CREATE));
}

static void test_it_runs_out(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    g_assert_false(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, OTHER));
    use_for(fixture, QOS_SECOND);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_DUE);
    use_for(fixture, 2 * QOS_SECOND);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_NONE);
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
}

/* A thread that queued for the lock still does when the daemon, or the machine, has stood still. */
static void test_after_a_pause(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    pay(fixture, TID, QOS_OP_COUNT);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FREE);
    time_now += 3600 * QOS_SECOND;
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FREE);
    g_assert_cmpint(meet(fixture, FOLDER, TID + 1), ==, QOS_PAY_POINT_DUE);
}

/* Only the job that is in debt there pays. */
static void test_other_jobs_pass(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    for (guint i = 0; i < 100; i++)
        g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID, LATE), ==, QOS_PAY_POINT_FOREIGN);
    qos_pay_points_raise(fixture->pay_points, FOLDER, guest, QOS_OP_CREATE, TID);
    g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID, LATE), ==, QOS_PAY_POINT_DUE);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_DUE);
    use_for(fixture, QOS_SECOND);
    qos_pay_points_raise(fixture->pay_points, FOLDER, guest, QOS_OP_CREATE, TID);
    use_for(fixture, 3 * QOS_SECOND / 2); /* the other has not come back */
    g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID, LATE), ==, QOS_PAY_POINT_DUE);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FOREIGN);
}

static void test_a_ticket_is_good_for_one_change(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    for (guint i = 0; i < 3; i++) {
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_DUE);
        pay(fixture, TID, QOS_OP_COUNT);
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FREE);
        g_assert_true(use(fixture, QOS_OP_CREATE));
    }
}

/* A thread that has paid may stand behind a hundred others of its job for the directory's lock, and
 * one that was there may have stood there from the beginning: under the lock neither is to wait. */
static void test_a_ticket_outlasts_the_queue(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    pay(fixture, TID, QOS_OP_COUNT);
    for (guint i = 0; i < 300; i++) {
        use_for(fixture, QOS_SECOND);
        qos_pay_points_raise(fixture->pay_points, FOLDER, hog, QOS_OP_CREATE, TID + 1);
    }
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FREE);
    g_assert_true(use(fixture, QOS_OP_CREATE));
    g_assert_cmpint(meet_as(fixture, FOLDER, hog, TID + 2, 0), ==, QOS_PAY_POINT_FREE);
}

/* rename(2) between two directories that are pay points pays once. */
static void test_a_ticket_is_good_for_all(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    make(fixture, OTHER);
    pay(fixture, TID, QOS_OP_COUNT);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FREE);
    g_assert_cmpint(meet(fixture, OTHER, TID), ==, QOS_PAY_POINT_FREE);
    g_assert_true(use(fixture, QOS_OP_LOOKUP));
    g_assert_false(use(fixture, QOS_OP_LOOKUP));
    g_assert_cmpint(meet(fixture, OTHER, TID), ==, QOS_PAY_POINT_FREE);
    g_assert_false(use(fixture, QOS_OP_RENAME));
    g_assert_cmpint(meet(fixture, OTHER, TID), ==, QOS_PAY_POINT_DUE);
}

static void test_a_ticket_is_good_for_some_lookups(Fixture *fixture,
                                                   gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    pay(fixture, TID, QOS_OP_CREATE);
    for (guint i = 0; i < 16; i++) {
        g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_FREE);
        g_assert_false(use(fixture, QOS_OP_LOOKUP));
    }
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_DUE);
}

/* Else a thread that only asks would live on one pass. */
static void test_a_ticket_does_not_last(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    guint asks = 0;

    make(fixture, FOLDER);
    pay(fixture, TID, QOS_OP_COUNT);
    while (meet(fixture, FOLDER, TID) == QOS_PAY_POINT_FREE && asks < 100)
        asks++;
    g_assert_cmpuint(asks, >, 8);
    g_assert_cmpuint(asks, <, 100);
}

static void test_what_was_paid_for_is_free(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    pay(fixture, TID, QOS_OP_CREATE);
    g_assert_false(use(fixture, QOS_OP_LOOKUP));
    g_assert_true(use(fixture, QOS_OP_CREATE));
    g_assert_false(use(fixture, QOS_OP_CREATE));
}

/* A thread that may have been under the lock before the kernel knew passes, once and unpaid. */
static void test_a_thread_that_was_there(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    g_assert_cmpint(meet_as(fixture, FOLDER, hog, TID, 0), ==, QOS_PAY_POINT_FREE);
    g_assert_cmpint(meet_as(fixture, FOLDER, hog, TID, 0), ==, QOS_PAY_POINT_FREE);
    g_assert_false(use(fixture, QOS_OP_CREATE));
    g_assert_cmpint(meet_as(fixture, FOLDER, hog, TID, 0), ==, QOS_PAY_POINT_DUE);
}

/* A thread may wait there for longer than a pay point lasts: its payment makes it one again. */
static void test_a_payment_keeps_it(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_DUE);
    use_for(fixture, 30 * QOS_SECOND);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_NONE);
    pay(fixture, TID, QOS_OP_CREATE);
    g_assert_true(use(fixture, QOS_OP_CREATE));
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_DUE);
}

static void read_in_debt(Fixture *fixture, fuse_ino_t ino, pid_t tid)
{
    qos_pay_points_raise(fixture->pay_points, ino, hog, QOS_OP_READ, tid);
}

static void come_to_read(Fixture *fixture, fuse_ino_t ino, pid_t tid)
{
    QosOpcode opcode = QOS_OP_COUNT;

    g_assert_cmpint(qos_pay_points_meet(fixture->pay_points, ino, hog, tid, 0, &opcode), ==,
                    QOS_PAY_POINT_DUE);
    g_assert_cmpint(opcode, ==, QOS_OP_READ);
}

static void pay_to_read(Fixture *fixture, fuse_ino_t ino, pid_t tid)
{
    qos_pay_points_pay(fixture->pay_points, ino, hog, QOS_OP_READ, tid, QOS_OP_READ);
    g_assert_true(qos_pay_points_use(fixture->pay_points, tid, QOS_OP_READ));
}

/* A file's is closed only from a READ in debt until the reader comes again: in between the kernel
 * may believe what other jobs are told. */
static void test_a_file(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    for (guint i = 0; i < 3; i++) {
        read_in_debt(fixture, FOLDER, TID);
        g_assert_false(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
        come_to_read(fixture, FOLDER, TID);
        g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
        time_now += STEP;
        pay_to_read(fixture, FOLDER, TID);
        g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    }
}

/* Of several, until the last one has come. */
static void test_readers_of_a_file(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    for (pid_t i = 0; i < 3; i++)
        read_in_debt(fixture, FOLDER, TID + i);
    come_to_read(fixture, FOLDER, TID + 1);
    come_to_read(fixture, FOLDER, TID);
    come_to_read(fixture, FOLDER, TID);
    g_assert_false(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    come_to_read(fixture, FOLDER, TID + 2);
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
}

/* What is read is in the page cache: the payments do not keep the pay point for ever, but reads do.
 */
static void test_cached_reads_of_a_file(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    read_in_debt(fixture, FOLDER, TID);
    for (guint i = 0; i < 100; i++) {
        come_to_read(fixture, FOLDER, TID);
        pay_to_read(fixture, FOLDER, TID);
        use_for(fixture, QOS_SECOND);
    }
    for (guint i = 0; i < 8; i++) {
        come_to_read(fixture, FOLDER, TID);
        qos_pay_points_pay(fixture->pay_points, FOLDER, hog, QOS_OP_READ, TID, QOS_OP_READ);
        use_for(fixture, QOS_SECOND);
        qos_pay_points_use(fixture->pay_points, TID, QOS_OP_WRITE); /* elsewhere */
    }
    come_to_read(fixture, FOLDER, TID);
    qos_pay_points_pay(fixture->pay_points, FOLDER, hog, QOS_OP_READ, TID, QOS_OP_READ);
    use_for(fixture, QOS_SECOND);
    g_assert_cmpint(meet(fixture, FOLDER, TID), ==, QOS_PAY_POINT_NONE);
}

/* A reader that does not come again is waited for so long, and not by a file that it has left. */
static void test_a_reader_that_leaves(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    read_in_debt(fixture, FOLDER, TID);
    read_in_debt(fixture, OTHER, TID + 1);
    time_now += RETURN - 1;
    g_assert_false(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    time_now += 1;
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));

    pay_to_read(fixture, FOLDER, TID);
    read_in_debt(fixture, FOLDER, TID);
    time_now += PAYER - 1;
    g_assert_false(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    time_now += 1;
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));

    read_in_debt(fixture, FOLDER, TID);
    g_assert_false(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
    come_to_read(fixture, OTHER, TID);
    g_assert_true(qos_pay_points_may_believe(fixture->pay_points, FOLDER));
}

/* A thread that came by while its job owed nothing here may be under the lock when that changes, at
 * a pay point that another job made long before. */
static void test_a_job_comes_into_debt_later(Fixture *fixture, gconstpointer data G_GNUC_UNUSED)
{
    make(fixture, FOLDER);
    for (guint i = 0; i < 6; i++) {
        use_for(fixture, QOS_SECOND);
        qos_pay_points_raise(fixture->pay_points, FOLDER, hog, QOS_OP_CREATE, TID);
    }
    const guint64 start = LATE - 1; /* later than the kernel was told */
    g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID, start), ==, QOS_PAY_POINT_FOREIGN);
    qos_pay_points_raise(fixture->pay_points, FOLDER, guest, QOS_OP_CREATE, TID);
    g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID, 0), ==, QOS_PAY_POINT_FREE);
    g_assert_false(use(fixture, QOS_OP_CREATE));
    g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID, 0), ==, QOS_PAY_POINT_DUE);
    g_assert_cmpint(meet_as(fixture, FOLDER, guest, TID + 1, start), ==, QOS_PAY_POINT_DUE);
}

static gpointer come_and_go(gpointer data)
{
    Fixture *fixture = data;

    for (pid_t tid = 1; tid < 5000; tid++) {
        fuse_ino_t ino = (fuse_ino_t)(tid % 50 + 1);

        qos_pay_points_raise(fixture->pay_points, ino, tid % 2 == 0 ? hog : guest, QOS_OP_CREATE,
                             TID);
        if (meet(fixture, ino, tid) == QOS_PAY_POINT_DUE)
            pay(fixture, tid, QOS_OP_COUNT);
        qos_pay_points_use(fixture->pay_points, tid, QOS_OP_CREATE);
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
    add("/pay-point/none", test_none);
    add("/pay-point/it-runs-out", test_it_runs_out);
    add("/pay-point/after-a-pause", test_after_a_pause);
    add("/pay-point/other-jobs-pass", test_other_jobs_pass);
    add("/pay-point/a-ticket-is-good-for-one-change", test_a_ticket_is_good_for_one_change);
    add("/pay-point/a-ticket-outlasts-the-queue", test_a_ticket_outlasts_the_queue);
    add("/pay-point/a-ticket-is-good-for-all", test_a_ticket_is_good_for_all);
    add("/pay-point/a-ticket-is-good-for-some-lookups", test_a_ticket_is_good_for_some_lookups);
    add("/pay-point/a-ticket-does-not-last", test_a_ticket_does_not_last);
    add("/pay-point/what-was-paid-for-is-free", test_what_was_paid_for_is_free);
    add("/pay-point/a-thread-that-was-there", test_a_thread_that_was_there);
    add("/pay-point/a-job-comes-into-debt-later", test_a_job_comes_into_debt_later);
    add("/pay-point/a-payment-keeps-it", test_a_payment_keeps_it);
    add("/pay-point/a-file", test_a_file);
    add("/pay-point/readers-of-a-file", test_readers_of_a_file);
    add("/pay-point/cached-reads-of-a-file", test_cached_reads_of_a_file);
    add("/pay-point/a-reader-that-leaves", test_a_reader_that_leaves);
    add("/pay-point/many-threads", test_many_threads);
    return g_test_run();
}
