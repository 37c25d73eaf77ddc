/*
 * Which poller is looked at next: when, how often, and what the many of one user may take.
 */
#include "fs/poll_turns.h"

#define MS   QOS_MILLISECOND
#define MANY 20000

typedef struct {
    QosJobs registry;
    QosPollTurns *turns;
    QosJob *job, *other;
    QosUser *user, *guest;
    QosPollTurn one, two, three;
    QosPollTurn *many; /* MANY */
    QosTime now;
} Fixture;

static void set_up(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    qos_jobs_init(&f->registry, QOS_NEVER);
    f->turns = qos_poll_turns_new();
    f->job = qos_jobs_job(&f->registry, "job", 0);
    f->other = qos_jobs_job(&f->registry, "other", 0);
    f->user = qos_jobs_user(&f->registry, 1000);
    f->guest = qos_jobs_user(&f->registry, 1001);
    f->many = g_new0(QosPollTurn, MANY);
    f->now = 1000 * QOS_SECOND;
}

static void tear_down(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    qos_poll_turns_remove(f->turns, &f->one);
    qos_poll_turns_remove(f->turns, &f->two);
    qos_poll_turns_remove(f->turns, &f->three);
    for (guint i = 0; i < MANY; i++)
        qos_poll_turns_remove(f->turns, &f->many[i]);
    qos_poll_turns_free(f->turns);
    g_free(f->many);
    qos_job_unref(f->job);
    qos_job_unref(f->other);
    qos_jobs_clear(&f->registry);
}

static QosPollTurn *next(Fixture *f)
{
    QosTime wake;

    return qos_poll_turns_next(f->turns, f->now, &wake);
}

static void assert_nobody_until(Fixture *f, QosTime until)
{
    QosTime wake;

    g_assert_null(qos_poll_turns_next(f->turns, f->now, &wake));
    g_assert_cmpint(wake, ==, until);
}

/* As many, of `job` and `user`, due again now. */
static void crowd(Fixture *f, guint first, guint count, QosJob *job, QosUser *user)
{
    for (guint i = first; i < first + count; i++) {
        qos_poll_turns_add(f->turns, &f->many[i], job, user);
        qos_poll_turns_at(f->turns, &f->many[i], f->now);
    }
}

/* Looks at what is due now, all of it to be due again after 50 ms; how many there were. */
static guint look_at_all(Fixture *f)
{
    QosPollTurn *turn;
    guint count = 0;

    for (; (turn = next(f)) != NULL; count++)
        qos_poll_turns_at(f->turns, turn, f->now + 50 * MS);
    return count;
}

static void test_one(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    assert_nobody_until(f, QOS_NEVER);
    qos_poll_turns_add(f->turns, &f->one, f->job, f->user);
    assert_nobody_until(f, QOS_NEVER);
    qos_poll_turns_at_once(f->turns, &f->one);
    g_assert_true(next(f) == &f->one);
    assert_nobody_until(f, QOS_NEVER); /* until it is said */
    for (guint i = 0; i < 1000; i++) {
        qos_poll_turns_at(f->turns, &f->one, f->now + 50 * MS);
        assert_nobody_until(f, f->now + 50 * MS);
        f->now += 50 * MS - 1;
        assert_nobody_until(f, f->now + 1);
        f->now++;
        g_assert_true(next(f) == &f->one);
    }
    qos_poll_turns_at(f->turns, &f->one, f->now + 50 * MS);
    qos_poll_turns_at_once(f->turns, &f->one); /* a signal comes meanwhile */
    g_assert_true(next(f) == &f->one);
    assert_nobody_until(f, QOS_NEVER);
}

/* What was taken may have gone during the look. */
static void test_taken(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    g_assert_null(qos_poll_turns_taken(f->turns));
    qos_poll_turns_add(f->turns, &f->one, f->job, NULL);
    qos_poll_turns_add(f->turns, &f->two, f->job, NULL);
    qos_poll_turns_at_once(f->turns, &f->one);
    g_assert_true(next(f) == &f->one);
    qos_poll_turns_remove(f->turns, &f->two);
    g_assert_true(qos_poll_turns_taken(f->turns) == &f->one);
    qos_poll_turns_at_once(f->turns, &f->one);
    g_assert_true(qos_poll_turns_taken(f->turns) == &f->one);
    qos_poll_turns_remove(f->turns, &f->one);
    qos_poll_turns_remove(f->turns, &f->one);
    g_assert_null(qos_poll_turns_taken(f->turns));
    assert_nobody_until(f, QOS_NEVER);
}

/* However many are looked at again, so many are in a round; a find pays for further ones. */
static void test_rounds(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    crowd(f, 0, MANY, f->job, f->user);
    for (guint round = 0; round < 100; round++) {
        for (guint i = 0; i < 40; i++) /* the longest waiting first */
            g_assert_true(next(f) == &f->many[40 * round + i]);
        assert_nobody_until(f, f->now + 10 * MS);
        f->now += 10 * MS;
    }
    for (guint i = 0; i < 40; i++)
        g_assert_nonnull(next(f));
    qos_poll_turns_pay(f->turns);
    for (guint i = 0; i < 8; i++)
        g_assert_nonnull(next(f));
    assert_nobody_until(f, f->now + 10 * MS);
    f->now += 100 * MS; /* nothing is saved up */
    for (guint i = 0; i < 40; i++)
        g_assert_nonnull(next(f));
    assert_nobody_until(f, f->now + 10 * MS);
}

/* Where all of many end, each find pays for the next ones: in one round. */
static void test_all_are_found(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    crowd(f, 0, MANY, f->job, f->user);
    for (guint i = 0; i < MANY; i++) {
        qos_poll_turns_remove(f->turns, next(f));
        qos_poll_turns_pay(f->turns);
    }
    assert_nobody_until(f, QOS_NEVER);
}

/* What is new waits for nothing but for one at a time of what is known. */
static void test_new_and_known(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    crowd(f, 0, 100, f->job, f->user);
    for (guint i = 100; i < 200; i++) {
        qos_poll_turns_add(f->turns, &f->many[i], f->job, f->user);
        qos_poll_turns_at_once(f->turns, &f->many[i]);
    }
    for (guint i = 0; i < 40; i++) {
        g_assert_true(next(f) == &f->many[i]);
        g_assert_true(next(f) == &f->many[100 + i]);
    }
    for (guint i = 140; i < 200; i++)
        g_assert_true(next(f) == &f->many[i]);
    assert_nobody_until(f, f->now + 10 * MS);
}

/* Beside a user with many, also new ones, another user is looked at as if it were alone. */
static void test_users_take_turns(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    crowd(f, 0, MANY, f->job, f->user);
    for (guint i = 0; i < 10; i++)
        g_assert_true(next(f) == &f->many[i]);
    qos_poll_turns_add(f->turns, &f->one, f->other, f->guest);
    qos_poll_turns_at(f->turns, &f->one, f->now);
    g_assert_true(next(f) == &f->many[10]); /* the next in turn */
    g_assert_true(next(f) == &f->one);
    for (guint i = 100; i < MANY; i++)
        qos_poll_turns_at_once(f->turns, &f->many[i]);
    g_assert_true(next(f) == &f->many[100]);
    qos_poll_turns_at_once(f->turns, &f->one);
    g_assert_true(next(f) == &f->many[11]);
    g_assert_true(next(f) == &f->many[101]);
    g_assert_true(next(f) == &f->many[12]);
    g_assert_true(next(f) == &f->one);
}

/* For 10 s; the guest is looked at 50 ms after its last look, or as the next round begins. */
static void test_as_if_alone(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    const QosTime end = f->now + 10 * QOS_SECOND;
    QosTime due = f->now;
    guint looks = 0;

    crowd(f, 0, MANY, f->job, f->user);
    qos_poll_turns_add(f->turns, &f->one, f->other, f->guest);
    qos_poll_turns_at(f->turns, &f->one, due);
    for (; f->now < end; f->now += MS) {
        looks += look_at_all(f);
        if (f->one.later.key > due && due <= f->now) {
            g_assert_cmpint(f->now - due, <=, 10 * MS);
            due = f->one.later.key;
        }
        g_assert_cmpint(f->now - due, <=, 10 * MS);
    }
    g_assert_cmpuint(looks, ==, 40000);
}

/* A user that forges JobIDs has no more turns, and none of its jobs has more than another. */
static void test_jobs_take_turns(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    guint guests = 0, honest = 0;

    for (guint i = 0; i < 100; i++) {
        g_autofree char *id = g_strdup_printf("forged%u", i);
        QosJob *job = qos_jobs_job(&f->registry, id, f->now);

        crowd(f, 20 * i, 20, job, f->user);
        qos_job_unref(job);
    }
    crowd(f, 2000, 1000, f->job, f->user);
    crowd(f, 3000, 1010, f->job, f->guest); /* a job of two users counts with each */
    for (guint i = 0; i < 2020; i++) {
        const guint number = (guint)(next(f) - f->many);

        guests += number >= 3000;
        honest += number >= 2000 && number < 3000;
        qos_poll_turns_pay(f->turns);
    }
    g_assert_cmpuint(guests, ==, 1010);
    g_assert_cmpuint(honest, ==, 10);
}

/* Jobs of users without a bound take turns with the users. */
static void test_users_without_a_bound(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    crowd(f, 0, 20, f->job, NULL);
    crowd(f, 20, 20, f->other, NULL);
    crowd(f, 40, 20, f->job, f->user);
    for (guint i = 0; i < 10; i++) {
        g_assert_true(next(f) == &f->many[i]);
        g_assert_true(next(f) == &f->many[20 + i]);
        g_assert_true(next(f) == &f->many[40 + i]);
    }
}

/* Some that leave their lines, from the front, the middle and the end. */
static void test_removed(Fixture *f, gconstpointer data G_GNUC_UNUSED)
{
    crowd(f, 0, 10, f->job, f->user);
    crowd(f, 10, 10, f->other, f->user);
    g_assert_true(next(f) == &f->many[0]);
    qos_poll_turns_remove(f->turns, &f->many[1]);
    qos_poll_turns_remove(f->turns, &f->many[5]);
    qos_poll_turns_remove(f->turns, &f->many[9]);
    for (guint i = 10; i < 20; i++)
        qos_poll_turns_remove(f->turns, &f->many[i]);
    const guint left[] = {2, 3, 4, 6, 7, 8};
    for (guint i = 0; i < G_N_ELEMENTS(left); i++)
        g_assert_true(next(f) == &f->many[left[i]]);
    assert_nobody_until(f, QOS_NEVER);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, function) g_test_add(name, Fixture, NULL, set_up, function, tear_down)
    ADD("/poll-turns/one", test_one);
    ADD("/poll-turns/taken", test_taken);
    ADD("/poll-turns/rounds", test_rounds);
    ADD("/poll-turns/all-are-found", test_all_are_found);
    ADD("/poll-turns/new-and-known", test_new_and_known);
    ADD("/poll-turns/users-take-turns", test_users_take_turns);
    ADD("/poll-turns/as-if-alone", test_as_if_alone);
    ADD("/poll-turns/jobs-take-turns", test_jobs_take_turns);
    ADD("/poll-turns/users-without-a-bound", test_users_without_a_bound);
    ADD("/poll-turns/removed", test_removed);
    return g_test_run();
}
